//! One connection to a server, while it lasts.

use std::error::Error;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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
use super::secrets::{SecretRedactor, ValueSource};
use super::server_config::{McpServerConfig, McpTimeouts, McpTransport, is_credential};
use super::server_processes::ServerProcesses;
use super::stdio_process::{self, ChildExit};
use super::tool_list::{BYTES_MAX, RawToolList, TOOLS_MAX, truncate};

/// Pages of a list of tools. One that never ends is cut.
const PAGES_MAX: usize = 100;
/// For what is good to have, and for last words.
const BEST_EFFORT_TIMEOUT: Duration = Duration::from_secs(5);
/// So many calls in a row without an answer, and the connection is not trusted any more.
const UNANSWERED_MAX: u32 = 3;
const ERROR_MAX: usize = 2_000;

pub(super) struct McpConnection {
    service: RunningService<RoleClient, BrigadeClient>,
    pub(super) signals: Arc<ConnectionSignals>,
    pub(super) opened_at: Instant,
    /// Calls that are under way may still be answered, new ones take another connection.
    is_retired: AtomicBool,
    exit: ChildExit,
    secrets: SecretRedactor,
    timeouts: McpTimeouts,
    tasks: TaskTracker,
    /// What newer servers want to be asked for before they tell of changes.
    _tool_changes: Option<Subscription>,
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum McpCallError {
    /// It did not reach the server.
    NotSent(String),
    /// The server may have begun with it, and may have finished.
    Lost(String),
    /// The same, though the connection is there.
    TimedOut(Duration),
    /// The server's own words.
    Refused(String),
}

/// Who we are. What a server asks of us, we do not do.
#[derive(Clone, Debug)]
struct BrigadeClient;

impl ClientHandler for BrigadeClient {
    fn get_info(&self) -> ClientConfig {
        let who = Implementation::new("brigade", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), who)
    }
}

