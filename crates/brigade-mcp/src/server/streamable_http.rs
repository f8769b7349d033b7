//! The MCP server over streamable HTTP, as a service that a program mounts at a path.
//!
//! ```text
//! bytes ─ McpHttpRequest (headers, JSON-RPC) ─ McpHttpService ─┬─ a request by itself (2026-07-28)
//!                                                              └─ a session (older versions)
//! ```
//!
//! The program authenticates each request, checks `Host` and `Origin`, and stores the parameters of
//! sessions. A session that is stored and not in memory is opened again with its parameters, so that
//! clients do not notice a restart.

mod http_request;
mod session_calls;
mod subscription_body;

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_protocol::RequestClientFactory;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use rmcp::ErrorData;
use rmcp::model::{ErrorCode, InitializeRequestParams, RequestId};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{
    SessionId, SessionManager, SessionState, SessionStore, SessionStoreError,
};
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::session_calls::SessionCalls;
use self::subscription_body::add_task_ids;
use super::mcp_caller::McpCaller;
use super::server_handler::McpServerHandler;

pub use self::http_request::McpHttpRequest;
pub(super) use self::session_calls::CallsOfSession;

const SESSION_ID_HEADER: &str = "mcp-session-id";
/// The time without messages after which a session leaves memory. It is longer than any call.
const SESSION_IDLE_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// A response, whose body may be a stream of events.
pub type McpHttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// The response to a request, and the session that the request has opened.
#[derive(Debug)]
pub struct McpHttpReply {
    pub response: McpHttpResponse,
    pub opened_session: Option<OpenedMcpSession>,
}

/// A new session of an older client. The client sends its id with every further request.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenedMcpSession {
    pub id: String,
    /// The parameters to store. They open the session again after a restart.
    pub params: Value,
}

/// Serves the requests of all callers.
pub struct McpHttpService<F: RequestClientFactory> {
    service: StreamableHttpService<McpServerHandler<F>, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    session_calls: SessionCalls,
    /// The session that is being opened again. The lock makes it one at a time.
    reopened: Arc<ReopenedSession>,
    reopen_lock: tokio::sync::Mutex<()>,
}

impl<F: RequestClientFactory> McpHttpService<F> {
    /// Returns a service whose streams and waits end when the token is cancelled.
    pub fn new(shutdown_token: &CancellationToken) -> Self {
        let reopened = Arc::new(ReopenedSession::default());
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_IDLE_TIMEOUT);
        let sessions = Arc::new(sessions);
        // The program that mounts the service has checked the host and the origin.
        let mut config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts()
            .disable_allowed_origins()
            .with_json_response(true)
            .with_cancellation_token(shutdown_token.child_token());
        config.session_store = Some(reopened.clone());
        let shutdown_token = shutdown_token.clone();
        let new_handler = move || Ok(McpServerHandler::for_http(shutdown_token.child_token()));
        let service = StreamableHttpService::new(new_handler, sessions.clone(), config);
        Self {
            service,
            sessions,
            session_calls: SessionCalls::default(),
            reopened,
            reopen_lock: tokio::sync::Mutex::default(),
        }
    }

    /// Serves a request. `stored_params` are those of the session that the request names.
    pub async fn handle(
        &self,
        request: McpHttpRequest,
        caller: McpCaller<F>,
        stored_params: Option<Value>,
    ) -> McpHttpReply {
        let ends_session = request.ends_session();
        let McpHttpRequest { mut request, session_id, initialize_params, task_ids } = request;
        request.extensions_mut().insert(Arc::new(caller));
        if let Some(id) = &session_id {
            match ends_session {
                true => self.session_calls.cancel(id),
                false => {
                    request.extensions_mut().insert(self.session_calls.of_session(id));
                }
            }
        }
        let response = match (session_id, stored_params) {
            (Some(id), Some(params)) => self.serve_in_session(request, id.into(), params).await,
            (Some(_), None) => return session_not_found().into(),
            (None, _) => self.service.handle(request).await,
        };
        let mut response = normalize_error(response).await;
        if ends_session && response.status().is_success() {
            // The session has ended, not only been accepted: some clients warn of another status.
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        let opened_session = initialize_params.and_then(|params| {
            let id = response.headers().get(SESSION_ID_HEADER)?.to_str().ok()?.to_owned();
            response.status().is_success().then_some(OpenedMcpSession { id, params })
        });
        let response = match task_ids {
            Some(ids) => response.map(|body| add_task_ids(body, ids)),
            None => response,
        };
        McpHttpReply { response, opened_session }
    }

    /// Ends a session in memory. Its open streams and its running calls end.
    pub async fn close_session(&self, id: &str) {
        self.session_calls.cancel(id);
        self.forget_session(&id.into()).await;
    }

    async fn forget_session(&self, id: &SessionId) {
        if let Err(error) = self.sessions.close_session(id).await {
            tracing::debug!(%error, "a session of an MCP client was closed before");
        }
    }

    async fn serve_in_session(
        &self,
        request: http::Request<Full<Bytes>>,
        id: SessionId,
        params: Value,
    ) -> McpHttpResponse {
        if self.is_open(&id).await {
            let response = self.service.handle(request.clone()).await;
            if response.status() != StatusCode::INTERNAL_SERVER_ERROR {
                return response;
            }
            // The session ended between the check and the request, which no handler has got.
            self.forget_session(&id).await;
        }
        let _one_at_a_time = self.reopen_lock.lock().await;
        let Ok(params) = serde_json::from_value(params) else { return session_not_found() };
        let _reopening = self.reopened.begin(ReopenedParams { id, params });
        self.service.handle(request).await
    }

    /// Returns true if a session is in memory, and not just being opened again.
    async fn is_open(&self, id: &SessionId) -> bool {
        let _one_at_a_time = self.reopen_lock.lock().await;
        matches!(self.sessions.has_session(id).await, Ok(true))
    }
}

