//! The store itself: how it is opened, and what it hands on.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use brigade_model::call::JournalEntry;
use brigade_model::ids::{MessageNo, Owner, Position, RunNo, SessionId, TaskNo, Time};
use brigade_model::name::{SessionName, TaskName};
use brigade_model::task::TaskRow;
use brigade_model::task_tree::{MessageRow, SessionRow};
use brigade_store::{
    Batch, BoxFuture, EventPage, EventQuery, LoadedSession, PruneResult, Retention, RunRow, Store,
    StoreError, TaskQuery,
};
use rusqlite::{Connection, OpenFlags};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

use crate::error::{Result, unavailable};
use crate::lock::OwnerLock;
use crate::prune::PruneJob;
use crate::read::ReadTransaction;
use crate::schema::{FileContent, examine, migrate, open_for_reading, open_immutable};
use crate::write::SqliteWriter;

/// Long enough for anything that is going to end.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Idle read connections that are kept.
const READERS_KEPT: usize = 4;

/// What a power cut may cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynchronousMode {
    /// Commits survive the end of the process; a power cut can cost the last of them.
    #[default]
    Normal,
    /// Commits survive a power cut. Each waits for the disk.
    Full,
}

#[derive(Clone, Copy, Debug)]
pub struct SqliteOptions {
    pub synchronous: SynchronousMode,
    /// How long a call waits for another program that has the file locked, such as a backup, before
    /// it is answered with [`StoreError::Unavailable`].
    pub busy_timeout: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { synchronous: SynchronousMode::default(), busy_timeout: BUSY_TIMEOUT }
    }
}

/// Trees in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    readers: Mutex<Vec<Connection>>,
    /// `None` when it was opened for reading only.
    writer: Option<Mutex<SqliteWriter>>,
    /// Let go of last, when the connections are closed.
    _lock: Option<OwnerLock>,
}

impl SqliteStore {
    /// Opens a store as its one owner, and makes the file if there is none.
    ///
    /// Refused as [`StoreError::Locked`] while another owner has it. A file of another program, of
    /// a newer version or a damaged one is refused and left as it is. An empty file counts as none:
    /// it is what a crash in the first instant leaves.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, StoreError> {
        Ok(Self::open_as_owner(path.as_ref(), options)?)
    }

    /// Opens a store beside its owner, if it has one: this one sees what the owner commits and
    /// refuses to write.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Ok(Self::open_as_reader(path.as_ref())?)
    }

    /// Opens a store that has no owner, for a look: nothing is left beside the file, and what an owner
    /// that comes meanwhile commits is not seen.
    pub fn open_immutable(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Ok(Self::open_with(path.as_ref(), open_immutable)?)
    }

    fn open_as_owner(path: &Path, options: SqliteOptions) -> Result<Self> {
        let path = canonical_path(path)?;
        examine(&path)?;
        let lock = OwnerLock::acquire(&path)?;
        // Whoever had the lock until now may have written a newer version.
        examine(&path)?;
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
        // Moving the log into the file waits for the disk, so it is done seldom: every 32 MB.
        conn.pragma_update(None, "wal_autocheckpoint", 8_000)?;
        conn.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
        conn.pragma_update(None, "cache_size", -16 * 1024)?;
        let writer = Some(Mutex::new(SqliteWriter::new(conn)));
        Ok(Self { path, readers: Mutex::default(), writer, _lock: Some(lock) })
    }

    fn open_as_reader(path: &Path) -> Result<Self> {
        Self::open_with(path, open_for_reading)
    }

    fn open_with(path: &Path, open: fn(&Path) -> Result<Connection>) -> Result<Self> {
        let path = canonical_path(path)?;
        match examine(&path)? {
            FileContent::Store => {}
            FileContent::Nothing => {
                return Err(unavailable(format!("there is no store at {}", path.display())));
            }
        }
        let first = open(&path)?;
        Ok(Self { path, readers: Mutex::new(vec![first]), writer: None, _lock: None })
    }

    /// Bounds the file, as a full disk would.
    #[doc(hidden)]
    pub fn set_max_pages(&self, pages: u32) -> Result<(), StoreError> {
        self.with_writer(|writer| Ok(writer.set_max_pages(pages)?))
    }

    fn with_writer<T>(
        &self,
        work: impl FnOnce(&mut SqliteWriter) -> Result<T>,
    ) -> Result<T, StoreError> {
        let writer = self.writer.as_ref().ok_or(StoreError::ReadOnly)?;
        on_this_thread(|| {
            let mut writer = writer.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(work(&mut writer)?)
        })
    }

    /// Reads within one transaction, so that the answer is of one moment.
    fn with_reader<T>(
        &self,
        work: impl FnOnce(&ReadTransaction<'_>) -> Result<T>,
    ) -> Result<T, StoreError> {
        on_this_thread(|| {
            let conn = self.take_reader()?;
            let answer = ReadTransaction::begin(&conn).and_then(|reading| work(&reading));
            let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
            if readers.len() < READERS_KEPT {
                readers.push(conn);
            }
            Ok(answer?)
        })
    }

    fn take_reader(&self) -> Result<Connection> {
        let kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.map_or_else(|| open_for_reading(&self.path), Ok)
    }
}