impl McpConnection {
    /// Reaches a server and hears who it is.
    pub(super) async fn open(
        name: &Arc<str>,
        server: &McpServerConfig,
        house: &ServerProcesses,
    ) -> Result<Self, String> {
        let secrets = collect_secrets(&server.transport);
        let heard = Arc::new(ConnectionSignals::default());
        let (service, fate) = match &server.transport {
            how @ McpTransport::Stdio { .. } => {
                let running = stdio_process::spawn_process(name, how, &secrets, house)?;
                let fate = running.exit;
                let gone = fate.exited.clone();
                let wire = LineTransport::new(running.stdout, running.stdin, gone, running.stop);
                let opened =
                    handshake(BoundedTransport::new(wire, heard.clone()), server.timeouts.start)
                        .await;
                (opened, fate)
            }
            McpTransport::Http { url, bearer, headers } => {
                let http = http_transport::build_transport(url, bearer.as_ref(), headers, &heard)?;
                let opened =
                    handshake(BoundedTransport::new(http, heard.clone()), server.timeouts.start)
                        .await;
                (opened, ChildExit::default())
            }
        };
        let service = match service {
            Ok(service) => service,
            Err(problem) => {
                let problem = truncate(&secrets.redact(problem), ERROR_MAX);
                return Err(append_exit(problem, &fate).await);
            }
        };
        Ok(Self {
            _tool_changes: subscribe_to_changes(service.peer()).await,
            service,
            signals: heard,
            opened_at: Instant::now(),
            is_retired: AtomicBool::new(false),
            exit: fate,
            secrets,
            timeouts: server.timeouts,
            tasks: house.tasks.clone(),
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

    /// The tools that it says it has: all of them, or as many as are of use.
    pub(super) async fn list_tools(&self) -> Result<RawToolList, String> {
        let info = self.service.peer().peer_info();
        if info.is_none_or(|info| info.capabilities.tools.is_none()) {
            return Ok(RawToolList::default());
        }
        let (mut tools, mut cursor, mut bytes) = (Vec::new(), None, 0);
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
            let patience = McpTimeouts { call: self.timeouts.start, ..self.timeouts };
            match self.send_request(request, patience).await.map_err(|error| error.to_string())? {
                ServerResult::ListToolsResult(page) => {
                    bytes += serde_json::to_vec(&page.tools).map_or(0, |page| page.len());
                    tools.extend(page.tools);
                    cursor = page.next_cursor.filter(|next| !next.is_empty());
                }
                _ => return Err("its list of tools cannot be read".to_owned()),
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
                "it wants to be told more before it goes on, which is not possible here".to_owned(),
            )),
            other => {
                let answer = serde_json::to_string(&other).unwrap_or_default();
                let answer = truncate(&self.secrets.redact(answer), ERROR_MAX);
                Err(McpCallError::Refused(format!("its answer is no result of a tool: {answer}")))
            }
        }
    }

    async fn send_request(
        &self,
        request: ClientRequest,
        patience: McpTimeouts,
    ) -> Result<ServerResult, McpCallError> {
        if self.signals.closed.is_cancelled() {
            return Err(McpCallError::NotSent(self.describe_end().await));
        }
        let options = PeerRequestOptions::with_timeout(patience.call)
            .reset_timeout_on_progress()
            .with_max_total_timeout(patience.call_total);
        let sent = self.service.peer().send_request_with_option(request, options).await;
        let Ok(sent) = sent else { return Err(McpCallError::NotSent(self.describe_end().await)) };
        let mut abandoned = CancelRequestOnDrop::of(self, sent.id.clone());
        let answer = tokio::select! {
            biased;
            answer = sent.await_response() => answer,
            () = self.signals.closed.cancelled() => Err(ServiceError::TransportClosed),
        };
        abandoned.disarm();
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.to_call_error(error).await),
        }
    }

    async fn to_call_error(&self, error: ServiceError) -> McpCallError {
        match error {
            ServiceError::McpError(error) if error.code.0 == http_transport::STREAM_BROKE_CODE => {
                McpCallError::Lost(self.secrets.redact(error.message.into_owned()))
            }
            ServiceError::McpError(error) => {
                let said = self.secrets.redact(error.message.into_owned());
                McpCallError::Refused(format!("{} ({})", truncate(&said, ERROR_MAX), error.code.0))
            }
            ServiceError::Timeout { timeout } => {
                if self.signals.count_unanswered() >= UNANSWERED_MAX {
                    self.is_retired.store(true, Ordering::Relaxed);
                }
                McpCallError::TimedOut(timeout)
            }
            ServiceError::TransportSend(error) => {
                self.is_retired.store(true, Ordering::Relaxed);
                let problem = truncate(&self.secrets.redact(render_error(&error)), ERROR_MAX);
                match was_sent(&error) {
                    true => McpCallError::Lost(problem),
                    false => McpCallError::NotSent(problem),
                }
            }
            ServiceError::TransportClosed => McpCallError::Lost(self.describe_end().await),
            other => {
                McpCallError::Lost(truncate(&self.secrets.redact(render_error(&other)), ERROR_MAX))
            }
        }
    }

    /// How the connection came to its end, as far as that is known.
    async fn describe_end(&self) -> String {
        append_exit("the connection has ended".to_owned(), &self.exit).await
    }
}

/// Lets a server say who it is: in the newest way, or the old one when it does not know that.
async fn handshake<T: Transport<RoleClient> + 'static>(
    transport: T,
    patience: Duration,
) -> Result<RunningService<RoleClient, BrigadeClient>, String> {
    let newest_first = ProtocolVersion::KNOWN_VERSIONS.iter().rev().cloned();
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: newest_first.filter(|version| !version.has_initialize()).collect(),
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    match timeout(patience, serve_client_with_lifecycle(BrigadeClient, transport, lifecycle)).await
    {
        Ok(greeted) => greeted.map_err(|error| render_error(&error)),
        Err(_) => Err(format!(
            "it has not said who it is within {}",
            humantime::format_duration(patience)
        )),
    }
}

