//! Waking up when a file changes.
//!
//! The system grants few inotify instances to a user, so the process has one, with a thread of its
//! own: it belongs to no async runtime and serves all of them. Where there is none, or no watch can
//! be added, followers look at the clock alone.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileChange {
    /// A file appears in this directory.
    NewFile,
    /// This file is written or removed.
    Content,
}

/// Wakes its owner; ends when dropped.
#[derive(Debug)]
pub(super) struct FileWatch {
    changed: Arc<Notify>,
    #[cfg(target_os = "linux")]
    _registration: linux::WatchRegistration,
}

impl FileWatch {
    /// None where the system cannot do it.
    pub(super) fn new(path: &Path, change: FileChange) -> Option<Self> {
        let changed = Arc::new(Notify::new());
        Self::placed(path, change, changed)
    }

    #[cfg(target_os = "linux")]
    fn placed(path: &Path, change: FileChange, changed: Arc<Notify>) -> Option<Self> {
        let place = linux::shared_watcher()?.add(path, change, Arc::clone(&changed))?;
        Some(Self { changed, _registration: place })
    }

    #[cfg(not(target_os = "linux"))]
    fn placed(_: &Path, _: FileChange, _: Arc<Notify>) -> Option<Self> {
        None
    }

    /// Ends at once when something changed since it last ended.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::path::Path;
    use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

    use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
    use rustix::io::Errno;
    use tokio::sync::Notify;

    use super::FileChange;

    #[derive(Debug)]
    pub(super) struct InotifyWatcher {
        inotify: OwnedFd,
        /// By watch descriptor. The kernel gives one to all who watch the same file.
        waiters: Mutex<HashMap<i32, Vec<Arc<Notify>>>>,
    }

    /// One waiter's place; given up when dropped.
    #[derive(Debug)]
    pub(super) struct WatchRegistration {
        descriptor: i32,
        changed: Arc<Notify>,
    }

    pub(super) fn shared_watcher() -> Option<&'static InotifyWatcher> {
        static SHARED: OnceLock<Option<InotifyWatcher>> = OnceLock::new();
        static THREAD: OnceLock<bool> = OnceLock::new();
        let shared = SHARED.get_or_init(InotifyWatcher::new).as_ref()?;
        let running = THREAD.get_or_init(|| {
            let thread = std::thread::Builder::new().name("output-watch".into());
            thread.spawn(move || shared.run()).is_ok()
        });
        running.then_some(shared)
    }

    impl InotifyWatcher {
        fn new() -> Option<Self> {
            let inotify = inotify::init(CreateFlags::CLOEXEC).ok()?;
            Some(Self { inotify, waiters: Mutex::default() })
        }

        pub(super) fn add(
            &'static self,
            path: &Path,
            change: FileChange,
            changed: Arc<Notify>,
        ) -> Option<WatchRegistration> {
            let flags = match change {
                FileChange::NewFile => {
                    WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF
                }
                FileChange::Content => {
                    WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::DELETE_SELF
                }
            };
            // Held while the kernel is asked: the last waiter for the same file may be leaving.
            let mut waiting = self.lock_waiters();
            let descriptor = inotify::add_watch(&self.inotify, path, flags).ok()?;
            waiting.entry(descriptor).or_default().push(Arc::clone(&changed));
            Some(WatchRegistration { descriptor, changed })
        }

        fn remove(&self, place: &WatchRegistration) {
            let mut waiting = self.lock_waiters();
            let Some(places) = waiting.get_mut(&place.descriptor) else { return };
            places.retain(|changed| !Arc::ptr_eq(changed, &place.changed));
            if places.is_empty() {
                waiting.remove(&place.descriptor);
                // It fails only when the file is gone and the kernel has done it already.
                let _ = inotify::remove_watch(&self.inotify, place.descriptor);
            }
        }

        fn run(&self) {
            let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
            let mut events = Reader::new(&self.inotify, &mut buffer);
            loop {
                match events.next() {
                    Ok(event) => self.wake(event.wd(), event.events()),
                    Err(Errno::INTR) => {}
                    // Followers still look at the clock.
                    Err(_) => return,
                }
            }
        }

        fn wake(&self, descriptor: i32, events: ReadFlags) {
            let mut waiting = self.lock_waiters();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                waiting.values().flatten().for_each(|changed| changed.notify_one());
                return;
            }
            waiting.get(&descriptor).into_iter().flatten().for_each(|changed| changed.notify_one());
            if events.contains(ReadFlags::IGNORED) {
                waiting.remove(&descriptor);
            }
        }

        fn lock_waiters(&self) -> MutexGuard<'_, HashMap<i32, Vec<Arc<Notify>>>> {
            self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl Drop for WatchRegistration {
        fn drop(&mut self) {
            if let Some(shared) = shared_watcher() {
                shared.remove(self);
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    async fn wakes(watch: &FileWatch) -> bool {
        tokio::time::timeout(Duration::from_millis(500), watch.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn all_who_watch_a_file_wake_until_they_stop() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "a").unwrap();
        let watch = || FileWatch::new(&file, FileChange::Content).unwrap();
        let (first, second) = (watch(), watch());
        fs::write(&file, "b").unwrap();
        assert!(wakes(&first).await && wakes(&second).await);
        drop(second);
        fs::write(&file, "c").unwrap();
        assert!(wakes(&first).await, "one that leaves does not end the other's watch");
        drop(first);
        let again = watch();
        assert!(!wakes(&again).await, "nothing has changed since it began");
        fs::remove_file(&file).unwrap();
        assert!(wakes(&again).await);
    }

    #[tokio::test]
    async fn a_directory_wakes_for_a_new_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("old");
        fs::write(&old, "a").unwrap();
        let watch = FileWatch::new(dir.path(), FileChange::NewFile).unwrap();
        fs::write(&old, "b").unwrap();
        assert!(!wakes(&watch).await);
        fs::rename(&old, dir.path().join("new")).unwrap();
        assert!(wakes(&watch).await);
        assert!(
            FileWatch::new(&old, FileChange::Content).is_none(),
            "what is not there has no watch"
        );
    }
}
