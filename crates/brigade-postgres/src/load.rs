//! Loads the rows of a session that must be in memory.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;

use brigade_model::ids::{MessageNo, RunNo, SessionId, TaskNo};
use brigade_model::message::{Message, MessageKeyScope};
use brigade_model::name::IdempotencyKey;
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{KeyMark, MessageKeyMark};
use brigade_store::LoadedSession;
use brigade_store::columns::{ALIVE, PENDING, parse_owner, parse_task_no};
use brigade_store::residency::add_required_tasks;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connections::{Connection, TransactionMode};
use crate::error::{Result, corrupt};
use crate::read::{SessionKey, decode_message, decode_numbered_task, session_with_key, to_u64};

/// Loads a session within one transaction, so that all rows are of one commit.
pub(crate) async fn load(
    connection: &mut Connection<'_>,
    id: SessionId,
) -> Result<Option<LoadedSession>> {
    connection.begin(TransactionMode::Snapshot).await?;
    let loaded = match session_with_key(connection, id).await? {
        Some((key, row)) => {
            let loading = Loading { connection, key, id };
            // The driver sends these statements without waiting for an answer in between.
            let ((tasks, alive), unread, keys, message_keys) = tokio::try_join!(
                loading.open_tasks(),
                loading.unread_messages(),
                loading.rows_of_keys(),
                loading.rows_of_message_keys(),
            )?;
            let tasks = loading.with_required_tasks(tasks).await?;
            let keys = decode_keys(&keys, &alive)?;
            let message_keys = decode_message_keys(&message_keys, &alive)?;
            Some(LoadedSession { row, tasks, unread, keys, message_keys })
        }
        None => None,
    };
    connection.commit().await?;
    Ok(loaded)
}

/// A session that is being loaded.
struct Loading<'a> {
    connection: &'a Connection<'a>,
    key: SessionKey,
    id: SessionId,
}

impl Loading<'_> {
    async fn open_tasks(&self) -> Result<(Vec<StoredTask>, AliveTasks)> {
        let sql = "SELECT no, body, owner, residency FROM {schema}.tasks \
                   WHERE session = $1 AND residency < 3 ORDER BY no";
        let rows = self.connection.query(sql, &[(&self.key, Type::INT8)]).await?;
        let mut tasks = Vec::with_capacity(rows.len());
        let mut alive = AliveTasks::default();
        for row in rows {
            let residency: i16 = row.try_get(3)?;
            if residency == ALIVE {
                alive.0.insert(row.try_get(0)?);
            }
            // A parent has a smaller number than its children, so its own row came before.
            if residency == PENDING && !alive.contains(row.try_get(2)?) {
                continue;
            }
            tasks.push(decode_numbered_task(&row, self.id)?);
        }
        Ok((tasks, alive))
    }

    /// Adds the tasks that the open ones require. Each round reads those that the round before has
    /// missed.
    async fn with_required_tasks(&self, open: Vec<StoredTask>) -> Result<Vec<StoredTask>> {
        let mut read: HashMap<TaskNo, Option<TaskRow>> = HashMap::new();
        loop {
            let mut tasks = open.clone();
            let mut missing: Vec<TaskNo> = Vec::new();
            let Ok(()) = add_required_tasks::<Infallible>(&mut tasks, |no| {
                let row = read.get(&no);
                if row.is_none() {
                    missing.push(no);
                }
                Ok(row.cloned().flatten())
            });
            if missing.is_empty() {
                return Ok(tasks);
            }
            let sql = "SELECT no, body FROM {schema}.tasks WHERE session = $1 AND no = ANY ($2)";
            let numbers: Vec<i64> = missing.iter().map(|no| no.get().into()).collect();
            let values = [(&self.key as _, Type::INT8), (&numbers as _, Type::INT8_ARRAY)];
            let rows = self.connection.query(sql, &values).await?;
            read.extend(missing.into_iter().map(|no| (no, None)));
            for row in rows {
                let task = decode_numbered_task(&row, self.id)?;
                read.insert(task.no, Some(TaskRow::clone(&task.row)));
            }
        }
    }

    async fn unread_messages(&self) -> Result<Vec<Arc<Message>>> {
        let sql =
            "SELECT no, body FROM {schema}.messages WHERE session = $1 AND unread ORDER BY no";
        let rows = self.connection.query(sql, &[(&self.key, Type::INT8)]).await?;
        rows.iter().map(|row| Ok(decode_message(row, self.id)?.message)).collect()
    }

    async fn rows_of_keys(&self) -> Result<Vec<Row>> {
        let sql = "SELECT owner, owner_run, idempotency_key, no FROM {schema}.tasks \
                   WHERE session = $1 AND idempotency_key IS NOT NULL \
                   UNION ALL SELECT owner, owner_run, idempotency_key, no FROM {schema}.key_marks \
                   WHERE session = $1";
        self.connection.query(sql, &[(&self.key, Type::INT8)]).await
    }

    async fn rows_of_message_keys(&self) -> Result<Vec<Row>> {
        let sql = "SELECT recipient, sender, key_run, idempotency_key, no FROM {schema}.messages \
                   WHERE session = $1 AND idempotency_key IS NOT NULL";
        self.connection.query(sql, &[(&self.key, Type::INT8)]).await
    }
}

/// Decodes the keys of those owners that are alive. Nobody can repeat a key of another one.
fn decode_keys(rows: &[Row], alive: &AliveTasks) -> Result<Vec<KeyMark>> {
    let mut marks = Vec::new();
    for row in rows {
        let owner: i64 = row.try_get(0)?;
        if alive.contains(owner) {
            let run = parse_run(row.try_get(1)?)?;
            let key = parse_key(row.try_get(2)?)?;
            let no = parse_task_no(row.try_get(3)?)?;
            marks.push(KeyMark::new(parse_owner(owner)?, run, &key, no));
        }
    }
    Ok(marks)
}

fn decode_message_keys(rows: &[Row], alive: &AliveTasks) -> Result<Vec<MessageKeyMark>> {
    let mut marks = Vec::new();
    for row in rows {
        let (recipient, sender): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        // A key to the session can be repeated only by its sender.
        if !alive.contains(recipient) || recipient == 0 && !alive.contains(sender) {
            continue;
        }
        let from = if sender == 0 { None } else { Some(parse_task_no(sender)?) };
        let run = parse_run(row.try_get(2)?)?;
        let scope = MessageKeyScope { to: parse_owner(recipient)?, from, run };
        let no = MessageNo(to_u64(row.try_get(4)?)?);
        marks.push(MessageKeyMark::new(scope, &parse_key(row.try_get(3)?)?, no));
    }
    Ok(marks)
}

fn parse_run(number: i64) -> Result<RunNo> {
    let run = u32::try_from(number).map_err(|_| corrupt(format!("{number} is not a run")))?;
    Ok(RunNo(run))
}

fn parse_key(bytes: &[u8]) -> Result<IdempotencyKey> {
    let text = std::str::from_utf8(bytes).map_err(|error| corrupt(error.to_string()))?;
    text.parse().map_err(|error| corrupt(format!("{error}")))
}

/// The alive tasks of a session, by their numbers.
#[derive(Debug, Default)]
struct AliveTasks(HashSet<i64>);

impl AliveTasks {
    /// Checks that this owner is alive. The session, which is 0, always is.
    fn contains(&self, owner: i64) -> bool {
        owner == 0 || self.0.contains(&owner)
    }
}
