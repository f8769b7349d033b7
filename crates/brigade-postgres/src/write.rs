//! Writes each batch with one call of `commit_batch`.

use std::ops::Range;
use std::sync::Arc;

use brigade_model::event::Event;
use brigade_model::ids::{Lane, Position, TaskNo};
use brigade_model::message::Receipt;
use brigade_model::task_tree::SessionRow;
use brigade_store::columns::{
    AuthorEncoder, EventBody, TaskColumns, owner_code, sender_code, state_code, to_i64,
};
use brigade_store::{AcquireResult, AcquiredSession, Batch, SessionBatch, StoreError, codec};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::connections::{Connection, Parameter};
use crate::error::{Result, corrupt, is_refusal};
use crate::events::read_position;
use crate::lanes::WrittenLanes;
use crate::read::{self, to_u64};

/// Writes a batch and returns the position of its first event.
pub(crate) async fn commit(
    connection: &Connection<'_>,
    lanes: &WrittenLanes,
    batch: &Batch,
) -> Result<Position> {
    let mut rows = BatchRows::default();
    for part in &batch.sessions {
        rows.add_session(connection, part).await?;
    }
    let lane = lane_code(batch.lane);
    let generation = lanes.generation(batch.lane);
    let bodies = BatchBodies::of(&rows);
    let mut values: Vec<Parameter<'_>> = vec![(&lane, Type::INT4), (&generation, Type::INT8)];
    rows.add_parameters(&bodies, &mut values);
    let answered: Vec<Uuid> = batch.answers.iter().map(|answer| answer.id.0).collect();
    let replies: Vec<&[u8]> = batch.answers.iter().map(|answer| &*answer.reply).collect();
    let must_exist: Vec<bool> = batch.answers.iter().map(|answer| answer.must_exist).collect();
    values.push((&answered, Type::UUID_ARRAY));
    values.push((&replies, Type::BYTEA_ARRAY));
    values.push((&must_exist, Type::BOOL_ARRAY));
    let places: Vec<String> = (1..=values.len()).map(|at| format!("${at}")).collect();
    let sql = format!("SELECT {{schema}}.commit_batch({})", places.join(", "));
    let rows = connection.query_raw(&sql, &values).await.inspect_err(|error| {
        if !is_refusal(error) {
            lanes.set_in_doubt(batch.lane);
        }
    })?;
    let row = rows.first().ok_or_else(|| corrupt("a commit returned no position"))?;
    Ok(Position { lane: batch.lane, no: to_u64(row.try_get(0)?)? })
}

/// Gives a session the next epoch and makes a lane its writer, if this is its stored row, no open
/// lane of another node owns it, and the node of the lane has the labels that it requires.
pub(crate) async fn acquire(
    connection: &Connection<'_>,
    lane: Lane,
    row: &SessionRow,
) -> Result<AcquireResult> {
    let epoch = row.epoch.next();
    // The lock delays no commit. It lets the close of the lane wait.
    let sql = "WITH own AS (SELECT lane, node FROM {schema}.lanes WHERE lane = $2 AND open FOR KEY SHARE) \
               UPDATE {schema}.sessions AS s \
               SET epoch = $1, lane = own.lane, next_due = NULL, next_owner = NULL FROM own \
               WHERE s.id = $3 AND s.seq = $4 AND s.epoch = $5 AND (s.lane = $2 OR NOT EXISTS ( \
                   SELECT FROM {schema}.lanes AS l \
                   WHERE l.lane = s.lane AND l.open AND l.node NOT IN (0, own.node)) \
               AND (NOT EXISTS (SELECT FROM {schema}.nodes AS n \
                   WHERE n.node = own.node AND NOT s.required_labels <@ n.labels) \
                   OR EXISTS (SELECT FROM {schema}.lanes AS l \
                   WHERE l.lane = s.lane AND l.open AND l.node = own.node))) \
               RETURNING s.last_lane, s.last_pos";
    let values: [Parameter<'_>; 5] = [
        (&to_i64(epoch.0), Type::INT8),
        (&lane_code(lane), Type::INT4),
        (&row.id.as_uuid(), Type::UUID),
        (&to_i64(row.seq.0), Type::INT8),
        (&to_i64(row.epoch.0), Type::INT8),
    ];
    if let Some(stored) = connection.query_first(sql, &values).await? {
        let last = read_position(&stored, 0)?;
        return Ok(AcquireResult::Acquired(AcquiredSession { epoch, last: Some(last) }));
    }
    let sql = "SELECT EXISTS (SELECT FROM {schema}.lanes WHERE lane = $1 AND open), \
               EXISTS (SELECT FROM {schema}.sessions AS s JOIN {schema}.lanes AS l USING (lane) \
                   WHERE s.id = $2 AND l.open AND l.node <> 0 \
                       AND l.node <> (SELECT node FROM {schema}.lanes WHERE lane = $1)), \
               EXISTS (SELECT FROM {schema}.sessions AS s, {schema}.lanes AS l \
                   JOIN {schema}.nodes AS n USING (node) \
                   WHERE s.id = $2 AND l.lane = $1 AND NOT s.required_labels <@ n.labels)";
    let found = connection.query_one(sql, &values[1..3]).await?;
    match (found.try_get(0)?, found.try_get(1)?, found.try_get(2)?) {
        (false, _, _) => Err(StoreError::Fenced(format!("lane {} is closed", lane.0)).into()),
        (true, true, _) => Ok(AcquireResult::Owned),
        (true, false, true) => Ok(AcquireResult::LabelsMissing),
        (true, false, false) => Ok(AcquireResult::Changed),
    }
}

