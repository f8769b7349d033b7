//! Output as it comes.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::files::removed;
use super::page::{self, Page};
use super::watch::{Change, Watch};
use super::{Output, Read, Start, Which, if_made};
use crate::shim::layout::CLAIM;

const PAGE_BYTES: usize = 64 * 1024;
/// How often to look where nothing wakes us: soon after something came, then more and more seldom.
const LOOK_FIRST: Duration = Duration::from_millis(10);
const LOOK_LAST: Duration = Duration::from_millis(200);
/// How often to look although something would wake us.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// Hands out a view page by page as it grows, each byte once and in order.
pub struct Follow {
    dir: Arc<Path>,
    which: Which,
    from: Start,
    max_bytes: usize,
    watching: Watching,
    /// The directory may be yet to come.
    expected: bool,
    /// A record was found, so that its absence means removal.
    found: bool,
    finished: bool,
    ended_by: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    pause: Duration,
}

#[derive(Debug)]
enum Watching {
    Nothing,
    /// The directory, until the record appears.
    Directory(Option<Watch>),
    Record(Option<Watch>),
}

impl Follow {
    pub(super) fn new(of: Output, which: Which, from: Start) -> Self {
        Self {
            dir: of.dir,
            expected: of.expected,
            which,
            from,
            max_bytes: PAGE_BYTES,
            watching: Watching::Nothing,
            found: false,
            finished: false,
            ended_by: None,
            pause: LOOK_FIRST,
        }
    }

    /// The most bytes in a page, 64 KiB unless said.
    pub fn max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// When this future ends, nothing more will come, whatever the record says: a shim that was
    /// killed cannot say so itself.
    pub fn ended_by(mut self, ended: impl Future<Output = ()> + Send + 'static) -> Self {
        self.ended_by = Some(Box::pin(ended));
        self
    }

    /// Nothing more will come: what is there is still handed out.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Where the next page begins; None until the first look when it was counted from the end.
    pub fn position(&self) -> Option<u64> {
        match self.from {
            Start::At(position) => Some(position),
            Start::FromEnd(_) => None,
        }
    }

    /// Waits for more. None when all was handed out and nothing more will come; an error when the
    /// directory was removed. Nothing is lost when the call is abandoned.
    pub async fn next(&mut self) -> io::Result<Option<Page>> {
        loop {
            let finished = self.finished;
            let page = self.look().await?;
            if !page.is_empty() {
                self.pause = LOOK_FIRST;
                return Ok(Some(page));
            }
            if page.ended || finished {
                return Ok(None);
            }
            if !self.watch_closer() {
                self.wait().await;
            }
        }
    }

    async fn look(&mut self) -> io::Result<Page> {
        let read = Read { which: self.which, from: self.from, max_bytes: self.max_bytes };
        let dir = Arc::clone(&self.dir);
        let looked = tokio::task::spawn_blocking(move || page::read(&dir, read)).await;
        let looked = looked.map_err(io::Error::other)?;
        let page = match if_made(self.expected && !self.found, looked)? {
            Some(page) => {
                self.found = true;
                page
            }
            None if self.found => return Err(removed(&self.dir)),
            None => Page::nothing(self.from),
        };
        self.from = Start::At(page.next);
        Ok(page)
    }

    /// True when a watch was added: what came before it is to be looked for once more.
    fn watch_closer(&mut self) -> bool {
        match self.watching {
            Watching::Record(_) => return false,
            Watching::Directory(_) if !self.found => return false,
            Watching::Nothing | Watching::Directory(_) => {}
        }
        self.watching = if self.found {
            Watching::Record(Watch::new(&self.dir.join(CLAIM), Change::Content))
        } else {
            Watching::Directory(Watch::new(&self.dir, Change::NewFile))
        };
        true
    }

    async fn wait(&mut self) {
        let watch = match &self.watching {
            Watching::Nothing => None,
            Watching::Directory(watch) | Watching::Record(watch) => watch.as_ref(),
        };
        let longest = if watch.is_some() { LOOK_ANYWAY } else { self.pause };
        let changed = async {
            match watch {
                Some(watch) => watch.changed().await,
                None => std::future::pending().await,
            }
        };
        let ended = async {
            match &mut self.ended_by {
                Some(ended) => ended.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed => {}
            () = ended => {
                self.ended_by = None;
                self.finished = true;
            }
            () = tokio::time::sleep(longest) => {}
        }
        self.pause = (self.pause * 2).min(LOOK_LAST);
    }
}

impl fmt::Debug for Follow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Follow")
            .field("dir", &self.dir)
            .field("which", &self.which)
            .field("from", &self.from)
            .field("finished", &self.finished)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Instant;

    use super::*;
    use crate::shim::record::{Claimer, Phase, ProcessId, Record};

    /// As where the system refuses a watch.
    #[tokio::test]
    async fn a_follower_without_a_watch_still_notices() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::new(Claimer::Shim, [0; 16], ProcessId { pid: 1, start: 1 }, 100);
        let claim = File::create(dir.path().join(CLAIM)).unwrap();
        record.write_to(&claim).unwrap();
        let mut follow =
            Follow::new(Output::open(dir.path()).unwrap(), Which::Stdout, Start::At(0));
        follow.watching = Watching::Record(None);
        let began = Instant::now();
        let writing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            record.phase = Phase::Done;
            record.write_to(&claim).unwrap();
        });
        assert!(follow.next().await.unwrap().is_none());
        assert!(began.elapsed() >= Duration::from_millis(100));
        assert!(follow.pause > LOOK_FIRST, "it looks more and more seldom");
        writing.join().unwrap();
    }
}
