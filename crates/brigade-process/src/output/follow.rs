//! Output as it comes.

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
/// How often to look where nothing wakes us: soon after something came, then more and more seldom.
const POLL_MIN: Duration = Duration::from_millis(10);
const POLL_MAX: Duration = Duration::from_millis(200);
/// How often to look although something would wake us.
const WATCHED_POLL: Duration = Duration::from_secs(1);

/// Hands out a view page by page as it grows, each byte once and in order.
pub struct OutputFollower {
    dir: Arc<Path>,
    view: OutputView,
    start: ReadStart,
    max_bytes: usize,
    watching: WatchTarget,
    /// The directory may be yet to come.
    expected: bool,
    /// A record was found, so that its absence means removal.
    record_found: bool,
    finished: bool,
    end_signal: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pause: Duration,
}

#[derive(Debug)]
enum WatchTarget {
    Nothing,
    /// The directory, until the record appears.
    Directory(Option<FileWatch>),
    Record(Option<FileWatch>),
}

impl OutputFollower {
    pub(super) fn new(of: ProcessOutput, which: OutputView, from: ReadStart) -> Self {
        Self {
            dir: of.dir,
            expected: of.expected,
            view: which,
            start: from,
            max_bytes: PAGE_BYTES,
            watching: WatchTarget::Nothing,
            record_found: false,
            finished: false,
            end_signal: None,
            pause: POLL_MIN,
        }
    }

    /// The most bytes in a page, 64 KiB unless said.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// When this future ends, nothing more will come, whatever the record says: a shim that was
    /// killed cannot say so itself.
    pub fn end_when(mut self, ended: impl Future<Output = ()> + Send + 'static) -> Self {
        self.end_signal = Some(Box::pin(ended));
        self
    }

    /// Nothing more will come: what is there is still handed out.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Where the next page begins; None until the first look when it was counted from the end.
    pub fn position(&self) -> Option<u64> {
        match self.start {
            ReadStart::At(position) => Some(position),
            ReadStart::FromEnd(_) => None,
        }
    }

    /// Waits for more. None when all was handed out and nothing more will come; an error when the
    /// directory was removed. Nothing is lost when the call is abandoned.
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
        let looked = tokio::task::spawn_blocking(move || page::read_page(&dir, read)).await;
        let looked = looked.map_err(io::Error::other)?;
        let page = match none_if_expected(self.expected && !self.record_found, looked)? {
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

    /// True when a watch was added: what came before it is to be looked for once more.
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
        let longest = if watch.is_some() { WATCHED_POLL } else { self.pause };
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
            () = tokio::time::sleep(longest) => {}
        }
        self.pause = (self.pause * 2).min(POLL_MAX);
    }
}

impl fmt::Debug for OutputFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow")
            .field("dir", &self.dir)
            .field("which", &self.view)
            .field("from", &self.start)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Instant;

    use super::*;
    use crate::shim::record::{Claimer, ProcessId, ShimPhase, ShimRecord};

    /// As where the system refuses a watch.
    #[tokio::test]
    async fn a_follower_without_a_watch_still_notices() {
        let dir = tempfile::tempdir().unwrap();
        let mut record =
            ShimRecord::new(Claimer::Shim, [0; 16], ProcessId { pid: 1, start: 1 }, 100);
        let claim = File::create(dir.path().join(CLAIM)).unwrap();
        record.write_to(&claim).unwrap();
        let mut follow = OutputFollower::new(
            ProcessOutput::open(dir.path()).unwrap(),
            OutputView::Stdout,
            ReadStart::At(0),
        );
        follow.watching = WatchTarget::Record(None);
        let began = Instant::now();
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            record.phase = ShimPhase::Done;
            record.write_to(&claim).unwrap();
        });
        assert!(follow.next().await.unwrap().is_none());
        assert!(began.elapsed() >= Duration::from_millis(100));
        assert!(follow.pause > POLL_MIN, "it looks more and more seldom");
        writing.join().unwrap();
    }
}
