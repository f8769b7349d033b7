//! The Agent Client Protocol (ACP) for Brigade: an editor drives a delegating agent.
//!
//! ```text
//!  editor ─ JSON-RPC lines ─ connection ─ session ─ prompt turn ─ DaemonClient ─ daemon
//! ```
//!
//! This crate is the only one that knows the crate `agent-client-protocol`. The server stores
//! nothing. The id of an ACP session is the name of its root task, so that the next server finds
//! the agent again, and the agent keeps running without a server. Modules in reading order:
//!
//! - `connection`: the served methods. `line_transport`: lines in and out, with a bound.
//! - `acp_session`: one session of the editor, and its root task.
//! - `prompt_turn`: one prompt, until the run of the root task ends. `root_task`: its requests to the
//!   daemon.
//! - `output_updates`, `task_updates`, `session_history`: output, descendants and the transcript
//!   as updates for the editor.
//! - `permission_request`, `question_form`: approvals and questions as requests to the editor.
//! - `agent_notes`: messages of the agent to the person.
//! - `prompt_text`: the content of a prompt as text. `error_codes`: refusals as errors.

mod acp_session;
mod agent_notes;
mod connection;
mod error_codes;
mod line_transport;
mod output_updates;
mod permission_request;
mod prompt_text;
mod prompt_turn;
mod question_form;
mod root_task;
mod session_history;
mod task_updates;

use std::io;

use brigade_agent::permission::PermissionRules;
use brigade_protocol::daemon_client::DaemonClient;
use tokio::io::{AsyncRead, AsyncWrite};

/// The settings of an ACP server.
#[derive(Clone, Debug, Default)]
pub struct AcpOptions {
    /// The Brigade session of all tasks; `None` is the session of each ACP session's directory.
    pub workspace: Option<String>,
    /// The definition of the root agent; `None` is the general one.
    pub agent: Option<String>,
    /// The model, in place of the definition's.
    pub model: Option<String>,
    /// The permissions of the root agent.
    pub permissions: PermissionRules,
}

/// Serves one editor on standard input and output until the input ends. Agents keep running.
pub async fn serve_stdio(client: DaemonClient, options: AcpOptions) -> io::Result<()> {
    serve(client, options, tokio::io::stdin(), tokio::io::stdout()).await
}

/// Serves one editor until its input ends. Agents keep running.
pub async fn serve<R, W>(
    client: DaemonClient,
    options: AcpOptions,
    input: R,
    output: W,
) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    connection::run_connection(client, options, input, output).await
}
