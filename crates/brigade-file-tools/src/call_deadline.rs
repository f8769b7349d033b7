//! How long a call may take, and whether anybody still wants it.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Looked at by whoever works on a call.
#[derive(Clone, Debug)]
pub(crate) struct CallDeadline {
    cancelled: Arc<AtomicBool>,
    expires_at: Instant,
}

/// Held by whoever waits for the call: gone, the call is not wanted.
#[derive(Debug)]
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

/// Why a call goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aborted {
    Cancelled,
    TimedOut,
}

impl CallDeadline {
    pub(crate) fn start(patience: Duration) -> (Self, CancelOnDrop) {
        let dropped = Arc::new(AtomicBool::new(false));
        (
            Self { cancelled: dropped.clone(), expires_at: Instant::now() + patience },
            CancelOnDrop(dropped),
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

/// A reader that fails when the call is over, however large the file is.
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
