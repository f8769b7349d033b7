//! JSON-RPC over two streams, one message per line, with a server that may send anything.

use std::io;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::tool_list;
use crate::bounded_lines::{BoundedLine, BoundedLines, LineBounds, LineWriter, encode_line};

/// The maximum size of a message.
pub(super) const MESSAGE_MAX: usize = 16 << 20;
/// The bounds of a line. The kept beginning of a longer one is searched for its id.
const LINE_BOUNDS: LineBounds = LineBounds { line_max: MESSAGE_MAX, kept_end: 4 << 10 };
/// The time that a server may leave a notification or reply unread before it is dropped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// The size up to which a pipe write is atomic.
const PIPE_ATOMIC_BYTES: usize = 4_096;
/// The time to read the rest of the pipe after the process has exited.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);

/// A transport that reads the lines of a server and writes ours.
pub(super) struct LineTransport<R, W> {
    lines: BoundedLines<R>,
    writer: LineWriter<W>,
    /// Cancelled when the process has exited, although others may hold its stream open.
    exited: CancellationToken,
    /// Cancelled when the connection is closed on our side.
    stop: CancellationToken,
    has_warned: bool,
}

impl<R: AsyncRead + Send + Unpin, W> LineTransport<R, W> {
    pub(super) fn new(
        read: R,
        write: W,
        exited: CancellationToken,
        stop: CancellationToken,
    ) -> Self {
        Self {
            lines: BoundedLines::new(read, LINE_BOUNDS),
            writer: LineWriter::new(write),
            exited,
            stop,
            has_warned: false,
        }
    }

    /// Reads the next line until the process has exited and its pipe is empty.
    async fn next_line_before_exit(&mut self) -> Option<BoundedLine> {
        let exited = self.exited.clone();
        let line = tokio::select! {
            biased;
            line = self.lines.next_line() => line,
            () = exited.cancelled() => {
                timeout(DRAIN_TIMEOUT, self.lines.next_line()).await.unwrap_or(Ok(None))
            }
        };
        line.ok().flatten()
    }

    fn parse_message(&mut self, line: BoundedLine) -> Option<ServerJsonRpcMessage> {
        let value = match &line {
            BoundedLine::TooLong { head, bytes, .. } => too_long_error(head, *bytes),
            BoundedLine::Whole(line) if line.trim_ascii().is_empty() => return None,
            BoundedLine::Whole(line) => serde_json::from_slice::<Value>(line).ok(),
        };
        let message = value.and_then(|mut value| {
            tool_list::repair_tool_list(&mut value);
            serde_json::from_value(value).ok()
        });
        if message.is_none() && !self.has_warned {
            self.has_warned = true;
            tracing::warn!("an MCP server sends lines that are not messages; they are ignored");
        }
        message
    }
}

/// Returns an error in place of a reply that is too long, if its id is found.
fn too_long_error(head: &[u8], bytes: usize) -> Option<Value> {
    let id = parse_message_id(head)?;
    let message =
        format!("the reply has {} MB, but the maximum is {} MB", bytes >> 20, MESSAGE_MAX >> 20);
    Some(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}}))
}

