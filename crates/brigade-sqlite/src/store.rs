//! Opens a SQLite file as a store and forwards the calls of `Store`.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::future::ready;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use brigade_model::call::JournalEntry;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, MessageNo, Owner, Position, RunNo, SessionId, TaskNo, Time};
use brigade_model::message::MessageKeyScope;
use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{MessageKeyMark, MessageRow, SessionRow};
use brigade_store::{
    AcquireResult, Batch, EventPage, EventQuery, JournalQuery, LoadedSession, MessagePage,
    MessageQuery, PruneResult, Retention, RunRow, Store, StoreError, StoreFuture, TaskQuery,
};
use rusqlite::{Connection, OpenFlags};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::error::{Result, unavailable};
use crate::lanes::FileLanes;
use crate::lock::OwnerLock;
use crate::prune::PruneJob;
use crate::read::ReadTransaction;
use crate::schema::{FileContent, examine, migrate, open_for_reading, open_immutable};
use crate::write::SqliteWriter;

/// The default of [`SqliteOptions::busy_timeout`].
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest commit after which the next one is expected to be short too.
const SHORT_COMMIT: Duration = Duration::from_millis(5);

/// The most idle read connections in the pool.
const IDLE_READERS_MAX: usize = 4;

/// The durability of commits in a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynchronousMode {
    /// Commits survive the end of the process. A power cut can lose the last of them.
    #[default]
    Normal,
    /// Commits survive a power cut. Each commit waits for the disk.
    Full,
}

/// Options of [`SqliteStore::open`].
#[derive(Clone, Copy, Debug)]
pub struct SqliteOptions {
    pub synchronous: SynchronousMode,
    /// The time that a call waits for another program that has locked the file, such as a backup.
    /// Then the call fails with [`StoreError::Unavailable`].
    pub busy_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { synchronous: SynchronousMode::default(), busy_timeout: BUSY_TIMEOUT }
    }
}

/// A store of sessions in one SQLite file.
///
/// ```
/// use brigade_sqlite::SqliteStore;
/// use brigade_store::StoreError;
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("kitchen.db");
/// let store = SqliteStore::open(&path)?;
/// let second = SqliteStore::open(&path);
/// assert!(matches!(second, Err(StoreError::Locked { .. })));
/// let reader = SqliteStore::open_read_only(&path)?;
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    readers: Mutex<Vec<Connection>>,
    /// The writer; `None` if the store was opened read-only.
    writer: Option<Mutex<SqliteWriter>>,
    synchronous: SynchronousMode,
    lanes: FileLanes,
    /// True if the next commit may wait for the disk.
    next_commit_may_block: AtomicBool,
    /// The owner's lock. It is the last field, so that the connections are closed before it is
    /// released.
    _lock: Option<OwnerLock>,
}

