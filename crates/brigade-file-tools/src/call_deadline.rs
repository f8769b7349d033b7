//! Timeout and cancellation of a call.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The deadline and cancellation flag that the work of a call checks.
#[derive(Clone, Debug)]
pub(crate) struct CallDeadline {
    cancelled: Arc<AtomicBool>,
    expires_at: Instant,
}

/// A guard held by the waiter of a call. Dropping it cancels the call.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

/// The reason why a call stops early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aborted {
    Cancelled,
    TimedOut,
}

impl CallDeadline {
    pub(crate) fn start(timeout: Duration) -> (Self, CancelOnDrop) {
        let cancelled = Arc::new(AtomicBool::new(false));
        (
            Self { cancelled: cancelled.clone(), expires_at: Instant::now() + timeout },
            CancelOnDrop(cancelled),
        )
    }

    pub(crate) fn is_active(&self) -> bool {
        !self.cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn aborted(&self) -> Option<Aborted> {
        if !self.is_active() {
            return Some(Aborted::Cancelled);
        }
        (Instant::now() >= self.expires_at).then_some(Aborted::TimedOut)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A reader that fails once the call is aborted, also in mid-file.
#[derive(Debug)]
pub(crate) struct DeadlineReader<'a, R> {
    pub(crate) reader: R,
    pub(crate) deadline: &'a CallDeadline,
}

impl<R: Read> Read for DeadlineReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.deadline.aborted().is_some() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.reader.read(buffer)
    }
}
