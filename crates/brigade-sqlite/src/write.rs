//! One batch, one transaction.

use brigade_model::event::EventRecord;
use brigade_model::ids::{Owner, Position, TaskNo, TreeId};
use brigade_model::message::Receipt;
use brigade_model::task::TaskRow;
use brigade_model::tree::{SessionState, TreeRow};
use brigade_store::{Batch, Standing, StoreError, TreeBatch, codec};
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::error::Result;
use crate::read::{last_position, stored_task};

/// The connection that writes, with the buffer in which rows are encoded.
#[derive(Debug)]
pub(crate) struct Writer {
    conn: Connection,
    buffer: Vec<u8>,
}

/// A tree's number in this file.
pub(crate) type TreeKey = i64;

impl Writer {
    pub(crate) fn new(conn: Connection) -> Self {
        Self { conn, buffer: Vec::new() }
    }

    pub(crate) fn commit(&mut self, batch: &Batch) -> Result<Position> {
        let tx = begin(&mut self.conn)?;
        let first = last_position(&tx)?.next();
        let mut keys = Vec::with_capacity(batch.trees.len());
        for part in &batch.trees {
            keys.push(check(&tx, part)?);
        }
        let mut rows = Rows { tx: &tx, buffer: &mut self.buffer };
        let mut position = first;
        for (part, key) in batch.trees.iter().zip(keys) {
            let key = rows.tree(key, &part.row)?;
            rows.runs(key, part)?;
            rows.tasks(key, part)?;
            rows.journal(key, part)?;
            rows.messages(key, part)?;
            position = rows.events(key, position, part)?;
        }
        tx.commit()?;
        Ok(first)
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

/// Refuses a writer that does not continue what is stored.
fn check(tx: &Transaction<'_>, part: &TreeBatch) -> Result<Option<TreeKey>> {
    let mut statement = tx.prepare_cached("SELECT key, seq, epoch FROM trees WHERE id = ?1")?;
    let found = statement.query_row([id_bytes(&part.row.id)], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    });
    let found = found.optional()?;
    let seq = found.map_or(0, |(_, seq, _)| seq);
    if seq != int(part.base.0) {
        let id = part.row.id;
        return Err(StoreError::Fenced(format!("{id:?} is at {seq}, not at {}", part.base)).into());
    }
    if found.is_some_and(|(_, _, epoch)| epoch != int(part.row.epoch.0)) {
        return Err(StoreError::Fenced(format!("{:?} has another epoch", part.row.id)).into());
    }
    Ok(found.map(|(key, ..)| key))
}

struct Rows<'a> {
    tx: &'a Transaction<'a>,
    buffer: &'a mut Vec<u8>,
}

