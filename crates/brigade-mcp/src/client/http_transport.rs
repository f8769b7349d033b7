//! A service over streamable HTTP. It reports a stream that breaks in mid-reply, for which rmcp
//! only waits until the timeout.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue, Uri};
use futures_util::stream::{self, BoxStream, StreamExt};
use rmcp::model::{ClientJsonRpcMessage, RequestId};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
    StreamableHttpPostResponse,
};
use serde_json::{Value, json};
use sse_stream::{Error as SseError, Sse};

use super::bounded_transport::ConnectionSignals;
use super::connection::render_error;
use super::http_post::{self, PostTarget};
use super::line_transport::MESSAGE_MAX;
use super::server_config::is_loopback;
use super::tool_list;
use super::value_source::ValueSource;

/// The error code of a call whose reply broke off. Servers use other codes.
pub(super) const STREAM_BROKE_CODE: i32 = -32_989;

/// Headers that the protocol sets and the user may not.
const RESERVED_HEADERS: [&str; 4] = ["accept", "content-type", "last-event-id", "mcp-session-id"];

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum number of resumptions of a stream, and the first pause. Only some servers support
/// resumption.
const RESUMES_MAX: usize = 3;
const RESUME_PAUSE: Duration = Duration::from_millis(250);

pub(super) type McpHttpError = StreamableHttpError<reqwest::Error>;
pub(super) type SseEvents = BoxStream<'static, Result<Sse, SseError>>;
pub(super) type HttpHeaders = HashMap<HeaderName, HeaderValue>;

pub(super) fn build_transport(
    url: &str,
    bearer: Option<&ValueSource>,
    headers: &BTreeMap<String, ValueSource>,
    signals: &Arc<ConnectionSignals>,
) -> Result<StreamableHttpClientTransport<WatchedHttpClient>, String> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.max_sse_event_size = MESSAGE_MAX;
    let mut backoff = ExponentialBackoff::default();
    backoff.max_times = Some(RESUMES_MAX);
    backoff.base_duration = RESUME_PAUSE;
    config.retry_config = Arc::new(backoff);
    if let Some(bearer) = bearer {
        config.auth_header = Some(bearer.read().map_err(|error| format!("`bearer`: {error}"))?);
    }
    for (name, value) in headers {
        let header_error = |problem: &str| format!("the header `{name}`: {problem}");
        let value = value.read().map_err(|error| header_error(&error))?;
        let mut value = HeaderValue::try_from(value)
            .map_err(|_| header_error("the value is not valid in a header"))?;
        value.set_sensitive(true);
        let name = HeaderName::try_from(name)
            .map_err(|_| header_error("this is not a valid header name"))?;
        if RESERVED_HEADERS.contains(&name.as_str()) {
            return Err(header_error("remove it, the protocol sets it"));
        }
        config.custom_headers.insert(name, value);
    }
    let watched = WatchedHttpClient { client: build_client(url)?, signals: signals.clone() };
    Ok(StreamableHttpClientTransport::with_client(watched, config))
}

fn build_client(url: &str) -> Result<reqwest::Client, String> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // If another thread installed one first, that one serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect would send the token to its target.
        .redirect(reqwest::redirect::Policy::none());
    let uri: Uri = url.parse().map_err(|_| format!("{url:?} is not a URL"))?;
    let is_local = uri.host().is_some_and(is_loopback);
    let client = if is_local { client.no_proxy() } else { client };
    client.build().map_err(|error| render_error(&error))
}

/// An HTTP client whose streams report that they broke.
#[derive(Clone, Debug)]
pub(super) struct WatchedHttpClient {
    client: reqwest::Client,
    signals: Arc<ConnectionSignals>,
}

impl WatchedHttpClient {
    /// Returns the events, followed by an error for the call if the stream ends without a reply.
    /// The error is harmless if the call has already ended.
    fn watch_events(&self, events: SseEvents, call: RequestId) -> SseEvents {
        let state = WatchedEvents {
            events,
            call: Some(call),
            signals: self.signals.clone(),
            is_resumable: false,
        };
        stream::unfold(state, WatchedEvents::next).boxed()
    }
}

struct WatchedEvents {
    events: SseEvents,
    /// `None` after the end of the stream was reported.
    call: Option<RequestId>,
    signals: Arc<ConnectionSignals>,
    /// True if the server numbers its events, so that a stream it ends can be resumed.
    is_resumable: bool,
}

impl WatchedEvents {
    async fn next(mut self) -> Option<(Result<Sse, SseError>, Self)> {
        self.call.as_ref()?;
        let problem = match self.events.next().await {
            Some(Ok(event)) => {
                self.is_resumable |= event.id.is_some();
                return Some((Ok(repair_event(event)), self));
            }
            None if self.is_resumable => return None,
            None => "the stream ended before the reply".to_owned(),
            Some(Err(error)) => format!("the reply broke off: {}", render_error(&error)),
        };
        self.signals.stream_broke.store(true, Ordering::Relaxed);
        let error = json!({"code": STREAM_BROKE_CODE, "message": problem});
        let message = json!({"jsonrpc": "2.0", "id": self.call.take()?, "error": error});
        Some((Ok(Sse::default().data(message.to_string())), self))
    }
}

/// Repairs a tool list; other events stay unchanged.
fn repair_event(mut event: Sse) -> Sse {
    let has_tools = |data: &&String| data.contains("\"tools\"");
    let list =
        event.data.as_ref().filter(has_tools).and_then(|data| serde_json::from_str(data).ok());
    if let Some(mut message) = list {
        tool_list::repair_tool_list(&mut message);
        event.data = Some(Value::to_string(&message));
    }
    event
}

impl StreamableHttpClient for WatchedHttpClient {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HttpHeaders,
    ) -> Result<StreamableHttpPostResponse, McpHttpError> {
        let max = MESSAGE_MAX;
        self.post_message_with_max_sse_event_size(uri, message, session, token, headers, max).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HttpHeaders,
        _max: usize,
    ) -> Result<StreamableHttpPostResponse, McpHttpError> {
        let call = match &message {
            ClientJsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        let to = PostTarget { uri, session, token, headers };
        Ok(match (http_post::post_message(&self.client, to, &message).await?, call) {
            (StreamableHttpPostResponse::Sse(events, session), Some(call)) => {
                StreamableHttpPostResponse::Sse(self.watch_events(events, call), session)
            }
            (posted, _) => posted,
        })
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        token: Option<String>,
        headers: HttpHeaders,
    ) -> Result<(), McpHttpError> {
        self.client
            .delete_session(uri, session, token, headers)
            .await
            .map_err(http_post::without_url)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: HttpHeaders,
    ) -> Result<SseEvents, McpHttpError> {
        let max = MESSAGE_MAX;
        self.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, max).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: HttpHeaders,
        max: usize,
    ) -> Result<SseEvents, McpHttpError> {
        let client = &self.client;
        client
            .get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, max)
            .await
            .map_err(http_post::without_url)
    }
}
