//! Messages as lines, for both sides of the protocol: lines of bounded size in, whole lines out.

use std::io;
use std::sync::Arc;

use serde::Serialize;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, OwnedMutexGuard};

const READ_BUFFER_BYTES: usize = 64 << 10;

/// The bounds of the lines of one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineBounds {
    /// The maximum size of a line, with its line break.
    pub(crate) line_max: usize,
    /// The bytes at each end of a longer line that are kept, to find its id.
    pub(crate) kept_end: usize,
}

/// A line of the peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BoundedLine {
    /// A line with its line break.
    Whole(Vec<u8>),
    /// A line that is too long, without its middle. `bytes` is its whole size.
    TooLong { head: Vec<u8>, tail: Vec<u8>, bytes: usize },
}

/// A reader of lines. A longer line costs no more memory than the longest one.
#[derive(Debug)]
pub(crate) struct BoundedLines<R> {
    input: BufReader<R>,
    bounds: LineBounds,
    /// The part of the current line that was read. A cancelled read continues with it.
    partial_line: PartialLine,
}

#[derive(Debug, Default)]
struct PartialLine {
    /// The line, or its beginning if it is too long.
    head: Vec<u8>,
    /// The end of a line that is too long.
    long_end: Option<LongLineEnd>,
}

#[derive(Debug)]
struct LongLineEnd {
    tail: Vec<u8>,
    /// The size of the line so far.
    bytes: usize,
}

impl<R: AsyncRead + Unpin> BoundedLines<R> {
    pub(crate) fn new(input: R, bounds: LineBounds) -> Self {
        let input = BufReader::with_capacity(READ_BUFFER_BYTES, input);
        Self { input, bounds, partial_line: PartialLine::default() }
    }

    /// Reads to the end of a line; `None` at the end of the input, which drops a line without an
    /// end. The future can be dropped at any point without losing data.
    pub(crate) async fn next_line(&mut self) -> io::Result<Option<BoundedLine>> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(available.len(), |end| end + 1);
            self.partial_line.append(&available[..length], self.bounds);
            self.input.consume(length);
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.partial_line).into_line()));
            }
        }
    }
}

impl PartialLine {
    fn append(&mut self, part: &[u8], bounds: LineBounds) {
        if let Some(end) = &mut self.long_end {
            end.append(part, bounds.kept_end);
            return;
        }
        self.head.extend_from_slice(part);
        let bytes = self.head.len();
        if bytes > bounds.line_max {
            let head_end = bounds.kept_end.min(bytes);
            let tail_start = head_end.max(bytes - head_end);
            let tail = self.head[tail_start..].to_vec();
            self.head.truncate(head_end);
            self.head.shrink_to_fit();
            self.long_end = Some(LongLineEnd { tail, bytes });
        }
    }

    fn into_line(self) -> BoundedLine {
        let head = self.head;
        match self.long_end {
            Some(LongLineEnd { tail, bytes }) => BoundedLine::TooLong { head, tail, bytes },
            None => BoundedLine::Whole(head),
        }
    }
}

impl LongLineEnd {
    fn append(&mut self, part: &[u8], kept_end: usize) {
        self.bytes += part.len();
        self.tail.extend_from_slice(part);
        let dropped = self.tail.len().saturating_sub(kept_end);
        self.tail.drain(..dropped);
    }
}

/// A writer of lines, shared by the messages that are being sent.
#[derive(Debug)]
pub(crate) struct LineWriter<W> {
    output: Arc<Mutex<Option<W>>>,
}

/// The writer while one message has it, so that no other is written in between.
#[derive(Debug)]
pub(crate) struct LockedLineWriter<W> {
    output: OwnedMutexGuard<Option<W>>,
}

impl<W> LineWriter<W> {
    pub(crate) fn new(output: W) -> Self {
        Self { output: Arc::new(Mutex::new(Some(output))) }
    }

    pub(crate) async fn lock(self) -> LockedLineWriter<W> {
        LockedLineWriter { output: self.output.lock_owned().await }
    }

    /// Closes the output after the message that is being written.
    pub(crate) async fn close(&self) {
        drop(self.output.lock().await.take());
    }

    /// Closes the output if no message is being written.
    pub(crate) fn close_unless_writing(&self) {
        if let Ok(mut output) = self.output.try_lock() {
            output.take();
        }
    }
}

impl<W: AsyncWrite + Unpin> LineWriter<W> {
    /// Writes a message as a line, after those that are being written.
    pub(crate) async fn write_message(self, message: &impl Serialize) -> io::Result<()> {
        let line = encode_line(message)?;
        self.lock().await.write(&line).await
    }
}

impl<W> Clone for LineWriter<W> {
    fn clone(&self) -> Self {
        Self { output: self.output.clone() }
    }
}

impl<W: AsyncWrite + Unpin> LockedLineWriter<W> {
    /// Writes a line of [`encode_line`].
    pub(crate) async fn write(mut self, line: &[u8]) -> io::Result<()> {
        let output = self.output.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        output.write_all(line).await?;
        output.flush().await
    }
}

/// Encodes a message as a line.
pub(crate) fn encode_line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const BOUNDS: LineBounds = LineBounds { line_max: 12, kept_end: 4 };

    #[tokio::test]
    async fn a_line_that_is_too_long_keeps_its_ends_and_its_size() {
        let input = b"twelve long\n0123456789ab\n0123\nwithout an end";
        for chunk in 1..=input.len() {
            let (mut ours, theirs) = tokio::io::duplex(chunk);
            let write = async move { ours.write_all(input).await.unwrap() };
            let read = async {
                let mut lines = BoundedLines::new(theirs, BOUNDS);
                let mut all = Vec::new();
                while let Some(line) = lines.next_line().await.unwrap() {
                    all.push(line);
                }
                all
            };
            let ((), lines) = tokio::join!(write, read);
            let long =
                BoundedLine::TooLong { head: b"0123".to_vec(), tail: b"9ab\n".to_vec(), bytes: 13 };
            let first = BoundedLine::Whole(b"twelve long\n".to_vec());
            let last = BoundedLine::Whole(b"0123\n".to_vec());
            assert_eq!(lines, [first, long, last], "chunks of {chunk} bytes");
        }
    }

    #[tokio::test]
    async fn a_cancelled_read_loses_nothing() {
        let (mut ours, theirs) = tokio::io::duplex(64);
        let mut lines = BoundedLines::new(theirs, BOUNDS);
        ours.write_all(b"half").await.unwrap();
        assert!(lines.next_line().now_or_never().is_none());
        ours.write_all(b" more\n").await.unwrap();
        let line = lines.next_line().await.unwrap();
        assert_eq!(line, Some(BoundedLine::Whole(b"half more\n".to_vec())));
    }
}