/// The rows of a batch by columns. Encoded bodies are ranges of one buffer.
#[derive(Default)]
struct BatchRows<'a> {
    buffer: Vec<u8>,
    sessions: SessionArrays<'a>,
    tasks: TaskArrays<'a>,
    runs: EntryArrays,
    journal: EntryArrays,
    messages: MessageArrays<'a>,
    events: EventArrays,
}

#[derive(Default)]
struct SessionArrays<'a> {
    id: Vec<Uuid>,
    name: Vec<&'a str>,
    state: Vec<i16>,
    epoch: Vec<i64>,
    base: Vec<i64>,
    seq: Vec<i64>,
    opened_at: Vec<i64>,
    now: Vec<i64>,
    body: Vec<Range<usize>>,
}

#[derive(Default)]
struct TaskArrays<'a> {
    part: Vec<i32>,
    no: Vec<i64>,
    new: Vec<bool>,
    owner: Vec<i64>,
    owner_run: Vec<i64>,
    residency: Vec<i16>,
    name: Vec<Option<String>>,
    key: Vec<Option<&'a [u8]>>,
    ended_at: Vec<Option<i64>>,
    limited_by: Vec<Option<i64>>,
    body: Vec<Range<usize>>,
}

/// The columns of ended runs, or of journal entries: both are numbered rows of a task.
#[derive(Default)]
struct EntryArrays {
    part: Vec<i32>,
    task: Vec<i64>,
    number: Vec<i64>,
    body: Vec<Range<usize>>,
}

#[derive(Default)]
struct MessageArrays<'a> {
    part: Vec<i32>,
    no: Vec<i64>,
    recipient: Vec<i64>,
    unread: Vec<bool>,
    key: Vec<Option<&'a [u8]>>,
    key_run: Vec<Option<i64>>,
    sender: Vec<Option<i64>>,
    body: Vec<Range<usize>>,
}

#[derive(Default)]
struct EventArrays {
    part: Vec<i32>,
    seq: Vec<i64>,
    at: Vec<i64>,
    author: Vec<Option<Arc<str>>>,
    body: Vec<Range<usize>>,
}

/// The encoded bodies and authors of a batch.
struct BatchBodies<'a> {
    sessions: Vec<&'a [u8]>,
    tasks: Vec<&'a [u8]>,
    runs: Vec<&'a [u8]>,
    journal: Vec<&'a [u8]>,
    messages: Vec<&'a [u8]>,
    events: Vec<&'a [u8]>,
    authors: Vec<Option<&'a str>>,
}