impl SqliteStore {
    /// Opens a store as its one owner, and creates the file if there is none.
    ///
    /// Fails with [`StoreError::Locked`] while another owner has the store. A file of another
    /// program or of a newer version, or a damaged one, is refused and not changed. An empty file
    /// counts as none, since a crash during creation can leave one.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens a store with options. See [`SqliteStore::open`].
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        Ok(Self::open_as_owner(path.as_ref(), options)?)
    }

    /// Opens a store for reading, also beside its owner. It sees the owner's commits and refuses to
    /// write.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Ok(Self::open_as_reader(path.as_ref())?)
    }

    /// Opens a store that has no owner, for reading. It creates no files beside the database and
    /// does not see commits of an owner that starts later.
    pub fn open_immutable(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Ok(Self::open_reader(path.as_ref(), open_immutable)?)
    }

    fn open_as_owner(path: &Path, options: SqliteOptions) -> Result<Self> {
        let path = canonical_path(path)?;
        examine(&path)?.refuse_incomplete_copy(&path)?;
        let lock = OwnerLock::acquire(&path)?;
        // The last holder of the lock may have written a newer version.
        examine(&path)?.refuse_incomplete_copy(&path)?;
        create_private_file(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut conn = Connection::open_with_flags(&path, flags)?;
        conn.busy_timeout(options.busy_timeout)?;
        conn.set_prepared_statement_cache_capacity(64);
        migrate(&mut conn)?;
        conn.pragma_update(None, "journal_mode", "wal")?;
        let synchronous = match options.synchronous {
            SynchronousMode::Normal => "normal",
            SynchronousMode::Full => "full",
        };
        conn.pragma_update(None, "synchronous", synchronous)?;
        conn.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
        conn.pragma_update(None, "cache_size", -16 * 1024)?;
        let lanes = FileLanes::read(&conn)?;
        let writer = Some(Mutex::new(SqliteWriter::new(conn, options.busy_timeout, lanes)?));
        Ok(Self {
            path,
            readers: Mutex::default(),
            writer,
            synchronous: options.synchronous,
            lanes,
            next_commit_may_block: AtomicBool::new(true),
            _lock: Some(lock),
        })
    }

    fn open_as_reader(path: &Path) -> Result<Self> {
        Self::open_reader(path, open_for_reading)
    }

    fn open_reader(path: &Path, open: fn(&Path) -> Result<Connection>) -> Result<Self> {
        let path = canonical_path(path)?;
        if examine(&path)?.refuse_incomplete_copy(&path)? == FileContent::Nothing {
            return Err(unavailable(format!("there is no store at {}", path.display())));
        }
        let first = open(&path)?;
        let lanes = FileLanes::read(&first)?;
        Ok(Self {
            path,
            readers: Mutex::new(vec![first]),
            writer: None,
            synchronous: SynchronousMode::default(),
            lanes,
            next_commit_may_block: AtomicBool::new(true),
            _lock: None,
        })
    }

    /// Limits the size of the file, to simulate a full disk.
    #[doc(hidden)]
    pub fn set_max_pages(&self, pages: u32) -> Result<(), StoreError> {
        self.with_writer(|writer| Ok(writer.set_max_pages(pages)?))
    }

    pub(crate) fn with_writer<T>(
        &self,
        work: impl FnOnce(&mut SqliteWriter) -> Result<T>,
    ) -> Result<T, StoreError> {
        let writer = self.writer.as_ref().ok_or(StoreError::ReadOnly)?;
        on_this_thread(|| {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            let done = work(&mut writer)?;
            if writer.needs_checkpoint() {
                writer.checkpoint();
                // The first commit after a checkpoint waits for the disk when the log starts again.
                self.next_commit_may_block.store(true, Ordering::Relaxed);
            }
            Ok(done)
        })
    }

    /// Commits a batch, at once if that is not expected to block this thread for long: the hand-over
    /// of a thread would cost more than the commit.
    fn commit_batch(&self, batch: &Batch) -> Result<Position, StoreError> {
        let may_block = self.synchronous == SynchronousMode::Full
            || self.next_commit_may_block.load(Ordering::Relaxed);
        if !may_block && let Some(done) = self.commit_at_once(batch) {
            return done;
        }
        self.with_writer(|writer| self.timed(|| writer.commit(batch)))
    }

    /// Commits a batch without waiting for a lock. Returns `None` if another caller or another
    /// program is writing.
    fn commit_at_once(&self, batch: &Batch) -> Option<Result<Position, StoreError>> {
        let mut writer = self.writer.as_ref()?.try_lock().ok()?;
        let done = self.timed(|| writer.commit_unless_busy(batch)).transpose()?;
        if writer.needs_checkpoint() {
            self.next_commit_may_block.store(true, Ordering::Relaxed);
        }
        Some(done.map_err(StoreError::from))
    }

    /// Runs a commit, and expects the next one to take about as long.
    fn timed<T>(&self, commit: impl FnOnce() -> T) -> T {
        let started_at = Instant::now();
        let done = commit();
        self.next_commit_may_block.store(started_at.elapsed() > SHORT_COMMIT, Ordering::Relaxed);
        done
    }

    /// Reads within one transaction, so that all rows are of one commit.
    pub(crate) fn with_reader<T>(
        &self,
        work: impl FnOnce(&ReadTransaction<'_>) -> Result<T>,
    ) -> Result<T, StoreError> {
        on_this_thread(|| {
            let conn = self.take_reader()?;
            let result = ReadTransaction::begin(&conn, self.lanes).and_then(|reader| work(&reader));
            let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if readers.len() < IDLE_READERS_MAX {
                readers.push(conn);
            }
            Ok(result?)
        })
    }

    fn take_reader(&self) -> Result<Connection> {
        let idle = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| open_for_reading(&self.path), Ok)
    }
}

/// Runs blocking work on this thread, since a switch to another thread would cost more than the
/// work. In a multi-threaded runtime it uses `block_in_place`, so that no other task waits for it.
pub(crate) fn on_this_thread<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) if !BLOCK_IN_PLACE_REFUSED.get() => try_block_in_place(work),
        _ => work(),
    }
}