impl Rows<'_> {
    fn tree(&mut self, key: Option<TreeKey>, row: &TreeRow) -> Result<TreeKey> {
        let body = encoded(self.buffer, row)?;
        let (id, name) = (id_bytes(&row.id), row.name.as_str());
        let state = state_code(&row.state);
        let (epoch, seq, now) = (int(row.epoch.0), int(row.seq.0), int(row.now.0));
        match key {
            Some(key) => {
                let sql = "UPDATE trees SET state = ?2, seq = ?3, now = ?4, body = ?5 \
                           WHERE key = ?1";
                let mut statement = self.tx.prepare_cached(sql)?;
                statement.execute(params![key, state, seq, now, body])?;
                Ok(key)
            }
            None => {
                let sql = "INSERT INTO trees(id, name, state, epoch, seq, opened, now, body) \
                           VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
                let mut statement = self.tx.prepare_cached(sql)?;
                let opened = int(row.opened.0);
                Ok(statement.insert(params![id, name, state, epoch, seq, opened, now, body])?)
            }
        }
    }

    /// Keeps the ending of a run before the next one takes its place in the row.
    fn runs(&mut self, key: TreeKey, part: &TreeBatch) -> Result<()> {
        let stored = |no| stored_task(self.tx, (key, part.row.id), no);
        for (no, run) in part.superseded_runs(stored)? {
            let body = encoded(self.buffer, &run)?;
            let sql = "INSERT OR REPLACE INTO runs(tree, task, run, body) VALUES(?1, ?2, ?3, ?4)";
            let mut statement = self.tx.prepare_cached(sql)?;
            statement.execute(params![key, no.get(), run.run.0, body])?;
        }
        Ok(())
    }

    fn tasks(&mut self, key: TreeKey, part: &TreeBatch) -> Result<()> {
        let first = part.first_spawned();
        for (no, row) in &part.tasks {
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

    fn insert_task(&mut self, key: TreeKey, no: TaskNo, row: &TaskRow) -> Result<()> {
        let body = encoded(self.buffer, row)?;
        let columns = Columns::of(row);
        let spawn_key = row.spec.key.as_ref().map(|key| key.as_str());
        let sql = "INSERT INTO tasks(tree, no, owner, owner_run, phase, name, key, ended_at, body, \
                   limited_by) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        self.tx.prepare_cached(sql)?.execute(params![
            key,
            no.get(),
            columns.owner,
            row.owner_run.0,
            columns.phase,
            columns.name,
            spawn_key,
            columns.ended_at,
            body,
            columns.limited_by
        ])?;
        Ok(())
    }

    /// Says whether the task was there. Setting a column rewrites its indexes even if its value
    /// stays, so the common changes, to the body alone and to the phase, are tried first.
    fn update_task(&mut self, key: TreeKey, no: TaskNo, row: &TaskRow) -> Result<bool> {
        let body = encoded(self.buffer, row)?;
        let no = no.get();
        let Columns { owner, phase, name, ended_at, limited_by } = &Columns::of(row);
        let sql = "UPDATE tasks SET body = ?3 WHERE tree = ?1 AND no = ?2 AND phase = ?4 \
                   AND owner = ?5 AND name IS ?6 AND ended_at IS ?7";
        let mut same = self.tx.prepare_cached(sql)?;
        if same.execute(params![key, no, body, phase, owner, name, ended_at])? > 0 {
            return Ok(true);
        }
        let sql = "UPDATE tasks SET body = ?3, phase = ?4, ended_at = ?5 \
                   WHERE tree = ?1 AND no = ?2 AND owner = ?6 AND name IS ?7";
        let mut moved = self.tx.prepare_cached(sql)?;
        if moved.execute(params![key, no, body, phase, ended_at, owner, name])? > 0 {
            return Ok(true);
        }
        let run = row.owner_run.0;
        // A task gets another holder of its limits only together with another owner.
        let sql = "UPDATE tasks SET body = ?3, phase = ?4, ended_at = ?5, owner = ?6, name = ?7, \
                   owner_run = ?8, limited_by = ?9 WHERE tree = ?1 AND no = ?2";
        let mut rehomed = self.tx.prepare_cached(sql)?;
        let limits = params![key, no, body, phase, ended_at, owner, name, run, limited_by];
        Ok(rehomed.execute(limits)? > 0)
    }

    fn journal(&mut self, key: TreeKey, part: &TreeBatch) -> Result<()> {
        let sql = "INSERT INTO journal(tree, task, ord, body) VALUES(?1, ?2, ?3, ?4)";
        let mut statement = self.tx.prepare_cached(sql)?;
        for (no, entry) in &part.journal {
            let body = encoded(self.buffer, entry)?;
            statement.execute(params![key, no.get(), int(entry.order.0), body])?;
        }
        Ok(())
    }

    fn messages(&mut self, key: TreeKey, part: &TreeBatch) -> Result<()> {
        let sql = "INSERT INTO messages(tree, no, recipient, unread, body) \
                   VALUES(?1, ?2, ?3, ?4, ?5) \
                   ON CONFLICT DO UPDATE SET unread = excluded.unread, body = excluded.body";
        let mut statement = self.tx.prepare_cached(sql)?;
        for row in &part.messages {
            let body = encoded(self.buffer, row)?;
            let (no, to) = (int(row.message.no.0), owner_code(row.message.to));
            statement.execute(params![key, no, to, row.receipt == Receipt::Accepted, body])?;
        }
        Ok(())
    }

    /// Returns the position after the last.
    fn events(&mut self, key: TreeKey, first: Position, part: &TreeBatch) -> Result<Position> {
        let sql = "INSERT INTO events(position, tree, seq, at, body) VALUES(?1, ?2, ?3, ?4, ?5)";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut position = first;
        for record in &part.events {
            let record: &EventRecord = record;
            let body = encoded(self.buffer, record)?;
            let (seq, at) = (int(record.seq.0), int(record.at.0));
            statement.execute(params![int(position.0), key, seq, at, body])?;
            position = position.next();
        }
        Ok(position)
    }
}

/// What of a task's row stands in columns of its own.
struct Columns {
    owner: i64,
    phase: i64,
    name: Option<String>,
    ended_at: Option<i64>,
    limited_by: Option<i64>,
}

impl Columns {
    fn of(row: &TaskRow) -> Self {
        Self {
            owner: owner_code(row.owner),
            phase: phase_code(Standing::of(row)),
            name: row.name.as_ref().map(|name| name.folded()),
            ended_at: row.ended().map(|ended| int(ended.at.0)),
            limited_by: row.extra.as_ref().and_then(|e| e.limited_by).map(|no| no.get().into()),
        }
    }
}

pub(crate) const LIVING: i64 = 0;
pub(crate) const PENDING: i64 = 2;

fn phase_code(standing: Standing) -> i64 {
    match standing {
        Standing::Living => LIVING,
        Standing::Lingering => 1,
        Standing::Pending => PENDING,
        Standing::Over => 3,
    }
}

pub(crate) fn owner_code(owner: Owner) -> i64 {
    owner.task().map_or(0, |no| i64::from(no.get()))
}

pub(crate) const CLOSED: i64 = 2;

fn state_code(state: &SessionState) -> i64 {
    match state {
        SessionState::Open => 0,
        SessionState::Closing => 1,
        SessionState::Closed => CLOSED,
    }
}

pub(crate) fn id_bytes(id: &TreeId) -> &[u8] {
    id.as_uuid().as_bytes()
}

/// SQLite's integers are signed; nothing that is counted here gets to their end.
pub(crate) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn encoded<'a, T: serde::Serialize>(buffer: &'a mut Vec<u8>, value: &T) -> Result<&'a [u8]> {
    buffer.clear();
    codec::encode_into(buffer, value)?;
    Ok(buffer)
}
