//! Lines of the daemon's protocol, read within bounds.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt};
use tokio::time::{Instant, timeout_at};

use crate::wire::LINE_MAX;

/// A line up to this length is held without asking anybody.
const FREE_BYTES: usize = 64 * 1024;

/// Lines as they come. Bytes of an unfinished line are kept when a read is given up.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    is_taken: bool,
    bounds: LineBounds,
    /// What the unfinished line has of the shared budget.
    reserved: Option<Reservation>,
    /// When the unfinished line must be finished.
    deadline: Option<Instant>,
}

/// Bounds on the lines of one connection.
#[derive(Clone, Debug)]
pub(crate) struct LineBounds {
    pub(crate) line_max: usize,
    /// How long a line may take from its first byte to its last.
    pub(crate) within: Option<Duration>,
    /// Shared with other connections: bytes of unfinished lines.
    pub(crate) unfinished: Option<Arc<ByteBudget>>,
}

impl Default for LineBounds {
    fn default() -> Self {
        Self { line_max: LINE_MAX as usize, within: None, unfinished: None }
    }
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    pub(crate) fn new(reader: R) -> Self {
        let bounds = LineBounds::default();
        Self { reader, line: Vec::new(), is_taken: false, bounds, reserved: None, deadline: None }
    }

    /// Sets the bounds of the lines from the next one on.
    pub(crate) fn set_bounds(&mut self, bounds: LineBounds) {
        self.bounds = bounds;
    }

    /// The next line. None at the end of the stream.
    pub(crate) async fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.forget_taken();
        while !self.is_taken {
            let filled = self.reader.fill_buf();
            let part = match self.deadline {
                Some(deadline) => timeout_at(deadline, filled).await.map_err(|_| slow())??,
                None => filled.await?,
            };
            if part.is_empty() {
                return if self.line.is_empty() { Ok(None) } else { Err(cut()) };
            }
            let end = part.iter().position(|byte| *byte == b'\n');
            let length = end.map_or(part.len(), |end| end + 1);
            let total = self.line.len() + length;
            if total > self.bounds.line_max || (end.is_none() && total == self.bounds.line_max) {
                return Err(too_long(self.bounds.line_max));
            }
            if total > FREE_BYTES
                && let Some(budget) = &self.bounds.unfinished
            {
                budget.reserve(&mut self.reserved, total)?;
            }
            self.line.extend_from_slice(&part[..length]);
            self.reader.consume(length);
            self.is_taken = end.is_some();
            if self.deadline.is_none() {
                self.deadline = self.bounds.within.map(|within| Instant::now() + within);
            }
        }
        self.deadline = None;
        Ok(Some(&self.line))
    }

    fn forget_taken(&mut self) {
        if self.is_taken {
            self.is_taken = false;
            self.reserved = None;
            self.line.clear();
            self.line.shrink_to(FREE_BYTES);
        }
    }
}

/// Bytes that several connections may hold together.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    used: AtomicUsize,
    most: usize,
}

impl ByteBudget {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), most })
    }

    /// Makes a reservation as large as `total`, or fails and leaves it as it is.
    fn reserve(
        self: &Arc<Self>,
        reserved: &mut Option<Reservation>,
        total: usize,
    ) -> io::Result<()> {
        let reservation =
            reserved.get_or_insert_with(|| Reservation { budget: self.clone(), bytes: 0 });
        let more = total.saturating_sub(reservation.bytes);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(more).filter(|used| *used <= self.most)
        });
        if taken.is_err() {
            let text = "too many bytes of unfinished lines are held for connections like this one";
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        reservation.bytes = total;
        Ok(())
    }
}

/// A part of a budget, given back on drop.
#[derive(Debug)]
struct Reservation {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a line is cut")
}

fn slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "a line was not finished in time")
}

fn too_long(most: usize) -> io::Error {
    let text = format!("a line is longer than {most} bytes");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};

    use super::*;
    use crate::wire::{line, write_line};

    #[tokio::test]
    async fn a_read_that_is_given_up_loses_nothing() {
        let (mut ours, theirs) = tokio::io::duplex(64);
        let mut lines = Lines::new(BufReader::new(theirs));
        for (first, second) in [("{\"id\"", ":1}\n"), ("{}", "\n")] {
            ours.write_all(first.as_bytes()).await.unwrap();
            let given_up = tokio::time::timeout(Duration::from_millis(20), lines.next()).await;
            assert!(given_up.is_err());
            ours.write_all(second.as_bytes()).await.unwrap();
            let line = lines.next().await.unwrap().unwrap();
            assert_eq!(line, format!("{first}{second}").as_bytes());
        }
        ours.write_all(b"cut").await.unwrap();
        drop(ours);
        assert_eq!(lines.next().await.unwrap_err().to_string(), "a line is cut");
    }

    #[tokio::test]
    async fn a_line_without_end_is_refused() {
        let endless = tokio::io::repeat(b'x').take(LINE_MAX + 10);
        let mut lines = Lines::new(BufReader::new(endless));
        let error = lines.next().await.unwrap_err();
        assert_eq!(error.to_string(), "a line is longer than 16777216 bytes");
    }

    #[tokio::test]
    async fn the_longest_line_is_read_and_a_longer_one_is_not_written() {
        let longest = "x".repeat(LINE_MAX as usize - 3);
        let written = line(&longest).unwrap();
        let mut lines = Lines::new(BufReader::new(&*written));
        assert_eq!(lines.next().await.unwrap().unwrap().len() as u64, LINE_MAX);
        let mut nothing = Vec::new();
        let error = write_line(&mut nothing, &format!("{longest}x")).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(nothing, b"");
    }

    #[tokio::test]
    async fn unfinished_lines_share_a_budget_and_give_it_back() {
        let budget = ByteBudget::new(3 * FREE_BYTES);
        let bounds = LineBounds { unfinished: Some(budget.clone()), ..LineBounds::default() };
        let two = [&*vec![b'x'; 2 * FREE_BYTES - 1], b"\n"].concat();
        let mut first = Lines::new(BufReader::new(&*two));
        first.set_bounds(bounds.clone());
        assert_eq!(first.next().await.unwrap().unwrap().len(), two.len());
        let mut second = Lines::new(BufReader::new(&*two));
        second.set_bounds(bounds.clone());
        assert_eq!(second.next().await.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        drop(second);
        assert!(first.next().await.unwrap().is_none(), "the line is done with");
        let mut third = Lines::new(BufReader::new(&*two));
        third.set_bounds(bounds);
        assert!(third.next().await.unwrap().is_some());
        drop(third);
        assert_eq!(budget.used.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_is_not_finished_in_time_is_given_up() {
        let (mut ours, theirs) = tokio::io::duplex(64);
        let mut lines = Lines::new(BufReader::new(theirs));
        let within = Some(Duration::from_secs(10));
        lines.set_bounds(LineBounds { within, ..LineBounds::default() });
        ours.write_all(b"{}\n").await.unwrap();
        assert!(lines.next().await.unwrap().is_some());
        // Between two lines there is no hurry.
        let quiet = tokio::time::timeout(Duration::from_secs(3600), lines.next()).await;
        assert!(quiet.is_err());
        ours.write_all(b"{").await.unwrap();
        assert_eq!(lines.next().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
