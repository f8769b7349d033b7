//! Posts one message to a service and reads the reply. Replies are bounded before they are stored,
//! and tool lists are repaired before they are parsed. rmcp does neither for a reply that is not a
//! stream.

use std::borrow::Cow;
use std::sync::Arc;

use ::http::header::{ACCEPT, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use ::http::{HeaderName, StatusCode};
use brigade_model::truncate::truncate_end;
use futures_util::stream::{self, StreamExt};
use reqwest::Response;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::common::http_header::{
    EVENT_STREAM_MIME_TYPE, HEADER_SESSION_ID, JSON_MIME_TYPE,
};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
    StreamableHttpPostResponse,
};
use serde_json::Value;
use sse_stream::SseStream;

use super::http_transport::{HttpHeaders, McpHttpError, SseEvents};
use super::line_transport::MESSAGE_MAX;
use super::tool_list;

/// The maximum size of the body of a refusal.
const REFUSAL_MAX: usize = 64 << 10;
/// The maximum length of its excerpt in an error.
const EXCERPT_MAX: usize = 1_000;

/// The destination of a message, with credentials and headers.
pub(super) struct PostTarget {
    pub(super) uri: Arc<str>,
    pub(super) session: Option<Arc<str>>,
    pub(super) token: Option<String>,
    pub(super) headers: HttpHeaders,
}

pub(super) async fn post_message(
    client: &reqwest::Client,
    to: PostTarget,
    message: &ClientJsonRpcMessage,
) -> Result<StreamableHttpPostResponse, McpHttpError> {
    let is_in_session = to.session.is_some();
    let response = send(client, to, message).await?;
    let status = response.status();
    if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
        return Ok(StreamableHttpPostResponse::Accepted);
    }
    if !status.is_success() {
        return read_refusal(response, is_in_session, message).await;
    }
    let session = header(&response, HeaderName::from_bytes(HEADER_SESSION_ID.as_bytes()).ok());
    match header(&response, Some(CONTENT_TYPE)) {
        Some(kind) if kind.starts_with(EVENT_STREAM_MIME_TYPE) => {
            Ok(StreamableHttpPostResponse::Sse(event_stream(response), session))
        }
        Some(kind) if kind.starts_with(JSON_MIME_TYPE) => {
            let answer = read_answer(response, message).await?;
            Ok(answer.map_or(StreamableHttpPostResponse::Accepted, |answer| {
                StreamableHttpPostResponse::Json(answer, session)
            }))
        }
        // Some services reply with an empty body to a message that needs no reply.
        _ if request_id(message).is_none() && response.content_length() == Some(0) => {
            Ok(StreamableHttpPostResponse::Accepted)
        }
        kind => Err(StreamableHttpError::UnexpectedContentType(kind)),
    }
}

/// Removes the URL from an error: some URLs are secrets.
pub(super) fn without_url(error: McpHttpError) -> McpHttpError {
    match error {
        StreamableHttpError::Client(error) => StreamableHttpError::Client(error.without_url()),
        other => other,
    }
}

async fn send(
    client: &reqwest::Client,
    to: PostTarget,
    message: &ClientJsonRpcMessage,
) -> Result<Response, McpHttpError> {
    let mut request = client
        .post(&*to.uri)
        .header(ACCEPT, format!("{EVENT_STREAM_MIME_TYPE}, {JSON_MIME_TYPE}"))
        .header(CONTENT_TYPE, JSON_MIME_TYPE)
        .body(serde_json::to_vec(message)?);
    if let Some(token) = to.token {
        request = request.bearer_auth(token);
    }
    for (name, value) in to.headers {
        request = request.header(name, value);
    }
    if let Some(session) = to.session {
        request = request.header(HEADER_SESSION_ID, &*session);
    }
    request.send().await.map_err(|error| without_url(error.into()))
}

/// Returns the id of a request.
fn request_id(message: &ClientJsonRpcMessage) -> Option<&RequestId> {
    match message {
        ClientJsonRpcMessage::Request(request) => Some(&request.id),
        _ => None,
    }
}