/// A hop to another thread would cost more than the work, so it is done here; a multi-threaded
/// runtime is told, so that nothing else waits for it.
fn on_this_thread<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) if !BLOCK_IN_PLACE_REFUSED.get() => try_block_in_place(work),
        _ => work(),
    }
}

thread_local! {
    /// Whether this thread runs a `LocalSet`, where a multi-threaded runtime must not be told.
    static BLOCK_IN_PLACE_REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Whether a runtime can be told is not to be asked: it panics, before it begins the work.
fn try_block_in_place<T>(work: impl FnOnce() -> T) -> T {
    let mut work = Some(work);
    let told = AssertUnwindSafe(|| block_in_place(|| work.take().map(|work| work())));
    match (catch_unwind(told), work) {
        (Ok(Some(done)), _) => done,
        (_, Some(work)) => {
            BLOCK_IN_PLACE_REFUSED.set(true);
            work()
        }
        (Err(panic), None) => resume_unwind(panic),
        (Ok(None), None) => unreachable!("the work was there to take"),
    }
}

/// Makes the file if there is none, for nobody else to read. What SQLite puts beside it is as private.
fn create_private_file(path: &Path) -> Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(unavailable(format!("the file {}: {e}", path.display())))
        }
        _ => Ok(()),
    }
}

/// The one name of a file, so that two ways to it lead to the same lock.
fn canonical_path(path: &Path) -> Result<PathBuf> {
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

type SqliteFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

impl Store for SqliteStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> SqliteFuture<'a, Position> {
        Box::pin(async move { self.with_writer(|writer| writer.commit(batch)) })
    }

    fn sessions(&self) -> SqliteFuture<'_, Vec<SessionRow>> {
        Box::pin(async move { self.with_reader(|reading| reading.sessions()) })
    }

    fn session(&self, id: SessionId) -> SqliteFuture<'_, Option<SessionRow>> {
        Box::pin(async move { self.with_reader(|reading| reading.session(id)) })
    }

    fn session_named<'a>(&'a self, name: &'a SessionName) -> SqliteFuture<'a, Option<SessionRow>> {
        Box::pin(async move { self.with_reader(|reading| reading.session_named(name)) })
    }

    fn load(&self, id: SessionId) -> SqliteFuture<'_, Option<LoadedSession>> {
        Box::pin(async move { self.with_reader(|reading| reading.load(id)) })
    }

    fn task(&self, id: SessionId, no: TaskNo) -> SqliteFuture<'_, Option<TaskRow>> {
        Box::pin(async move { self.with_reader(|reading| reading.task(id, no)) })
    }

    fn missing_tasks<'a>(
        &'a self,
        id: SessionId,
        numbers: &'a [TaskNo],
    ) -> SqliteFuture<'a, Vec<TaskNo>> {
        Box::pin(async move { self.with_reader(|reading| reading.missing_tasks(id, numbers)) })
    }

    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> SqliteFuture<'a, Option<(TaskNo, TaskRow)>> {
        Box::pin(async move { self.with_reader(|reading| reading.task_named(id, owner, name)) })
    }

    fn tasks<'a>(
        &'a self,
        id: SessionId,
        query: &'a TaskQuery,
    ) -> SqliteFuture<'a, Vec<(TaskNo, TaskRow)>> {
        Box::pin(async move { self.with_reader(|reading| reading.tasks(id, query)) })
    }

    fn journal(&self, id: SessionId, no: TaskNo) -> SqliteFuture<'_, Vec<JournalEntry>> {
        Box::pin(async move { self.with_reader(|reading| reading.journal(id, no)) })
    }

    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> SqliteFuture<'_, Option<RunRow>> {
        Box::pin(async move { self.with_reader(|reading| reading.run(id, no, run)) })
    }

    fn message(&self, id: SessionId, no: MessageNo) -> SqliteFuture<'_, Option<MessageRow>> {
        Box::pin(async move { self.with_reader(|reading| reading.message(id, no)) })
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> SqliteFuture<'a, EventPage> {
        Box::pin(async move { self.with_reader(|reading| reading.events(query)) })
    }

    fn last_position(&self) -> SqliteFuture<'_, Position> {
        Box::pin(async move { self.with_reader(|reading| reading.last_position()) })
    }

    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> SqliteFuture<'a, PruneResult> {
        Box::pin(async move {
            let mut pruning = PruneJob::new(retention, now);
            // The writer is let go of between slices, so that commits do not wait for all of it.
            while self.with_writer(|writer| pruning.prune_slice(writer))? {
                tokio::task::yield_now().await;
            }
            Ok(pruning.result())
        })
    }
}
