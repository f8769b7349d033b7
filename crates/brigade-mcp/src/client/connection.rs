//! One connection to a server.

use brigade_model::duration::format_duration;
use std::error::Error;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brigade_model::truncate::truncate_end;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, CancelledNotification,
    CancelledNotificationParam, ClientCapabilities, ClientConfig, ClientRequest, Implementation,
    ListToolsRequest, PaginatedRequestParams, ProtocolVersion, RequestId, ServerResult,
    SubscriptionFilter,
};
use rmcp::service::{
    ClientInitializeError, ClientLifecycleMode, Peer, PeerRequestOptions, RunningService,
    ServiceError, Subscription, serve_client_with_lifecycle,
};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use rmcp::transport::{DynamicTransportError, Transport};
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

use super::bounded_transport::{BoundedTransport, ConnectionSignals};
use super::http_transport;
use super::line_transport::LineTransport;
use super::server_config::{McpServerConfig, McpTimeouts, McpTransport, is_credential};
use super::server_processes::ServerProcesses;
use super::stdio_process::{self, ChildExit};
use super::tool_list::{BYTES_MAX, RawToolList, TOOLS_MAX};
use super::value_source::ValueSource;
use brigade_model::secret_redactor::SecretRedactor;

/// The maximum number of pages of a tool list. An endless list is truncated.
const PAGES_MAX: usize = 100;
/// The timeout of optional requests and of notifications.
const BEST_EFFORT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this number of consecutive calls without a reply, the connection is retired.
const UNANSWERED_MAX: u32 = 3;
const ERROR_MAX: usize = 2_000;

pub(super) struct McpConnection {
    service: RunningService<RoleClient, BrigadeClient>,
    pub(super) signals: Arc<ConnectionSignals>,
    pub(super) opened_at: Instant,
    /// True if new calls need another connection. Running calls may still get their replies.
    is_retired: AtomicBool,
    exit: ChildExit,
    secrets: SecretRedactor,
    timeouts: McpTimeouts,
    tasks: TaskTracker,
    /// The subscription that newer servers require before they report changes.
    _tool_changes: Option<Subscription>,
}

/// The reason why a call has no result.
#[derive(Debug)]
pub(super) enum McpCallError {
    /// The call did not reach the server.
    NotSent(String),
    /// The connection was lost after the server may have started or finished the call.
    Lost(String),
    /// The server may have executed the call, and the connection still exists.
    TimedOut(Duration),
    /// The server's error text.
    Refused(String),
}

/// Our side of the protocol. It serves no requests of the server.
#[derive(Clone, Debug)]
struct BrigadeClient;

impl ClientHandler for BrigadeClient {
    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("brigade", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), implementation)
    }
}

impl McpConnection {
    /// Connects to a server and completes the handshake.
    pub(super) async fn open(
        name: &Arc<str>,
        server: &McpServerConfig,
        processes: &ServerProcesses,
    ) -> Result<Self, String> {
        let secrets = collect_secrets(&server.transport);
        let signals = Arc::new(ConnectionSignals::default());
        let (service, exit) = match &server.transport {
            transport @ McpTransport::Stdio { .. } => {
                let running = stdio_process::spawn_process(name, transport, &secrets, processes)?;
                let exit = running.exit;
                let exited = exit.exited.clone();
                let lines = LineTransport::new(running.stdout, running.stdin, exited, running.stop);
                let opened =
                    handshake(BoundedTransport::new(lines, signals.clone()), server.timeouts.start)
                        .await;
                (opened, exit)
            }
            McpTransport::Http { url, bearer, headers } => {
                let http =
                    http_transport::build_transport(url, bearer.as_ref(), headers, &signals)?;
                let opened =
                    handshake(BoundedTransport::new(http, signals.clone()), server.timeouts.start)
                        .await;
                (opened, ChildExit::default())
            }
        };
        let service = match service {
            Ok(service) => service,
            Err(problem) => {
                let problem = truncate_end(&secrets.redact(problem), ERROR_MAX);
                return Err(append_exit(problem, &exit).await);
            }
        };
        Ok(Self {
            _tool_changes: subscribe_to_changes(service.peer()).await,
            service,
            signals,
            opened_at: Instant::now(),
            is_retired: AtomicBool::new(false),
            exit,
            secrets,
            timeouts: server.timeouts,
            tasks: processes.tasks.clone(),
        })
    }

    pub(super) fn is_usable(&self) -> bool {
        let is_broken =
            self.signals.closed.is_cancelled() || self.signals.stream_broke.load(Ordering::Relaxed);
        !is_broken && !self.is_retired.load(Ordering::Relaxed)
    }

    pub(super) fn secrets(&self) -> &SecretRedactor {
        &self.secrets
    }