fn header(response: &Response, name: Option<HeaderName>) -> Option<String> {
    let value = response.headers().get(name?)?;
    Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
}

/// Reads the reply to a request. Other messages have no reply.
async fn read_answer(
    response: Response,
    message: &ClientJsonRpcMessage,
) -> Result<Option<ServerJsonRpcMessage>, McpHttpError> {
    let BodyPrefix { body, is_complete } = read_body(response, MESSAGE_MAX).await?;
    let Some(call) = request_id(message) else { return Ok(None) };
    if !is_complete {
        let problem = format!("the reply has more than {} MB", MESSAGE_MAX >> 20);
        let error = ErrorData::new(ErrorCode(-32_000), problem, None);
        return Ok(Some(ServerJsonRpcMessage::error(error, Some(call.clone()))));
    }
    let parsed = serde_json::from_slice::<Value>(&body).ok().and_then(|mut reply| {
        tool_list::repair_tool_list(&mut reply);
        serde_json::from_value(reply).ok()
    });
    let unreadable =
        || unexpected_response(format!("the reply is not a message: {}", body_excerpt(&body)));
    parsed.map(Some).ok_or_else(unreadable)
}

/// Returns the reason of a refusal, as a protocol error where the service sent one.
async fn read_refusal(
    response: Response,
    is_in_session: bool,
    message: &ClientJsonRpcMessage,
) -> Result<StreamableHttpPostResponse, McpHttpError> {
    let status = response.status();
    if let Some(error) = refusal_by_status(&response, is_in_session) {
        return Err(error);
    }
    let is_json =
        header(&response, Some(CONTENT_TYPE)).is_some_and(|it| it.starts_with(JSON_MIME_TYPE));
    let is_auth_error = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
    let retry_after = header(&response, Some(RETRY_AFTER));
    // The text is optional: the status alone shows the refusal.
    let BodyPrefix { body, .. } = read_body(response, REFUSAL_MAX).await.unwrap_or_default();
    let answer = serde_json::from_slice::<ServerJsonRpcMessage>(&body).ok();
    let answer = answer.filter(|_| !is_auth_error);
    match (answer, message) {
        // A service without the newest handshake is offered the old one.
        (answer, ClientJsonRpcMessage::Request(request))
            if matches!(request.request, ClientRequest::DiscoverRequest(_))
                && !is_in_session
                && !is_auth_error
                && status.is_client_error() =>
        {
            let error = match answer {
                Some(ServerJsonRpcMessage::Error(answer)) => answer.error,
                _ => ErrorData::invalid_request(
                    format!("HTTP {status}: {}", body_excerpt(&body)),
                    None,
                ),
            };
            let error = ServerJsonRpcMessage::error(error, Some(request.id.clone()));
            Ok(StreamableHttpPostResponse::Json(error, None))
        }
        // Such an error often has no id, but it belongs to this request.
        (Some(ServerJsonRpcMessage::Error(answer)), _) if is_json => {
            let call = request_id(message).cloned().or(answer.id);
            let error = ServerJsonRpcMessage::error(answer.error, call);
            Ok(StreamableHttpPostResponse::Json(error, None))
        }
        _ if status.is_server_error() => {
            Err(HttpStatusError::new(status.as_u16(), retry_after).into())
        }
        _ => Err(unexpected_response(format!("HTTP {status}: {}", body_excerpt(&body)))),
    }
}

