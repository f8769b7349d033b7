//! The codes of values in the columns of stores on disk.

use std::sync::Arc;

use brigade_model::event::{Event, EventRecord};
use brigade_model::event_author::EventAuthor;
use brigade_model::ids::{Owner, Seq, SessionId, TaskNo, Time};
use brigade_model::task::TaskRow;
use brigade_model::task_tree::SessionState;
use serde::Serialize;

use crate::error::StoreError;
use crate::residency::Residency;

/// The code of [`Residency::Alive`].
pub const ALIVE: i16 = 0;
/// The code of [`Residency::Pending`].
pub const PENDING: i16 = 2;
/// The code of [`SessionState::Closed`].
pub const CLOSED: i16 = 2;

/// The values of a task's row that have columns of their own.
#[derive(Clone, Debug)]
pub struct TaskColumns {
    pub owner: i64,
    pub residency: i16,
    /// The name in the form in which names are compared.
    pub name: Option<String>,
    pub ended_at: Option<i64>,
    pub limited_by: Option<i64>,
}

impl TaskColumns {
    pub fn of(row: &TaskRow) -> Self {
        let limited_by = row.extras.as_ref().and_then(|extras| extras.limited_by);
        Self {
            owner: owner_code(row.owner),
            residency: residency_code(Residency::of(row)),
            name: row.name.as_ref().map(|name| name.folded()),
            ended_at: row.ended().map(|ended| to_i64(ended.at.0)),
            limited_by: limited_by.map(|no| no.get().into()),
        }
    }
}

fn residency_code(residency: Residency) -> i16 {
    match residency {
        Residency::Alive => ALIVE,
        Residency::Lingering => 1,
        Residency::Pending => PENDING,
        Residency::Finished => 3,
    }
}

/// Returns the code of an owner: the number of a task, or 0 for the session.
pub fn owner_code(owner: Owner) -> i64 {
    owner.task().map_or(0, |no| i64::from(no.get()))
}

/// Returns the code of a keyed message's sender: the number of a task, or 0 for the operator or a
/// client.
pub fn sender_code(sender: Option<TaskNo>) -> i64 {
    sender.map_or(0, |no| i64::from(no.get()))
}

pub fn state_code(state: &SessionState) -> i16 {
    match state {
        SessionState::Open => 0,
        SessionState::Closing => 1,
        SessionState::Closed => CLOSED,
    }
}

/// Converts a number to a signed integer. No number in a store reaches its maximum.
pub fn to_i64(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns the number of a task that a column has.
pub fn parse_task_no(number: i64) -> Result<TaskNo, StoreError> {
    let no = u32::try_from(number).ok().and_then(TaskNo::new);
    no.ok_or_else(|| StoreError::Corrupt(format!("{number} is not a task's number")))
}

/// Returns the owner of a code.
pub fn parse_owner(code: i64) -> Result<Owner, StoreError> {
    Ok(if code == 0 { Owner::Session } else { Owner::Task(parse_task_no(code)?) })
}

/// The part of an event's record that its body holds: all but the author.
#[derive(Debug, Serialize)]
pub struct EventBody<'a> {
    session: SessionId,
    seq: Seq,
    at: Time,
    event: &'a Event,
}

impl<'a> EventBody<'a> {
    pub fn of(record: &'a EventRecord) -> Self {
        let EventRecord { session, seq, at, by: _, event } = record;
        Self { session: *session, seq: *seq, at: *at, event }
    }
}

/// Encodes authors as JSON. The events of one caller share their author, so the last one is kept.
#[derive(Debug, Default)]
pub struct AuthorEncoder<'a> {
    last: Option<(&'a Arc<EventAuthor>, Arc<str>)>,
}

impl<'a> AuthorEncoder<'a> {
    pub fn encode(&mut self, author: &'a Arc<EventAuthor>) -> Result<Arc<str>, StoreError> {
        if let Some((last, encoded)) = &self.last
            && Arc::ptr_eq(last, author)
        {
            return Ok(encoded.clone());
        }
        let encoded = serde_json::to_string(author)
            .map_err(|e| StoreError::Corrupt(format!("an author cannot be encoded: {e}")))?;
        let encoded: Arc<str> = encoded.into();
        self.last = Some((author, encoded.clone()));
        Ok(encoded)
    }
}

/// Decodes an author of an event, which `subject` names.
pub fn decode_author(
    subject: impl std::fmt::Display,
    author: &str,
) -> Result<Arc<EventAuthor>, StoreError> {
    serde_json::from_str(author)
        .map_err(|e| StoreError::Corrupt(format!("the author of {subject}: {e}")))
}
