//! A new schema that a copy fills.

use brigade_store::StoreFuture;
use brigade_store::columns::CLOSED;
use brigade_store::store_copy::{
    CopyError, CopyRow, CopySource, CopyTable, CopyTarget, CopyValue, RECORD_COUNTER,
    SESSION_COUNTER,
};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::connections::{Connection, ConnectionPool, Parameter};
use crate::copy_rows::{ColumnType, column_type, copy_error, read_rows, session_sequence};
use crate::error::{Result, corrupt};
use crate::options::PostgresOptions;
use crate::prune::create_partitions;
use crate::schema::{SchemaContent, create_copy, finish_copy};

/// The milliseconds of a day, the unit of partitions.
const DAY: i64 = 86_400_000;

/// A new schema as the target of a copy. Until the copy is complete, nobody opens it as a store.
#[derive(Debug)]
pub struct PostgresCopyTarget {
    pool: ConnectionPool,
    token: i64,
}

impl PostgresCopyTarget {
    /// Creates the tables in a schema that has none. With `restart`, an incomplete copy is removed first.
    pub async fn create(options: &PostgresOptions, restart: bool) -> Result<Self, CopyError> {
        let pool = ConnectionPool::new(options).map_err(copy_error)?;
        let shown = || format!("{options}, schema {}", options.schema_name());
        let token = match create_copy(&pool, restart).await.map_err(copy_error)? {
            Ok(token) => token,
            Err(SchemaContent::IncompleteCopy(_)) => {
                return Err(CopyError::TargetIncomplete(shown()));
            }
            Err(_) => return Err(CopyError::TargetNotEmpty(shown())),
        };
        // Later, a day whose events are in the default partition would get none.
        create_partitions(&pool.get().await.map_err(copy_error)?).await;
        Ok(Self { pool, token })
    }
}

impl CopySource for PostgresCopyTarget {
    fn state_mark(&self) -> StoreFuture<'_, String> {
        Box::pin(std::future::ready(Ok(String::new())))
    }

    fn rows<'a>(
        &'a self,
        table: CopyTable,
        after: Option<&'a [CopyValue]>,
    ) -> StoreFuture<'a, Vec<CopyRow>> {
        Box::pin(async move { Ok(read_rows(&self.pool, table, after).await?) })
    }
}

impl CopyTarget for PostgresCopyTarget {
    fn write(&self, table: CopyTable, rows: Vec<CopyRow>) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(write_rows(&self.pool.get().await?, table, &rows).await?) })
    }

    /// Continues the numbers of lanes behind the copied ones, and lets a node claim each session.
    fn end_rows(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let connection = self.pool.get().await?;
            let sql = "SELECT setval(pg_get_serial_sequence('{schema}.lanes', 'lane'), max(lane)) \
                       FROM {schema}.lanes HAVING count(*) > 0";
            connection.query(sql, &[]).await?;
            let sql = "UPDATE {schema}.sessions SET lane = (SELECT max(lane) FROM {schema}.lanes) \
                       WHERE state <> 2";
            connection.query(sql, &[]).await?;
            // Later statements would be planned without knowledge of the rows.
            Ok(connection.execute_script(ANALYZE).await?)
        })
    }

    fn finish(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(finish_copy(&self.pool, self.token).await?) })
    }
}

const ANALYZE: &str = "ANALYZE {schema}.lanes, {schema}.sessions, {schema}.tasks, \
    {schema}.key_marks, {schema}.runs, {schema}.journal, {schema}.messages, {schema}.events, \
    {schema}.event_spans, {schema}.records";

