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

use super::child::{self, Fate};
use super::guard::{Guarded, Heard};
use super::house::House;
use super::http;
use super::listing::{BYTES_MAX, TOOLS_MAX, Told, cut};
use super::secret::{Secrets, Setting};
use super::server::{How, McpServer, Timeouts, is_credential};
use super::wire::Wire;

/// Pages of a list of tools. One that never ends is cut.
const PAGES_MAX: usize = 100;
/// For what is good to have, and for last words.
const SHORTLY: Duration = Duration::from_secs(5);
/// So many calls in a row without an answer, and the connection is not trusted any more.
const UNANSWERED_MAX: u32 = 3;
const ERROR_MAX: usize = 2_000;

pub(super) struct Connection {
    service: RunningService<RoleClient, Client>,
    pub(super) heard: Arc<Heard>,
    pub(super) opened: Instant,
    /// Calls that are under way may still be answered, new ones take another connection.
    is_spent: AtomicBool,
    fate: Fate,
    secrets: Secrets,
    timeouts: Timeouts,
    tasks: TaskTracker,
    /// What newer servers want to be asked for before they tell of changes.
    _changes: Option<Subscription>,
}

/// Why a call has no result.
#[derive(Debug)]
pub(super) enum CallError {
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
struct Client;

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let who = Implementation::new("brigade", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), who)
    }
}

impl Connection {
    /// Reaches a server and hears who it is.
    pub(super) async fn open(
        name: &Arc<str>,
        server: &McpServer,
        house: &House,
    ) -> Result<Self, String> {
        let secrets = secrets_of(&server.how);
        let heard = Arc::new(Heard::default());
        let (service, fate) = match &server.how {
            how @ How::Stdio { .. } => {
                let running = child::start(name, how, &secrets, house)?;
                let fate = running.fate;
                let gone = fate.gone.clone();
                let wire = Wire::new(running.stdout, running.stdin, gone, running.stop);
                let opened = greet(Guarded::new(wire, heard.clone()), server.timeouts.start).await;
                (opened, fate)
            }
            How::Http { url, bearer, headers } => {
                let http = http::transport(url, bearer.as_ref(), headers, &heard)?;
                let opened = greet(Guarded::new(http, heard.clone()), server.timeouts.start).await;
                (opened, Fate::default())
            }
        };
        let service = match service {
            Ok(service) => service,
            Err(problem) => {
                let problem = cut(&secrets.left_out_of(problem), ERROR_MAX);
                return Err(with_fate(problem, &fate).await);
            }
        };
        Ok(Self {
            _changes: changes(service.peer()).await,
            service,
            heard,
            opened: Instant::now(),
            is_spent: AtomicBool::new(false),
            fate,
            secrets,
            timeouts: server.timeouts,
            tasks: house.tasks.clone(),
        })
    }