/// Newer servers tell of changed tools only those who ask for it.
async fn subscribe_to_changes(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    let tells = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
    if info.protocol_version.has_initialize() || tells != Some(true) {
        return None;
    }
    let wanted = SubscriptionFilter::builder().tools_list_changed().build();
    match timeout(BEST_EFFORT_TIMEOUT, peer.listen(wanted)).await {
        Ok(Ok(changes)) => Some(changes),
        Ok(Err(_)) | Err(_) => {
            tracing::warn!("an MCP server will not tell when its tools change, though it says so");
            None
        }
    }
}

fn collect_secrets(how: &McpTransport) -> SecretRedactor {
    let mut secrets = SecretRedactor::default();
    let settings: Vec<&ValueSource> = match how {
        McpTransport::Stdio { env, .. } => {
            env.values().filter(|value| value.is_reference()).collect()
        }
        McpTransport::Http { url, bearer, headers } => {
            if let Some((_, query)) = url.split_once('?') {
                secrets.add(query);
            }
            let headers = headers.iter().filter(|header| is_credential(*header));
            bearer.iter().chain(headers.map(|(_, value)| value)).collect()
        }
    };
    for setting in settings {
        if let Ok(secret) = setting.read() {
            secrets.add(&secret);
            // `Bearer TOKEN`: a service may say the token alone.
            if let (McpTransport::Http { .. }, Some((_scheme, token))) =
                (how, secret.split_once(' '))
            {
                secrets.add(token);
            }
        }
    }
    secrets
}

/// What a program's end has to do with it: known a moment after its streams have ended.
async fn append_exit(problem: String, fate: &ChildExit) -> String {
    let _ = timeout(Duration::from_millis(200), fate.exited.cancelled()).await;
    match fate.describe() {
        told if told.is_empty() => problem,
        told => format!("{problem}: {told}"),
    }
}

/// Whether the server may have heard of it.
fn was_sent(error: &DynamicTransportError) -> bool {
    let error = &*error.error;
    // A line that was not written to its end is none.
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

/// An error in the words of its causes, without the names of types.
pub(super) fn render_error(error: &(dyn Error + 'static)) -> String {
    let mut words: Vec<String> = Vec::new();
    for cause in std::iter::successors(Some(error), |error| cause_of(*error)) {
        let text = cause.to_string();
        let is_known = words.iter().any(|known| known.contains(&text));
        if !text.contains("Transport [") && !is_known {
            words.push(text);
        }
    }
    if words.is_empty() {
        let whole = error.to_string();
        words.push(whole.rsplit("] error: ").next().unwrap_or(&whole).to_owned());
    }
    words.join(": ")
}

/// What an error is about, also where it does not say so itself.
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

/// Tells the server of a call that nobody waits for any more.
struct CancelRequestOnDrop<'a> {
    connection: &'a McpConnection,
    call: Option<RequestId>,
}

impl<'a> CancelRequestOnDrop<'a> {
    fn of(connection: &'a McpConnection, call: RequestId) -> Self {
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
        let reason = Some("nobody waits for it any more".to_owned());
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
            Self::TimedOut(patience) => {
                write!(f, "there was no answer within {}", humantime::format_duration(*patience))
            }
            Self::Refused(said) => f.write_str(said),
        }
    }
}

impl Debug for McpConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_usable", &self.is_usable()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_who_we_are_is_left_out_also_without_its_scheme() {
        let headers = [("Authorization", "Bearer hunter22"), ("X-Kitchen", "upstairs")];
        let headers = headers.map(|(name, value)| (name.to_owned(), ValueSource::from(value)));
        let url = "https://mcp.example/".to_owned();
        let how = McpTransport::Http { url, bearer: None, headers: headers.into() };
        let said = collect_secrets(&how).redact("hunter22 is no Bearer upstairs".into());
        assert_eq!(said, "[secret] is no Bearer upstairs");
    }
}
