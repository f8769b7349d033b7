//! Writes each batch in one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use brigade_model::call::TaskEntry;
use brigade_model::ids::{Position, SessionId, TaskNo};
use brigade_model::message::Receipt;
use brigade_model::name::SessionName;
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::SessionRow;
use brigade_store::columns::{
    AuthorEncoder, CLOSED, EventBody, TaskColumns, owner_code, sender_code, state_code, to_i64,
};
use brigade_store::{
    AcquireResult, AcquiredSession, Batch, SessionBatch, StoreError, SupersededRun, codec,
};
use rusqlite::hooks::Wal;
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params,
};

use crate::error::Result;
use crate::lanes::FileLanes;
use crate::read::{last_position, read_task};

/// The number of pages in the log at which they are moved into the file: 32 MB. A checkpoint waits
/// for the disk, so it is rare.
const CHECKPOINT_PAGES: u32 = 8_000;

/// The connection that writes, with the buffer for encoded rows.
#[derive(Debug)]
pub(crate) struct SqliteWriter {
    conn: Connection,
    buffer: Vec<u8>,
    lanes: FileLanes,
    busy_timeout: Duration,
    /// The number of pages in the log after the last commit.
    log_pages: Arc<AtomicU32>,
}

/// The key of a session in this file.
pub(crate) type SessionKey = i64;

/// A session by its key and by its id.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionRef {
    pub(crate) key: SessionKey,
    pub(crate) id: SessionId,
}

impl SqliteWriter {
    pub(crate) fn new(
        mut conn: Connection,
        busy_timeout: Duration,
        lanes: FileLanes,
    ) -> Result<Self> {
        conn.busy_timeout(busy_timeout)?;
        let log_pages = Arc::new(AtomicU32::new(0));
        let pages_after_commit = log_pages.clone();
        // The hook takes the place of SQLite's own checkpoint at the end of a commit.
        conn.wal_hook(Some(move |_: &mut Wal, pages: i32| {
            pages_after_commit.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        }))?;
        Ok(Self { conn, buffer: Vec::new(), lanes, busy_timeout, log_pages })
    }

    pub(crate) fn commit(&mut self, batch: &Batch) -> Result<Position> {
        write_batch(begin(&mut self.conn)?, self.lanes, &mut self.buffer, batch)
    }

    /// Commits a batch without waiting for another program. Returns `None` if one is writing.
    pub(crate) fn commit_unless_busy(&mut self, batch: &Batch) -> Result<Option<Position>> {
        self.conn.busy_timeout(Duration::ZERO)?;
        let begun = Transaction::new_unchecked(&self.conn, TransactionBehavior::Immediate);
        self.conn.busy_timeout(self.busy_timeout)?;
        match begun {
            Ok(tx) => write_batch(tx, self.lanes, &mut self.buffer, batch).map(Some),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the log is long enough for a checkpoint.
    pub(crate) fn needs_checkpoint(&self) -> bool {
        self.log_pages.load(Ordering::Relaxed) >= CHECKPOINT_PAGES
    }

    /// Moves the pages of the log into the file, as far as no reader needs them there. A failure
    /// loses nothing: a later checkpoint tries again.
    pub(crate) fn checkpoint(&mut self) {
        let _ = self.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    }

    /// Gives a session the next epoch, if this is its stored row.
    pub(crate) fn acquire(&mut self, row: &SessionRow) -> Result<AcquireResult> {
        let next = row.epoch.next();
        let body = encode_row(&mut self.buffer, &SessionRow { epoch: next, ..row.clone() })?;
        let sql = "UPDATE sessions SET epoch = ?4, body = ?5 \
                   WHERE id = ?1 AND seq = ?2 AND epoch = ?3";
        let seq = to_i64(row.seq.0);
        let epoch = to_i64(row.epoch.0);
        let values = params![id_bytes(&row.id), seq, epoch, to_i64(next.0), body];
        let changed = self.conn.prepare_cached(sql)?.execute(values)?;
        Ok(match changed {
            0 => AcquireResult::Changed,
            _ => AcquireResult::Acquired(AcquiredSession { epoch: next, last: None }),
        })
    }

    pub(crate) fn begin(&mut self) -> Result<Transaction<'_>> {
        begin(&mut self.conn)
    }

    pub(crate) fn set_max_pages(&mut self, pages: u32) -> rusqlite::Result<()> {
        self.conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
    }
}

fn begin(conn: &mut Connection) -> Result<Transaction<'_>> {
    Ok(conn.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

fn write_batch(
    tx: Transaction<'_>,
    lanes: FileLanes,
    buffer: &mut Vec<u8>,
    batch: &Batch,
) -> Result<Position> {
    let first = last_position(&tx)? + 1;
    let mut keys = Vec::with_capacity(batch.sessions.len());
    for part in &batch.sessions {
        keys.push(check(&tx, part)?);
    }
    let mut rows = RowWriter { tx: &tx, buffer };
    let mut position = first;
    for (part, key) in batch.sessions.iter().zip(keys) {
        let key = rows.write_session(key, &part.row)?;
        rows.write_runs(key, part)?;
        rows.write_tasks(key, part)?;
        rows.write_journal(key, part)?;
        rows.write_messages(key, part)?;
        position = rows.write_events(key, position, part)?;
    }
    tx.commit()?;
    Ok(lanes.own_position(first))
}

/// Refuses a batch that does not continue the stored session.
fn check(tx: &Transaction<'_>, part: &SessionBatch) -> Result<Option<SessionKey>> {
    let mut statement = tx.prepare_cached("SELECT key, seq, epoch FROM sessions WHERE id = ?1")?;
    let found = statement.query_row([id_bytes(&part.row.id)], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    });
    let found = found.optional()?;
    let seq = found.map_or(0, |(_, seq, _)| seq);
    if seq != to_i64(part.base.0) {
        let id = part.row.id;
        return Err(StoreError::Fenced(format!("{id:?} is at {seq}, not at {}", part.base)).into());
    }
    if found.is_some_and(|(_, _, epoch)| epoch != to_i64(part.row.epoch.0)) {
        return Err(StoreError::Fenced(format!("{:?} has another epoch", part.row.id)).into());
    }
    if found.is_none() && is_name_taken(tx, &part.row.name)? {
        return Err(StoreError::NameTaken(part.row.name.clone()).into());
    }
    Ok(found.map(|(key, ..)| key))
}

fn is_name_taken(tx: &Transaction<'_>, name: &SessionName) -> Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sessions WHERE name = ?1 AND state <> ?2)";
    Ok(tx.prepare_cached(sql)?.query_row(params![name.as_str(), CLOSED], |row| row.get(0))?)
}

struct RowWriter<'a> {
    tx: &'a Transaction<'a>,
    buffer: &'a mut Vec<u8>,
}