/// Parses the `id` of the outermost object of a truncated message.
fn parse_message_id(head: &[u8]) -> Option<i64> {
    let mut depth = 0_u32;
    let mut at = 0;
    while at < head.len() {
        match head[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let length = string_length(&head[at..])?;
                let (string, rest) = head[at..].split_at(length);
                let rest = rest.trim_ascii_start();
                if depth == 1 && string == b"\"id\"" && rest.first() == Some(&b':') {
                    let digits = rest[1..].trim_ascii_start();
                    let end = digits.iter().position(|byte| !byte.is_ascii_digit())?;
                    return std::str::from_utf8(&digits[..end]).ok()?.parse().ok();
                }
                at += length;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Returns the length of the string at the beginning, with its quotes.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

impl<R, W> Transport<RoleClient> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let writer = self.writer.clone();
        async move {
            let line = encode_line(&message)?;
            // A call has its own timeout. Other messages must not pile up or delay a cancellation
            // when the server has stopped reading.
            if let ClientJsonRpcMessage::Request(_) = message {
                return writer.lock().await.write(&line).await;
            }
            let timed_out = |_| io::Error::from(io::ErrorKind::TimedOut);
            let writer = timeout(WRITE_TIMEOUT, writer.lock()).await.map_err(timed_out)?;
            match line.len() <= PIPE_ATOMIC_BYTES {
                true => timeout(WRITE_TIMEOUT, writer.write(&line)).await.map_err(timed_out)?,
                false => writer.write(&line).await,
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        loop {
            let line = self.next_line_before_exit().await?;
            if let Some(message) = self.parse_message(line) {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // A blocked write ends when the process ends, which is stopped now.
        self.writer.close_unless_writing();
        self.stop.cancel();
        Ok(())
    }
}

impl<R, W> Drop for LineTransport<R, W> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_id_of_a_long_reply_is_found() {
        for (head, id) in [
            (r#"{"jsonrpc":"2.0","id":17,"result":{"te"#, Some(17)),
            (r#"{"result":{"id":3,"x":"\"id\":4"}, "id" : 5, "#, Some(5)),
            (r#"{"result":{"id":3,"text":"aaaaaaa"#, None),
            (r#"{"note":"\"id\":1}","id":2,"#, Some(2)),
            (r#"[{"id":3,"#, None),
            (r#"{"id":"#, None),
            (r#"{"id":12"#, None),
            ("}}}}", None),
        ] {
            assert_eq!(parse_message_id(head.as_bytes()), id, "{head}");
        }
    }

    #[tokio::test]
    async fn lines_that_are_not_messages_are_ignored() {
        let mut text = b"npm warn something\n\n{\"half\": \n[1, 2]\n\xff\xfe\n".to_vec();
        text.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n");
        let exited = CancellationToken::new();
        let stop = CancellationToken::new();
        let mut lines = LineTransport::new(text.as_slice(), Vec::new(), exited, stop);
        assert!(matches!(lines.receive().await, Some(ServerJsonRpcMessage::Response(_))));
        assert!(lines.receive().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_notification_to_a_server_that_does_not_read_times_out() {
        let message = |text: &str| serde_json::from_str::<ClientJsonRpcMessage>(text).unwrap();
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"act"}}"#;
        let (ours, _theirs) = tokio::io::duplex(16);
        let exited = CancellationToken::new();
        let stop = CancellationToken::new();
        let mut lines = LineTransport::new(tokio::io::empty(), ours, exited, stop);
        let mut call = Box::pin(lines.send(message(call)));
        assert!(call.as_mut().now_or_never().is_none(), "the pipe is full");
        let cancel =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        let answer = r#"{"jsonrpc":"2.0","id":"p1","result":{}}"#;
        for text in [cancel, answer] {
            let sent = timeout(Duration::from_secs(3_600), lines.send(message(text))).await;
            let problem = sent.expect("the write times out").unwrap_err();
            assert_eq!(problem.kind(), io::ErrorKind::TimedOut, "{text}");
        }
        assert!(call.as_mut().now_or_never().is_none(), "a call has its own timeout");
    }

    #[tokio::test]
    async fn a_reply_that_is_too_long_is_an_error_of_its_call() {
        let mut text = b"{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":{\"x\":\"".to_vec();
        text.resize(MESSAGE_MAX + 10, b'x');
        text.extend_from_slice(b"\"}}\n{\"jsonrpc\":\"2.0\",\"id\":10,\"result\":{}}\n");
        let exited = CancellationToken::new();
        let stop = CancellationToken::new();
        let mut lines = LineTransport::new(text.as_slice(), Vec::new(), exited, stop);
        match lines.receive().await {
            Some(ServerJsonRpcMessage::Error(error)) => {
                assert!(error.error.message.contains("16 MB"), "{}", error.error.message);
            }
            other => panic!("{other:?}"),
        }
        assert!(matches!(lines.receive().await, Some(ServerJsonRpcMessage::Response(_))));
    }
}
