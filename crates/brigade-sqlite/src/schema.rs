//! The tables, their version, and the checks before a file is changed.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use brigade_store::StoreError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::{Result, corrupt, unavailable};

/// The application id of a store in a SQLite file: "brgd".
pub(crate) const APPLICATION_ID: i32 = 0x6272_6764;

/// The application id of a file that a copy is filling: "brgc". No version opens it as a store.
const COPY_APPLICATION_ID: i32 = 0x6272_6763;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The version that the first migration creates. Files of versions 1 and 2 are refused.
const FIRST_VERSION: usize = 3;

/// Each migration leads to the next version. Released migrations do not change.
const MIGRATIONS: &[&str] = &[VERSION_3, VERSION_4, VERSION_5, VERSION_6, VERSION_7, VERSION_8];

/// The tables of version 3.
///
/// `residency` is a task's [`Residency`](brigade_store::Residency) as a number. As `owner` or
/// `recipient`, 0 is the session. `write` has both mappings. The writer assigns positions, and
/// `meta.pruned_to` prevents that they start again after a prune.
const VERSION_3: &str = "
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES('pruned_to', 0);

CREATE TABLE sessions(
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    state INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    opened_at INTEGER NOT NULL,
    last_event_at INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX sessions_name ON sessions(name);

CREATE TABLE tasks(
    session INTEGER NOT NULL,
    no INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    owner_run INTEGER NOT NULL,
    residency INTEGER NOT NULL,
    name TEXT,
    idempotency_key TEXT,
    ended_at INTEGER,
    limited_by INTEGER,
    body BLOB NOT NULL,
    PRIMARY KEY(session, no)
) WITHOUT ROWID;
CREATE INDEX tasks_open ON tasks(session, no) WHERE residency < 3;
CREATE INDEX tasks_finished ON tasks(ended_at) WHERE residency = 3;
CREATE INDEX tasks_owner ON tasks(session, owner);
CREATE INDEX tasks_name ON tasks(session, name) WHERE name IS NOT NULL;
CREATE INDEX tasks_keyed ON tasks(session, owner, owner_run, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX tasks_limited ON tasks(session, limited_by) WHERE limited_by IS NOT NULL;

CREATE TABLE key_marks(
    session INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    no INTEGER NOT NULL,
    owner_run INTEGER NOT NULL,
    idempotency_key TEXT NOT NULL,
    PRIMARY KEY(session, owner, no)
) WITHOUT ROWID;

CREATE TABLE events(
    position INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE(session, seq)
);

CREATE TABLE journal(
    session INTEGER NOT NULL,
    task INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY(session, task, seq)
) WITHOUT ROWID;

CREATE TABLE runs(
    session INTEGER NOT NULL,
    task INTEGER NOT NULL,
    run INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY(session, task, run)
) WITHOUT ROWID;

CREATE TABLE messages(
    session INTEGER NOT NULL,
    no INTEGER NOT NULL,
    recipient INTEGER NOT NULL,
    unread INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY(session, no)
) WITHOUT ROWID;
CREATE INDEX messages_unread ON messages(session, no) WHERE unread = 1;
CREATE INDEX messages_recipient ON messages(session, recipient);
";

/// The keys of messages. `key_run` is the run in which a key is unique. As `sender`, 0 is the
/// operator or a client.
const VERSION_4: &str = "
ALTER TABLE messages ADD COLUMN idempotency_key TEXT;
ALTER TABLE messages ADD COLUMN key_run INTEGER;
ALTER TABLE messages ADD COLUMN sender INTEGER;
CREATE INDEX messages_keyed ON messages(session, recipient, sender, key_run, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
";

/// The records. A key is a blob, since a text with a NUL is not safe in every function of SQLite.
/// `meta.record_version` is the last version of a record, so that no version is used twice.
const VERSION_5: &str = "
CREATE TABLE records(
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    key BLOB NOT NULL,
    version INTEGER NOT NULL,
    expires_at INTEGER,
    value BLOB NOT NULL
);
CREATE UNIQUE INDEX records_key ON records(kind, key);
CREATE INDEX records_expiring ON records(expires_at) WHERE expires_at IS NOT NULL;
INSERT INTO meta VALUES('record_version', 0);
";

/// The authors of events, as JSON. They are not part of the body, so that an audit can select events
/// by their authors, and a row without one costs nothing.
const VERSION_6: &str = "
ALTER TABLE events ADD COLUMN author TEXT;
";

/// The events of each session as spans of positions, one per commit. An index of all events by session
/// would cost one more row per event.
const VERSION_7: &str = "
CREATE TABLE event_spans(
    session INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    PRIMARY KEY(session, last)
) WITHOUT ROWID;
INSERT INTO event_spans(session, last, first)
    SELECT session, max(position), min(position) FROM (
        SELECT session, position,
            position - row_number() OVER (PARTITION BY session ORDER BY position) AS span
        FROM events)
    GROUP BY session, span;

CREATE TABLE events_of_version_7(
    position INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    author TEXT
);
INSERT INTO events_of_version_7(position, session, seq, at, body, author)
    SELECT position, session, seq, at, body, author FROM events ORDER BY position;
DROP TABLE events;
ALTER TABLE events_of_version_7 RENAME TO events;
";

/// The events that a copy has brought from several lanes. `position` orders all events of the file, and
/// `lane` and `no` are the position for readers. `copied_lanes` has the last events of these lanes. Other
/// events are in the lane `own_lane`, where the one at `own_base + 1` is the first.
const VERSION_8: &str = "
CREATE TABLE copied_lanes(
    lane INTEGER PRIMARY KEY,
    head INTEGER NOT NULL,
    pruned_to INTEGER NOT NULL
);
CREATE TABLE copied_events(
    position INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    no INTEGER NOT NULL
);
CREATE UNIQUE INDEX copied_events_lane ON copied_events(lane, no);
INSERT INTO meta VALUES('own_lane', 0), ('own_base', 0);
";

/// The content of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileContent {
    /// No file, or a file without stored data.
    Nothing,
    /// A store of this or an older version.
    Store,
    /// A copy that did not end, or is not at its end.
    IncompleteCopy,
}

impl FileContent {
    /// Refuses an incomplete copy.
    pub(crate) fn refuse_incomplete_copy(self, path: &Path) -> Result<Self> {
        match self {
            Self::IncompleteCopy => Err(corrupt(format!(
                "{} is an incomplete copy; remove it, or repeat the copy with --restart",
                path.display()
            ))),
            content => Ok(content),
        }
    }
}

/// Examines a path without a change, so that a file of another program or of a newer version stays
/// as it is.
pub(crate) fn examine(path: &Path) -> Result<FileContent> {
    let shown = path.display();
    let io = |e: std::io::Error| unavailable(format!("{shown}: {e}"));
    match std::fs::metadata(path) {
        Ok(about) if about.is_dir() => {
            return Err(corrupt(format!("{shown} is a directory; name a file")));
        }
        // A read from a pipe or a device could block, or never end.
        Ok(about) if !about.is_file() => {
            return Err(corrupt(format!("{shown} is not a regular file")));
        }
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return match path.parent().map(std::fs::metadata) {
                Some(Err(e)) => Err(unavailable(format!("the directory of {shown}: {e}"))),
                Some(Ok(_)) | None => Ok(FileContent::Nothing),
            };
        }
        Err(e) => return Err(io(e)),
    }
    let mut start = Vec::with_capacity(SqliteHeader::LENGTH);
    let file = File::open(path).map_err(io)?;
    let length = file.metadata().map_err(io)?.len();
    file.take(SqliteHeader::LENGTH as u64).read_to_end(&mut start).map_err(io)?;
    if start.is_empty() {
        return Ok(FileContent::Nothing);
    }
    if !start.starts_with(MAGIC) {
        return Err(corrupt(format!("{shown} is not a SQLite file")));
    }
    let header = SqliteHeader::parse(&start)
        .filter(|header| header.fits(length) || has_unfinished_transaction(path));
    let Some(header) = header else { return Err(corrupt(format!("{shown} is cut off"))) };
    // The log beside the file has the commits that the last owner did not move into it.
    let header = if has_content(path, "-wal") { SqliteHeader::read(path)? } else { header };
    header.classify(path)
}

/// Checks for an unfinished transaction beside the file, such as one from its creation. SQLite
/// completes or reverts it when it opens the file.
fn has_unfinished_transaction(path: &Path) -> bool {
    has_content(path, "-journal") || has_content(path, "-wal")
}

fn has_content(path: &Path, suffix: &str) -> bool {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    std::fs::metadata(beside).is_ok_and(|about| about.len() > 0)
}

/// The header of a SQLite file. It is parsed from bytes, because SQLite creates files beside one
/// that it opens, even for reading.
struct SqliteHeader {
    application: i32,
    version: i64,
    tables: i64,
    bytes: Option<u64>,
}

impl SqliteHeader {
    const LENGTH: usize = 108;

    fn parse(start: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(start.get(at..at + 4)?.try_into().ok()?));
        let half = |at: usize| Some(u16::from_be_bytes(start.get(at..at + 2)?.try_into().ok()?));
        let page = match half(16)? {
            1 => 65_536,
            size => u64::from(size),
        };
        // The page count is valid only if the last writer of the file maintained it.
        let counted = word(24)? == word(92)?;
        Some(Self {
            application: word(68)?.cast_signed(),
            version: i64::from(word(60)?.cast_signed()),
            tables: i64::from(half(103)?),
            bytes: counted.then_some(page * u64::from(word(28)?)),
        })
    }

    fn read(path: &Path) -> Result<Self> {
        let conn = open_for_reading(path)?;
        Ok(Self {
            application: conn.pragma_query_value(None, "application_id", |row| row.get(0))?,
            version: conn.pragma_query_value(None, "user_version", |row| row.get(0))?,
            tables: conn.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?,
            bytes: None,
        })
    }

    fn fits(&self, length: u64) -> bool {
        self.bytes.is_none_or(|bytes| bytes <= length)
    }

    fn classify(&self, path: &Path) -> Result<FileContent> {
        if self.application == APPLICATION_ID {
            return applied_migrations(self.version, MIGRATIONS).map(|_| FileContent::Store);
        }
        if self.application == COPY_APPLICATION_ID {
            return Ok(FileContent::IncompleteCopy);
        }
        // A process that ended during creation leaves a file without tables.
        if self.application == 0 && self.version == 0 && self.tables == 0 {
            return Ok(FileContent::Nothing);
        }
        Err(corrupt(format!("{} is a SQLite file of another program", path.display())))
    }
}

