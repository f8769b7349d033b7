//! The output of a process, line by line or as bytes.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::{fmt, mem};

use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_process::output::{
    OutputFollower, OutputView, PagePiece, ReadStart, StdStream, ViewPage,
};
use futures_util::stream::{self, BoxStream, StreamExt};
use futures_util::{TryFutureExt, TryStreamExt};
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

use super::ResultStream;
use crate::task_handle::TaskHandle;

/// The longest piece of a line, in bytes.
const LINE_MAX: usize = 64 * 1024;

/// A line of a process's output.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputLine {
    pub stream: StdStream,
    /// The line without its end. Each invalid part of it is U+FFFD.
    pub text: String,
    /// True if the line is longer than 64 KiB, and the next line of this stream continues it.
    pub continues: bool,
    /// The number of bytes before this line that are not stored.
    pub dropped_before: u64,
}

/// The bytes of a process's output, both streams in the order of arrival.
pub struct OutputReader {
    pieces: BoxStream<'static, io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    /// The number of bytes of the piece that were read.
    consumed: usize,
}

impl<T> TaskHandle<T> {
    /// Returns the lines of a process's output from its start, as they arrive. The stream ends
    /// with the output.
    ///
    /// A line appears when it is complete. A process with more output than is stored loses the
    /// middle of it: see [`OutputLine::dropped_before`].
    ///
    /// ```
    /// use brigade_process::output::StdStream;
    /// use brigade_runtime::{NewTask, ProcessOptions, Runtime};
    /// use futures_util::TryStreamExt;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let runtime = Runtime::builder().processes(ProcessOptions::new(dir.path())).start().await?;
    /// let session = runtime.session("demo").await?;
    /// let task = session.spawn(NewTask::shell("echo one; echo two >&2")).await?;
    /// let mut lines = task.lines();
    /// let mut seen = Vec::new();
    /// while let Some(line) = lines.try_next().await? {
    ///     seen.push((line.stream, line.text));
    /// }
    /// seen.sort_by(|a, b| a.1.cmp(&b.1));
    /// let expected = [(StdStream::Stdout, "one".to_owned()), (StdStream::Stderr, "two".to_owned())];
    /// assert_eq!(seen, expected);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lines(&self) -> ResultStream<OutputLine> {
        let splitter = LineSplitter::default();
        let lines =
            stream::try_unfold((self.pages(), splitter), |(mut pages, mut splitter)| async move {
                loop {
                    if let Some(line) = splitter.ready.pop_front() {
                        return Ok(Some((line, (pages, splitter))));
                    }
                    match pages.try_next().await.map_err(output_refusal)? {
                        Some(page) => splitter.split_page(page),
                        None if splitter.is_empty() => return Ok(None),
                        None => splitter.flush(),
                    }
                }
            });
        lines.boxed()
    }

    /// Returns a reader of a process's output from its start, both streams in the order of arrival.
    /// It waits for more until the output ends.
    ///
    /// Bytes that are not stored are an error of one read. The next read continues after them.
    ///
    /// ```
    /// use brigade_runtime::{NewTask, ProcessOptions, Runtime};
    /// use tokio::io::AsyncReadExt;
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let runtime = Runtime::builder().processes(ProcessOptions::new(dir.path())).start().await?;
    /// let session = runtime.session("demo").await?;
    /// let task = session.spawn(NewTask::shell("printf 'one\ntwo'")).await?;
    /// let mut output = String::new();
    /// task.reader().read_to_string(&mut output).await?;
    /// assert_eq!(output, "one\ntwo");
    /// # Ok(())
    /// # }
    /// ```
    pub fn reader(&self) -> OutputReader {
        let pieces = self.pages().map_ok(|page| {
            stream::iter(page.pieces.into_iter().map(|piece| match piece {
                PagePiece::Bytes { bytes, .. } => Ok(bytes),
                PagePiece::Dropped { bytes } => {
                    let problem = format!("{bytes} bytes of the output are not stored");
                    Err(io::Error::new(io::ErrorKind::InvalidData, problem))
                }
            }))
        });
        let pieces = pieces.try_flatten().boxed();
        OutputReader { pieces, piece: Vec::new(), consumed: 0 }
    }

    /// Returns the pages of the output of this run.
    fn pages(&self) -> BoxStream<'static, io::Result<ViewPage>> {
        let task = self.clone().typed::<Json>();
        let opened = async move {
            let followed = task.follow(OutputView::Combined, ReadStart::At(0)).await;
            followed.map(follow_pages).map_err(io::Error::other)
        };
        opened.try_flatten_stream().boxed()
    }
}

fn follow_pages(follower: OutputFollower) -> BoxStream<'static, io::Result<ViewPage>> {
    let pages = stream::try_unfold(follower, |mut follower| async move {
        Ok(follower.next().await?.map(|page| (page, follower)))
    });
    pages.boxed()
}

