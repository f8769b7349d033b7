//! Wakes a follower when a file changes.
//!
//! The system grants few inotify instances to a user. So the process has one, with its own thread,
//! which serves all async runtimes. Without inotify or without a free watch, followers only poll.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::Notify;

/// A change that a watch reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileChange {
    /// A new file in this directory.
    NewFile,
    /// A write to this file, or its removal.
    Content,
}

/// A watch that wakes its owner. It ends when dropped.
#[derive(Debug)]
pub(super) struct FileWatch {
    changed: Arc<Notify>,
    #[cfg(target_os = "linux")]
    _registration: linux::WatchRegistration,
}

impl FileWatch {
    /// Starts a watch. Returns `None` if the system has no watch to give.
    pub(super) fn new(path: &Path, change: FileChange) -> Option<Self> {
        let changed = Arc::new(Notify::new());
        Self::register(path, change, changed)
    }

    #[cfg(target_os = "linux")]
    fn register(path: &Path, change: FileChange, changed: Arc<Notify>) -> Option<Self> {
        let registration = linux::shared_watcher()?.add(path, change, Arc::clone(&changed))?;
        Some(Self { changed, _registration: registration })
    }

    #[cfg(not(target_os = "linux"))]
    fn register(_: &Path, _: FileChange, _: Arc<Notify>) -> Option<Self> {
        None
    }

    /// Waits for a change since the last call. Returns at once if there was one.
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
        /// The waiters of each watch descriptor. The kernel gives one descriptor to all watches of
        /// a file.
        waiters: Mutex<HashMap<i32, Vec<Arc<Notify>>>>,
    }

    /// The registration of one waiter. It is removed when dropped.
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
            // Locked during the system call, because the last waiter for the same file may be about
            // to remove the watch.
            let mut waiters = self.lock_waiters();
            let descriptor = inotify::add_watch(&self.inotify, path, flags).ok()?;
            waiters.entry(descriptor).or_default().push(Arc::clone(&changed));
            Some(WatchRegistration { descriptor, changed })
        }

        fn remove(&self, registration: &WatchRegistration) {
            let mut waiters = self.lock_waiters();
            let Some(registered) = waiters.get_mut(&registration.descriptor) else { return };
            registered.retain(|changed| !Arc::ptr_eq(changed, &registration.changed));
            if registered.is_empty() {
                waiters.remove(&registration.descriptor);
                // Fails only if the file is gone and the kernel has already removed the watch.
                let _ = inotify::remove_watch(&self.inotify, registration.descriptor);
            }
        }

        fn run(&self) {
            let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
            let mut events = Reader::new(&self.inotify, &mut buffer);
            loop {
                match events.next() {
                    Ok(event) => self.wake(event.wd(), event.events()),
                    Err(Errno::INTR) => {}
                    // Followers still poll.
                    Err(_) => return,
                }
            }
        }

        fn wake(&self, descriptor: i32, events: ReadFlags) {
            let mut waiters = self.lock_waiters();
            if events.contains(ReadFlags::QUEUE_OVERFLOW) {
                waiters.values().flatten().for_each(|changed| changed.notify_one());
                return;
            }
            waiters.get(&descriptor).into_iter().flatten().for_each(|changed| changed.notify_one());
            if events.contains(ReadFlags::IGNORED) {
                waiters.remove(&descriptor);
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
    async fn all_watches_of_a_file_wake_until_they_are_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "a").unwrap();
        let watch = || FileWatch::new(&file, FileChange::Content).unwrap();
        let first = watch();
        let second = watch();
        fs::write(&file, "b").unwrap();
        assert!(wakes(&first).await && wakes(&second).await);
        drop(second);
        fs::write(&file, "c").unwrap();
        assert!(wakes(&first).await, "dropping one watch does not end the other");
        drop(first);
        let again = watch();
        assert!(!wakes(&again).await, "nothing has changed since its start");
        fs::remove_file(&file).unwrap();
        assert!(wakes(&again).await);
    }

    #[tokio::test]
    async fn a_directory_watch_wakes_for_new_files_only() {
        let dir = tempfile::tempdir().unwrap();
        let old = dir.path().join("old");
        fs::write(&old, "a").unwrap();
        let watch = FileWatch::new(dir.path(), FileChange::NewFile).unwrap();
        fs::write(&old, "b").unwrap();
        assert!(!wakes(&watch).await);
        fs::rename(&old, dir.path().join("new")).unwrap();
        assert!(wakes(&watch).await);
        assert!(FileWatch::new(&old, FileChange::Content).is_none(), "a missing file has no watch");
    }
}
