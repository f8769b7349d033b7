//! Reads the rows of a schema for a copy.

use brigade_model::ids::Epoch;
use brigade_model::task_tree::SessionRow;
use brigade_store::columns::to_i64;
use brigade_store::store_copy::{
    CopyError, CopyPage, CopyRow, CopySource, CopyTable, CopyValue, PAGE_BYTES, PAGE_ROWS,
    RECORD_COUNTER, SESSION_COUNTER,
};
use brigade_store::{StoreError, StoreFuture, codec};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connections::{Connection, ConnectionPool, Parameter};
use crate::error::{PostgresError, Result, corrupt};
use crate::options::PostgresOptions;
use crate::read::to_u64;
use crate::schema::{SchemaContent, open_schema, read_content};

/// A schema as the source of a copy.
#[derive(Debug)]
pub struct PostgresCopySource {
    pool: ConnectionPool,
}

impl PostgresCopySource {
    /// Opens a store that no node has open. Tables of an earlier version are migrated, as at each start.
    pub async fn open(options: &PostgresOptions) -> Result<Self, CopyError> {
        let pool = ConnectionPool::new(options).map_err(copy_error)?;
        let content = read_content(&pool.get().await.map_err(copy_error)?).await;
        if content.map_err(copy_error)? == SchemaContent::Nothing {
            let schema = options.schema_name();
            return Err(CopyError::NoSource(format!("{options}, schema {schema}")));
        }
        open_schema(&pool).await.map_err(copy_error)?;
        check_nodes(&pool).await.map_err(copy_error)?;
        Ok(Self { pool })
    }
}

pub(crate) fn copy_error(error: PostgresError) -> CopyError {
    CopyError::Store(error.0)
}

/// Refuses a store that a node has open.
async fn check_nodes(pool: &ConnectionPool) -> Result<()> {
    let connection = pool.get().await?;
    let sql = "SELECT name, host FROM {schema}.nodes WHERE open ORDER BY node LIMIT 1";
    let Some(row) = connection.query_first(sql, &[]).await? else { return Ok(()) };
    let (name, host): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    Err(StoreError::Locked { holder: format!("the node {name} on {host}") }.into())
}

impl CopySource for PostgresCopySource {
    /// Returns the state of lanes, sessions, records and nodes as text.
    fn state_mark(&self) -> StoreFuture<'_, String> {
        Box::pin(async move { Ok(read_state_mark(&self.pool).await?) })
    }

    fn rows<'a>(
        &'a self,
        table: CopyTable,
        after: Option<&'a [CopyValue]>,
    ) -> StoreFuture<'a, Vec<CopyRow>> {
        Box::pin(async move { Ok(read_rows(&self.pool, table, after).await?) })
    }
}

async fn read_state_mark(pool: &ConnectionPool) -> Result<String> {
    let connection = pool.get().await?;
    let sql = "SELECT concat_ws(' ', \
        (SELECT string_agg(concat_ws(':', lane, head, pruned_to, generation), ',' ORDER BY lane) \
         FROM {schema}.lanes), \
        (SELECT concat_ws(':', count(*), sum(epoch)) FROM {schema}.sessions), \
        (SELECT concat_ws(':', count(*), sum(version)) FROM {schema}.records), \
        (SELECT count(*) FROM {schema}.nodes WHERE open))";
    Ok(connection.query_one(sql, &[]).await?.try_get(0)?)
}

/// The type of a column in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    Bool,
    Int2,
    Int4,
    Int8,
    Text,
    Bytes,
    Uuid,
}

/// Returns the type of a column of a copy.
pub(crate) fn column_type(table: CopyTable, column: &str) -> ColumnType {
    match (table, column) {
        (CopyTable::Sessions, "id") => ColumnType::Uuid,
        (_, "body" | "idempotency_key" | "key" | "value")
            if (table, column) != (CopyTable::Sessions, "key") && table != CopyTable::Counters =>
        {
            ColumnType::Bytes
        }
        (_, "name" | "author" | "kind") => ColumnType::Text,
        (_, "state" | "residency") => ColumnType::Int2,
        (_, "unread") => ColumnType::Bool,
        (_, "lane" | "after_lane" | "last_lane") => ColumnType::Int4,
        _ => ColumnType::Int8,
    }
}

