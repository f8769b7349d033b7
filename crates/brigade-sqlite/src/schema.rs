//! The tables, their version, and what is looked at before a file is touched.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use brigade_store::StoreError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::{Result, corrupt, unavailable};

/// "brgd": says that a SQLite file is a store of Brigade's.
pub(crate) const APPLICATION_ID: i32 = 0x6272_6764;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Each step leads from its index to the next version. Released steps do not change.
const STEPS: &[&str] = &[VERSION_1];

/// `phase` is a task's standing and `owner` or `recipient` 0 is the session; both are explained in
/// `write`. Positions are given out by the writer: with `meta.pruned_to` they never start again.
const VERSION_1: &str = "
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES('pruned_to', 0);

CREATE TABLE trees(
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    id BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL,
    state INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    opened INTEGER NOT NULL,
    now INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX trees_name ON trees(name);

CREATE TABLE tasks(
    tree INTEGER NOT NULL,
    no INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    owner_run INTEGER NOT NULL,
    phase INTEGER NOT NULL,
    name TEXT,
    key TEXT,
    ended_at INTEGER,
    body BLOB NOT NULL,
    PRIMARY KEY(tree, no)
) WITHOUT ROWID;
CREATE INDEX tasks_open ON tasks(tree, no) WHERE phase < 3;
CREATE INDEX tasks_over ON tasks(ended_at) WHERE phase = 3;
CREATE INDEX tasks_owner ON tasks(tree, owner);
CREATE INDEX tasks_name ON tasks(tree, name) WHERE name IS NOT NULL;
CREATE INDEX tasks_keyed ON tasks(tree, owner, owner_run, key) WHERE key IS NOT NULL;

CREATE TABLE marks(
    tree INTEGER NOT NULL,
    owner INTEGER NOT NULL,
    no INTEGER NOT NULL,
    owner_run INTEGER NOT NULL,
    key TEXT NOT NULL,
    PRIMARY KEY(tree, owner, no)
) WITHOUT ROWID;

CREATE TABLE events(
    position INTEGER PRIMARY KEY,
    tree INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    body BLOB NOT NULL,
    UNIQUE(tree, seq)
);

CREATE TABLE journal(
    tree INTEGER NOT NULL,
    task INTEGER NOT NULL,
    ord INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY(tree, task, ord)
) WITHOUT ROWID;

CREATE TABLE runs(
    tree INTEGER NOT NULL,
    task INTEGER NOT NULL,
    run INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY(tree, task, run)
) WITHOUT ROWID;

CREATE TABLE messages(
    tree INTEGER NOT NULL,
    no INTEGER NOT NULL,
    recipient INTEGER NOT NULL,
    unread INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY(tree, no)
) WITHOUT ROWID;
CREATE INDEX messages_unread ON messages(tree, no) WHERE unread = 1;
CREATE INDEX messages_recipient ON messages(tree, recipient);
";

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or a file in which nothing has been stored yet.
    Nothing,
    /// A store of this or an older version.
    Store,
}

/// Looks at a path without changing anything there, so that a file of somebody else, or of a newer
/// version, is left as it is.
pub(crate) fn examine(path: &Path) -> Result<Found> {
    let shown = path.display();
    let io = |e: std::io::Error| unavailable(format!("{shown}: {e}"));
    match std::fs::metadata(path) {
        Ok(about) if about.is_dir() => {
            return Err(corrupt(format!("{shown} is a directory; name a file")));
        }
        // Reading from a pipe or a device could block, or never end.
        Ok(about) if !about.is_file() => {
            return Err(corrupt(format!("{shown} is not a regular file")));
        }
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return match path.parent().map(std::fs::metadata) {
                Some(Err(e)) => Err(unavailable(format!("the directory of {shown}: {e}"))),
                Some(Ok(_)) | None => Ok(Found::Nothing),
            };
        }
        Err(e) => return Err(io(e)),
    }
    let mut start = Vec::with_capacity(MAGIC.len());
    let file = File::open(path).map_err(io)?;
    file.take(MAGIC.len() as u64).read_to_end(&mut start).map_err(io)?;
    if start.is_empty() {
        return Ok(Found::Nothing);
    }
    if start != MAGIC {
        return Err(corrupt(format!("{shown} is not a SQLite file")));
    }
    version_of(&open_for_reading(path)?, path)
}

pub(crate) fn open_for_reading(path: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(crate::store::BUSY)?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}

fn version_of(conn: &Connection, path: &Path) -> Result<Found> {
    let shown = path.display();
    let application: i32 = conn.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version = user_version(conn)?;
    if application == APPLICATION_ID {
        return check_version(version, STEPS).map(|()| Found::Store);
    }
    let tables: i64 = conn.query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))?;
    // A process that ended while it made the file leaves one without tables.
    if application == 0 && version == 0 && tables == 0 {
        return Ok(Found::Nothing);
    }
    Err(corrupt(format!("{shown} is a SQLite file of another program")))
}

fn user_version(conn: &Connection) -> Result<usize> {
    let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0))?;
    usize::try_from(version).map_err(|_| corrupt(format!("the version is {version}")))
}

fn check_version(version: usize, steps: &[&str]) -> Result<()> {
    if version > steps.len() {
        let known = steps.len();
        let what = format!("the store (version {version}; this program knows {known})");
        return Err(StoreError::Newer { what }.into());
    }
    Ok(())
}

/// Brings the tables to this program's version, whole or not at all.
pub(crate) fn migrate(conn: &mut Connection) -> Result<()> {
    migrate_by(conn, STEPS)
}

fn migrate_by(conn: &mut Connection, steps: &[&str]) -> Result<()> {
    if user_version(conn)? == steps.len() {
        return Ok(());
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = user_version(&tx)?;
    check_version(version, steps)?;
    for step in &steps[version..] {
        tx.execute_batch(step)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", i64::try_from(steps.len()).unwrap_or(i64::MAX))?;
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
    fn steps_are_taken_from_where_the_file_is() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate_by(&mut conn, &TWO[..1]).unwrap();
        conn.execute("INSERT INTO a(x) VALUES(7)", []).unwrap();
        migrate_by(&mut conn, TWO).unwrap();
        migrate_by(&mut conn, TWO).unwrap();
        assert_eq!(user_version(&conn).unwrap(), 2);
        assert_eq!(columns(&conn), 2);
        let kept: i64 = conn.query_row("SELECT x FROM a", [], |r| r.get(0)).unwrap();
        assert_eq!(kept, 7);
    }

    #[test]
    fn a_step_that_fails_leaves_the_old_version() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate_by(&mut conn, &TWO[..1]).unwrap();
        let broken = [TWO[0], "ALTER TABLE a ADD COLUMN y; CREATE TABLE a(z);"];
        assert!(migrate_by(&mut conn, &broken).is_err());
        assert_eq!(user_version(&conn).unwrap(), 1);
        assert_eq!(columns(&conn), 1);
    }

    #[test]
    fn a_newer_version_is_left_alone() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate_by(&mut conn, TWO).unwrap();
        let error = migrate_by(&mut conn, &TWO[..1]).unwrap_err();
        assert!(matches!(error.0, StoreError::Newer { .. }), "{error:?}");
        assert_eq!(user_version(&conn).unwrap(), 2);
    }
}