    /// Returns the tools that the server lists, up to the limits.
    pub(super) async fn list_tools(&self) -> Result<RawToolList, String> {
        let info = self.service.peer().peer_info();
        if info.is_none_or(|info| info.capabilities.tools.is_none()) {
            return Ok(RawToolList::default());
        }
        let mut tools = Vec::new();
        let mut cursor = None;
        let mut bytes = 0;
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
            let timeouts = McpTimeouts { call: self.timeouts.start, ..self.timeouts };
            match self.send_request(request, timeouts).await.map_err(|error| error.to_string())? {
                ServerResult::ListToolsResult(page) => {
                    bytes += serde_json::to_vec(&page.tools).map_or(0, |page| page.len());
                    tools.extend(page.tools);
                    cursor = page.next_cursor.filter(|next| !next.is_empty());
                }
                _ => return Err("the server's tool list cannot be read".to_owned()),
            }
            if cursor.is_none() || tools.len() >= TOOLS_MAX || bytes > BYTES_MAX {
                break;
            }
        }
        Ok(RawToolList { tools, is_truncated: cursor.is_some() })
    }

    pub(super) async fn call_tool(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<CallToolResult, McpCallError> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = Some(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        match self.send_request(request, self.timeouts).await? {
            ServerResult::CallToolResult(result) => Ok(result),
            ServerResult::InputRequiredResult(_) => Err(McpCallError::Refused(
                "the tool asks for further input, which Brigade does not support".to_owned(),
            )),
            other => {
                let answer = serde_json::to_string(&other).unwrap_or_default();
                let answer = truncate_end(&self.secrets.redact(answer), ERROR_MAX);
                Err(McpCallError::Refused(format!("the reply is not a tool result: {answer}")))
            }
        }
    }

    async fn send_request(
        &self,
        request: ClientRequest,
        timeouts: McpTimeouts,
    ) -> Result<ServerResult, McpCallError> {
        if self.signals.closed.is_cancelled() {
            return Err(McpCallError::NotSent(self.describe_end().await));
        }
        let options = PeerRequestOptions::with_timeout(timeouts.call)
            .reset_timeout_on_progress()
            .with_max_total_timeout(timeouts.call_total);
        let sent = self.service.peer().send_request_with_option(request, options).await;
        let Ok(sent) = sent else { return Err(McpCallError::NotSent(self.describe_end().await)) };
        let mut cancel_on_drop = CancelRequestOnDrop::new(self, sent.id.clone());
        let reply = tokio::select! {
            biased;
            reply = sent.await_response() => reply,
            () = self.signals.closed.cancelled() => Err(ServiceError::TransportClosed),
        };
        cancel_on_drop.disarm();
        match reply {
            Ok(reply) => Ok(reply),
            Err(error) => Err(self.to_call_error(error).await),
        }
    }

    async fn to_call_error(&self, error: ServiceError) -> McpCallError {
        match error {
            ServiceError::McpError(error) if error.code.0 == http_transport::STREAM_BROKE_CODE => {
                McpCallError::Lost(self.secrets.redact(error.message.into_owned()))
            }
            ServiceError::McpError(error) => {
                let message = self.secrets.redact(error.message.into_owned());
                McpCallError::Refused(format!(
                    "{} ({})",
                    truncate_end(&message, ERROR_MAX),
                    error.code.0
                ))
            }
            ServiceError::Timeout { timeout } => {
                if self.signals.count_unanswered() >= UNANSWERED_MAX {
                    self.is_retired.store(true, Ordering::Relaxed);
                }
                McpCallError::TimedOut(timeout)
            }
            ServiceError::TransportSend(error) => {
                self.is_retired.store(true, Ordering::Relaxed);
                let problem = truncate_end(&self.secrets.redact(render_error(&error)), ERROR_MAX);
                match was_sent(&error) {
                    true => McpCallError::Lost(problem),
                    false => McpCallError::NotSent(problem),
                }
            }
            ServiceError::TransportClosed => McpCallError::Lost(self.describe_end().await),
            other => McpCallError::Lost(truncate_end(
                &self.secrets.redact(render_error(&other)),
                ERROR_MAX,
            )),
        }
    }

    /// Describes the end of the connection, with the exit of its process.
    async fn describe_end(&self) -> String {
        append_exit("the connection has ended".to_owned(), &self.exit).await
    }
}

/// Performs the handshake with the newest protocol, or with the old one if the server knows no
/// other.
async fn handshake<T: Transport<RoleClient> + 'static>(
    transport: T,
    start_timeout: Duration,
) -> Result<RunningService<RoleClient, BrigadeClient>, String> {
    let newest_first = ProtocolVersion::KNOWN_VERSIONS.iter().rev().cloned();
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: newest_first.filter(|version| !version.has_initialize()).collect(),
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    match timeout(start_timeout, serve_client_with_lifecycle(BrigadeClient, transport, lifecycle))
        .await
    {
        Ok(service) => service.map_err(|error| render_error(&error)),
        Err(_) => Err(format!(
            "the server did not complete the handshake within {}",
            format_duration(start_timeout)
        )),
    }
}

