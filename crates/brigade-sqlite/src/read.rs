//! Reads rows and events. Each call is one transaction.

use std::sync::Arc;

use brigade_model::call::JournalEntry;
use brigade_model::event::{EventRecord, FeedItem};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{MessageNo, Owner, Position, RunNo, Seq, SessionId, TaskNo};
use brigade_model::message::MessageKeyScope;
use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{MessageKeyMark, MessageRow, SessionRow};
use brigade_store::columns::{
    ALIVE, CLOSED, decode_author, owner_code, parse_task_no, sender_code, to_i64,
};
use brigade_store::{
    EventPage, EventQuery, JournalQuery, MessagePage, MessageQuery, RunRow, TaskOrder, TaskQuery,
    codec,
};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use crate::error::{Result, corrupt};
use crate::lanes::FileLanes;
use crate::write::{SessionKey, SessionRef, id_bytes};

/// A read transaction, which sees one state of the store.
#[derive(Debug)]
pub(crate) struct ReadTransaction<'a> {
    pub(crate) tx: Transaction<'a>,
    pub(crate) lanes: FileLanes,
}

impl<'a> ReadTransaction<'a> {
    pub(crate) fn begin(conn: &'a Connection, lanes: FileLanes) -> Result<Self> {
        Ok(Self { tx: conn.unchecked_transaction()?, lanes })
    }

