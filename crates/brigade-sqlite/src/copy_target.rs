//! A new file that a copy fills.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use brigade_model::ids::Lane;
use brigade_store::store_copy::{
    CopyError, CopyRow, CopySource, CopyTable, CopyTarget, CopyValue, RECORD_COUNTER,
    SESSION_COUNTER,
};
use brigade_store::{StoreError, StoreFuture};
use rusqlite::{Connection, OpenFlags, params, params_from_iter};

use crate::copy_merge::{STAGED_EVENTS, SpanWriter, merge_staged_events};
use crate::copy_rows::{SqlValue, copy_error, read_rows};
use crate::error::{Result, corrupt, unavailable};
use crate::lanes::FileLanes;
use crate::lock::OwnerLock;
use crate::schema::{FileContent, create_copy, examine, finish_copy};
use crate::store::{BUSY_TIMEOUT, canonical_path, create_private_file, on_this_thread};

/// A new file as the target of a copy. Until the copy is complete, no version opens it as a store.
#[derive(Debug)]
pub struct SqliteCopyTarget {
    conn: Mutex<Connection>,
    /// The last field, so that the connection is closed before the lock is released.
    _lock: OwnerLock,
}

impl SqliteCopyTarget {
    /// Creates the file. With `restart`, an incomplete copy is removed first.
    pub fn create(path: impl AsRef<Path>, restart: bool) -> Result<Self, CopyError> {
        let path = canonical_path(path.as_ref()).map_err(copy_error)?;
        check_target(&path, restart)?;
        let lock = OwnerLock::acquire(&path).map_err(copy_error)?;
        // The last holder of the lock may have made a store.
        if check_target(&path, restart)? == FileContent::IncompleteCopy {
            remove_files(&path).map_err(copy_error)?;
        }
        let conn = create_file(&path).map_err(copy_error)?;
        Ok(Self { conn: Mutex::new(conn), _lock: lock })
    }

    fn with_connection<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T>,
    ) -> Result<T, StoreError> {
        on_this_thread(|| Ok(work(&mut self.conn.lock().unwrap_or_else(PoisonError::into_inner))?))
    }
}

fn check_target(path: &Path, restart: bool) -> Result<FileContent, CopyError> {
    let shown = || path.display().to_string();
    match examine(path).map_err(copy_error)? {
        FileContent::Store => Err(CopyError::TargetNotEmpty(shown())),
        FileContent::IncompleteCopy if !restart => Err(CopyError::TargetIncomplete(shown())),
        content => Ok(content),
    }
}

fn remove_files(path: &Path) -> Result<()> {
    // The file itself is the last one, because the others say nothing without it.
    for suffix in ["-wal", "-shm", "-journal", ""] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let path = PathBuf::from(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(unavailable(format!("{}: {error}", path.display())));
            }
            _ => {}
        }
    }
    Ok(())
}

fn create_file(path: &Path) -> Result<Connection> {
    create_private_file(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.set_prepared_statement_cache_capacity(64);
    create_copy(&mut conn)?;
    conn.pragma_update(None, "journal_mode", "wal")?;
    conn.pragma_update(None, "synchronous", "normal")?;
    Ok(conn)
}

impl CopySource for SqliteCopyTarget {
    fn state_mark(&self) -> StoreFuture<'_, String> {
        Box::pin(std::future::ready(Ok(String::new())))
    }

    fn rows<'a>(
        &'a self,
        table: CopyTable,
        after: Option<&'a [CopyValue]>,
    ) -> StoreFuture<'a, Vec<CopyRow>> {
        Box::pin(async move {
            self.with_connection(|conn| read_rows(conn, FileLanes::read(conn)?, table, after))
        })
    }
}

impl CopyTarget for SqliteCopyTarget {
    fn write(&self, table: CopyTable, rows: Vec<CopyRow>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.with_connection(|conn| {
                let tx = conn.transaction()?;
                match table {
                    CopyTable::Counters => write_counters(&tx, &rows)?,
                    CopyTable::Lanes => insert(&tx, "copied_lanes", table.columns(), &rows)?,
                    CopyTable::Sessions => write_sessions(&tx, &rows)?,
                    CopyTable::Events => write_events(&tx, &rows)?,
                    _ => insert(&tx, table.name(), table.columns(), &rows)?,
                }
                Ok(tx.commit()?)
            })
        })
    }

    fn end_rows(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.with_connection(|conn| match CopiedLanes::prepare(conn)? {
                CopiedLanes::One => Ok(()),
                CopiedLanes::Several => merge_staged_events(conn),
            })
        })
    }

    fn finish(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.with_connection(|conn| {
                // The rows are on the disk before the file becomes a store.
                let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
                conn.query_row(checkpoint, [], |_| Ok(()))?;
                conn.pragma_update(None, "synchronous", "full")?;
                finish_copy(conn)?;
                Ok(conn.query_row(checkpoint, [], |_| Ok(()))?)
            })
        })
    }
}

