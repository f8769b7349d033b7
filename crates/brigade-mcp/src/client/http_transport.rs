//! A service over streamable HTTP. What breaks in the middle of an answer is noticed, which the
//! protocol's own client leaves to time.

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
use super::secrets::ValueSource;
use super::server_config::is_loopback;
use super::tool_list;

/// The error of a call whose answer broke off. Servers use other codes.
pub(super) const STREAM_BROKE_CODE: i32 = -32_989;

/// Headers that are not a user's to set.
const RESERVED_HEADERS: [&str; 4] = ["accept", "content-type", "last-event-id", "mcp-session-id"];

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// How often a stream is taken up again whose server lets clients do that, and the first pause.
const RESUMES_MAX: usize = 3;
const RESUME_PAUSE: Duration = Duration::from_millis(250);

pub(super) type McpHttpError = StreamableHttpError<reqwest::Error>;
pub(super) type SseEvents = BoxStream<'static, Result<Sse, SseError>>;
pub(super) type HttpHeaders = HashMap<HeaderName, HeaderValue>;

pub(super) fn build_transport(
    url: &str,
    bearer: Option<&ValueSource>,
    headers: &BTreeMap<String, ValueSource>,
    heard: &Arc<ConnectionSignals>,
) -> Result<StreamableHttpClientTransport<WatchedHttpClient>, String> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.max_sse_event_size = MESSAGE_MAX;
    let mut resuming = ExponentialBackoff::default();
    (resuming.max_times, resuming.base_duration) = (Some(RESUMES_MAX), RESUME_PAUSE);
    config.retry_config = Arc::new(resuming);
    if let Some(bearer) = bearer {
        config.auth_header = Some(bearer.read().map_err(|error| format!("`bearer`: {error}"))?);
    }
    for (name, value) in headers {
        let wrong = |what: &str| format!("the header `{name}`: {what}");
        let value = value.read().map_err(|error| wrong(&error))?;
        let mut value = HeaderValue::try_from(value).map_err(|_| wrong("no value of a header"))?;
        value.set_sensitive(true);
        let name = HeaderName::try_from(name).map_err(|_| wrong("no name of a header"))?;
        if RESERVED_HEADERS.contains(&name.as_str()) {
            return Err(wrong("the protocol sets it"));
        }
        config.custom_headers.insert(name, value);
    }
    let watched = WatchedHttpClient { client: build_client(url)?, signals: heard.clone() };
    Ok(StreamableHttpClientTransport::with_client(watched, config))
}

fn build_client(url: &str) -> Result<reqwest::Client, String> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been first, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect would take the token along to wherever it points.
        .redirect(reqwest::redirect::Policy::none());
    let uri: Uri = url.parse().map_err(|_| format!("{url:?} is no address"))?;
    let is_local = uri.host().is_some_and(is_loopback);
    let client = if is_local { client.no_proxy() } else { client };
    client.build().map_err(|error| render_error(&error))
}

/// A client whose streams say when they broke.
#[derive(Clone, Debug)]
pub(super) struct WatchedHttpClient {
    client: reqwest::Client,
    signals: Arc<ConnectionSignals>,
}

impl WatchedHttpClient {
    /// The answer to a call, or an error of it where the stream ends without one. That nobody waits
    /// for it any more does no harm.
    fn watch_events(&self, events: SseEvents, call: RequestId) -> SseEvents {
        let heard = self.signals.clone();
        let state = WatchedEvents { events, call: Some(call), signals: heard, is_resumable: false };
        stream::unfold(state, WatchedEvents::next).boxed()
    }
}

struct WatchedEvents {
    events: SseEvents,
    /// None when its end has been told.
    call: Option<RequestId>,
    signals: Arc<ConnectionSignals>,
    /// The server numbers its events, so that a stream that it ends can be taken up again.
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
            None => "the answer ended before it was there".to_owned(),
            Some(Err(error)) => format!("the answer broke off: {}", render_error(&error)),
        };
        self.signals.stream_broke.store(true, Ordering::Relaxed);
        let error = json!({"code": STREAM_BROKE_CODE, "message": problem});
        let message = json!({"jsonrpc": "2.0", "id": self.call.take()?, "error": error});
        Some((Ok(Sse::default().data(message.to_string())), self))
    }
}

/// A list of tools is made readable; everything else stays as it is.
fn repair_event(mut event: Sse) -> Sse {
    let lists = |data: &&String| data.contains("\"tools\"");
    let list = event.data.as_ref().filter(lists).and_then(|data| serde_json::from_str(data).ok());
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
        let most = MESSAGE_MAX;
        self.post_message_with_max_sse_event_size(uri, message, session, token, headers, most).await
    }

    async fn post_message_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        token: Option<String>,
        headers: HttpHeaders,
        _most: usize,
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
        let most = MESSAGE_MAX;
        self.get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, most)
            .await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        token: Option<String>,
        headers: HttpHeaders,
        most: usize,
    ) -> Result<SseEvents, McpHttpError> {
        let client = &self.client;
        client
            .get_stream_with_max_sse_event_size(uri, session, last_event, token, headers, most)
            .await
            .map_err(http_post::without_url)
    }
}