    pub(crate) fn sessions(&self) -> Result<Vec<SessionRow>> {
        let mut statement =
            self.tx.prepare_cached("SELECT key, body FROM sessions ORDER BY key")?;
        let mut rows = statement.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let key: SessionKey = row.get(0)?;
            // An unreadable session must not hide the others. `session` returns its error.
            found.extend(codec::decode(format_args!("session {key}"), row.get_ref(1)?.as_blob()?));
        }
        Ok(found)
    }

    pub(crate) fn session(&self, id: SessionId) -> Result<Option<SessionRow>> {
        Ok(self.session_with_key(id)?.map(|(_, row)| row))
    }

    pub(crate) fn session_with_key(
        &self,
        id: SessionId,
    ) -> Result<Option<(SessionKey, SessionRow)>> {
        let mut statement =
            self.tx.prepare_cached("SELECT key, body FROM sessions WHERE id = ?1")?;
        let mut rows = statement.query([id_bytes(&id)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let tree = codec::decode(format_args!("{id:?}"), row.get_ref(1)?.as_blob()?)?;
        Ok(Some((row.get(0)?, tree)))
    }

    pub(crate) fn session_named(&self, name: &SessionName) -> Result<Option<SessionRow>> {
        let sql = "SELECT body FROM sessions WHERE name = ?1 \
                   ORDER BY state = ?2, opened_at DESC, key DESC LIMIT 1";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query(params![name.as_str(), CLOSED])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let what = format_args!("the session named {name}");
        Ok(Some(codec::decode(what, row.get_ref(0)?.as_blob()?)?))
    }

    pub(crate) fn session_key(&self, id: SessionId) -> Result<Option<SessionKey>> {
        let mut statement = self.tx.prepare_cached("SELECT key FROM sessions WHERE id = ?1")?;
        Ok(statement.query_row([id_bytes(&id)], |row| row.get(0)).optional()?)
    }

    pub(crate) fn task(&self, id: SessionId, no: TaskNo) -> Result<Option<TaskRow>> {
        let Some(key) = self.session_key(id)? else { return Ok(None) };
        read_task(&self.tx, SessionRef { key, id }, no)
    }

    /// Returns the numbers without a task. It reads the index alone, since this version may not be
    /// able to read a row.
    pub(crate) fn missing_tasks(&self, id: SessionId, numbers: &[TaskNo]) -> Result<Vec<TaskNo>> {
        let Some(key) = self.session_key(id)? else { return Ok(numbers.to_vec()) };
        let sql = "SELECT EXISTS (SELECT 1 FROM tasks WHERE session = ?1 AND no = ?2)";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut missing = Vec::new();
        for no in numbers {
            let exists: bool = statement.query_row(params![key, no.get()], |row| row.get(0))?;
            if !exists {
                missing.push(*no);
            }
        }
        Ok(missing)
    }

    pub(crate) fn task_named(
        &self,
        id: SessionId,
        owner: Option<Owner>,
        name: &TaskName,
    ) -> Result<Option<StoredTask>> {
        let Some(key) = self.session_key(id)? else { return Ok(None) };
        let sql = "SELECT no, body FROM tasks INDEXED BY tasks_name \
                   WHERE session = ?1 AND name = ?2 AND (?3 IS NULL OR owner = ?3) \
                   ORDER BY no DESC LIMIT 1";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query(params![key, name.folded(), owner.map(owner_code)])?;
        rows.next()?.map(|row| decode_numbered_task(row, id)).transpose()
    }

    pub(crate) fn tasks(&self, id: SessionId, query: &TaskQuery) -> Result<Vec<StoredTask>> {
        let Some(key) = self.session_key(id)? else { return Ok(Vec::new()) };
        // The index by owner is the narrowest for children. For all alive tasks it is the index of
        // open tasks.
        let (from, owner) = match (query.owner, query.alive_only) {
            (Some(owner), _) => ("tasks INDEXED BY tasks_owner", Some(owner_code(owner))),
            (None, true) => ("tasks INDEXED BY tasks_open", None),
            (None, false) => ("tasks", None),
        };
        let (beyond, direction, first) = match query.order {
            TaskOrder::OldestFirst => (">", "ASC", 0),
            TaskOrder::NewestFirst => ("<", "DESC", i64::MAX),
        };
        let after = query.after.map_or(first, |after| i64::from(after.get()));
        let mut sql = format!("SELECT no, body FROM {from} WHERE session = ?1 AND no {beyond} ?2");
        if owner.is_some() {
            sql.push_str(" AND owner = ?4");
        }
        if query.alive_only {
            sql.push_str(&format!(" AND residency < 3 AND residency = {ALIVE}"));
        }
        sql.push_str(&format!(" ORDER BY no {direction} LIMIT ?3"));
        let most = i64::try_from(query.limit).unwrap_or(i64::MAX);
        let mut statement = self.tx.prepare_cached(&sql)?;
        let mut rows = match owner {
            Some(owner) => statement.query(params![key, after, most, owner])?,
            None => statement.query(params![key, after, most])?,
        };
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(decode_numbered_task(row, id)?);
        }
        Ok(found)
    }

    pub(crate) fn journal(&self, id: SessionId, no: TaskNo) -> Result<Vec<JournalEntry>> {
        self.journal_page(id, no, &JournalQuery { after: Seq(0), limit: usize::MAX })
    }

    pub(crate) fn journal_page(
        &self,
        id: SessionId,
        no: TaskNo,
        query: &JournalQuery,
    ) -> Result<Vec<JournalEntry>> {
        let Some(key) = self.session_key(id)? else { return Ok(Vec::new()) };
        let sql = "SELECT body, seq FROM journal WHERE session = ?1 AND task = ?2 AND seq > ?3
             ORDER BY seq LIMIT ?4";
        let mut statement = self.tx.prepare_cached(sql)?;
        let after = i64::try_from(query.after.0).unwrap_or(i64::MAX);
        let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
        let mut rows = statement.query(params![key, no.get(), after, limit])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let order: i64 = row.get(1)?;
            let what = format_args!("journal entry {order} of task {no} of {id:?}");
            found.push(codec::decode(what, row.get_ref(0)?.as_blob()?)?);
        }
        Ok(found)
    }

    pub(crate) fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> Result<Option<RunRow>> {
        let Some(key) = self.session_key(id)? else { return Ok(None) };
        let sql = "SELECT body FROM runs WHERE session = ?1 AND task = ?2 AND run = ?3";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query(params![key, no.get(), run.0])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let what = format_args!("run {run} of task {no} of {id:?}");
        Ok(Some(codec::decode(what, row.get_ref(0)?.as_blob()?)?))
    }

    pub(crate) fn message(&self, id: SessionId, no: MessageNo) -> Result<Option<MessageRow>> {
        let Some(key) = self.session_key(id)? else { return Ok(None) };
        let sql = "SELECT body FROM messages WHERE session = ?1 AND no = ?2";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query(params![key, to_i64(no.0)])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let what = format_args!("message {no} of {id:?}");
        Ok(Some(codec::decode(what, row.get_ref(0)?.as_blob()?)?))
    }

    pub(crate) fn messages(&self, id: SessionId, query: &MessageQuery) -> Result<MessagePage> {
        let Some(key) = self.session_key(id)? else { return Ok(MessagePage::default()) };
        let sql = "SELECT no, body FROM messages WHERE session = ?1 AND no < ?2 ORDER BY no DESC";
        let mut statement = self.tx.prepare_cached(sql)?;
        let before = query.before.map_or(i64::MAX, |before| to_i64(before.0));
        let rows = statement.query_and_then(params![key, before], |row| {
            let no: i64 = row.get(0)?;
            let what = format_args!("message {no} of {id:?}");
            Ok(codec::decode(what, row.get_ref(1)?.as_blob()?)?)
        })?;
        MessagePage::read(rows, query)
    }

    pub(crate) fn message_key(
        &self,
        id: SessionId,
        scope: MessageKeyScope,
        key: &IdempotencyKey,
    ) -> Result<Option<MessageKeyMark>> {
        let Some(session) = self.session_key(id)? else { return Ok(None) };
        if !self.has_message_keys()? {
            return Ok(None);
        }
        let sql = "SELECT no FROM messages INDEXED BY messages_keyed \
                   WHERE session = ?1 AND recipient = ?2 AND sender = ?3 AND key_run = ?4 \
                   AND idempotency_key = ?5";
        let mut statement = self.tx.prepare_cached(sql)?;
        let to = owner_code(scope.to);
        let from = sender_code(scope.from);
        let mut rows = statement.query(params![session, to, from, scope.run.0, key.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        Ok(Some(MessageKeyMark::new(scope, key, MessageNo(read_u64(row, 0)?))))
    }

    /// Returns false for a file of version 3, which is open for reading only.
    pub(crate) fn has_message_keys(&self) -> Result<bool> {
        self.has_schema_object("messages_keyed")
    }

    /// Returns whether the file has a table or an index. A file of an earlier version, which is open
    /// for reading only, may not have it.
    pub(crate) fn has_schema_object(&self, name: &str) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1)";
        Ok(self.tx.prepare_cached(sql)?.query_row([name], |row| row.get(0))?)
    }

    pub(crate) fn cursor(&self) -> Result<FeedCursor> {
        if self.lanes.has_copied() {
            return self.cursor_of_lanes();
        }
        Ok(self.lanes.own_position(last_position(&self.tx)?).into())
    }

    pub(crate) fn events(&self, query: &EventQuery) -> Result<EventPage> {
        if self.lanes.has_copied() {
            return self.events_of_lanes(query);
        }
        let pruned_to = self.lanes.own_position(pruned_to(&self.tx)?);
        let last = self.lanes.own_position(last_position(&self.tx)?);
        let mut read_to = query.after.clone();
        read_to.advance(pruned_to);
        let after = read_to.number_in(self.lanes.own());
        let gap_to = (!query.after.includes(pruned_to)).then(|| pruned_to.into());
        let mut page = EventPage { items: Vec::new(), read_to, gap_to };
        match query.session {
            None => self.all_events(after, query.limit, &mut page)?,
            Some(id) => self.session_events(id, after, query.limit, &mut page)?,
        }
        if page.items.len() < query.limit {
            page.read_to.advance(last);
        } else if let Some(item) = page.items.last() {
            page.read_to.advance(item.position);
        }
        Ok(page)
    }

    fn all_events(&self, after: u64, most: usize, page: &mut EventPage) -> Result<()> {
        let author = self.author_column()?;
        let sql = format!(
            "SELECT position, body, {author} FROM events WHERE position > ?1 \
             ORDER BY position LIMIT ?2"
        );
        let mut statement = self.tx.prepare_cached(&sql)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.read_events(statement.query(params![to_i64(after), most])?, page)
    }

    fn session_events(
        &self,
        id: SessionId,
        after: u64,
        most: usize,
        page: &mut EventPage,
    ) -> Result<()> {
        let Some(key) = self.session_key(id)? else { return Ok(()) };
        let author = self.author_column()?;
        let sql = match self.has_schema_object("event_spans")? {
            true => format!(
                "SELECT position, body, {author} FROM event_spans AS span \
                 CROSS JOIN events ON position BETWEEN max(first, ?2 + 1) AND last \
                 WHERE span.session = ?1 AND last > ?2 \
                 ORDER BY last, position LIMIT ?3"
            ),
            false => format!(
                "SELECT position, body, {author} FROM events WHERE session = ?1 AND position > ?2 \
                 ORDER BY seq LIMIT ?3"
            ),
        };
        let mut statement = self.tx.prepare_cached(&sql)?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.read_events(statement.query(params![key, to_i64(after), most])?, page)
    }

    fn read_events(&self, mut rows: rusqlite::Rows<'_>, page: &mut EventPage) -> Result<()> {
        while let Some(row) = rows.next()? {
            let position = self.lanes.own_position(read_u64(row, 0)?);
            page.items.push(decode_event(row, 1, position)?);
        }
        Ok(())
    }

    /// Returns the column of authors, or no value for a file of an earlier version, which is open for
    /// reading only.
    fn author_column(&self) -> Result<&'static str> {
        let sql = "SELECT EXISTS (SELECT 1 FROM pragma_table_info('events') WHERE name = 'author')";
        let exists: bool = self.tx.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        Ok(if exists { "author" } else { "NULL" })
    }
}

