//! JSON-RPC messages as lines of standard input and output.
//!
//! An invalid message gets an error reply, with its id if that can be found, so that no client
//! waits for a reply in vain.

use std::collections::HashMap;
use std::io;

use rmcp::model::{
    ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerNotification,
};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bounded_lines::{BoundedLine, BoundedLines, LineBounds, LineWriter};

/// The maximum length of a line, below that of the daemon's protocol.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The bounds of a line. Both ends of a longer one are searched for its id.
const LINE_BOUNDS: LineBounds = LineBounds { line_max: LINE_BYTES_MAX, kept_end: 256 };

#[derive(Debug)]
pub(super) struct ServerLineTransport<R, W> {
    lines: BoundedLines<R>,
    writer: LineWriter<W>,
    error_replies: JoinSet<io::Result<()>>,
    /// Subscriptions that are not acknowledged yet, by their id as JSON.
    pending_subscriptions: HashMap<String, TaskSubscription>,
    /// Cancelled when the input ends.
    disconnected: CancellationToken,
}

impl<R, W> ServerLineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(input: R, output: W, disconnected: CancellationToken) -> Self {
        Self {
            lines: BoundedLines::new(input, LINE_BOUNDS),
            writer: LineWriter::new(output),
            error_replies: JoinSet::new(),
            pending_subscriptions: HashMap::new(),
            disconnected,
        }
    }

    /// Adds the accepted tasks to the acknowledgement of a subscription.
    fn add_task_ids(&mut self, message: &mut Value) {
        let params = &mut message["params"];
        let id = params["_meta"]["io.modelcontextprotocol/subscriptionId"].to_string();
        if let Some(subscription) = self.pending_subscriptions.remove(&id)
            && !subscription.task_ids.is_empty()
        {
            params["notifications"]["taskIds"] = subscription.task_ids.into();
        }
    }

    /// Sends an error in a task of its own, so that a cancelled read does not cut it off.
    fn send_error(&mut self, id: Option<RequestId>, error: ErrorData) {
        let writer = self.writer.clone();
        let message: TxJsonRpcMessage<RoleServer> = JsonRpcMessage::error(error, id);
        self.error_replies.spawn(async move { writer.write_message(&message).await });
        while self.error_replies.try_join_next().is_some() {}
    }
}

impl<R, W> Transport<RoleServer> for ServerLineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let writer = self.writer.clone();
        let is_acknowledgement = match &item {
            JsonRpcMessage::Notification(message) => matches!(
                message.notification,
                ServerNotification::SubscriptionsAcknowledgedNotification(_)
            ),
            _ => false,
        };
        let message = serde_json::to_value(&item).map(|mut message| {
            if is_acknowledgement {
                self.add_task_ids(&mut message);
            }
            message
        });
        async move { writer.write_message(&message?).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let InvalidMessage { id, error } = match self.lines.next_line().await {
                Ok(None) | Err(_) => {
                    self.disconnected.cancel();
                    return None;
                }
                Ok(Some(BoundedLine::TooLong { head, tail, bytes })) => {
                    let problem =
                        format!("the message has {bytes} bytes, more than {LINE_BYTES_MAX}");
                    InvalidMessage {
                        id: find_id_at_ends(&[head, tail].concat()),
                        error: ErrorData::invalid_request(problem, None),
                    }
                }
                Ok(Some(BoundedLine::Whole(line))) => match parse_line(&line) {
                    Ok(message) => {
                        let Some(message) = message else { continue };
                        if let Some(PendingSubscription { id, tasks }) =
                            find_task_subscription(&message)
                        {
                            self.pending_subscriptions.insert(id, tasks);
                        }
                        return Some(message);
                    }
                    Err(invalid) => *invalid,
                },
            };
            self.send_error(id, error);
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        while self.error_replies.join_next().await.is_some() {}
        self.writer.close().await;
        Ok(())
    }
}

/// The tasks of a subscription. The filter of the library does not have them, so the request
/// carries them as an extension.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TaskSubscription {
    #[serde(default)]
    pub(super) task_ids: Vec<String>,
}

fn attach_task_subscription(message: &mut RxJsonRpcMessage<RoleServer>, line: &[u8]) {
    #[derive(Deserialize)]
    struct ListenLine {
        params: ListenParams,
    }
    #[derive(Deserialize)]
    struct ListenParams {
        notifications: TaskSubscription,
    }
    if let JsonRpcMessage::Request(request) = message
        && let ClientRequest::SubscriptionsListenRequest(listen) = &mut request.request
        && let Ok(line) = serde_json::from_slice::<ListenLine>(line)
    {
        listen.extensions.insert(line.params.notifications);
    }
}