async fn write_rows(connection: &Connection<'_>, table: CopyTable, rows: &[CopyRow]) -> Result<()> {
    let mut columns = CopyColumns::of(table, rows);
    match table {
        CopyTable::Counters => write_counters(connection, rows).await,
        CopyTable::Lanes => {
            // Lanes of the source have no writer any more, and belong to no node.
            columns.add("node", ColumnType::Int8, vec![CopyValue::Integer(0); rows.len()]);
            columns.add("open", ColumnType::Bool, vec![CopyValue::Integer(0); rows.len()]);
            columns.insert(connection, "lanes").await
        }
        CopyTable::Sessions => {
            columns.complete_sessions(rows)?;
            columns.insert(connection, "sessions").await
        }
        CopyTable::Events => {
            columns.rename("no", "pos");
            columns.rename("after_no", "after_pos");
            columns.insert(connection, "events").await?;
            find_spans(rows)?.insert(connection, "event_spans").await
        }
        _ => columns.insert(connection, table.name()).await,
    }
}

async fn write_counters(connection: &Connection<'_>, rows: &[CopyRow]) -> Result<()> {
    for row in rows {
        let [name, value] = &row[..] else { return Err(corrupt("a counter has two columns")) };
        let sequence = match name.text()? {
            Some(RECORD_COUNTER) => "{schema}.record_versions".to_owned(),
            Some(SESSION_COUNTER) => session_sequence(connection).await?,
            _ => return Err(corrupt("a counter is not known")),
        };
        let value = value.integer()?.unwrap_or(0);
        if value > 0 {
            let sql = format!("SELECT setval('{sequence}', $1)");
            connection.query(&sql, &[(&value, Type::INT8)]).await?;
        }
    }
    Ok(())
}

/// Rows by columns.
#[derive(Debug, Default)]
struct CopyColumns {
    columns: Vec<CopyColumn>,
}

#[derive(Debug)]
struct CopyColumn {
    name: &'static str,
    kind: ColumnType,
    values: Vec<CopyValue>,
}

impl CopyColumns {
    fn of(table: CopyTable, rows: &[CopyRow]) -> Self {
        let mut columns = Self::default();
        for (at, name) in table.columns().iter().enumerate() {
            let values = rows.iter().filter_map(|row| row.get(at).cloned()).collect();
            columns.add(name, column_type(table, name), values);
        }
        columns
    }

    fn add(&mut self, name: &'static str, kind: ColumnType, values: Vec<CopyValue>) {
        self.columns.push(CopyColumn { name, kind, values });
    }

    fn rename(&mut self, from: &str, to: &'static str) {
        for column in self.columns.iter_mut().filter(|column| column.name == from) {
            column.name = to;
        }
    }

    /// Sets the columns that sessions have only in the database. A last event that is not stored has the
    /// number 0, behind which every reader is.
    fn complete_sessions(&mut self, rows: &[CopyRow]) -> Result<()> {
        self.rename("last_no", "last_pos");
        for column in self.columns.iter_mut().filter(|it| it.name.starts_with("last_")) {
            for value in column.values.iter_mut().filter(|value| **value == CopyValue::Null) {
                *value = CopyValue::Integer(0);
            }
        }
        self.columns.retain(|column| column.name != "last_event_at");
        let closed_at = rows.iter().map(|row| match (row.get(3), row.get(7)) {
            (Some(CopyValue::Integer(state)), Some(at)) => {
                Ok(if *state == i64::from(CLOSED) { at.clone() } else { CopyValue::Null })
            }
            _ => Err(corrupt("a session has no state")),
        });
        let closed_at = closed_at.collect::<Result<_>>()?;
        self.add("closed_at", ColumnType::Int8, closed_at);
        Ok(())
    }

    /// Inserts the rows with one statement.
    async fn insert(&self, connection: &Connection<'_>, table: &str) -> Result<()> {
        let names: Vec<&str> = self.columns.iter().map(|column| column.name).collect();
        let places: Vec<String> = (1..=names.len()).map(|at| format!("${at}")).collect();
        let sql = format!(
            "INSERT INTO {{schema}}.{table}({}) SELECT * FROM unnest({})",
            names.join(", "),
            places.join(", ")
        );
        let arrays = self.columns.iter().map(CopyColumn::array).collect::<Result<Vec<_>>>()?;
        let values: Vec<Parameter<'_>> =
            arrays.iter().map(|(values, kind)| (&**values as _, kind.clone())).collect();
        connection.query(&sql, &values).await?;
        Ok(())
    }
}

