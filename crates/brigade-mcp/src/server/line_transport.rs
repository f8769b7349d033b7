//! JSON-RPC messages as lines of standard input and output.
//!
//! An invalid message gets an error reply, with its id if that can be found, so that no client
//! waits for a reply in vain.

use std::collections::HashMap;
use std::io;

use rmcp::model::{ClientRequest, ErrorData, JsonRpcMessage, RequestId, ServerNotification};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::client_message::{InvalidMessage, TaskSubscription, parse_message};
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
                Ok(Some(BoundedLine::Whole(line))) => match parse_message(&line) {
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
