//! Reads lines of the daemon's protocol with limits on length, time and memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tokio::time::{Instant, timeout_at};

use crate::frames::LINE_BYTES_MAX;

/// The length up to which a line needs no reservation in the byte budget.
const UNBUDGETED_BYTES: usize = 64 * 1024;

/// A reader of lines. A cancelled read keeps the bytes of an unfinished line.
#[derive(Debug)]
pub struct BoundedLineReader<R> {
    reader: R,
    line: Vec<u8>,
    is_line_complete: bool,
    limits: LineLimits,
    /// The reservation of the unfinished line in the shared budget.
    reserved: Option<ByteReservation>,
    /// The time at which the unfinished line must be complete.
    deadline: Option<Instant>,
}

/// The limits for the lines of one connection.
#[derive(Clone, Debug)]
pub struct LineLimits {
    pub line_max: usize,
    /// The time from the first byte of a line to its last.
    pub line_timeout: Option<Duration>,
    /// The bytes of unfinished lines, shared with other connections.
    pub byte_budget: Option<Arc<ByteBudget>>,
}

impl Default for LineLimits {
    fn default() -> Self {
        Self { line_max: LINE_BYTES_MAX as usize, line_timeout: None, byte_budget: None }
    }
}

impl<R: AsyncBufRead + Unpin> BoundedLineReader<R> {
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            line: Vec::new(),
            is_line_complete: false,
            limits: LineLimits::default(),
            reserved: None,
            deadline: None,
        }
    }

    /// Sets the limits for the next lines.
    pub fn set_limits(&mut self, limits: LineLimits) {
        self.limits = limits;
    }

    /// Returns the next line; `None` at the end of the stream.
    pub async fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.discard_line();
        while !self.is_line_complete {
            let filled = self.reader.fill_buf();
            let part = match self.deadline {
                Some(deadline) => {
                    timeout_at(deadline, filled).await.map_err(|_| slow_line_error())??
                }
                None => filled.await?,
            };
            if part.is_empty() {
                return if self.line.is_empty() { Ok(None) } else { Err(truncated_line_error()) };
            }
            let end = part.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(part.len(), |end| end + 1);
            let total = self.line.len() + length;
            if total > self.limits.line_max || (end.is_none() && total == self.limits.line_max) {
                return Err(long_line_error(self.limits.line_max));
            }
            if total > UNBUDGETED_BYTES
                && let Some(budget) = &self.limits.byte_budget
            {
                budget.reserve(&mut self.reserved, total)?;
            }
            self.line.extend_from_slice(&part[..length]);
            self.reader.consume(length);
            self.is_line_complete = end.is_some();
            if self.deadline.is_none() {
                self.deadline = self.limits.line_timeout.map(|timeout| Instant::now() + timeout);
            }
        }
        self.deadline = None;
        Ok(Some(&self.line))
    }

    fn discard_line(&mut self) {
        if self.is_line_complete {
            self.is_line_complete = false;
            self.reserved = None;
            self.line.clear();
            self.line.shrink_to(UNBUDGETED_BYTES);
        }
    }
}

/// The bytes that several connections may hold together.
#[derive(Debug)]
pub struct ByteBudget {
    used: AtomicUsize,
    limit: usize,
}

impl ByteBudget {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    /// Extends a reservation to `total` bytes, or fails and does not change it.
    fn reserve(
        self: &Arc<Self>,
        reserved: &mut Option<ByteReservation>,
        total: usize,
    ) -> io::Result<()> {
        let reservation =
            reserved.get_or_insert_with(|| ByteReservation { budget: self.clone(), bytes: 0 });
        let additional = total.saturating_sub(reservation.bytes);
        let updated = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(additional).filter(|used| *used <= self.limit)
        });
        if updated.is_err() {
            let text = "too many bytes of unfinished lines are held for connections like this one";
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        reservation.bytes = total;
        Ok(())
    }
}