impl<'a> BatchBodies<'a> {
    fn of(rows: &'a BatchRows<'_>) -> Self {
        let slices = |ranges: &[Range<usize>]| {
            ranges.iter().map(|range| &rows.buffer[range.clone()]).collect()
        };
        Self {
            sessions: slices(&rows.sessions.body),
            tasks: slices(&rows.tasks.body),
            runs: slices(&rows.runs.body),
            journal: slices(&rows.journal.body),
            messages: slices(&rows.messages.body),
            events: slices(&rows.events.body),
            authors: rows.events.author.iter().map(Option::as_deref).collect(),
        }
    }
}

impl<'a> BatchRows<'a> {
    async fn add_session(
        &mut self,
        connection: &Connection<'_>,
        part: &'a SessionBatch,
    ) -> Result<()> {
        let row = &part.row;
        let body = self.encode(row)?;
        let columns = &mut self.sessions;
        columns.id.push(*row.id.as_uuid());
        columns.name.push(row.name.as_str());
        columns.state.push(state_code(&row.state));
        columns.epoch.push(to_i64(row.epoch.0));
        columns.base.push(to_i64(part.base.0));
        columns.seq.push(to_i64(row.seq.0));
        columns.opened_at.push(to_i64(row.opened_at.0));
        columns.now.push(to_i64(row.now.0));
        columns.body.push(body);
        let index = i32::try_from(columns.id.len())
            .map_err(|_| corrupt("a batch has too many sessions"))?;
        self.add_runs(connection, index, part).await?;
        self.add_tasks(index, part)?;
        self.add_journal(index, part)?;
        self.add_messages(index, part)?;
        self.add_events(index, part)
    }

    /// Adds the ends of runs that a new run replaces in its row.
    async fn add_runs(
        &mut self,
        connection: &Connection<'_>,
        index: i32,
        part: &SessionBatch,
    ) -> Result<()> {
        let mut reopened = part.events.iter().filter_map(|record| match &record.event {
            Event::RunOpened { no, .. } => Some(*no),
            _ => None,
        });
        if reopened.clone().next().is_none() {
            return Ok(());
        }
        let mut stored = Vec::new();
        for no in reopened.by_ref() {
            stored.push((no, read::task(connection, part.row.id, no).await?));
        }
        let before = |no: TaskNo| {
            let found = stored.iter().find(|(other, _)| *other == no);
            Ok::<_, StoreError>(found.and_then(|(_, row)| row.clone()))
        };
        for superseded in part.superseded_runs(before)? {
            let body = self.encode(&superseded.run)?;
            self.runs.part.push(index);
            self.runs.task.push(superseded.no.get().into());
            self.runs.number.push(superseded.run.run.0.into());
            self.runs.body.push(body);
        }
        Ok(())
    }

    fn add_tasks(&mut self, index: i32, part: &'a SessionBatch) -> Result<()> {
        let first = part.first_spawned();
        for task in &part.tasks {
            let row = &task.row;
            let body = self.encode(&**row)?;
            let values = TaskColumns::of(row);
            let columns = &mut self.tasks;
            columns.part.push(index);
            columns.no.push(task.no.get().into());
            columns.new.push(first.is_some_and(|first| task.no >= first));
            columns.owner.push(values.owner);
            columns.owner_run.push(row.owner_run.0.into());
            columns.residency.push(values.residency);
            columns.name.push(values.name);
            columns.key.push(row.spec.key.as_ref().map(|key| key.as_str().as_bytes()));
            columns.ended_at.push(values.ended_at);
            columns.limited_by.push(values.limited_by);
            columns.body.push(body);
        }
        Ok(())
    }

    fn add_journal(&mut self, index: i32, part: &SessionBatch) -> Result<()> {
        for written in &part.journal {
            let body = self.encode(&written.entry)?;
            self.journal.part.push(index);
            self.journal.task.push(written.no.get().into());
            self.journal.number.push(to_i64(written.entry.order.0));
            self.journal.body.push(body);
        }
        Ok(())
    }

