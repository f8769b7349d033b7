//! Loads the rows of a session that must be in memory.

use std::sync::Arc;

use brigade_model::ids::{MessageNo, RunNo, SessionId};
use brigade_model::message::{Message, MessageKeyScope};
use brigade_model::name::IdempotencyKey;
use brigade_model::task::StoredTask;
use brigade_model::task_tree::{KeyMark, MessageKeyMark, MessageRow};
use brigade_store::columns::{ALIVE, PENDING, parse_owner, parse_task_no};
use brigade_store::residency::add_required_tasks;
use brigade_store::{LoadedSession, codec};

use crate::error::{Result, corrupt};
use crate::read::{ReadTransaction, decode_task, read_task, read_u64};
use crate::write::{SessionKey, SessionRef};

impl ReadTransaction<'_> {
    pub(crate) fn load(&self, id: SessionId) -> Result<Option<LoadedSession>> {
        let Some((key, row)) = self.session_with_key(id)? else { return Ok(None) };
        let session = SessionRef { key, id };
        let mut alive = AliveTasks::default();
        let mut tasks = self.open_tasks(session, &mut alive)?;
        add_required_tasks(&mut tasks, |no| read_task(&self.tx, session, no))?;
        let keys = self.key_marks(key, &alive)?;
        let unread = self.unread_messages(session)?;
        let message_keys = self.message_keys(key, &alive)?;
        Ok(Some(LoadedSession { row, tasks, unread, keys, message_keys }))
    }

    fn open_tasks(&self, session: SessionRef, alive: &mut AliveTasks) -> Result<Vec<StoredTask>> {
        let mut statement = self.tx.prepare_cached(self.open_tasks_sql(session.key)?)?;
        let mut rows = statement.query([session.key])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let no: i64 = row.get(0)?;
            let residency: i16 = row.get(2)?;
            if residency == ALIVE {
                alive.0.push(no);
            }
            if residency == PENDING && !alive.contains(row.get(1)?) {
                continue;
            }
            let no = parse_task_no(no)?;
            let row = decode_task(session.id, no, row.get_ref(3)?.as_blob()?)?;
            found.push(StoredTask::new(no, row));
        }
        Ok(found)
    }

    /// Returns the query for open tasks. The index skips finished tasks but costs a search for each
    /// open one. If many tasks are open, a scan of all tasks is cheaper.
    fn open_tasks_sql(&self, key: SessionKey) -> Result<&'static str> {
        let sql = "SELECT count(*), (SELECT ifnull(max(no), 0) FROM tasks WHERE session = ?1) \
                   FROM tasks INDEXED BY tasks_open WHERE session = ?1 AND residency < 3";
        let (open, last): (i64, i64) =
            self.tx.prepare_cached(sql)?.query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(if open >= last / 4 {
            "SELECT no, owner, residency, body FROM tasks NOT INDEXED \
             WHERE session = ?1 AND residency < 3 ORDER BY no"
        } else {
            "SELECT no, owner, residency, body FROM tasks INDEXED BY tasks_open \
             WHERE session = ?1 AND residency < 3 ORDER BY no"
        })
    }

    fn key_marks(&self, session: SessionKey, alive: &AliveTasks) -> Result<Vec<KeyMark>> {
        let sql = "SELECT owner, owner_run, idempotency_key, no FROM tasks INDEXED BY tasks_keyed \
                   WHERE session = ?1 AND idempotency_key IS NOT NULL \
                   UNION ALL SELECT owner, owner_run, idempotency_key, no FROM key_marks WHERE session = ?1";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query([session])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let owner: i64 = row.get(0)?;
            if !alive.contains(owner) {
                continue;
            }
            let key = parse_key(row, 2)?;
            let run = RunNo(row.get(1)?);
            let no = parse_task_no(row.get(3)?)?;
            found.push(KeyMark::new(parse_owner(owner)?, run, &key, no));
        }
        Ok(found)
    }

    fn message_keys(&self, session: SessionKey, alive: &AliveTasks) -> Result<Vec<MessageKeyMark>> {
        if !self.has_message_keys()? {
            return Ok(Vec::new());
        }
        let sql = "SELECT recipient, sender, key_run, idempotency_key, no \
                   FROM messages INDEXED BY messages_keyed \
                   WHERE session = ?1 AND idempotency_key IS NOT NULL";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query([session])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let recipient: i64 = row.get(0)?;
            let sender: i64 = row.get(1)?;
            // A key to the session can be repeated only by its sender.
            if !alive.contains(recipient) || recipient == 0 && !alive.contains(sender) {
                continue;
            }
            let from = if sender == 0 { None } else { Some(parse_task_no(sender)?) };
            let run = RunNo(row.get(2)?);
            let scope = MessageKeyScope { to: parse_owner(recipient)?, from, run };
            let no = MessageNo(read_u64(row, 4)?);
            found.push(MessageKeyMark::new(scope, &parse_key(row, 3)?, no));
        }
        Ok(found)
    }

    fn unread_messages(&self, session: SessionRef) -> Result<Vec<Arc<Message>>> {
        let sql = "SELECT no, body FROM messages INDEXED BY messages_unread \
                   WHERE session = ?1 AND unread = 1 ORDER BY no";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query([session.key])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let no: i64 = row.get(0)?;
            let what = format_args!("message {no} of {:?}", session.id);
            let row: MessageRow = codec::decode(what, row.get_ref(1)?.as_blob()?)?;
            found.push(row.message);
        }
        Ok(found)
    }
}

fn parse_key(row: &rusqlite::Row<'_>, column: usize) -> Result<IdempotencyKey> {
    row.get_ref(column)?.as_str()?.parse().map_err(|e| corrupt(format!("{e}")))
}

/// The alive tasks of a session, in ascending order. A parent has a smaller number than its
/// children, so a read in order sees the owner of a task before the task.
#[derive(Debug, Default)]
struct AliveTasks(Vec<i64>);

impl AliveTasks {
    /// Checks that this owner is alive. The session, which is 0, always is.
    fn contains(&self, owner: i64) -> bool {
        owner == 0 || self.0.binary_search(&owner).is_ok()
    }
}
