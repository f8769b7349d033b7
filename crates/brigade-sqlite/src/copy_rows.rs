//! Reads the rows of a file for a copy.

use std::path::Path;

use brigade_model::ids::Position;
use brigade_store::StoreFuture;
use brigade_store::columns::to_i64;
use brigade_store::store_copy::{
    CopyError, CopyPage, CopyRow, CopySource, CopyTable, CopyValue, PAGE_ROWS, RECORD_COUNTER,
    SESSION_COUNTER,
};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params_from_iter};

use crate::error::{Result, SqliteError, corrupt};
use crate::lanes::FileLanes;
use crate::schema::{FileContent, examine};
use crate::store::{SqliteStore, canonical_path};

/// A file as the source of a copy. It is open as its one owner, so nobody else writes it.
#[derive(Debug)]
pub struct SqliteCopySource {
    store: SqliteStore,
}

impl SqliteCopySource {
    /// Opens a store. A file of an earlier version is migrated, as at each start.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CopyError> {
        let path = canonical_path(path.as_ref()).map_err(copy_error)?;
        if examine(&path).map_err(copy_error)? == FileContent::Nothing {
            return Err(CopyError::NoSource(path.display().to_string()));
        }
        Ok(Self { store: SqliteStore::open(&path)? })
    }
}

impl CopySource for SqliteCopySource {
    fn state_mark(&self) -> StoreFuture<'_, String> {
        Box::pin(std::future::ready(Ok(String::new())))
    }

    fn rows<'a>(
        &'a self,
        table: CopyTable,
        after: Option<&'a [CopyValue]>,
    ) -> StoreFuture<'a, Vec<CopyRow>> {
        Box::pin(async move {
            self.store.with_reader(|reader| read_rows(&reader.tx, reader.lanes, table, after))
        })
    }
}

pub(crate) fn copy_error(error: SqliteError) -> CopyError {
    CopyError::Store(error.0)
}

/// Returns the next rows of a table after a key.
pub(crate) fn read_rows(
    conn: &Connection,
    lanes: FileLanes,
    table: CopyTable,
    after: Option<&[CopyValue]>,
) -> Result<Vec<CopyRow>> {
    match table {
        CopyTable::Counters => only_page(after, || read_counters(conn)),
        CopyTable::Lanes => only_page(after, || read_lanes(conn, lanes)),
        CopyTable::Sessions => read_sessions(conn, lanes, after),
        CopyTable::Events => read_events(conn, lanes, after),
        _ => read_table(conn, table, after),
    }
}

/// Returns rows that are all in the first page: there are few of them, or they are short.
fn only_page(
    after: Option<&[CopyValue]>,
    read: impl FnOnce() -> Result<Vec<CopyRow>>,
) -> Result<Vec<CopyRow>> {
    if after.is_some() { Ok(Vec::new()) } else { read() }
}

/// Reads a table whose columns are those of a copy.
fn read_table(
    conn: &Connection,
    table: CopyTable,
    after: Option<&[CopyValue]>,
) -> Result<Vec<CopyRow>> {
    let columns = table.columns();
    let selected: Vec<String> = columns.iter().map(|column| select_column(column)).collect();
    let key = columns[..table.key_columns()].join(", ");
    let condition = match after {
        Some(_) => {
            let places: Vec<String> =
                (1..=table.key_columns()).map(|at| format!("?{at}")).collect();
            format!("WHERE ({key}) > ({})", places.join(", "))
        }
        None => String::new(),
    };
    let sql = format!(
        "SELECT {} FROM {} {condition} ORDER BY {key} LIMIT {PAGE_ROWS}",
        selected.join(", "),
        table.name()
    );
    let mut page = CopyPage::default();
    read_page(conn, &sql, after, columns.len(), &mut page)?;
    Ok(page.into_rows())
}

/// Keys of tasks and messages are text in the file, and bytes in a copy.
fn select_column(column: &str) -> String {
    match column {
        "idempotency_key" => format!("CAST({column} AS BLOB)"),
        _ => column.to_owned(),
    }
}

/// Adds rows to a page until it is full, and returns whether it has space for more.
fn read_page(
    conn: &Connection,
    sql: &str,
    values: Option<&[CopyValue]>,
    columns: usize,
    page: &mut CopyPage,
) -> Result<bool> {
    let mut statement = conn.prepare_cached(sql)?;
    let values = values.unwrap_or_default().iter().map(SqlValue);
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let row = (0..columns).map(|column| read_value(row, column)).collect::<Result<_>>()?;
        if !page.push(row) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A value of a copy as a parameter of a statement.
pub(crate) struct SqlValue<'a>(pub(crate) &'a CopyValue);

impl rusqlite::ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            CopyValue::Null => ValueRef::Null,
            CopyValue::Integer(number) => ValueRef::Integer(*number),
            CopyValue::Text(text) => ValueRef::Text(text.as_bytes()),
            CopyValue::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

fn read_value(row: &Row<'_>, column: usize) -> Result<CopyValue> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => CopyValue::Null,
        ValueRef::Integer(number) => CopyValue::Integer(number),
        text @ ValueRef::Text(_) => CopyValue::Text(text.as_str()?.to_owned()),
        ValueRef::Blob(bytes) => CopyValue::Bytes(bytes.to_vec()),
        ValueRef::Real(_) => return Err(corrupt("a column has a fraction")),
    })
}