/// A subscription before its acknowledgement.
struct PendingSubscription {
    /// The id as JSON.
    id: String,
    tasks: TaskSubscription,
}

fn find_task_subscription(message: &RxJsonRpcMessage<RoleServer>) -> Option<PendingSubscription> {
    let JsonRpcMessage::Request(request) = message else { return None };
    let ClientRequest::SubscriptionsListenRequest(listen) = &request.request else { return None };
    let tasks = listen.extensions.get::<TaskSubscription>()?.clone();
    Some(PendingSubscription { id: serde_json::to_string(&request.id).ok()?, tasks })
}

/// The error for an invalid message, with the message's id if it is known.
#[derive(Debug)]
struct InvalidMessage {
    id: Option<RequestId>,
    error: ErrorData,
}

/// Parses a line; `None` for a blank line or an unknown notification. The error is boxed, since it
/// is rare and large.
fn parse_line(line: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, Box<InvalidMessage>> {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return Ok(None);
    }
    if let Ok(mut message) = serde_json::from_slice(line) {
        attach_task_subscription(&mut message, line);
        return Ok(Some(message));
    }
    let value: Value = match serde_json::from_slice(line) {
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
            ErrorData::invalid_request("batches are not served; send one message a line", None)
        }
        _ => ErrorData::invalid_request(
            "that is not a JSON-RPC 2.0 message: it needs jsonrpc, method, and id for an answer",
            None,
        ),
    };
    Err(Box::new(InvalidMessage { id, error }))
}

/// Finds the id in the two ends of a message, at the places where common clients write it.
fn find_id_at_ends(ends: &[u8]) -> Option<RequestId> {
    let ends = String::from_utf8_lossy(ends).replace("\": ", "\":").replace(", \"", ",\"");
    let ends = ends.trim_end();
    let head = ends.strip_prefix(r#"{"jsonrpc":"2.0","id":"#).or(ends.strip_prefix(r#"{"id":"#));
    let tail = || {
        let rest = ends.strip_suffix(r#","jsonrpc":"2.0"}"#);
        let rest = rest.and_then(|rest| rest.rsplit_once(r#","id":"#));
        let last = ends.strip_suffix('}')?.rsplit_once(r#""jsonrpc":"2.0","id":"#);
        rest.or(last).map(|(_, id)| id)
    };
    let id = head.and_then(|rest| rest.split_once(',')).map(|(id, _)| id).or_else(tail)?;
    serde_json::from_str(id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn problem(line: &str) -> (Option<RequestId>, i32) {
        let InvalidMessage { id, error } = *parse_line(line.as_bytes()).unwrap_err();
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
        assert!(parse_line(b"  \r\n").unwrap().is_none());
        assert!(parse_line(br#"{"jsonrpc":"2.0","method":5}"#).is_err());
        let odd = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}"#;
        assert!(parse_line(odd).err().is_none_or(|invalid| invalid.id.is_none()));
    }

    #[test]
    fn the_id_of_a_message_that_is_too_long_is_found() {
        let seven = Some(RequestId::Number(7));
        assert_eq!(find_id_at_ends(br#"{"jsonrpc":"2.0","id":7,"method":"tools"#), seven);
        assert_eq!(
            find_id_at_ends(b"{\"method\":\"x\",..}},\"jsonrpc\":\"2.0\",\"id\":7}\n"),
            seven
        );
        assert_eq!(find_id_at_ends(br#"{"id": 7, "jsonrpc": "2.0", "method": "x"#), seven);
        assert_eq!(find_id_at_ends(br#"{"method":"x"}},"id":7,"jsonrpc":"2.0"}"#), seven);
        assert_eq!(find_id_at_ends(br#"{"method":"x","params":{"id":7}}"#), None);
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_and_the_next_one_read() {
        let long = format!(r#"{{"jsonrpc":"2.0","id":3,"x":"{}"}}"#, "x".repeat(LINE_BYTES_MAX));
        let input = format!("{long}\n{}\n", r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#);
        let (ours, mut theirs) = tokio::io::duplex(LINE_BYTES_MAX);
        let disconnected = CancellationToken::new();
        let mut lines =
            ServerLineTransport::new(io::Cursor::new(input), ours, disconnected.clone());
        let JsonRpcMessage::Request(request) = lines.receive().await.unwrap() else {
            panic!("not a request");
        };
        assert_eq!(request.id, RequestId::Number(4));
        assert!(lines.receive().await.is_none());
        assert!(disconnected.is_cancelled());
        lines.close().await.unwrap();
        let mut written = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut theirs, &mut written).await.unwrap();
        assert!(written.contains(r#""id":3"#) && written.contains("8388608"), "{written}");
    }
}