/// Subscribes to changes of the tools, which newer servers require.
async fn subscribe_to_changes(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    let reports_changes = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
    if info.protocol_version.has_initialize() || reports_changes != Some(true) {
        return None;
    }
    let filter = SubscriptionFilter::builder().tools_list_changed().build();
    match timeout(BEST_EFFORT_TIMEOUT, peer.listen(filter)).await {
        Ok(Ok(changes)) => Some(changes),
        Ok(Err(_)) | Err(_) => {
            tracing::warn!("an MCP server refuses the subscription to tool changes that it offers");
            None
        }
    }
}

fn collect_secrets(transport: &McpTransport) -> SecretRedactor {
    let mut secrets = SecretRedactor::default();
    let settings: Vec<&ValueSource> = match transport {
        McpTransport::Stdio { env, .. } => {
            env.values().filter(|value| value.is_reference()).collect()
        }
        McpTransport::Http { url, bearer, headers } => {
            if let Some((_, query)) = url.split_once('?') {
                secrets.add(query);
            }
            let headers = headers.iter().filter(|(name, value)| is_credential(name, value));
            bearer.iter().chain(headers.map(|(_, value)| value)).collect()
        }
    };
    for setting in settings {
        if let Ok(secret) = setting.read() {
            secrets.add(&secret);
            // `Bearer TOKEN`: a service may repeat the token alone.
            if let (McpTransport::Http { .. }, Some((_scheme, token))) =
                (transport, secret.split_once(' '))
            {
                secrets.add(token);
            }
        }
    }
    secrets
}

/// Appends the exit of the process, which is known shortly after its streams have ended.
async fn append_exit(problem: String, exit: &ChildExit) -> String {
    let _ = timeout(Duration::from_millis(200), exit.exited.cancelled()).await;
    match exit.describe() {
        description if description.is_empty() => problem,
        description => format!("{problem}: {description}"),
    }
}

/// Returns true if the server may have received the message.
fn was_sent(error: &DynamicTransportError) -> bool {
    let error = &*error.error;
    // The server does not see an incomplete line as a message.
    if error.is::<std::io::Error>() {
        return false;
    }
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => !error.is_connect(),
        Some(
            StreamableHttpError::AuthRequired(_)
            | StreamableHttpError::InsufficientScope(_)
            | StreamableHttpError::SessionExpired,
        ) => false,
        _ => true,
    }
}

/// Renders an error with its causes, without the names of types.
pub(super) fn render_error(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    for cause in std::iter::successors(Some(error), |error| cause_of(*error)) {
        let text = cause.to_string();
        let is_known = texts.iter().any(|known| known.contains(&text));
        if !text.contains("Transport [") && !is_known {
            texts.push(text);
        }
    }
    if texts.is_empty() {
        let whole = error.to_string();
        texts.push(whole.rsplit("] error: ").next().unwrap_or(&whole).to_owned());
    }
    texts.join(": ")
}

/// Returns the cause of an error, also of types whose `source` omits it.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<ClientInitializeError>() {
        Some(ClientInitializeError::TransportError { error, .. }) => return Some(&*error.error),
        Some(ClientInitializeError::LegacyFallbackFailed { fallback, .. }) => {
            return Some(&**fallback);
        }
        _ => {}
    }
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => Some(error),
        _ => error.source(),
    }
}

/// A guard that notifies the server when a call is dropped.
struct CancelRequestOnDrop<'a> {
    connection: &'a McpConnection,
    call: Option<RequestId>,
}

impl<'a> CancelRequestOnDrop<'a> {
    fn new(connection: &'a McpConnection, call: RequestId) -> Self {
        Self { connection, call: Some(call) }
    }

    fn disarm(&mut self) {
        self.call = None;
    }
}

impl Drop for CancelRequestOnDrop<'_> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let peer = self.connection.service.peer().clone();
        let reason = Some("the caller no longer waits".to_owned());
        let params = CancelledNotificationParam::new(Some(call), reason);
        if tokio::runtime::Handle::try_current().is_ok() {
            self.connection.tasks.spawn(async move {
                let cancelled = CancelledNotification::new(params);
                let _ =
                    timeout(BEST_EFFORT_TIMEOUT, peer.send_notification(cancelled.into())).await;
            });
        }
    }
}

impl fmt::Display for McpCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(problem) | Self::Lost(problem) => f.write_str(problem),
            Self::TimedOut(timeout) => {
                write!(f, "there was no answer within {}", format_duration(*timeout))
            }
            Self::Refused(message) => f.write_str(message),
        }
    }
}

impl Debug for McpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpConnection")
            .field("is_usable", &self.is_usable())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_redacted_also_without_their_scheme() {
        let headers = [("Authorization", "Bearer hunter22"), ("X-Team", "upstairs")];
        let headers = headers.map(|(name, value)| (name.to_owned(), ValueSource::from(value)));
        let url = "https://mcp.example/".to_owned();
        let transport = McpTransport::Http { url, bearer: None, headers: headers.into() };
        let text = collect_secrets(&transport).redact("hunter22 is no Bearer upstairs".into());
        assert_eq!(text, "[secret] is no Bearer upstairs");
    }
}