impl RowWriter<'_> {
    fn write_session(&mut self, key: Option<SessionKey>, row: &SessionRow) -> Result<SessionKey> {
        let body = encode_row(self.buffer, row)?;
        let id = id_bytes(&row.id);
        let name = row.name.as_str();
        let state = state_code(&row.state);
        let epoch = to_i64(row.epoch.0);
        let seq = to_i64(row.seq.0);
        let now = to_i64(row.now.0);
        match key {
            Some(key) => {
                let sql = "UPDATE sessions SET state = ?2, seq = ?3, last_event_at = ?4, body = ?5 \
                           WHERE key = ?1";
                let mut statement = self.tx.prepare_cached(sql)?;
                statement.execute(params![key, state, seq, now, body])?;
                Ok(key)
            }
            None => {
                let sql = "INSERT INTO sessions(id, name, state, epoch, seq, opened_at, last_event_at, body) \
                           VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                let mut statement = self.tx.prepare_cached(sql)?;
                let opened = to_i64(row.opened_at.0);
                Ok(statement.insert(params![id, name, state, epoch, seq, opened, now, body])?)
            }
        }
    }

    /// Stores the end of a run before the next run replaces it in the row.
    fn write_runs(&mut self, key: SessionKey, part: &SessionBatch) -> Result<()> {
        let stored = |no| read_task(self.tx, SessionRef { key, id: part.row.id }, no);
        for SupersededRun { no, run } in part.superseded_runs(stored)? {
            let body = encode_row(self.buffer, &run)?;
            let sql =
                "INSERT OR REPLACE INTO runs(session, task, run, body) VALUES(?1, ?2, ?3, ?4)";
            let mut statement = self.tx.prepare_cached(sql)?;
            statement.execute(params![key, no.get(), run.run.0, body])?;
        }
        Ok(())
    }

    fn write_tasks(&mut self, key: SessionKey, part: &SessionBatch) -> Result<()> {
        let first = part.first_spawned();
        for StoredTask { no, row } in &part.tasks {
            if first.is_some_and(|first| *no >= first) {
                self.insert_task(key, *no, row)?;
            } else if !self.update_task(key, *no, row)? {
                let id = part.row.id;
                let what = format!("task {no} of {id:?} was removed");
                return Err(StoreError::Fenced(what).into());
            }
        }
        Ok(())
    }

    fn insert_task(&mut self, key: SessionKey, no: TaskNo, row: &TaskRow) -> Result<()> {
        let body = encode_row(self.buffer, row)?;
        let columns = TaskColumns::of(row);
        let spawn_key = row.spec.key.as_ref().map(|key| key.as_str());
        let sql = "INSERT INTO tasks(session, no, owner, owner_run, residency, name, idempotency_key, ended_at, body, \
                   limited_by) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        self.tx.prepare_cached(sql)?.execute(params![
            key,
            no.get(),
            columns.owner,
            row.owner_run.0,
            columns.residency,
            columns.name,
            spawn_key,
            columns.ended_at,
            body,
            columns.limited_by
        ])?;
        Ok(())
    }

    /// Updates a task and returns whether it exists.
    ///
    /// SQLite rewrites the indexes of each column that an update sets, even to the same value. So
    /// the common changes are tried first: the body alone, then body and residency. Whatever changes
    /// an ended task changes its residency too.
    fn update_task(&mut self, key: SessionKey, no: TaskNo, row: &TaskRow) -> Result<bool> {
        let body = encode_row(self.buffer, row)?;
        let no = no.get();
        let TaskColumns { owner, residency: phase, name, ended_at, limited_by } =
            &TaskColumns::of(row);
        let sql = "UPDATE tasks SET body = ?3 WHERE session = ?1 AND no = ?2 AND residency = ?4 \
                   AND owner = ?5 AND name IS ?6 AND ended_at IS ?7";
        if ended_at.is_none() {
            let mut same = self.tx.prepare_cached(sql)?;
            if same.execute(params![key, no, body, phase, owner, name, ended_at])? > 0 {
                return Ok(true);
            }
        }
        let sql = "UPDATE tasks SET body = ?3, residency = ?4, ended_at = ?5 \
                   WHERE session = ?1 AND no = ?2 AND owner = ?6 AND name IS ?7";
        let mut moved = self.tx.prepare_cached(sql)?;
        if moved.execute(params![key, no, body, phase, ended_at, owner, name])? > 0 {
            return Ok(true);
        }
        let run = row.owner_run.0;
        // A task gets another limit holder only together with another owner.
        let sql = "UPDATE tasks SET body = ?3, residency = ?4, ended_at = ?5, owner = ?6, name = ?7, \
                   owner_run = ?8, limited_by = ?9 WHERE session = ?1 AND no = ?2";
        let mut rehomed = self.tx.prepare_cached(sql)?;
        let limits = params![key, no, body, phase, ended_at, owner, name, run, limited_by];
        Ok(rehomed.execute(limits)? > 0)
    }

    fn write_journal(&mut self, key: SessionKey, part: &SessionBatch) -> Result<()> {
        let sql = "INSERT INTO journal(session, task, seq, body) VALUES(?1, ?2, ?3, ?4)";
        let mut statement = self.tx.prepare_cached(sql)?;
        for TaskEntry { no, entry } in &part.journal {
            let body = encode_row(self.buffer, entry)?;
            statement.execute(params![key, no.get(), to_i64(entry.order.0), body])?;
        }
        Ok(())
    }

    fn write_messages(&mut self, key: SessionKey, part: &SessionBatch) -> Result<()> {
        let sql = "INSERT INTO messages(session, no, recipient, unread, body, idempotency_key, key_run, sender) \
                   VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
                   ON CONFLICT DO UPDATE SET unread = excluded.unread, body = excluded.body";
        let mut statement = self.tx.prepare_cached(sql)?;
        for row in &part.messages {
            let body = encode_row(self.buffer, row)?;
            let no = to_i64(row.message.no.0);
            let to = owner_code(row.message.to);
            let unread = row.receipt == Receipt::Accepted;
            let message_key = row.message.key.as_ref();
            let text = message_key.map(|key| key.key.as_str());
            let run = message_key.map(|key| key.run.0);
            let sender = message_key.map(|_| sender_code(row.message.from.task()));
            statement.execute(params![key, no, to, unread, body, text, run, sender])?;
        }
        Ok(())
    }

    /// Writes the events and returns the position after the last one.
    fn write_events(&mut self, key: SessionKey, first: u64, part: &SessionBatch) -> Result<u64> {
        let sql = "INSERT INTO events(position, session, seq, at, body, author) \
                   VALUES(?1, ?2, ?3, ?4, ?5, ?6)";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut authors = AuthorEncoder::default();
        let mut position = first;
        let mut last = None;
        for record in &part.events {
            let body = encode_row(self.buffer, &EventBody::of(record))?;
            let author = record.by.as_ref().map(|by| authors.encode(by)).transpose()?;
            let seq = to_i64(record.seq.0);
            let at = to_i64(record.at.0);
            statement.execute(params![to_i64(position), key, seq, at, body, author])?;
            last = Some(position);
            position += 1;
        }
        if let Some(last) = last {
            let sql = "INSERT INTO event_spans(session, last, first) VALUES(?1, ?2, ?3)";
            let span = params![key, to_i64(last), to_i64(first)];
            self.tx.prepare_cached(sql)?.execute(span)?;
        }
        Ok(position)
    }
}

pub(crate) fn id_bytes(id: &SessionId) -> &[u8] {
    id.as_uuid().as_bytes()
}

fn encode_row<'a, T: serde::Serialize>(buffer: &'a mut Vec<u8>, value: &T) -> Result<&'a [u8]> {
    buffer.clear();
    codec::encode_into(buffer, value)?;
    Ok(buffer)
}