impl<F: RequestClientFactory> fmt::Debug for McpHttpService<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpHttpService").finish_non_exhaustive()
    }
}

impl From<McpHttpResponse> for McpHttpReply {
    fn from(response: McpHttpResponse) -> Self {
        Self { response, opened_session: None }
    }
}

/// The parameters of the session that is being opened again, for the library that asks for them.
#[derive(Debug, Default)]
struct ReopenedSession(Mutex<Option<ReopenedParams>>);

#[derive(Debug)]
struct ReopenedParams {
    id: SessionId,
    params: InitializeRequestParams,
}

/// A guard that forgets the parameters when the request was served or its caller has dropped it.
struct ReopeningGuard<'a>(&'a ReopenedSession);

impl ReopenedSession {
    fn begin(&self, params: ReopenedParams) -> ReopeningGuard<'_> {
        self.set(Some(params));
        ReopeningGuard(self)
    }

    fn set(&self, params: Option<ReopenedParams>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = params;
    }
}

impl Drop for ReopeningGuard<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// The program stores and removes the parameters, since it knows whose they are.
#[async_trait::async_trait]
impl SessionStore for ReopenedSession {
    async fn load(&self, id: &str) -> Result<Option<SessionState>, SessionStoreError> {
        let reopened = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reopened = reopened.as_ref().filter(|reopened| &*reopened.id == id);
        Ok(reopened.map(|reopened| SessionState::new(reopened.params.clone())))
    }

    async fn store(&self, _: &str, _: &SessionState) -> Result<(), SessionStoreError> {
        Ok(())
    }

    async fn delete(&self, _: &str) -> Result<(), SessionStoreError> {
        Ok(())
    }
}

/// Returns the response to a request whose session is unknown, has expired or is another caller's.
/// The client then opens a new one.
pub fn session_not_found() -> McpHttpResponse {
    let problem = "there is no such session; send initialize without Mcp-Session-Id";
    let error = ErrorData::new(ErrorCode::INVALID_REQUEST, problem, None);
    error_response(StatusCode::NOT_FOUND, None, error)
}

/// Returns an error of the protocol as a response.
fn error_response(status: StatusCode, id: Option<RequestId>, error: ErrorData) -> McpHttpResponse {
    let mut response = Response::new(error_body(id, error));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn error_body(id: Option<RequestId>, error: ErrorData) -> BoxBody<Bytes, Infallible> {
    let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
    Full::from(body.to_string()).boxed()
}

/// Turns an error in plain text, as the library writes it, into an error of the protocol.
async fn normalize_error(response: McpHttpResponse) -> McpHttpResponse {
    let status = response.status();
    let is_json = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/json");
    let has_message = response.headers().get(CONTENT_TYPE).is_some_and(is_json);
    if has_message || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(text) = body.collect().await;
    let error = match status.is_client_error() {
        true => {
            let text = String::from_utf8_lossy(&text.to_bytes()).into_owned();
            ErrorData::new(ErrorCode::INVALID_REQUEST, text, None)
        }
        false => ErrorData::internal_error("the request could not be served", None),
    };
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Response::from_parts(parts, error_body(None, error))
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_dropped_request_leaves_no_session_to_open_again() {
        let id = "00000000-0000-4000-8000-000000000000";
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": { "name": "cook", "version": "1" },
        });
        let params = serde_json::from_value(params).expect("parameters");
        let reopened = ReopenedSession::default();
        let mut served = Box::pin(async {
            let _reopening = reopened.begin(ReopenedParams { id: id.into(), params });
            std::future::pending::<()>().await;
        });
        assert!(served.as_mut().now_or_never().is_none());
        assert!(reopened.load(id).await.expect("a look-up").is_some());
        drop(served);
        assert!(reopened.load(id).await.expect("a look-up").is_none());
    }
}