/// The values of a column as a parameter with its type.
type ColumnArray<'a> = (Box<dyn ToSql + Sync + Send + 'a>, Type);

impl CopyColumn {
    fn array(&self) -> Result<ColumnArray<'_>> {
        Ok(match self.kind {
            ColumnType::Bool => {
                let values = self.convert(|value| Ok(value.integer()?.map(|it| it != 0)))?;
                (Box::new(values), Type::BOOL_ARRAY)
            }
            ColumnType::Int2 => (Box::new(self.convert(narrow::<i16>)?), Type::INT2_ARRAY),
            ColumnType::Int4 => (Box::new(self.convert(narrow::<i32>)?), Type::INT4_ARRAY),
            ColumnType::Int8 => (Box::new(self.convert(narrow::<i64>)?), Type::INT8_ARRAY),
            ColumnType::Text => {
                (Box::new(self.convert(|value| Ok(value.text()?))?), Type::TEXT_ARRAY)
            }
            ColumnType::Bytes => {
                (Box::new(self.convert(|value| Ok(value.bytes()?))?), Type::BYTEA_ARRAY)
            }
            ColumnType::Uuid => (Box::new(self.convert(parse_id)?), Type::UUID_ARRAY),
        })
    }

    fn convert<'a, T>(
        &'a self,
        convert: impl Fn(&'a CopyValue) -> Result<Option<T>>,
    ) -> Result<Vec<Option<T>>> {
        self.values.iter().map(convert).collect()
    }
}

fn narrow<T: TryFrom<i64>>(value: &CopyValue) -> Result<Option<T>> {
    let Some(number) = value.integer()? else { return Ok(None) };
    let narrowed = T::try_from(number).map_err(|_| corrupt(format!("{number} is too large")))?;
    Ok(Some(narrowed))
}

fn parse_id(value: &CopyValue) -> Result<Option<Uuid>> {
    let Some(bytes) = value.bytes()? else { return Ok(None) };
    let id = Uuid::from_slice(bytes).map_err(|_| corrupt("the id of a session is wrong"))?;
    Ok(Some(id))
}

/// Returns the spans of events, which are in the order of lanes and numbers. A span has the events of one
/// session and one day without a gap.
fn find_spans(rows: &[CopyRow]) -> Result<CopyColumns> {
    let mut spans: Vec<EventSpan> = Vec::new();
    for row in rows {
        let number = |at: usize| {
            let value = row.get(at).map(CopyValue::integer).transpose()?.flatten();
            value.ok_or_else(|| corrupt("an event has no position"))
        };
        let (lane, no, session, at) = (number(0)?, number(1)?, number(2)?, number(4)?);
        match spans.last_mut() {
            Some(span)
                if (span.lane, span.session) == (lane, session)
                    && span.last + 1 == no
                    && span.at.div_euclid(DAY) == at.div_euclid(DAY) =>
            {
                span.last = no;
                span.at = span.at.min(at);
            }
            _ => spans.push(EventSpan { session, lane, first: no, last: no, at }),
        }
    }
    let column = |of: fn(&EventSpan) -> i64| {
        spans.iter().map(|span| CopyValue::Integer(of(span))).collect::<Vec<_>>()
    };
    let mut columns = CopyColumns::default();
    columns.add("session", ColumnType::Int8, column(|span| span.session));
    columns.add("lane", ColumnType::Int4, column(|span| span.lane));
    columns.add("first_pos", ColumnType::Int8, column(|span| span.first));
    columns.add("last_pos", ColumnType::Int8, column(|span| span.last));
    columns.add("at", ColumnType::Int8, column(|span| span.at));
    Ok(columns)
}

/// Neighbouring events of a session. `at` is the earliest time.
#[derive(Debug)]
struct EventSpan {
    session: i64,
    lane: i64,
    first: i64,
    last: i64,
    at: i64,
}
