//! Brigade as tools for coding agents: the Model Context Protocol over standard input and output.
//!
//! ```text
//!  coding agent ── JSON-RPC lines ── Bridge ── tools, a file each ── Line ── daemon
//! ```
//!
//! The bridge keeps nothing but the id of its conversation. Work belongs to the workspace's session and
//! is asked for under a client name that stays the same, so that the next conversation finds it;
//! whatever is killed, the next bridge answers as this one would have. Results come unasked only to the
//! conversation that asked for the work, until it is gone (`attendance`). Arguments, descriptions and
//! replies of the tools are those of `brigade-delegation`. Reading order: `bridge` (what is served), `tool`
//! (what a call has), the tools, `summary` (tasks as models read of them), `tasks` (runs as tasks of the
//! protocol), `line` (asking a daemon
//! that may be killed meanwhile), `transport` (lines in and out), `refusals` (the table of errors).

mod approval_forms;
mod daemon_client;
mod error_codes;
mod line_transport;
mod list_tasks;
mod presence;
mod progress;
mod protocol_tasks;
mod read_output;
mod run_process;
mod send_message;
mod server_handler;
mod spawn_agent;
mod stop_task;
mod summary;
mod task_text;
mod tool_call;
mod wait_tasks;

use std::path::PathBuf;
use std::time::Duration;

use brigade_agent::permission::PermissionRule;
use brigade_model::work::EnvValue;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use self::line_transport::ServerLineTransport;
use self::server_handler::McpServerHandler;
use crate::daemon_launcher::DaemonLauncher;

/// How a bridge is set up.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// The session that the work belongs to.
    pub session: String,
    /// As whom results are taken; what the program on the other side calls itself, when there is none.
    pub client_name: Option<String>,
    /// Whether it may steer what others have started in the session: stop it, write to it, answer it.
    pub shared: bool,
    /// Where agents work, and commands that do not say where.
    pub directory: PathBuf,
    /// What agents may do beside what they usually may: run commands, above all.
    pub allow: Vec<PermissionRule>,
    /// What they may do when the user says yes to it.
    pub ask: Vec<PermissionRule>,
    /// What every command gets beside what the daemon gives it.
    pub env: Vec<(String, EnvValue)>,
    /// The words before the address in the shell line that waits for a task.
    pub wait_command: Vec<String>,
    /// How long ended tasks are kept, if something removes them by itself.
    pub retention: Option<Duration>,
    /// The bridge runs within a task, which owns everything that is started here.
    pub is_within_task: bool,
}

impl McpOptions {
    /// Work of this session, in this directory; the line that waits names the session.
    pub fn new(session: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        let session = session.into();
        let wake = ["brigade", "--workspace", &session, "wait"].map(str::to_owned).to_vec();
        let (client, directory) = (None, directory.into());
        let (allow, ask, env) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            session,
            client_name: client,
            shared: false,
            directory,
            allow,
            ask,
            env,
            wait_command: wake,
            retention: None,
            is_within_task: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum McpError {
    #[error("the conversation did not begin: {0}")]
    Handshake(#[from] Box<ServerInitializeError>),
    #[error("the conversation broke off: {0}")]
    Disconnected(#[from] tokio::task::JoinError),
}

/// Serves on standard input and output until the input ends. The work goes on.
pub async fn serve_stdio(starter: DaemonLauncher, options: McpOptions) -> Result<(), McpError> {
    let (input, output) = rmcp::transport::stdio_pipes();
    serve(starter, options, input, output).await
}

/// Serves one client until its input ends. The work goes on.
pub async fn serve<R, W>(
    starter: DaemonLauncher,
    options: McpOptions,
    input: R,
    output: W,
) -> Result<(), McpError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let gone = CancellationToken::new();
    // Whatever still waits or watches ends with this conversation.
    let _over = gone.clone().drop_guard();
    let lines = ServerLineTransport::new(input, output, gone.clone());
    match McpServerHandler::new(starter, options, gone).serve(lines).await {
        Ok(served) => {
            served.waiting().await?;
            Ok(())
        }
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(Box::new(error).into()),
    }
}