fn output_refusal(error: io::Error) -> Refusal {
    match error.downcast::<Refusal>() {
        Ok(refusal) => refusal,
        Err(error) => Refusal::unavailable(format!("its output: {error}")),
    }
}

/// Splits the bytes of both streams into lines.
#[derive(Debug, Default)]
struct LineSplitter {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    /// The dropped bytes that no line has reported.
    dropped: u64,
    ready: VecDeque<OutputLine>,
}

impl LineSplitter {
    fn split_page(&mut self, page: ViewPage) {
        for piece in page.pieces {
            match piece {
                PagePiece::Bytes { stream, bytes, .. } => self.split_bytes(stream, &bytes),
                PagePiece::Dropped { bytes } => {
                    self.flush();
                    self.dropped += bytes;
                }
            }
        }
    }

    fn split_bytes(&mut self, stream: StdStream, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let line = part.strip_suffix(b"\n");
            self.unfinished_line(stream).extend_from_slice(line.unwrap_or(part));
            while self.unfinished_line(stream).len() > LINE_MAX {
                let cut = character_start(self.unfinished_line(stream), LINE_MAX);
                let after = self.unfinished_line(stream).split_off(cut);
                let piece = mem::replace(self.unfinished_line(stream), after);
                self.push_line(stream, &piece, true);
            }
            if line.is_some() {
                let whole = mem::take(self.unfinished_line(stream));
                self.push_line(stream, whole.strip_suffix(b"\r").unwrap_or(&whole), false);
            }
        }
    }

    /// Ends the lines that have no line end.
    fn flush(&mut self) {
        for stream in StdStream::BOTH {
            let rest = mem::take(self.unfinished_line(stream));
            if !rest.is_empty() {
                self.push_line(stream, &rest, false);
            }
        }
    }

    fn push_line(&mut self, stream: StdStream, bytes: &[u8], continues: bool) {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let dropped_before = mem::take(&mut self.dropped);
        self.ready.push_back(OutputLine { stream, text, continues, dropped_before });
    }

    fn unfinished_line(&mut self, stream: StdStream) -> &mut Vec<u8> {
        match stream {
            StdStream::Stdout => &mut self.stdout,
            StdStream::Stderr => &mut self.stderr,
        }
    }

    fn is_empty(&self) -> bool {
        self.stdout.is_empty() && self.stderr.is_empty() && self.ready.is_empty()
    }
}

/// Returns the start of the character at this position, at most three bytes before it.
fn character_start(bytes: &[u8], position: usize) -> usize {
    let continues = |at: &usize| bytes[*at] & 0b1100_0000 == 0b1000_0000;
    (position - 3..=position).rev().find(|at| !continues(at)).unwrap_or(position)
}

impl AsyncBufRead for OutputReader {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        while this.consumed == this.piece.len() {
            let Some(piece) = ready!(this.pieces.poll_next_unpin(context)) else {
                return Poll::Ready(Ok(&[]));
            };
            this.piece = piece?;
            this.consumed = 0;
        }
        Poll::Ready(Ok(&this.piece[this.consumed..]))
    }

    fn consume(mut self: Pin<&mut Self>, bytes: usize) {
        self.consumed = (self.consumed + bytes).min(self.piece.len());
    }
}

impl AsyncRead for OutputReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = ready!(self.as_mut().poll_fill_buf(context))?;
        let read = bytes.len().min(into.remaining());
        into.put_slice(&bytes[..read]);
        self.consume(read);
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for OutputReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputReader").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&[u8]]) -> Vec<OutputLine> {
        let mut splitter = LineSplitter::default();
        for piece in pieces {
            splitter.split_bytes(StdStream::Stdout, piece);
        }
        splitter.flush();
        splitter.ready.into()
    }

    #[test]
    fn a_long_line_comes_in_pieces_that_split_no_character() {
        let long = "é".repeat(LINE_MAX);
        let found = lines(&[b"x", long.as_bytes(), b"\nnext\r\n"]);
        let joined: String = found.iter().map(|line| &*line.text).collect();
        assert_eq!(joined, format!("x{long}next"));
        assert!(found.iter().all(|line| line.text.len() <= LINE_MAX));
        let continues: Vec<bool> = found.iter().map(|line| line.continues).collect();
        assert_eq!(continues, [true, true, false, false]);
    }

    #[test]
    fn a_line_end_between_two_pieces_and_invalid_text_are_read() {
        let found = lines(&[b"on", b"e\n\xff\n", b"\nlast"]);
        let texts: Vec<&str> = found.iter().map(|line| &*line.text).collect();
        assert_eq!(texts, ["one", "\u{fffd}", "", "last"]);
    }
}
