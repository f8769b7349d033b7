//! A request of HTTP with the rules of the protocol for its headers and its body.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full};
use rmcp::ErrorData;
use rmcp::model::{ClientRequest, ErrorCode, JsonRpcMessage, ProtocolVersion};
use rmcp::service::{RoleServer, RxJsonRpcMessage};
use serde_json::Value;

use super::{McpHttpResponse, SESSION_ID_HEADER, error_response};
use crate::server::client_message::{TaskSubscription, parse_message};

const VERSION_HEADER: &str = "mcp-protocol-version";
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A request that follows the rules of the protocol, as far as they do not depend on a session.
#[derive(Debug)]
pub struct McpHttpRequest {
    pub(super) request: Request<Full<Bytes>>,
    /// The session of an older client.
    pub(super) session_id: Option<String>,
    /// The parameters of the session that the request opens.
    pub(super) initialize_params: Option<Value>,
    /// The tasks of a subscription.
    pub(super) task_ids: Option<Vec<String>>,
}

impl McpHttpRequest {
    /// Checks a request with its whole body. The error is the response to it.
    pub fn parse(request: Request<Bytes>) -> Result<Self, Box<McpHttpResponse>> {
        let (parts, body) = request.into_parts();
        let message = match parts.method {
            Method::POST => Some(read_message(&parts.headers, &body)?),
            _ => None,
        };
        let marked = body.starts_with(BYTE_ORDER_MARK);
        let body = if marked { body.slice(BYTE_ORDER_MARK.len()..) } else { body };
        let mut parsed = Self {
            session_id: read_session_id(&parts.headers)?,
            request: Request::from_parts(parts, Full::new(body)),
            initialize_params: None,
            task_ids: None,
        };
        if let Some(JsonRpcMessage::Request(request)) = message {
            parsed.read_request(request.request);
        }
        if parsed.initialize_params.is_some() || parsed.is_stateless() {
            // These clients have no session, whatever else they send.
            parsed.session_id = None;
            parsed.request.headers_mut().remove(SESSION_ID_HEADER);
        }
        Ok(parsed)
    }

    /// Returns the session that the request names.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// Returns true if the request opens a session.
    pub fn opens_session(&self) -> bool {
        self.initialize_params.is_some()
    }

    /// Returns true if the request ends the session that it names.
    pub fn ends_session(&self) -> bool {
        self.request.method() == Method::DELETE
    }

    fn read_request(&mut self, request: ClientRequest) {
        match request {
            ClientRequest::InitializeRequest(initialize) => {
                self.initialize_params = serde_json::to_value(initialize.params).ok();
            }
            ClientRequest::SubscriptionsListenRequest(mut listen) => {
                if let Some(tasks) = listen.extensions.remove::<TaskSubscription>() {
                    self.task_ids = Some(tasks.task_ids.clone());
                    self.request.extensions_mut().insert(tasks);
                }
            }
            _ => {}
        }
    }

    /// Returns true for a version of the protocol that has no sessions.
    fn is_stateless(&self) -> bool {
        let version = self.request.headers().get(VERSION_HEADER);
        let version = version.and_then(|version| version.to_str().ok());
        version.is_some_and(|version| version >= ProtocolVersion::V_2026_07_28.as_str())
    }
}

/// Reads the message of a POST.
fn read_message(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<RxJsonRpcMessage<RoleServer>, Box<McpHttpResponse>> {
    let kinds = ["application/json", "text/event-stream"];
    if !kinds.iter().all(|kind| names_media_type(headers, ACCEPT.as_str(), kind)) {
        let problem = "the client must accept application/json and text/event-stream";
        return Err(refuse(StatusCode::NOT_ACCEPTABLE, problem));
    }
    if !names_media_type(headers, CONTENT_TYPE.as_str(), "application/json") {
        let problem = "send JSON, with Content-Type: application/json";
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, problem));
    }
    match parse_message(body) {
        Ok(Some(message)) => Ok(message),
        Ok(None) if body.trim_ascii().is_empty() => {
            let error = ErrorData::new(ErrorCode::PARSE_ERROR, "the body is empty", None);
            Err(Box::new(error_response(StatusCode::BAD_REQUEST, None, error)))
        }
        // The protocol requires that unknown notifications are ignored.
        Ok(None) => {
            let mut response = Response::new(Empty::new().boxed());
            *response.status_mut() = StatusCode::ACCEPTED;
            Err(Box::new(response))
        }
        Err(invalid) => {
            let response = error_response(StatusCode::BAD_REQUEST, invalid.id, invalid.error);
            Err(Box::new(response))
        }
    }
}