/// A reservation in a byte budget, released on drop.
#[derive(Debug)]
struct ByteReservation {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl Drop for ByteReservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn truncated_line_error() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a line is truncated")
}

fn slow_line_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a line was not finished in time")
}

fn long_line_error(max_bytes: usize) -> io::Error {
    let text = format!("a line is longer than {max_bytes} bytes");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

    use super::*;
    use crate::frames::{encode_line, write_line};

    #[tokio::test]
    async fn a_cancelled_read_loses_nothing() {
        let (mut ours, theirs) = tokio::io::duplex(64);
        let mut lines = BoundedLineReader::new(BufReader::new(theirs));
        for (first, second) in [("{\"id\"", ":1}\n"), ("{}", "\n")] {
            ours.write_all(first.as_bytes()).await.unwrap();
            let cancelled =
                tokio::time::timeout(Duration::from_millis(20), lines.next_line()).await;
            assert!(cancelled.is_err());
            ours.write_all(second.as_bytes()).await.unwrap();
            let line = lines.next_line().await.unwrap().unwrap();
            assert_eq!(line, format!("{first}{second}").as_bytes());
        }
        ours.write_all(b"cut").await.unwrap();
        drop(ours);
        assert_eq!(lines.next_line().await.unwrap_err().to_string(), "a line is truncated");
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused() {
        let endless = tokio::io::repeat(b'x').take(LINE_BYTES_MAX + 10);
        let mut lines = BoundedLineReader::new(BufReader::new(endless));
        let error = lines.next_line().await.unwrap_err();
        assert_eq!(error.to_string(), "a line is longer than 16777216 bytes");
    }

    #[tokio::test]
    async fn the_longest_line_is_read_and_a_longer_one_is_not_written() {
        let longest = "x".repeat(LINE_BYTES_MAX as usize - 3);
        let written = encode_line(&longest).unwrap();
        let mut lines = BoundedLineReader::new(BufReader::new(&*written));
        assert_eq!(lines.next_line().await.unwrap().unwrap().len() as u64, LINE_BYTES_MAX);
        let mut nothing = Vec::new();
        let error = write_line(&mut nothing, &format!("{longest}x")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(nothing, b"");
    }

    #[tokio::test]
    async fn unfinished_lines_share_a_budget_and_release_it() {
        let budget = ByteBudget::new(3 * UNBUDGETED_BYTES);
        let limits = LineLimits { byte_budget: Some(budget.clone()), ..LineLimits::default() };
        let two = [&*vec![b'x'; 2 * UNBUDGETED_BYTES - 1], b"\n"].concat();
        let mut first = BoundedLineReader::new(BufReader::new(&*two));
        first.set_limits(limits.clone());
        assert_eq!(first.next_line().await.unwrap().unwrap().len(), two.len());
        let mut second = BoundedLineReader::new(BufReader::new(&*two));
        second.set_limits(limits.clone());
        assert_eq!(second.next_line().await.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        drop(second);
        assert!(first.next_line().await.unwrap().is_none(), "the first line is discarded");
        let mut third = BoundedLineReader::new(BufReader::new(&*two));
        third.set_limits(limits);
        assert!(third.next_line().await.unwrap().is_some());
        drop(third);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_is_not_complete_in_time_is_refused() {
        let (mut ours, theirs) = tokio::io::duplex(64);
        let mut lines = BoundedLineReader::new(BufReader::new(theirs));
        let line_timeout = Some(Duration::from_secs(10));
        lines.set_limits(LineLimits { line_timeout, ..LineLimits::default() });
        ours.write_all(b"{}\n").await.unwrap();
        assert!(lines.next_line().await.unwrap().is_some());
        // The timeout does not apply between two lines.
        let idle = tokio::time::timeout(Duration::from_secs(3600), lines.next_line()).await;
        assert!(idle.is_err());
        ours.write_all(b"{").await.unwrap();
        assert_eq!(lines.next_line().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
