//! Messages of JSON-RPC 2.0, one per line.

use agent_client_protocol_schema::v1::{Error, RequestId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The maximum length of an id that the program chooses, in bytes. Ids are part of the saved state.
pub(super) const ID_MAX: usize = 1024;

/// A message of the program.
#[derive(Debug)]
pub(super) enum IncomingMessage<'a> {
    Request {
        id: RequestId,
        method: &'a str,
        params: &'a Value,
    },
    /// A request that cannot be answered by its id.
    BadRequest,
    Notification {
        method: &'a str,
        params: &'a Value,
    },
    Response {
        id: RequestId,
        answer: IncomingAnswer<'a>,
    },
}

/// The answer to a request of Brigade.
#[derive(Debug)]
pub(super) enum IncomingAnswer<'a> {
    Result(&'a Value),
    Error(Error),
    /// It has neither a result nor a readable error.
    Unreadable,
}

impl<'a> IncomingMessage<'a> {
    /// Reads a line. Anything that is not JSON-RPC 2.0 is not a message.
    pub(super) fn read(line: &'a Value) -> Option<Self> {
        if line.get("jsonrpc")? != "2.0" {
            return None;
        }
        let id = line.get("id");
        let params = line.get("params").unwrap_or(&Value::Null);
        if let Some(method) = line.get("method").and_then(Value::as_str) {
            let Some(id) = id else { return Some(Self::Notification { method, params }) };
            return Some(match read_id(id) {
                Some(id) => Self::Request { id, method, params },
                None => Self::BadRequest,
            });
        }
        let id = read_id(id?)?;
        let error = line.get("error").filter(|error| !error.is_null());
        let answer = match (line.get("result"), error) {
            (_, Some(error)) => {
                Error::deserialize(error).map_or(IncomingAnswer::Unreadable, IncomingAnswer::Error)
            }
            (Some(result), None) => IncomingAnswer::Result(result),
            (None, None) => IncomingAnswer::Unreadable,
        };
        Some(Self::Response { id, answer })
    }
}

fn read_id(id: &Value) -> Option<RequestId> {
    let id = RequestId::deserialize(id).ok()?;
    match &id {
        RequestId::Null => None,
        RequestId::Str(text) if text.len() > ID_MAX => None,
        _ => Some(id),
    }
}

/// Returns the line of a request.
pub(super) fn render_request(id: i64, method: &str, params: impl Serialize) -> Vec<u8> {
    render_line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

/// Returns the line that answers a request.
pub(super) fn render_result(id: &RequestId, result: impl Serialize) -> Vec<u8> {
    render_line(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

/// Returns the line that refuses a request.
pub(super) fn render_error(id: &RequestId, error: &Error) -> Vec<u8> {
    render_line(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

fn render_line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Returns an error of the program as text: its message, and the details that it attached.
pub(super) fn render_error_text(error: &Error) -> String {
    let data = error.data.as_ref();
    let details = data.and_then(|data| match data {
        Value::String(text) => Some(text.as_str()),
        other => ["details", "message", "error"].iter().find_map(|key| other.get(key)?.as_str()),
    });
    match details {
        Some(details) if details != error.message => format!("{}: {details}", error.message),
        _ => error.message.clone(),
    }
}