fn read_counters(conn: &Connection) -> Result<Vec<CopyRow>> {
    let sql = "SELECT value FROM meta WHERE name = 'record_version'";
    let record: i64 = conn.query_row(sql, [], |row| row.get(0))?;
    let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'sessions'";
    let session: Option<i64> = conn.query_row(sql, [], |row| row.get(0)).optional()?;
    Ok([(RECORD_COUNTER, record), (SESSION_COUNTER, session.unwrap_or(0))]
        .map(|(name, value)| vec![CopyValue::Text(name.to_owned()), CopyValue::Integer(value)])
        .into())
}

fn read_lanes(conn: &Connection, lanes: FileLanes) -> Result<Vec<CopyRow>> {
    let rows = lanes.ends(conn)?.into_iter().map(|end| {
        vec![
            CopyValue::Integer(end.head.lane.0.into()),
            CopyValue::Integer(to_i64(end.head.no)),
            CopyValue::Integer(to_i64(end.pruned_to.no)),
        ]
    });
    Ok(rows.collect())
}

fn read_sessions(
    conn: &Connection,
    lanes: FileLanes,
    after: Option<&[CopyValue]>,
) -> Result<Vec<CopyRow>> {
    let start = [CopyValue::Integer(i64::MIN)];
    let sql = format!(
        "SELECT key, id, name, state, epoch, seq, opened_at, last_event_at, copied.lane, \
             CASE WHEN copied.lane IS NULL THEN last_position ELSE copied.no END, body \
         FROM (SELECT *, (SELECT max(last) FROM event_spans WHERE session = key) AS last_position \
               FROM sessions WHERE key > ?1 ORDER BY key LIMIT {PAGE_ROWS}) \
         LEFT JOIN copied_events AS copied ON copied.position = last_position ORDER BY key"
    );
    let mut page = CopyPage::default();
    let columns = CopyTable::Sessions.columns().len();
    read_page(conn, &sql, Some(after.unwrap_or(&start)), columns, &mut page)?;
    let mut rows = page.into_rows();
    for row in &mut rows {
        set_own_position(lanes, row, 8)?;
    }
    Ok(rows)
}

/// Replaces the position in the file of an own event, which has no lane, by its lane and number.
fn set_own_position(lanes: FileLanes, row: &mut CopyRow, lane: usize) -> Result<()> {
    if let (CopyValue::Null, CopyValue::Integer(position)) = (&row[lane], &row[lane + 1]) {
        let position = u64::try_from(*position).map_err(|_| corrupt("a position is negative"))?;
        let Position { lane: own, no } = lanes.own_position(position);
        row[lane] = CopyValue::Integer(own.0.into());
        row[lane + 1] = CopyValue::Integer(to_i64(no));
    }
    Ok(())
}

/// Reads events by lane. The own lane is the last one.
fn read_events(
    conn: &Connection,
    lanes: FileLanes,
    after: Option<&[CopyValue]>,
) -> Result<Vec<CopyRow>> {
    let after = match after {
        Some([lane, no]) => (lane.integer()?.unwrap_or(-1), no.integer()?.unwrap_or(0)),
        _ => (-1, 0),
    };
    let own = i64::from(lanes.own().0);
    // The position in the file is an additional column.
    let columns = CopyTable::Events.columns().len() + 1;
    let mut page = CopyPage::default();
    let mut has_space = true;
    if lanes.has_copied() && after.0 < own {
        let sql = format!(
            "SELECT copied.lane, copied.no, session, seq, at, NULL, NULL, author, body, position \
             FROM copied_events AS copied JOIN events USING (position) \
             WHERE (copied.lane, copied.no) > (?1, ?2) \
             ORDER BY copied.lane, copied.no LIMIT {PAGE_ROWS}"
        );
        let values = [after.0, after.1].map(CopyValue::Integer);
        has_space = read_page(conn, &sql, Some(&values), columns, &mut page)?;
    }
    if has_space {
        let base = to_i64(lanes.position_of_own(0));
        let read = if after.0 == own { after.1 } else { 0 };
        let sql = format!(
            "SELECT {own}, position - {base}, session, seq, at, NULL, NULL, author, body, position \
             FROM events WHERE position > ?1 ORDER BY position LIMIT {PAGE_ROWS}"
        );
        read_page(conn, &sql, Some(&[CopyValue::Integer(base + read)]), columns, &mut page)?;
    }
    let mut rows = page.into_rows();
    for row in &mut rows {
        let position = row.pop();
        if lanes.has_copied()
            && let Some(CopyValue::Integer(position)) = position
        {
            set_event_before(conn, lanes, row, position)?;
        }
    }
    Ok(rows)
}

/// Sets the position of the session's event before an event, if that is in another lane. In the file it is
/// the neighbour of the event, or the last event of an earlier span.
fn set_event_before(
    conn: &Connection,
    lanes: FileLanes,
    row: &mut CopyRow,
    position: i64,
) -> Result<()> {
    let sql = "SELECT copied.lane, CASE WHEN copied.lane IS NULL THEN last ELSE copied.no END \
               FROM (SELECT max(ifnull((SELECT position FROM events \
                                        WHERE position = ?2 - 1 AND session = ?1), 0), \
                                ifnull((SELECT max(last) FROM event_spans \
                                        WHERE session = ?1 AND last < ?2), 0)) AS last) \
               LEFT JOIN copied_events AS copied ON copied.position = last WHERE last > 0";
    let values = [row[2].clone(), CopyValue::Integer(position)];
    let mut page = CopyPage::default();
    read_page(conn, sql, Some(&values), 2, &mut page)?;
    let Some(mut before) = page.into_rows().pop() else { return Ok(()) };
    set_own_position(lanes, &mut before, 0)?;
    if before[0] != row[0] {
        row.splice(5..7, before);
    }
    Ok(())
}