    fn add_messages(&mut self, index: i32, part: &'a SessionBatch) -> Result<()> {
        for row in &part.messages {
            let body = self.encode(row)?;
            let key = row.message.key.as_ref();
            let columns = &mut self.messages;
            columns.part.push(index);
            columns.no.push(to_i64(row.message.no.0));
            columns.recipient.push(owner_code(row.message.to));
            columns.unread.push(row.receipt == Receipt::Accepted);
            columns.key.push(key.map(|key| key.key.as_str().as_bytes()));
            columns.key_run.push(key.map(|key| key.run.0.into()));
            columns.sender.push(key.map(|_| sender_code(row.message.from.task())));
            columns.body.push(body);
        }
        Ok(())
    }

    fn add_events(&mut self, index: i32, part: &SessionBatch) -> Result<()> {
        let mut authors = AuthorEncoder::default();
        for record in &part.events {
            let body = self.encode(&EventBody::of(record))?;
            let author = record.by.as_ref().map(|by| authors.encode(by)).transpose()?;
            self.events.part.push(index);
            self.events.seq.push(to_i64(record.seq.0));
            self.events.at.push(to_i64(record.at.0));
            self.events.author.push(author);
            self.events.body.push(body);
        }
        Ok(())
    }

    fn encode<T: serde::Serialize>(&mut self, value: &T) -> Result<Range<usize>> {
        let start = self.buffer.len();
        codec::encode_into(&mut self.buffer, value)?;
        Ok(start..self.buffer.len())
    }

    /// Adds the arrays of `commit_batch`, in their order.
    fn add_parameters<'b>(&'b self, bodies: &'b BatchBodies<'_>, values: &mut Vec<Parameter<'b>>) {
        let Self { buffer: _, sessions, tasks, runs, journal, messages, events } = self;
        let mut add = |column: &'b (dyn ToSql + Sync), kind| values.push((column, kind));
        add(&sessions.id, Type::UUID_ARRAY);
        add(&sessions.name, Type::TEXT_ARRAY);
        add(&sessions.state, Type::INT2_ARRAY);
        add(&sessions.epoch, Type::INT8_ARRAY);
        add(&sessions.base, Type::INT8_ARRAY);
        add(&sessions.seq, Type::INT8_ARRAY);
        add(&sessions.opened_at, Type::INT8_ARRAY);
        add(&sessions.now, Type::INT8_ARRAY);
        add(&bodies.sessions, Type::BYTEA_ARRAY);

        add(&tasks.part, Type::INT4_ARRAY);
        add(&tasks.no, Type::INT8_ARRAY);
        add(&tasks.new, Type::BOOL_ARRAY);
        add(&tasks.owner, Type::INT8_ARRAY);
        add(&tasks.owner_run, Type::INT8_ARRAY);
        add(&tasks.residency, Type::INT2_ARRAY);
        add(&tasks.name, Type::TEXT_ARRAY);
        add(&tasks.key, Type::BYTEA_ARRAY);
        add(&tasks.ended_at, Type::INT8_ARRAY);
        add(&tasks.limited_by, Type::INT8_ARRAY);
        add(&bodies.tasks, Type::BYTEA_ARRAY);

        for (columns, bodies) in [(runs, &bodies.runs), (journal, &bodies.journal)] {
            add(&columns.part, Type::INT4_ARRAY);
            add(&columns.task, Type::INT8_ARRAY);
            add(&columns.number, Type::INT8_ARRAY);
            add(bodies, Type::BYTEA_ARRAY);
        }

        add(&messages.part, Type::INT4_ARRAY);
        add(&messages.no, Type::INT8_ARRAY);
        add(&messages.recipient, Type::INT8_ARRAY);
        add(&messages.unread, Type::BOOL_ARRAY);
        add(&messages.key, Type::BYTEA_ARRAY);
        add(&messages.key_run, Type::INT8_ARRAY);
        add(&messages.sender, Type::INT8_ARRAY);
        add(&bodies.messages, Type::BYTEA_ARRAY);

        add(&events.part, Type::INT4_ARRAY);
        add(&events.seq, Type::INT8_ARRAY);
        add(&events.at, Type::INT8_ARRAY);
        add(&bodies.authors, Type::TEXT_ARRAY);
        add(&bodies.events, Type::BYTEA_ARRAY);
    }
}

pub(crate) fn lane_code(lane: Lane) -> i32 {
    i32::try_from(lane.0).unwrap_or(i32::MAX)
}