    pub(super) fn is_usable(&self) -> bool {
        let is_broken = self.heard.over.is_cancelled() || self.heard.broke.load(Ordering::Relaxed);
        !is_broken && !self.is_spent.load(Ordering::Relaxed)
    }

    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// The tools that it says it has: all of them, or as many as are of use.
    pub(super) async fn list(&self) -> Result<Told, String> {
        let info = self.service.peer().peer_info();
        if info.is_none_or(|info| info.capabilities.tools.is_none()) {
            return Ok(Told::default());
        }
        let (mut tools, mut cursor, mut bytes) = (Vec::new(), None, 0);
        for _ in 0..PAGES_MAX {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(page));
            let patience = Timeouts { call: self.timeouts.start, ..self.timeouts };
            match self.ask(request, patience).await.map_err(|error| error.to_string())? {
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
        Ok(Told { tools, is_cut: cursor.is_some() })
    }

    pub(super) async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<CallToolResult, CallError> {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = Some(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        match self.ask(request, self.timeouts).await? {
            ServerResult::CallToolResult(result) => Ok(result),
            ServerResult::InputRequiredResult(_) => Err(CallError::Refused(
                "it wants to be told more before it goes on, which is not possible here".to_owned(),
            )),
            other => {
                let answer = serde_json::to_string(&other).unwrap_or_default();
                let answer = cut(&self.secrets.left_out_of(answer), ERROR_MAX);
                Err(CallError::Refused(format!("its answer is no result of a tool: {answer}")))
            }
        }
    }

    async fn ask(
        &self,
        request: ClientRequest,
        patience: Timeouts,
    ) -> Result<ServerResult, CallError> {
        if self.heard.over.is_cancelled() {
            return Err(CallError::NotSent(self.ending().await));
        }
        let options = PeerRequestOptions::with_timeout(patience.call)
            .reset_timeout_on_progress()
            .with_max_total_timeout(patience.call_most);
        let sent = self.service.peer().send_request_with_option(request, options).await;
        let Ok(sent) = sent else { return Err(CallError::NotSent(self.ending().await)) };
        let mut abandoned = Abandoned::of(self, sent.id.clone());
        let answer = tokio::select! {
            biased;
            answer = sent.await_response() => answer,
            () = self.heard.over.cancelled() => Err(ServiceError::TransportClosed),
        };
        abandoned.disarm();
        match answer {
            Ok(answer) => Ok(answer),
            Err(error) => Err(self.failed(error).await),
        }
    }

    async fn failed(&self, error: ServiceError) -> CallError {
        match error {
            ServiceError::McpError(error) if error.code.0 == http::BROKE => {
                CallError::Lost(self.secrets.left_out_of(error.message.into_owned()))
            }
            ServiceError::McpError(error) => {
                let said = self.secrets.left_out_of(error.message.into_owned());
                CallError::Refused(format!("{} ({})", cut(&said, ERROR_MAX), error.code.0))
            }
            ServiceError::Timeout { timeout } => {
                if self.heard.no_answer() >= UNANSWERED_MAX {
                    self.is_spent.store(true, Ordering::Relaxed);
                }
                CallError::TimedOut(timeout)
            }
            ServiceError::TransportSend(error) => {
                self.is_spent.store(true, Ordering::Relaxed);
                let problem = cut(&self.secrets.left_out_of(told(&error)), ERROR_MAX);
                match was_sent(&error) {
                    true => CallError::Lost(problem),
                    false => CallError::NotSent(problem),
                }
            }
            ServiceError::TransportClosed => CallError::Lost(self.ending().await),
            other => CallError::Lost(cut(&self.secrets.left_out_of(told(&other)), ERROR_MAX)),
        }
    }

    /// How the connection came to its end, as far as that is known.
    async fn ending(&self) -> String {
        with_fate("the connection has ended".to_owned(), &self.fate).await
    }
}

/// Lets a server say who it is: in the newest way, or the old one when it does not know that.
async fn greet<T: Transport<RoleClient> + 'static>(
    transport: T,
    patience: Duration,
) -> Result<RunningService<RoleClient, Client>, String> {
    let newest_first = ProtocolVersion::KNOWN_VERSIONS.iter().rev().cloned();
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: newest_first.filter(|version| !version.has_initialize()).collect(),
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    match timeout(patience, serve_client_with_lifecycle(Client, transport, lifecycle)).await {
        Ok(greeted) => greeted.map_err(|error| told(&error)),
        Err(_) => Err(format!(
            "it has not said who it is within {}",
            humantime::format_duration(patience)
        )),
    }
}

/// Newer servers tell of changed tools only those who ask for it.
async fn changes(peer: &Peer<RoleClient>) -> Option<Subscription> {
    let info = peer.peer_info()?;
    let tells = info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed);
    if info.protocol_version.has_initialize() || tells != Some(true) {
        return None;
    }
    let wanted = SubscriptionFilter::builder().tools_list_changed().build();
    match timeout(SHORTLY, peer.listen(wanted)).await {
        Ok(Ok(changes)) => Some(changes),
        Ok(Err(_)) | Err(_) => {
            tracing::warn!("an MCP server will not tell when its tools change, though it says so");
            None
        }
    }
}

fn secrets_of(how: &How) -> Secrets {
    let mut secrets = Secrets::default();
    let settings: Vec<&Setting> = match how {
        How::Stdio { env, .. } => env.values().filter(|value| value.is_reference()).collect(),
        How::Http { url, bearer, headers } => {
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
            if let (How::Http { .. }, Some((_scheme, token))) = (how, secret.split_once(' ')) {
                secrets.add(token);
            }
        }
    }
    secrets
}

/// What a program's end has to do with it: known a moment after its streams have ended.
async fn with_fate(problem: String, fate: &Fate) -> String {
    let _ = timeout(Duration::from_millis(200), fate.gone.cancelled()).await;
    match fate.told() {
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
pub(super) fn told(error: &(dyn Error + 'static)) -> String {
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
struct Abandoned<'a> {
    connection: &'a Connection,
    call: Option<RequestId>,
}

impl<'a> Abandoned<'a> {
    fn of(connection: &'a Connection, call: RequestId) -> Self {
        Self { connection, call: Some(call) }
    }

    fn disarm(&mut self) {
        self.call = None;
    }
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let peer = self.connection.service.peer().clone();
        let reason = Some("nobody waits for it any more".to_owned());
        let params = CancelledNotificationParam::new(Some(call), reason);
        if tokio::runtime::Handle::try_current().is_ok() {
            self.connection.tasks.spawn(async move {
                let cancelled = CancelledNotification::new(params);
                let _ = timeout(SHORTLY, peer.send_notification(cancelled.into())).await;
            });
        }
    }
}

impl fmt::Display for CallError {
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

impl Debug for Connection {
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
        let headers = headers.map(|(name, value)| (name.to_owned(), Setting::from(value)));
        let url = "https://mcp.example/".to_owned();
        let how = How::Http { url, bearer: None, headers: headers.into() };
        let said = secrets_of(&how).left_out_of("hunter22 is no Bearer upstairs".into());
        assert_eq!(said, "[secret] is no Bearer upstairs");
    }
}
