//! Reads rows. Each call is one statement, so it sees one state of the database.

use brigade_model::call::JournalEntry;
use brigade_model::ids::{Epoch, MessageNo, Owner, RunNo, SessionId, TaskNo};
use brigade_model::message::MessageKeyScope;
use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{MessageKeyMark, MessageRow, SessionRow};
use brigade_store::columns::{ALIVE, owner_code, parse_task_no, sender_code, to_i64};
use brigade_store::{JournalQuery, MessagePage, MessageQuery, RunRow, TaskOrder, TaskQuery, codec};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connections::{Connection, Parameter};
use crate::error::{Result, corrupt};

/// The key of a session in this schema.
pub(crate) type SessionKey = i64;

/// The key of the session with the id `$1`.
const KEY: &str = "(SELECT key FROM {schema}.sessions WHERE id = $1)";

pub(crate) async fn sessions(connection: &Connection<'_>) -> Result<Vec<SessionRow>> {
    let sql = "SELECT key, epoch, body FROM {schema}.sessions ORDER BY key";
    let rows = connection.query(sql, &[]).await?;
    // An unreadable session must not hide the others. `session` returns its error.
    Ok(rows.iter().filter_map(|row| decode_session(row).ok()).map(|(_, row)| row).collect())
}

pub(crate) async fn session(
    connection: &Connection<'_>,
    id: SessionId,
) -> Result<Option<SessionRow>> {
    Ok(session_with_key(connection, id).await?.map(|(_, row)| row))
}

pub(crate) async fn session_with_key(
    connection: &Connection<'_>,
    id: SessionId,
) -> Result<Option<(SessionKey, SessionRow)>> {
    let sql = "SELECT key, epoch, body FROM {schema}.sessions WHERE id = $1";
    let row = connection.query_first(sql, &[id_parameter(&id)]).await?;
    row.as_ref().map(decode_session).transpose()
}

pub(crate) async fn session_named(
    connection: &Connection<'_>,
    name: &SessionName,
) -> Result<Option<SessionRow>> {
    // Each part has an index of its own.
    let sql = "(SELECT key, epoch, body FROM {schema}.sessions WHERE name = $1 AND state <> 2) \
               UNION ALL \
               (SELECT key, epoch, body FROM {schema}.sessions WHERE name = $1 AND state = 2 \
                ORDER BY opened_at DESC, key DESC LIMIT 1) \
               LIMIT 1";
    let row = connection.query_first(sql, &[(&name.as_str(), Type::TEXT)]).await?;
    Ok(row.as_ref().map(decode_session).transpose()?.map(|(_, row)| row))
}

/// Decodes the columns `key, epoch, body`. The body may have an earlier epoch.
fn decode_session(row: &Row) -> Result<(SessionKey, SessionRow)> {
    let key: SessionKey = row.try_get(0)?;
    let mut session: SessionRow = codec::decode(format_args!("session {key}"), row.try_get(2)?)?;
    session.epoch = Epoch(to_u64(row.try_get(1)?)?);
    Ok((key, session))
}

pub(crate) async fn task(
    connection: &Connection<'_>,
    id: SessionId,
    no: TaskNo,
) -> Result<Option<TaskRow>> {
    let sql = format!("SELECT body FROM {{schema}}.tasks WHERE session = {KEY} AND no = $2");
    let values = [id_parameter(&id), (&i64::from(no.get()), Type::INT8)];
    let row = connection.query_first(&sql, &values).await?;
    row.map(|row| decode_task(id, no, row.try_get(0)?)).transpose()
}

/// Returns the numbers without a task. It reads the index alone, since this version may not be able
/// to read a row.
pub(crate) async fn missing_tasks(
    connection: &Connection<'_>,
    id: SessionId,
    numbers: &[TaskNo],
) -> Result<Vec<TaskNo>> {
    let sql = format!("SELECT no FROM {{schema}}.tasks WHERE session = {KEY} AND no = ANY ($2)");
    let wanted: Vec<i64> = numbers.iter().map(|no| no.get().into()).collect();
    let rows = connection.query(&sql, &[id_parameter(&id), (&wanted, Type::INT8_ARRAY)]).await?;
    let found = rows.iter().map(|row| Ok(parse_task_no(row.try_get(0)?)?));
    let found: std::collections::HashSet<TaskNo> = found.collect::<Result<_>>()?;
    Ok(numbers.iter().copied().filter(|no| !found.contains(no)).collect())
}