/// Returns the errors that are known from the status and headers.
fn refusal_by_status(response: &Response, is_in_session: bool) -> Option<McpHttpError> {
    let status = response.status();
    let challenge = header(response, Some(WWW_AUTHENTICATE));
    match (status, challenge) {
        (StatusCode::UNAUTHORIZED, Some(challenge)) => {
            Some(StreamableHttpError::AuthRequired(AuthRequiredError::new(challenge)))
        }
        (StatusCode::FORBIDDEN, Some(challenge)) => {
            let error = InsufficientScopeError::new(challenge, None);
            Some(StreamableHttpError::InsufficientScope(error))
        }
        (StatusCode::NOT_FOUND, _) if is_in_session => Some(StreamableHttpError::SessionExpired),
        (StatusCode::TOO_MANY_REQUESTS, _) => {
            let retry_after = header(response, Some(RETRY_AFTER));
            Some(HttpStatusError::new(status.as_u16(), retry_after).into())
        }
        _ if status.is_redirection() => {
            let to = header(response, Some(LOCATION)).unwrap_or_else(|| "nowhere".to_owned());
            let to = truncate_end(&to, EXCERPT_MAX);
            Some(unexpected_response(format!(
                "HTTP {status} to {to}, which is not followed: set `url` to it"
            )))
        }
        _ => None,
    }
}

fn unexpected_response(problem: String) -> McpHttpError {
    StreamableHttpError::UnexpectedServerResponse(Cow::Owned(problem))
}

fn body_excerpt(body: &[u8]) -> String {
    match body.trim_ascii() {
        [] => "the body is empty".to_owned(),
        text => truncate_end(&String::from_utf8_lossy(text), EXCERPT_MAX),
    }
}

/// The body of a reply, up to a limit.
#[derive(Default)]
struct BodyPrefix {
    body: Vec<u8>,
    is_complete: bool,
}

/// Reads the body up to a length.
async fn read_body(mut response: Response, max: usize) -> Result<BodyPrefix, McpHttpError> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| without_url(error.into()))? {
        let remaining = max - body.len();
        body.extend_from_slice(&piece[..piece.len().min(remaining)]);
        if piece.len() > remaining {
            return Ok(BodyPrefix { body, is_complete: false });
        }
    }
    Ok(BodyPrefix { body, is_complete: true })
}

/// Returns the events of a streamed reply. An event above the limit breaks the stream.
fn event_stream(response: Response) -> SseEvents {
    let pieces = stream::unfold(Some((response, EventSizeGuard::default())), |state| async {
        let (mut response, mut size_guard) = state?;
        match response.chunk().await {
            Ok(None) => None,
            Ok(Some(piece)) if size_guard.fits(&piece) => {
                Some((Ok(piece), Some((response, size_guard))))
            }
            Ok(Some(_)) => {
                let problem = format!("an event has more than {} MB", MESSAGE_MAX >> 20);
                Some((Err(std::io::Error::other(problem)), None))
            }
            Err(error) => Some((Err(std::io::Error::other(error.without_url())), None)),
        }
    });
    SseStream::from_bytes_stream(pieces.boxed()).boxed()
}

/// The size of the current event, which ends with an empty line.
#[derive(Debug, Default)]
struct EventSizeGuard {
    bytes: usize,
    is_mid_line: bool,
    after_return: bool,
}

impl EventSizeGuard {
    fn fits(&mut self, piece: &[u8]) -> bool {
        for byte in piece {
            let is_rest_of_end = *byte == b'\n' && self.after_return;
            self.after_return = *byte == b'\r';
            self.bytes += 1;
            match byte {
                b'\n' if is_rest_of_end => {}
                b'\n' | b'\r' if self.is_mid_line => self.is_mid_line = false,
                b'\n' | b'\r' => self.bytes = 0,
                _ => self.is_mid_line = true,
            }
            if self.bytes > MESSAGE_MAX {
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_at_an_empty_line() {
        for end in ["\n", "\r", "\r\n"] {
            let line = format!("data: {}{end}", "x".repeat(MESSAGE_MAX / 4));
            let mut size_guard = EventSizeGuard::default();
            for _ in 0..3 {
                assert!((0..3).all(|_| size_guard.fits(line.as_bytes())), "{end:?}");
                assert!(size_guard.fits(end.as_bytes()), "{end:?}");
            }
            let fits = (0..5).all(|_| size_guard.fits(line.as_bytes()));
            assert!(!fits, "five lines of one event: {end:?}");
        }
    }
}
