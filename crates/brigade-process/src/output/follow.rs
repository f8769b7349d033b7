//! Follows output as it arrives.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::file_watch::{FileChange, FileWatch};
use super::files::removed_error;
use super::page::{self, ViewPage};
use super::{OutputRead, OutputView, ProcessOutput, ReadStart, none_if_expected};
use crate::shim::layout::CLAIM;

const PAGE_BYTES: usize = 64 * 1024;
/// The bounds of the poll interval without a watch. It doubles while nothing arrives.
const POLL_MIN: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_millis(200);
/// The poll interval with a watch.
const WATCHED_POLL: Duration = Duration::from_secs(1);

/// A reader that yields a view page by page as it grows, each byte once and in order.
pub struct OutputFollower {
    dir: Arc<Path>,
    view: OutputView,
    start: ReadStart,
    max_bytes: usize,
    watching: WatchTarget,
    /// True if the directory may not exist yet.
    expected: bool,
    /// True once a record was found. From then on, a missing record was removed.
    record_found: bool,
    finished: bool,
    end_signal: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pause: Duration,
}

#[derive(Debug)]
enum WatchTarget {
    Nothing,
    /// The directory, until the record exists.
    Directory(Option<FileWatch>),
    Record(Option<FileWatch>),
}

impl OutputFollower {
    pub(super) fn new(output: ProcessOutput, view: OutputView, start: ReadStart) -> Self {
        Self {
            dir: output.dir,
            expected: output.expected,
            view,
            start,
            max_bytes: PAGE_BYTES,
            watching: WatchTarget::Nothing,
            record_found: false,
            finished: false,
            end_signal: None,
            pause: POLL_MIN,
        }
    }

    /// Sets the most bytes of a page. The default is 64 KiB.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Ends the follower when this future completes, whatever the record says. A killed shim cannot
    /// record its end.
    pub fn end_when(mut self, ended: impl Future<Output = ()> + Send + 'static) -> Self {
        self.end_signal = Some(Box::pin(ended));
        self
    }

    /// Ends the follower after the output that is already there.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Returns the start of the next page, or `None` before the first read if it counts from the
    /// end.
    pub fn position(&self) -> Option<u64> {
        match self.start {
            ReadStart::At(position) => Some(position),
            ReadStart::FromEnd(_) => None,
        }
    }

    /// Waits for the next page. Returns `None` after the last one, and an error if the directory
    /// was removed. Cancel-safe: a dropped call loses nothing.
    pub async fn next(&mut self) -> io::Result<Option<ViewPage>> {
        loop {
            let finished = self.finished;
            let page = self.read_page().await?;
            if !page.is_empty() {
                self.pause = POLL_MIN;
                return Ok(Some(page));
            }
            if page.ended || finished {
                return Ok(None);
            }
            if !self.narrow_watch() {
                self.wait().await;
            }
        }
    }

    async fn read_page(&mut self) -> io::Result<ViewPage> {
        let read = OutputRead { view: self.view, start: self.start, max_bytes: self.max_bytes };
        let dir = Arc::clone(&self.dir);
        let result = tokio::task::spawn_blocking(move || page::read_page(&dir, read)).await;
        let result = result.map_err(io::Error::other)?;
        let page = match none_if_expected(self.expected && !self.record_found, result)? {
            Some(page) => {
                self.record_found = true;
                page
            }
            None if self.record_found => return Err(removed_error(&self.dir)),
            None => ViewPage::empty(self.start),
        };
        self.start = ReadStart::At(page.next);
        Ok(page)
    }

    /// Watches the record as soon as it exists. Returns true after a new watch, since changes
    /// before it need one more read.
    fn narrow_watch(&mut self) -> bool {
        match self.watching {
            WatchTarget::Record(_) => return false,
            WatchTarget::Directory(_) if !self.record_found => return false,
            WatchTarget::Nothing | WatchTarget::Directory(_) => {}
        }
        self.watching = if self.record_found {
            WatchTarget::Record(FileWatch::new(&self.dir.join(CLAIM), FileChange::Content))
        } else {
            WatchTarget::Directory(FileWatch::new(&self.dir, FileChange::NewFile))
        };
        true
    }

    async fn wait(&mut self) {
        let watch = match &self.watching {
            WatchTarget::Nothing => None,
            WatchTarget::Directory(watch) | WatchTarget::Record(watch) => watch.as_ref(),
        };
        let timeout = if watch.is_some() { WATCHED_POLL } else { self.pause };
        let changed = async {
            match watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        let ended = async {
            match &mut self.end_signal {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = ended => {
                self.end_signal = None;
                self.finished = true;
            }
            () = tokio::time::sleep(timeout) => {}
        }
        self.pause = (self.pause * 2).min(POLL_MAX);
    }
}

impl fmt::Debug for OutputFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputFollower")
            .field("dir", &self.dir)
            .field("view", &self.view)
            .field("start", &self.start)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Instant;

    use super::*;
    use crate::process_identity::{BootId, ProcessId};
    use crate::shim::record::{Claimer, ShimPhase, ShimRecord};

    /// A watch of `None` stands for a system that refuses one.
    #[tokio::test]
    async fn a_follower_without_a_watch_sees_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut record =
            ShimRecord::new(Claimer::Shim, BootId([0; 16]), ProcessId { pid: 1, start: 1 }, 100);
        let claim = File::create(dir.path().join(CLAIM)).unwrap();
        record.write_to(&claim).unwrap();
        let mut follower = OutputFollower::new(
            ProcessOutput::open(dir.path()).unwrap(),
            OutputView::Stdout,
            ReadStart::At(0),
        );
        follower.watching = WatchTarget::Record(None);
        let start = Instant::now();
        let writer = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            record.phase = ShimPhase::Done;
            record.write_to(&claim).unwrap();
        });
        assert!(follower.next().await.unwrap().is_none());
        assert!(start.elapsed() >= Duration::from_millis(100));
        assert!(follower.pause > POLL_MIN, "the poll interval grows");
        writer.join().unwrap();
    }
}