/// Returns the next rows of a table after a key.
pub(crate) async fn read_rows(
    pool: &ConnectionPool,
    table: CopyTable,
    after: Option<&[CopyValue]>,
) -> Result<Vec<CopyRow>> {
    let connection = pool.get().await?;
    if table == CopyTable::Counters {
        return if after.is_some() { Ok(Vec::new()) } else { read_counters(&connection).await };
    }
    let rows = query_page(&connection, table, after).await?;
    let mut page = CopyPage::default();
    for row in &rows {
        let columns = table.columns().iter().enumerate();
        let values = columns.map(|(at, column)| read_value(row, at, column_type(table, column)));
        let mut values: CopyRow = values.collect::<Result<_>>()?;
        if table == CopyTable::Sessions {
            complete_session(&mut values)?;
        }
        if !page.push(values) {
            break;
        }
    }
    Ok(page.into_rows())
}

/// Reads the next rows in the order of their keys.
async fn query_page(
    connection: &Connection<'_>,
    table: CopyTable,
    after: Option<&[CopyValue]>,
) -> Result<Vec<Row>> {
    if table == CopyTable::Events {
        return query_events(connection, after).await;
    }
    let key_columns = &table.columns()[..table.key_columns()];
    // Text is ordered by its bytes.
    let order = |column: &&str| match *column {
        "kind" => "kind COLLATE \"C\"".to_owned(),
        column => column.to_owned(),
    };
    let key = key_columns.iter().map(order).collect::<Vec<_>>().join(", ");
    let places: Vec<String> = (1..=key_columns.len()).map(|at| format!("${at}")).collect();
    let mut conditions = Vec::new();
    if table == CopyTable::Lanes {
        conditions.push("head > 0".to_owned());
    }
    if after.is_some() {
        conditions.push(format!("({key}) > ({})", places.join(", ")));
    }
    let condition = match conditions.is_empty() {
        true => "true".to_owned(),
        false => conditions.join(" AND "),
    };
    let keys = after.unwrap_or_default().iter().zip(key_columns);
    let keys = keys.map(|(value, column)| KeyValue::of(value, column_type(table, column)));
    let keys: Vec<KeyValue> = keys.collect::<Result<_>>()?;
    let values: Vec<Parameter<'_>> = keys.iter().map(KeyValue::parameter).collect();
    connection.query(&page_sql(table, &condition, &key), &values).await
}

/// Reads the next events of one lane: the one of the key, or the next one that has more. An event that
/// retention has marked as removed is not read, also if its row is there.
async fn query_events(
    connection: &Connection<'_>,
    after: Option<&[CopyValue]>,
) -> Result<Vec<Row>> {
    let sql = page_sql(CopyTable::Events, "lane = $1 AND pos > $2", "pos");
    let (mut lane, mut no) = match after {
        Some([lane, no]) => (lane.integer()?.unwrap_or(-1), no.integer()?.unwrap_or(0)),
        _ => (-1, 0),
    };
    loop {
        let code = i32::try_from(lane).map_err(|_| corrupt(format!("{lane} is not a lane")))?;
        let values = [(&code as _, Type::INT4), (&no as _, Type::INT8)];
        let rows = connection.query(&sql, &values).await?;
        if !rows.is_empty() {
            return Ok(rows);
        }
        let sql = "SELECT lane, pruned_to FROM {schema}.lanes \
                   WHERE lane > $1 AND head > pruned_to ORDER BY lane LIMIT 1";
        let next = connection.query_first(sql, &[(&code, Type::INT4)]).await?;
        let Some(next) = next else { return Ok(Vec::new()) };
        lane = next.try_get::<_, i32>(0)?.into();
        no = next.try_get(1)?;
    }
}

/// Returns the statement that reads a page. The database sends no rows beyond its bounds. The rows are
/// limited before anything is joined, so that the key's index is used.
fn page_sql(table: CopyTable, condition: &str, key: &str) -> String {
    let size = match table {
        CopyTable::Counters | CopyTable::Lanes | CopyTable::KeyMarks => "1",
        CopyTable::Records => "octet_length(value)",
        _ => "octet_length(body)",
    };
    let (columns, join) = match table {
        CopyTable::Sessions => (
            "key, id, name, state, epoch, seq, opened_at, NULL::bigint, last.lane, \
             CASE WHEN last.lane IS NOT NULL THEN last_pos END, body"
                .to_owned(),
            "LEFT JOIN {schema}.lanes AS last \
             ON last.lane = page.last_lane AND page.last_pos > last.pruned_to",
        ),
        CopyTable::Events => (
            "page.lane, pos, session, seq, at, before.lane, \
             CASE WHEN before.lane IS NOT NULL THEN after_pos END, author, body"
                .to_owned(),
            "LEFT JOIN {schema}.lanes AS before \
             ON before.lane = page.after_lane AND page.after_pos > before.pruned_to",
        ),
        _ => (table.columns().join(", "), ""),
    };
    format!(
        "SELECT {columns} FROM ( \
             SELECT *, sum(size) OVER (ORDER BY {key}) - size AS size_before FROM ( \
                 SELECT *, {size} AS size FROM {{schema}}.{} WHERE {condition} \
                 ORDER BY {key} LIMIT {PAGE_ROWS}) AS next) AS page {join} \
         WHERE size_before < {PAGE_BYTES} ORDER BY {key}",
        table.name()
    )
}