/// Decodes the columns `body, author` of the event at a position.
pub(crate) fn decode_event(
    row: &rusqlite::Row<'_>,
    first: usize,
    position: Position,
) -> Result<FeedItem> {
    let what = format_args!("the event at {position}");
    let mut record: EventRecord = codec::decode(what, row.get_ref(first)?.as_blob()?)?;
    if let Some(author) = row.get_ref(first + 1)?.as_str_or_null()? {
        record.by = Some(decode_author(format_args!("the event at {position}"), author)?);
    }
    Ok(FeedItem { position, record: Arc::new(record) })
}

pub(crate) fn read_task(
    conn: &Connection,
    session: SessionRef,
    no: TaskNo,
) -> Result<Option<TaskRow>> {
    let sql = "SELECT body FROM tasks WHERE session = ?1 AND no = ?2";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params![session.key, no.get()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(decode_task(session.id, no, row.get_ref(0)?.as_blob()?)?))
}

pub(crate) fn decode_task(id: SessionId, no: TaskNo, body: &[u8]) -> Result<TaskRow> {
    Ok(codec::decode(format_args!("task {no} of {id:?}"), body)?)
}

fn decode_numbered_task(row: &rusqlite::Row<'_>, id: SessionId) -> Result<StoredTask> {
    let no = parse_task_no(row.get(0)?)?;
    Ok(StoredTask::new(no, decode_task(id, no, row.get_ref(1)?.as_blob()?)?))
}

pub(crate) fn read_u64(row: &rusqlite::Row<'_>, column: usize) -> Result<u64> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| corrupt(format!("{number} is negative")))
}

/// Returns the position in the file up to which events were removed.
pub(crate) fn pruned_to(conn: &Connection) -> Result<u64> {
    let sql = "SELECT value FROM meta WHERE name = 'pruned_to'";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    match rows.next()? {
        Some(row) => read_u64(row, 0),
        None => Err(corrupt("it does not say what was pruned")),
    }
}

/// Returns the position in the file of its last event.
pub(crate) fn last_position(conn: &Connection) -> Result<u64> {
    let sql = "SELECT ifnull(max(position), 0) FROM events";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let last = match rows.next()? {
        Some(row) => read_u64(row, 0)?,
        None => 0,
    };
    Ok(last.max(pruned_to(conn)?))
}