/// Inserts rows into a table that has these columns.
fn insert(conn: &Connection, table: &str, columns: &[&str], rows: &[CopyRow]) -> Result<()> {
    let places: Vec<String> = (1..=columns.len())
        .map(|at| match columns[at - 1] {
            // Keys of tasks and messages are text in the file.
            "idempotency_key" => format!("CAST(?{at} AS TEXT)"),
            _ => format!("?{at}"),
        })
        .collect();
    let sql = format!("INSERT INTO {table}({}) VALUES({})", columns.join(", "), places.join(", "));
    let mut statement = conn.prepare_cached(&sql)?;
    for row in rows {
        statement.execute(params_from_iter(row.iter().map(SqlValue)))?;
    }
    Ok(())
}

fn write_counters(conn: &Connection, rows: &[CopyRow]) -> Result<()> {
    for row in rows {
        let [name, value] = &row[..] else { return Err(corrupt("a counter has two columns")) };
        match (name.text()?, value.integer()?) {
            (Some(RECORD_COUNTER), Some(value)) => {
                let sql = "UPDATE meta SET value = ?1 WHERE name = 'record_version'";
                conn.execute(sql, [value])?;
            }
            (Some(SESSION_COUNTER), Some(0)) => {}
            (Some(SESSION_COUNTER), Some(value)) => {
                conn.execute("INSERT INTO sqlite_sequence VALUES('sessions', ?1)", [value])?;
            }
            _ => return Err(corrupt("a counter is not known")),
        }
    }
    Ok(())
}

/// Writes sessions. The spans of events lead to their last events.
fn write_sessions(conn: &Connection, rows: &[CopyRow]) -> Result<()> {
    let is_written = |column: &&str| !matches!(*column, "last_lane" | "last_no");
    let columns = CopyTable::Sessions.columns();
    let written: Vec<&str> = columns.iter().copied().filter(is_written).collect();
    let rows: Vec<CopyRow> = rows
        .iter()
        .map(|row| {
            let values = columns.iter().zip(row).filter(|(column, _)| is_written(column));
            values.map(|(_, value)| value.clone()).collect()
        })
        .collect();
    insert(conn, "sessions", &written, &rows)
}

fn write_events(conn: &Connection, rows: &[CopyRow]) -> Result<()> {
    match CopiedLanes::prepare(conn)? {
        CopiedLanes::Several => insert(conn, STAGED_EVENTS, CopyTable::Events.columns(), rows),
        CopiedLanes::One => {
            let sql = "INSERT INTO events(position, session, seq, at, author, body) \
                       VALUES(?1, ?2, ?3, ?4, ?5, ?6)";
            let mut statement = conn.prepare_cached(sql)?;
            let mut spans = SpanWriter::default();
            for row in rows {
                let [_, no, session, seq, at, _, _, author, body] = &row[..] else {
                    return Err(corrupt("an event has other columns"));
                };
                let values = [no, session, seq, at, author, body].map(SqlValue);
                statement.execute(params_from_iter(values))?;
                if let (Some(no), Some(session)) = (no.integer()?, session.integer()?) {
                    spans.add(conn, session, no)?;
                }
            }
            spans.end(conn)
        }
    }
}

/// The lanes of the source that had events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopiedLanes {
    /// At most one. The file continues it, and its numbers are the positions in the file.
    One,
    /// Several. Their events are staged, since their order in the file is not known before the last one.
    Several,
}

impl CopiedLanes {
    /// Prepares the file for the events, once all lanes are known.
    fn prepare(conn: &Connection) -> Result<Self> {
        let sql =
            "SELECT count(*), ifnull(max(lane), 0), ifnull(max(pruned_to), 0) FROM copied_lanes";
        let (count, last, pruned_to): (i64, u32, i64) =
            conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        if count > 1 {
            conn.execute_batch(&format!(
                "CREATE TABLE IF NOT EXISTS {STAGED_EVENTS}(lane INTEGER, no INTEGER, \
                 session INTEGER, seq INTEGER, at INTEGER, after_lane INTEGER, after_no INTEGER, \
                 author TEXT, body BLOB, PRIMARY KEY(lane, no)) WITHOUT ROWID"
            ))?;
            set_meta(conn, "own_lane", i64::from(Lane(last).0) + 1)?;
            return Ok(Self::Several);
        }
        if count == 1 {
            set_meta(conn, "own_lane", last.into())?;
            set_meta(conn, "pruned_to", pruned_to)?;
            conn.execute("DELETE FROM copied_lanes", [])?;
        }
        Ok(Self::One)
    }
}

pub(crate) fn set_meta(conn: &Connection, name: &str, value: i64) -> Result<()> {
    conn.execute("UPDATE meta SET value = ?2 WHERE name = ?1", params![name, value])?;
    Ok(())
}