/// A value of a key as a parameter.
enum KeyValue {
    Int4(i32),
    Int8(i64),
    Text(String),
    Bytes(Vec<u8>),
}

impl KeyValue {
    fn of(value: &CopyValue, kind: ColumnType) -> Result<Self> {
        Ok(match (value, kind) {
            (CopyValue::Integer(number), ColumnType::Int4) => {
                Self::Int4(i32::try_from(*number).map_err(|error| corrupt(error.to_string()))?)
            }
            (CopyValue::Integer(number), _) => Self::Int8(*number),
            (CopyValue::Text(text), _) => Self::Text(text.clone()),
            (CopyValue::Bytes(bytes), _) => Self::Bytes(bytes.clone()),
            (CopyValue::Null, _) => return Err(corrupt("a key has no value")),
        })
    }

    fn parameter(&self) -> Parameter<'_> {
        match self {
            Self::Int4(number) => (number, Type::INT4),
            Self::Int8(number) => (number, Type::INT8),
            Self::Text(text) => (text, Type::TEXT),
            Self::Bytes(bytes) => (bytes, Type::BYTEA),
        }
    }
}

fn read_value(row: &Row, at: usize, kind: ColumnType) -> Result<CopyValue> {
    let integer = |number: Option<i64>| number.map(CopyValue::Integer);
    let value = match kind {
        ColumnType::Bool => integer(row.try_get::<_, Option<bool>>(at)?.map(i64::from)),
        ColumnType::Int2 => integer(row.try_get::<_, Option<i16>>(at)?.map(i64::from)),
        ColumnType::Int4 => integer(row.try_get::<_, Option<i32>>(at)?.map(i64::from)),
        ColumnType::Int8 => integer(row.try_get(at)?),
        ColumnType::Text => row.try_get::<_, Option<String>>(at)?.map(CopyValue::Text),
        ColumnType::Bytes => row.try_get::<_, Option<Vec<u8>>>(at)?.map(CopyValue::Bytes),
        ColumnType::Uuid => {
            let id: Option<Uuid> = row.try_get(at)?;
            id.map(|id| CopyValue::Bytes(id.as_bytes().to_vec()))
        }
    };
    Ok(value.unwrap_or(CopyValue::Null))
}

/// Sets the time of the last event, which is in the body alone, and the epoch of the body, which may be an
/// earlier one.
fn complete_session(values: &mut CopyRow) -> Result<()> {
    let [key, _, _, _, epoch, _, _, last_event_at, _, _, body] = &mut values[..] else {
        return Err(corrupt("a session has other columns"));
    };
    let (Some(key), Some(number)) = (key.integer()?, epoch.integer()?) else {
        return Err(corrupt("a session has no key or no epoch"));
    };
    let bytes = body.bytes()?.unwrap_or_default();
    let mut row: SessionRow = codec::decode(format_args!("session {key}"), bytes)?;
    *last_event_at = CopyValue::Integer(to_i64(row.now.0));
    let epoch = Epoch(to_u64(number)?);
    if row.epoch != epoch {
        row.epoch = epoch;
        *body = CopyValue::Bytes(codec::encode(&row)?);
    }
    Ok(())
}

async fn read_counters(connection: &Connection<'_>) -> Result<Vec<CopyRow>> {
    let sql = "SELECT last_value, is_called FROM {schema}.record_versions";
    let record = read_sequence(connection, sql).await?;
    let name = session_sequence(connection).await?;
    let session =
        read_sequence(connection, &format!("SELECT last_value, is_called FROM {name}")).await?;
    Ok([(RECORD_COUNTER, record), (SESSION_COUNTER, session)]
        .map(|(name, value)| vec![CopyValue::Text(name.to_owned()), CopyValue::Integer(value)])
        .into())
}

/// Returns the name of the sequence of the keys of sessions, quoted and with its schema.
pub(crate) async fn session_sequence(connection: &Connection<'_>) -> Result<String> {
    let sql = "SELECT pg_get_serial_sequence('{schema}.sessions', 'key')";
    Ok(connection.query_one(sql, &[]).await?.try_get(0)?)
}

/// Returns the last number of a sequence, or 0 if it was not used.
async fn read_sequence(connection: &Connection<'_>, sql: &str) -> Result<i64> {
    let row = connection.query_one(sql, &[]).await?;
    Ok(if row.try_get(1)? { row.try_get(0)? } else { 0 })
}
