//! JSON-RPC messages as lines, one each way.
//!
//! Whatever cannot be understood is answered, under its own id where that can be told, so that
//! nobody waits for an answer that never comes.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use rmcp::model::{
    ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerNotification,
};
use rmcp::service::{RoleServer, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The longest line that is read; within what the daemon reads.
const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What is kept of the two ends of a longer one, to find its id in.
const KEPT_END_BYTES: usize = 256;

#[derive(Debug)]
pub(super) struct ServerLineTransport<R, W> {
    input: BufReader<R>,
    /// What was read of a line so far: reading is given up and taken up again in the middle.
    partial_line: Vec<u8>,
    /// Bytes of a line that is too long, of which only the two ends are kept.
    dropped_bytes: usize,
    output: Arc<Mutex<Option<W>>>,
    error_replies: JoinSet<io::Result<()>>,
    /// Subscriptions that are not acknowledged yet, by their id as it is written.
    pending_subscriptions: HashMap<String, TaskSubscription>,
    /// Cancelled when the input ends.
    disconnected: CancellationToken,
}

enum LineReadResult {
    Line,
    TooLong,
    Closed,
}

impl<R, W> ServerLineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(super) fn new(input: R, output: W, gone: CancellationToken) -> Self {
        let output = Arc::new(Mutex::new(Some(output)));
        let (input, line, answers) = (BufReader::new(input), Vec::new(), JoinSet::new());
        Self {
            input,
            partial_line: line,
            dropped_bytes: 0,
            output,
            error_replies: answers,
            pending_subscriptions: HashMap::new(),
            disconnected: gone,
        }
    }

    async fn read_line(&mut self) -> LineReadResult {
        loop {
            let Ok(available) = self.input.fill_buf().await else { return LineReadResult::Closed };
            if available.is_empty() {
                return LineReadResult::Closed;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |at| at + 1);
            self.partial_line.extend_from_slice(&available[..taken]);
            self.input.consume(taken);
            if self.partial_line.len()
                > if self.dropped_bytes > 0 { 4 * KEPT_END_BYTES } else { LINE_BYTES_MAX }
            {
                let middle = KEPT_END_BYTES..self.partial_line.len() - KEPT_END_BYTES;
                self.dropped_bytes += middle.len();
                self.partial_line.drain(middle);
            }
            match end {
                Some(_) if self.dropped_bytes > 0 => return LineReadResult::TooLong,
                Some(_) => return LineReadResult::Line,
                None => {}
            }
        }
    }

    /// The acknowledgement of a subscription names all that was accepted.
    fn add_task_ids(&mut self, message: &mut Value) {
        let params = &mut message["params"];
        let id = params["_meta"]["io.modelcontextprotocol/subscriptionId"].to_string();
        if let Some(hear_of) = self.pending_subscriptions.remove(&id)
            && !hear_of.task_ids.is_empty()
        {
            params["notifications"]["taskIds"] = hear_of.task_ids.into();
        }
    }

    /// Written to the end also when hearing is given up meanwhile.
    fn send_error(&mut self, id: Option<RequestId>, error: ErrorData) {
        let output = self.output.clone();
        let message: TxJsonRpcMessage<RoleServer> = JsonRpcMessage::error(error, id);
        self.error_replies.spawn(async move { write_message(&output, &message).await });
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
        let output = self.output.clone();
        let acknowledged = match &item {
            JsonRpcMessage::Notification(said) => matches!(
                said.notification,
                ServerNotification::SubscriptionsAcknowledgedNotification(_)
            ),
            _ => false,
        };
        let message = serde_json::to_value(&item).map(|mut message| {
            if acknowledged {
                self.add_task_ids(&mut message);
            }
            message
        });
        async move { write_message(&output, &message?).await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let (id, error) = match self.read_line().await {
                LineReadResult::Closed => {
                    self.disconnected.cancel();
                    return None;
                }
                LineReadResult::TooLong => {
                    let bytes = self.dropped_bytes + self.partial_line.len();
                    let what = format!("a message of {bytes} bytes; {LINE_BYTES_MAX} is the most");
                    (find_id_at_ends(&self.partial_line), ErrorData::invalid_request(what, None))
                }
                LineReadResult::Line => match parse_line(&self.partial_line) {
                    Ok(message) => {
                        self.partial_line.clear();
                        let Some(message) = message else { continue };
                        if let Some((id, hear_of)) = find_task_subscription(&message) {
                            self.pending_subscriptions.insert(id, hear_of);
                        }
                        return Some(message);
                    }
                    Err(problem) => *problem,
                },
            };
            self.partial_line.clear();
            self.dropped_bytes = 0;
            self.send_error(id, error);
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        while self.error_replies.join_next().await.is_some() {}
        drop(self.output.lock().await.take());
        Ok(())
    }
}

async fn write_message<W, M>(output: &Mutex<Option<W>>, message: &M) -> io::Result<()>
where
    W: AsyncWrite + Send + Unpin,
    M: Serialize,
{
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    match &mut *output.lock().await {
        Some(output) => {
            output.write_all(&line).await?;
            output.flush().await
        }
        None => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// The tasks that a subscription is about. The library's filter does not know them, so they go beside
/// the request.
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

fn find_task_subscription(
    message: &RxJsonRpcMessage<RoleServer>,
) -> Option<(String, TaskSubscription)> {
    let JsonRpcMessage::Request(request) = message else { return None };
    let ClientRequest::SubscriptionsListenRequest(listen) = &request.request else { return None };
    let hear_of = listen.extensions.get::<TaskSubscription>()?;
    Some((serde_json::to_string(&request.id).ok()?, hear_of.clone()))
}

/// Boxed, since what is understood seldom has one.
type InvalidMessage = Box<(Option<RequestId>, ErrorData)>;

/// None for what needs no answer and means nothing here.
fn parse_line(line: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, InvalidMessage> {
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
            let what = format!("that is not JSON: {error}");
            return Err(Box::new((None, ErrorData::new(ErrorCode::PARSE_ERROR, what, None))));
        }
    };
    let method = value.get("method").and_then(Value::as_str);
    let id = value.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
    let error = match method {
        // A notification that is not understood is passed over, as the protocol has it.
        Some(_) if value.get("id").is_none() => return Ok(None),
        _ if value.is_array() => {
            ErrorData::invalid_request("batches are not served; send one message a line", None)
        }
        _ => ErrorData::invalid_request(
            "that is not a JSON-RPC 2.0 message: it needs jsonrpc, method, and id for an answer",
            None,
        ),
    };
    Err(Box::new((id, error)))
}

/// The id of a message of which only the ends are there, where common clients write it.
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
        let (id, error) = *parse_line(line.as_bytes()).unwrap_err();
        (id, error.code.0)
    }

    #[test]
    fn what_cannot_be_understood_is_answered_under_its_id() {
        assert_eq!(problem("{nonsense").1, -32700);
        assert_eq!(problem("[]").1, -32600);
        assert_eq!(problem("7").1, -32600);
        let (id, code) = problem(r#"{"id":"a","method":"tools/list"}"#);
        assert_eq!((id, code), (Some(RequestId::String("a".into())), -32600));
    }

    #[test]
    fn what_needs_no_answer_gets_none() {
        assert!(parse_line(b"  \r\n").unwrap().is_none());
        assert!(parse_line(br#"{"jsonrpc":"2.0","method":5}"#).is_err());
        let odd = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":7}"#;
        assert!(parse_line(odd).err().is_none_or(|problem| problem.0.is_none()));
    }

    #[test]
    fn the_id_of_a_message_that_is_too_long() {
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
    async fn a_line_that_is_too_long_is_refused_and_the_next_one_heard() {
        let long = format!(r#"{{"jsonrpc":"2.0","id":3,"x":"{}"}}"#, "x".repeat(LINE_BYTES_MAX));
        let input = format!("{long}\n{}\n", r#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#);
        let (ours, mut theirs) = tokio::io::duplex(LINE_BYTES_MAX);
        let gone = CancellationToken::new();
        let mut lines = ServerLineTransport::new(io::Cursor::new(input), ours, gone.clone());
        let JsonRpcMessage::Request(heard) = lines.receive().await.unwrap() else {
            panic!("that was a request");
        };
        assert_eq!(heard.id, RequestId::Number(4));
        assert!(lines.receive().await.is_none());
        assert!(gone.is_cancelled());
        lines.close().await.unwrap();
        let mut said = String::new();
        tokio::io::AsyncReadExt::read_to_string(&mut theirs, &mut said).await.unwrap();
        assert!(said.contains(r#""id":3"#) && said.contains("8388608"), "{said}");
    }
}
