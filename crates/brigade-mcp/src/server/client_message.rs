//! The messages of clients, as text of any transport.

use rmcp::model::{ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::{RoleServer, RxJsonRpcMessage};
use serde::Deserialize;
use serde_json::Value;

/// The error for an invalid message, with the message's id if it is known.
#[derive(Debug)]
pub(super) struct InvalidMessage {
    pub(super) id: Option<RequestId>,
    pub(super) error: ErrorData,
}

/// Parses a message; `None` for a blank text or an unknown notification. The error is boxed, since it
/// is rare and large.
pub(super) fn parse_message(
    text: &[u8],
) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Box<InvalidMessage>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text).trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    if let Ok(mut message) = serde_json::from_slice(text) {
        attach_task_subscription(&mut message, text);
        return Ok(Some(message));
    }
    let value: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(error) => {
            let problem = format!("that is not JSON: {error}");
            let error = ErrorData::new(ErrorCode::PARSE_ERROR, problem, None);
            return Err(Box::new(InvalidMessage { id: None, error }));
        }
    };
    let method = value.get("method").and_then(Value::as_str);
    let id = value.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
    let error = match method {
        // The protocol requires that unknown notifications are ignored.
        Some(_) if value.get("id").is_none() => return Ok(None),
        _ if value.is_array() => {
            ErrorData::invalid_request("batches are not served; send one message at a time", None)
        }
        _ => ErrorData::invalid_request(
            "that is not a JSON-RPC 2.0 message: it needs jsonrpc, method, and id for an answer",
            None,
        ),
    };
    Err(Box::new(InvalidMessage { id, error }))
}

/// The tasks of a subscription. The filter of the library does not have them, so the request
/// carries them as an extension.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskSubscription {
    #[serde(default)]
    pub(super) task_ids: Vec<String>,
}

fn attach_task_subscription(message: &mut RxJsonRpcMessage<RoleServer>, text: &[u8]) {
    #[derive(Deserialize)]
    struct ListenMessage {
        params: ListenParams,
    }
    #[derive(Deserialize)]
    struct ListenParams {
        notifications: TaskSubscription,
    }
    if let JsonRpcMessage::Request(request) = message
        && let ClientRequest::SubscriptionsListenRequest(listen) = &mut request.request
        && let Ok(message) = serde_json::from_slice::<ListenMessage>(text)
    {
        listen.extensions.insert(message.params.notifications);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn problem(text: &str) -> (Option<RequestId>, i32) {
        let InvalidMessage { id, error } = *parse_message(text.as_bytes()).unwrap_err();
        (id, error.code.0)
    }

    #[test]
    fn an_invalid_message_gets_an_error_with_its_id() {
        assert_eq!(problem("{nonsense").1, -32700);
        assert_eq!(problem("[]").1, -32600);
        assert_eq!(problem("7").1, -32600);
        let (id, code) = problem(r#"{"id":"a","method":"tools/list"}"#);
        assert_eq!((id, code), (Some(RequestId::String("a".into())), -32600));
    }

    #[test]
    fn notifications_and_blank_lines_get_no_reply() {
        assert!(parse_message(b"  \r\n").unwrap().is_none());
        assert!(parse_message(br#"{"jsonrpc":"2.0","method":5}"#).is_err());
        let odd = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}"#;
        assert!(parse_message(odd).err().is_none_or(|invalid| invalid.id.is_none()));
    }
}