/// Returns true if one of the values of a header is this media type, with any parameters.
fn names_media_type(headers: &HeaderMap, header: &str, kind: &str) -> bool {
    let values = headers.get_all(header).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = values.flat_map(|value| value.split(','));
    kinds.any(|value| {
        let value = value.split(';').next().unwrap_or_default();
        value.trim().eq_ignore_ascii_case(kind)
    })
}

fn read_session_id(headers: &HeaderMap) -> Result<Option<String>, Box<McpHttpResponse>> {
    let mut ids = headers.get_all(SESSION_ID_HEADER).iter();
    let Some(id) = ids.next() else { return Ok(None) };
    match (id.to_str(), ids.next()) {
        (Ok(id), None) if !id.is_empty() => Ok(Some(id.to_owned())),
        _ => Err(refuse(StatusCode::BAD_REQUEST, "Mcp-Session-Id needs one id of visible ASCII")),
    }
}

fn refuse(status: StatusCode, problem: &'static str) -> Box<McpHttpResponse> {
    let error = ErrorData::new(ErrorCode::INVALID_REQUEST, problem, None);
    Box::new(error_response(status, None, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(headers: &[(&str, &str)], body: &'static str) -> u16 {
        let request = Request::post("/mcp");
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let parsed =
            McpHttpRequest::parse(request.body(Bytes::from_static(body.as_bytes())).unwrap());
        parsed.map_or_else(|response| response.status().as_u16(), |_| 200)
    }

    #[test]
    fn the_rules_for_headers_hold() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let json = ("content-type", "application/json; charset=utf-8");
        let both = ("accept", "application/json;q=0.9, text/event-stream");
        assert_eq!(status(&[json, both], ping), 200);
        let apart = [("accept", "Application/JSON"), ("accept", "text/event-stream")];
        assert_eq!(status(&[json, apart[0], apart[1]], ping), 200);
        for accept in ["", "*/*", "application/json", "application/jsonx, text/event-stream"] {
            assert_eq!(status(&[json, ("accept", accept)], ping), 406, "{accept}");
        }
        for kind in ["", "text/plain", "application/json-patch+json"] {
            assert_eq!(status(&[("content-type", kind), both], ping), 415, "{kind}");
        }
        assert_eq!(status(&[json, both, ("mcp-session-id", "")], ping), 400);
        let twice = ("mcp-session-id", "a");
        assert_eq!(status(&[json, both, twice, twice], ping), 400);
    }

    #[test]
    fn newer_clients_and_new_sessions_name_none() {
        let parse = |version: &str, body: &'static str| {
            let request = Request::post("/mcp")
                .header("content-type", "application/json")
                .header("accept", "application/json, text/event-stream")
                .header("mcp-protocol-version", version)
                .header("mcp-session-id", "a");
            McpHttpRequest::parse(request.body(Bytes::from_static(body.as_bytes())).unwrap())
                .unwrap()
        };
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        assert_eq!(parse("2025-11-25", ping).session_id(), Some("a"));
        assert_eq!(parse("2026-07-28", ping).session_id(), None);
        let initialize = concat!(
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
            r#""capabilities":{},"clientInfo":{"name":"cook","version":"1"}}}"#
        );
        let opening = parse("2025-11-25", initialize);
        assert_eq!(opening.session_id(), None);
        assert!(opening.opens_session());
    }
}
