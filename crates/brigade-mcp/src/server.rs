//! The MCP server for coding agents, over standard input and output or over HTTP.
//!
//! ```text
//!  coding agent ─ JSON-RPC lines ──┬─ McpServerHandler ─ tools, one file each ─ RequestClient
//!  coding agent ─ streamable HTTP ─┘
//! ```
//!
//! The server (the bridge of the guides) stores nothing but the id of its conversation. Tasks
//! belong to the session of the workspace, under a client name that stays the same, so that the
//! next conversation finds them. The next server can replace a killed one. Results go without a
//! request only to the conversation that started the run, until it lapses. The tools send requests
//! through a `RequestClient`: to a daemon (`DaemonConnector`), or to handlers in the same
//! process. `brigade-delegation` defines the arguments, descriptions and replies of the tools.
//!
//! Modules in reading order:
//!
//! - `server_handler`: the served methods. `tool_call`: the context of a call. Then the tools.
//! - `summary`, `task_text`: tasks for models. `progress`: notifications during a wait.
//! - `protocol_tasks`: runs as tasks of the protocol. `approval_forms`: approvals as forms.
//! - `conversation_id`: the id of the open conversation.
//! - `mcp_caller`: the caller of a request. `client_message`: the messages of clients.
//! - `line_transport`: lines in and out. [`streamable_http`]: requests and responses.
//! - `error_codes`: refusals as errors of the protocol.

mod approval_forms;
mod client_message;
mod conversation_id;
mod error_codes;
mod line_transport;
mod list_tasks;
mod mcp_caller;
mod progress;
mod protocol_tasks;
mod read_output;
mod run_process;
mod send_message;
mod server_handler;
mod spawn_agent;
mod stop_task;
pub mod streamable_http;
mod summary;
mod task_text;
mod tool_call;
mod wait_tasks;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brigade_agent::permission::PermissionRule;
use brigade_model::work::EnvValue;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use self::line_transport::ServerLineTransport;
pub use self::mcp_caller::McpCaller;
use self::server_handler::McpServerHandler;
use brigade_protocol::RequestClientFactory;

/// The settings of an MCP server.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// The session of the tasks.
    pub session: String,
    /// The client name, which owns the results; `None` is the self-given name of the client.
    pub client_name: Option<String>,
    /// The client may control tasks of others in the session: stop, write to and answer them.
    pub shared: bool,
    /// The directory of agents, and of processes without `cwd`; `None` for a session that belongs
    /// to no directory.
    pub directory: Option<PathBuf>,
    /// Permissions of agents beside the default ones, such as running processes.
    pub allow: Vec<PermissionRule>,
    /// Permissions of agents that need an approval of the user.
    pub ask: Vec<PermissionRule>,
    /// Variables of every process beside those of the daemon.
    pub env: BTreeMap<Arc<str>, EnvValue>,
    /// The words before the address in the command line that waits for a task; none if the client
    /// has no such command.
    pub wait_command: Vec<String>,
    /// The time after which ended tasks are removed automatically, if they are.
    pub retention: Option<Duration>,
    /// The server runs inside a task, which owns every task that is started here.
    pub is_within_task: bool,
}

impl McpOptions {
    /// Returns the default settings for a session and a directory. `wait_command` names the
    /// session.
    pub fn new(session: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        let session = session.into();
        let wait_command = ["brigade", "--workspace", &session, "wait"];
        Self {
            wait_command: wait_command.map(str::to_owned).to_vec(),
            session,
            client_name: None,
            shared: false,
            directory: Some(directory.into()),
            allow: Vec::new(),
            ask: Vec::new(),
            env: BTreeMap::new(),
            retention: None,
            is_within_task: false,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum McpError {
    #[error("the handshake failed: {0}")]
    Handshake(#[from] Box<ServerInitializeError>),
    #[error("the connection broke: {0}")]
    Disconnected(#[from] tokio::task::JoinError),
}

/// Serves on standard input and output until the input ends. Tasks keep running.
pub async fn serve_stdio<F>(request_clients: F, options: McpOptions) -> Result<(), McpError>
where
    F: RequestClientFactory,
{
    let (input, output) = rmcp::transport::stdio_pipes();
    serve(request_clients, options, input, output).await
}

/// Serves one client until its input ends. Tasks keep running.
pub async fn serve<F, R, W>(
    request_clients: F,
    options: McpOptions,
    input: R,
    output: W,
) -> Result<(), McpError>
where
    F: RequestClientFactory,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let disconnected = CancellationToken::new();
    // Waits and watches end with this conversation.
    let _cancel_on_drop = disconnected.clone().drop_guard();
    let transport = ServerLineTransport::new(input, output, disconnected.clone());
    match McpServerHandler::for_connection(request_clients, options, disconnected)
        .serve(transport)
        .await
    {
        Ok(service) => {
            service.waiting().await?;
            Ok(())
        }
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(Box::new(error).into()),
    }
}