pub(crate) async fn task_named(
    connection: &Connection<'_>,
    id: SessionId,
    owner: Option<Owner>,
    name: &TaskName,
) -> Result<Option<StoredTask>> {
    let sql = format!(
        "SELECT no, body FROM {{schema}}.tasks WHERE session = {KEY} AND name = $2 \
         AND ($3::bigint IS NULL OR owner = $3) ORDER BY no DESC LIMIT 1"
    );
    let values: [Parameter<'_>; 3] =
        [id_parameter(&id), (&name.folded(), Type::TEXT), (&owner.map(owner_code), Type::INT8)];
    let row = connection.query_first(&sql, &values).await?;
    row.map(|row| decode_numbered_task(&row, id)).transpose()
}

pub(crate) async fn tasks(
    connection: &Connection<'_>,
    id: SessionId,
    query: &TaskQuery,
) -> Result<Vec<StoredTask>> {
    let (beyond, direction, first) = match query.order {
        TaskOrder::OldestFirst => (">", "ASC", 0),
        TaskOrder::NewestFirst => ("<", "DESC", i64::MAX),
    };
    let after = query.after.map_or(first, |after| i64::from(after.get()));
    let most = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let owner = query.owner.map(owner_code);
    let mut sql =
        format!("SELECT no, body FROM {{schema}}.tasks WHERE session = {KEY} AND no {beyond} $2");
    let mut values = vec![id_parameter(&id), (&after, Type::INT8), (&most, Type::INT8)];
    if let Some(owner) = &owner {
        sql.push_str(" AND owner = $4");
        values.push((owner, Type::INT8));
    }
    if query.alive_only {
        sql.push_str(&format!(" AND residency < 3 AND residency = {ALIVE}"));
    }
    sql.push_str(&format!(" ORDER BY no {direction} LIMIT $3"));
    let rows = connection.query(&sql, &values).await?;
    rows.iter().map(|row| decode_numbered_task(row, id)).collect()
}

pub(crate) async fn journal_page(
    connection: &Connection<'_>,
    id: SessionId,
    no: TaskNo,
    query: &JournalQuery,
) -> Result<Vec<JournalEntry>> {
    let sql = format!(
        "SELECT body, seq FROM {{schema}}.journal WHERE session = {KEY} AND task = $2 AND seq > $3 \
         ORDER BY seq LIMIT $4"
    );
    let values: [Parameter<'_>; 4] = [
        id_parameter(&id),
        (&i64::from(no.get()), Type::INT8),
        (&to_i64(query.after.0), Type::INT8),
        (&i64::try_from(query.limit).unwrap_or(i64::MAX), Type::INT8),
    ];
    let rows = connection.query(&sql, &values).await?;
    let entries = rows.iter().map(|row| {
        let order: i64 = row.try_get(1)?;
        let subject = format_args!("journal entry {order} of task {no} of {id:?}");
        Ok(codec::decode(subject, row.try_get(0)?)?)
    });
    entries.collect()
}

pub(crate) async fn run(
    connection: &Connection<'_>,
    id: SessionId,
    no: TaskNo,
    run: RunNo,
) -> Result<Option<RunRow>> {
    let sql = format!(
        "SELECT body FROM {{schema}}.runs WHERE session = {KEY} AND task = $2 AND run = $3"
    );
    let values: [Parameter<'_>; 3] =
        [id_parameter(&id), (&i64::from(no.get()), Type::INT8), (&i64::from(run.0), Type::INT8)];
    let Some(row) = connection.query_first(&sql, &values).await? else { return Ok(None) };
    let subject = format_args!("run {run} of task {no} of {id:?}");
    Ok(Some(codec::decode(subject, row.try_get(0)?)?))
}

pub(crate) async fn message(
    connection: &Connection<'_>,
    id: SessionId,
    no: MessageNo,
) -> Result<Option<MessageRow>> {
    let sql = format!("SELECT no, body FROM {{schema}}.messages WHERE session = {KEY} AND no = $2");
    let values = [id_parameter(&id), (&to_i64(no.0), Type::INT8)];
    let row = connection.query_first(&sql, &values).await?;
    row.map(|row| decode_message(&row, id)).transpose()
}

pub(crate) async fn messages(
    connection: &Connection<'_>,
    id: SessionId,
    query: &MessageQuery,
) -> Result<MessagePage> {
    let sql = format!(
        "SELECT no, body FROM {{schema}}.messages WHERE session = {KEY} AND no < $2 \
         ORDER BY no DESC LIMIT $3"
    );
    let before = query.before.map_or(i64::MAX, |before| to_i64(before.0));
    let most = i64::try_from(query.read_limit).unwrap_or(i64::MAX).saturating_add(1);
    let values = [id_parameter(&id), (&before, Type::INT8), (&most, Type::INT8)];
    let rows = connection.query(&sql, &values).await?;
    MessagePage::read(rows.iter().map(|row| decode_message(row, id)), query)
}

/// Decodes the columns `no, body` of a message.
pub(crate) fn decode_message(row: &Row, id: SessionId) -> Result<MessageRow> {
    let no: i64 = row.try_get(0)?;
    Ok(codec::decode(format_args!("message {no} of {id:?}"), row.try_get(1)?)?)
}

pub(crate) async fn message_key(
    connection: &Connection<'_>,
    id: SessionId,
    scope: MessageKeyScope,
    key: &IdempotencyKey,
) -> Result<Option<MessageKeyMark>> {
    let sql = format!(
        "SELECT no FROM {{schema}}.messages WHERE session = {KEY} AND recipient = $2 \
         AND sender = $3 AND key_run = $4 AND idempotency_key = $5"
    );
    let values: [Parameter<'_>; 5] = [
        id_parameter(&id),
        (&owner_code(scope.to), Type::INT8),
        (&sender_code(scope.from), Type::INT8),
        (&i64::from(scope.run.0), Type::INT8),
        (&key.as_str().as_bytes(), Type::BYTEA),
    ];
    let Some(row) = connection.query_first(&sql, &values).await? else { return Ok(None) };
    let no = MessageNo(to_u64(row.try_get(0)?)?);
    Ok(Some(MessageKeyMark::new(scope, key, no)))
}

/// Decodes the columns `no, body` of a task.
pub(crate) fn decode_numbered_task(row: &Row, id: SessionId) -> Result<StoredTask> {
    let no = parse_task_no(row.try_get(0)?)?;
    Ok(StoredTask::new(no, decode_task(id, no, row.try_get(1)?)?))
}

pub(crate) fn decode_task(id: SessionId, no: TaskNo, body: &[u8]) -> Result<TaskRow> {
    Ok(codec::decode(format_args!("task {no} of {id:?}"), body)?)
}

pub(crate) fn to_u64(number: i64) -> Result<u64> {
    u64::try_from(number).map_err(|_| corrupt(format!("{number} is negative")))
}

pub(crate) fn id_parameter(id: &SessionId) -> Parameter<'_> {
    (id.as_uuid(), Type::UUID)
}