pub(crate) fn open_for_reading(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(crate::store::BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}

/// Opens a file that no other program has open, and creates no files beside it. If the last owner
/// left a log with content, the log is read too.
pub(crate) fn open_immutable(path: &Path) -> Result<Connection> {
    if has_content(path, "-wal") {
        return open_for_reading(path);
    }
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(uri, flags)?)
}

fn user_version(conn: &Connection) -> Result<i64> {
    Ok(conn.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

/// Returns the number of migrations that a file of this version has had.
fn applied_migrations(version: i64, migrations: &[&str]) -> Result<usize> {
    let newest = newest_version(migrations);
    match usize::try_from(version) {
        Ok(0) => Ok(0),
        Ok(version) if version < FIRST_VERSION => {
            let subject = format!(
                "the store (version {version}; this program reads versions from {FIRST_VERSION})"
            );
            Err(StoreError::Older { subject }.into())
        }
        Ok(version) if version <= newest => Ok(version - FIRST_VERSION + 1),
        Ok(_) => {
            let subject = format!("the store (version {version}; this program knows {newest})");
            Err(StoreError::Newer { subject }.into())
        }
        Err(_) => Err(corrupt(format!("its version is {version}"))),
    }
}

fn newest_version(migrations: &[&str]) -> usize {
    FIRST_VERSION + migrations.len() - 1
}

/// Migrates the tables to this program's version, whole or not at all.
pub(crate) fn migrate(conn: &mut Connection) -> Result<()> {
    migrate_with(conn, MIGRATIONS, APPLICATION_ID)
}

/// Creates the tables in an empty file, which is an incomplete copy until [`finish_copy`].
pub(crate) fn create_copy(conn: &mut Connection) -> Result<()> {
    migrate_with(conn, MIGRATIONS, COPY_APPLICATION_ID)
}

/// Makes a complete copy a store.
pub(crate) fn finish_copy(conn: &Connection) -> Result<()> {
    Ok(conn.pragma_update(None, "application_id", APPLICATION_ID)?)
}

fn migrate_with(conn: &mut Connection, migrations: &[&str], application: i32) -> Result<()> {
    if applied_migrations(user_version(conn)?, migrations)? == migrations.len() {
        return Ok(());
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let applied = applied_migrations(user_version(&tx)?, migrations)?;
    for migration in &migrations[applied..] {
        tx.execute_batch(migration)?;
    }
    let version = i64::try_from(newest_version(migrations)).unwrap_or(i64::MAX);
    tx.pragma_update(None, "application_id", application)?;
    tx.pragma_update(None, "user_version", version)?;
    tx.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[&str] = &["CREATE TABLE a(x);", "ALTER TABLE a ADD COLUMN y; CREATE TABLE b(z);"];

    fn columns(conn: &Connection) -> i64 {
        conn.query_row("SELECT count(*) FROM pragma_table_info('a')", [], |r| r.get(0)).unwrap()
    }

    #[test]
    fn migrations_start_at_the_version_of_the_file() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate_with(&mut conn, &TWO[..1], APPLICATION_ID).unwrap();
        conn.execute("INSERT INTO a(x) VALUES(7)", []).unwrap();
        migrate_with(&mut conn, TWO, APPLICATION_ID).unwrap();
        migrate_with(&mut conn, TWO, APPLICATION_ID).unwrap();
        assert_eq!(user_version(&conn).unwrap(), 4);
        assert_eq!(columns(&conn), 2);
        let kept: i64 = conn.query_row("SELECT x FROM a", [], |r| r.get(0)).unwrap();
        assert_eq!(kept, 7);
    }

    #[test]
    fn events_of_version_6_become_spans_of_their_sessions() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate_with(&mut conn, &MIGRATIONS[..4], APPLICATION_ID).unwrap();
        for (position, session, seq) in
            [(3, 1, 1), (4, 1, 2), (5, 2, 1), (6, 1, 3), (7, 2, 2), (8, 2, 3)]
        {
            let sql =
                "INSERT INTO events(position, session, seq, at, body) VALUES(?1, ?2, ?3, 0, '')";
            conn.execute(sql, [position, session, seq]).unwrap();
        }
        migrate(&mut conn).unwrap();
        let sql = "SELECT session, first, last FROM event_spans ORDER BY last";
        let mut statement = conn.prepare(sql).unwrap();
        let spans = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).unwrap();
        let spans: Vec<(i64, i64, i64)> = spans.map(Result::unwrap).collect();
        assert_eq!(spans, [(1, 3, 4), (2, 5, 5), (1, 6, 6), (2, 7, 8)]);
        let kept: i64 = conn.query_row("SELECT count(*) FROM events", [], |r| r.get(0)).unwrap();
        assert_eq!(kept, 6);
    }

    #[test]
    fn a_failed_migration_leaves_the_old_version() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate_with(&mut conn, &TWO[..1], APPLICATION_ID).unwrap();
        let broken = [TWO[0], "ALTER TABLE a ADD COLUMN y; CREATE TABLE a(z);"];
        assert!(migrate_with(&mut conn, &broken, APPLICATION_ID).is_err());
        assert_eq!(user_version(&conn).unwrap(), 3);
        assert_eq!(columns(&conn), 1);
    }

    #[test]
    fn a_newer_version_is_left_alone() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate_with(&mut conn, TWO, APPLICATION_ID).unwrap();
        let error = migrate_with(&mut conn, &TWO[..1], APPLICATION_ID).unwrap_err();
        assert!(matches!(error.0, StoreError::Newer { .. }), "{error:?}");
        assert_eq!(user_version(&conn).unwrap(), 4);
    }
}