thread_local! {
    /// True if this thread runs a `LocalSet`, in which `block_in_place` panics.
    static BLOCK_IN_PLACE_REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Runs work with `block_in_place`, or without it if tokio refuses. Tokio has no query for that: it
/// panics before it begins the work.
fn try_block_in_place<T>(work: impl FnOnce() -> T) -> T {
    let mut work = Some(work);
    let blocking = AssertUnwindSafe(|| block_in_place(|| work.take().map(|work| work())));
    match (catch_unwind(blocking), work) {
        (Ok(Some(done)), _) => done,
        (_, Some(work)) => {
            BLOCK_IN_PLACE_REFUSED.set(true);
            work()
        }
        (Err(panic), None) => resume_unwind(panic),
        (Ok(None), None) => unreachable!("the work is taken once"),
    }
}

/// Creates the file if there is none, readable by its owner only. SQLite's files beside it get the
/// same mode.
pub(crate) fn create_private_file(path: &Path) -> Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(unavailable(format!("the file {}: {e}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Returns the canonical path of a file, so that two paths to it lead to the same lock.
pub(crate) fn canonical_path(path: &Path) -> Result<PathBuf> {
    if let Ok(path) = path.canonicalize() {
        return Ok(path);
    }
    let Some(name) = path.file_name() else {
        return Err(unavailable(format!("{} does not name a file", path.display())));
    };
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let parent = parent.canonicalize();
    let parent =
        parent.map_err(|e| unavailable(format!("the directory of {}: {e}", path.display())))?;
    Ok(parent.join(name))
}

impl Store for SqliteStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> StoreFuture<'a, Position> {
        Box::pin(async move { self.commit_batch(batch) })
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionRow>> {
        Box::pin(async move { self.with_reader(|reader| reader.sessions()) })
    }

    fn session(&self, id: SessionId) -> StoreFuture<'_, Option<SessionRow>> {
        Box::pin(async move { self.with_reader(|reader| reader.session(id)) })
    }

    fn session_named<'a>(&'a self, name: &'a SessionName) -> StoreFuture<'a, Option<SessionRow>> {
        Box::pin(async move { self.with_reader(|reader| reader.session_named(name)) })
    }

    /// Returns the lane of the file's own commits.
    fn open_lane(&self) -> StoreFuture<'_, Lane> {
        Box::pin(ready(Ok(self.lanes.own())))
    }

    fn acquire<'a>(&'a self, _lane: Lane, row: &'a SessionRow) -> StoreFuture<'a, AcquireResult> {
        Box::pin(async move { self.with_writer(|writer| writer.acquire(row)) })
    }

    fn load(&self, id: SessionId) -> StoreFuture<'_, Option<LoadedSession>> {
        Box::pin(async move { self.with_reader(|reader| reader.load(id)) })
    }

    fn task(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Option<TaskRow>> {
        Box::pin(async move { self.with_reader(|reader| reader.task(id, no)) })
    }

    fn missing_tasks<'a>(
        &'a self,
        id: SessionId,
        numbers: &'a [TaskNo],
    ) -> StoreFuture<'a, Vec<TaskNo>> {
        Box::pin(async move { self.with_reader(|reader| reader.missing_tasks(id, numbers)) })
    }

    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> StoreFuture<'a, Option<StoredTask>> {
        Box::pin(async move { self.with_reader(|reader| reader.task_named(id, owner, name)) })
    }

    fn tasks<'a>(
        &'a self,
        id: SessionId,
        query: &'a TaskQuery,
    ) -> StoreFuture<'a, Vec<StoredTask>> {
        Box::pin(async move { self.with_reader(|reader| reader.tasks(id, query)) })
    }

    fn journal(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Vec<JournalEntry>> {
        Box::pin(async move { self.with_reader(|reader| reader.journal(id, no)) })
    }

    fn journal_page<'a>(
        &'a self,
        id: SessionId,
        no: TaskNo,
        query: &'a JournalQuery,
    ) -> StoreFuture<'a, Vec<JournalEntry>> {
        Box::pin(async move { self.with_reader(|reader| reader.journal_page(id, no, query)) })
    }

    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> StoreFuture<'_, Option<RunRow>> {
        Box::pin(async move { self.with_reader(|reader| reader.run(id, no, run)) })
    }

    fn message(&self, id: SessionId, no: MessageNo) -> StoreFuture<'_, Option<MessageRow>> {
        Box::pin(async move { self.with_reader(|reader| reader.message(id, no)) })
    }

    fn messages<'a>(
        &'a self,
        id: SessionId,
        query: &'a MessageQuery,
    ) -> StoreFuture<'a, MessagePage> {
        Box::pin(async move { self.with_reader(|reader| reader.messages(id, query)) })
    }

    fn message_key<'a>(
        &'a self,
        id: SessionId,
        scope: MessageKeyScope,
        key: &'a IdempotencyKey,
    ) -> StoreFuture<'a, Option<MessageKeyMark>> {
        Box::pin(async move { self.with_reader(|reader| reader.message_key(id, scope, key)) })
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, EventPage> {
        Box::pin(async move { self.with_reader(|reader| reader.events(query)) })
    }

    fn cursor(&self) -> StoreFuture<'_, FeedCursor> {
        Box::pin(async move { self.with_reader(|reader| reader.cursor()) })
    }

    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> StoreFuture<'a, PruneResult> {
        Box::pin(async move {
            let mut job = PruneJob::new(retention, now);
            // Each slice locks the writer again, so that commits can run between slices.
            while self.with_writer(|writer| job.prune_slice(writer))? {
                tokio::task::yield_now().await;
            }
            Ok(job.result())
        })
    }
}
