//! How long a call may take, and whether anybody still wants it.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Looked at by whoever works on a call.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    dropped: Arc<AtomicBool>,
    until: Instant,
}

/// Held by whoever waits for the call: gone, the call is not wanted.
#[derive(Debug)]
pub(crate) struct Wanted(Arc<AtomicBool>);

/// Why a call goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    NotWanted,
    TimeIsUp,
}

impl Watch {
    pub(crate) fn start(patience: Duration) -> (Self, Wanted) {
        let dropped = Arc::new(AtomicBool::new(false));
        (Self { dropped: dropped.clone(), until: Instant::now() + patience }, Wanted(dropped))
    }

    pub(crate) fn is_wanted(&self) -> bool {
        !self.dropped.load(Ordering::Acquire)
    }

    pub(crate) fn over(&self) -> Option<Over> {
        if !self.is_wanted() {
            return Some(Over::NotWanted);
        }
        (Instant::now() >= self.until).then_some(Over::TimeIsUp)
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A reader that fails when the call is over, however large the file is.
#[derive(Debug)]
pub(crate) struct Watched<'a, R> {
    pub(crate) reader: R,
    pub(crate) watch: &'a Watch,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.watch.over().is_some() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.reader.read(buffer)
    }
}
