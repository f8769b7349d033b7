//! Newtypes for ids, sequence numbers and times, so that they cannot be mixed up.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::refusal::Refusal;

/// The id of a session. It is a uuid only at the boundary: inside a session, ids are small numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(Uuid);

impl SessionId {
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    pub const fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}", self.0)
    }
}

/// A task's number in its session. Numbers are sequential and never reused, also after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskNo(NonZeroU32);

impl TaskNo {
    pub const FIRST: Self = Self(NonZeroU32::MIN);

    pub fn new(number: u32) -> Option<Self> {
        NonZeroU32::new(number).map(Self)
    }

    pub const fn get(self) -> u32 {
        self.0.get()
    }

    /// Returns the number after this one, or `None` when the session has used them all.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for TaskNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TaskNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// One activation of a task, from its start to its outcome. The first is 1.
    RunNo(u32)
}
counter! {
    /// One execution by a performer. It rises at every start, wakes included, and fences late
    /// reports.
    Attempt(u32)
}
counter! {
    /// The position of a call in its task's journal, in program order.
    CallIndex(u32)
}
counter! {
    /// A message's number in its session.
    MessageNo(u64)
}
counter! {
    /// The position of an event in its session. The first is 1.
    Seq(u64)
}
counter! {
    /// The events of one writer of a store, in their order. A store with one writer has only lane 0.
    Lane(u32)
}
counter! {
    /// The number of a writer of a session. A store refuses a writer with an older epoch.
    Epoch(u64)
}

impl Epoch {
    /// The writer that opened the session.
    pub const FIRST: Self = Self(1);
}

impl RunNo {
    /// The absence of a run.
    pub const NONE: Self = Self(0);
    pub const FIRST: Self = Self(1);
}

/// The position of an event in the whole store, across sessions: its lane, and its number there from
/// 1 on. Positions of different lanes have no order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    pub lane: Lane,
    pub no: u64,
}

impl Position {
    #[must_use]
    pub const fn next(self) -> Self {
        Self { no: self.no + 1, ..self }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lane {
            Lane(0) => write!(f, "{}", self.no),
            lane => write!(f, "{lane}:{}", self.no),
        }
    }
}

/// A point in time: UTC milliseconds since 1970.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    #[must_use]
    pub const fn after(self, duration: Millis) -> Self {
        Self(self.0.saturating_add(duration.0))
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in milliseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl From<std::time::Duration> for Millis {
    /// Rounds up, so that no limit is shorter than requested.
    fn from(duration: std::time::Duration) -> Self {
        let whole = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let fraction = u64::from(!duration.subsec_nanos().is_multiple_of(1_000_000));
        Self(whole.saturating_add(fraction))
    }
}

impl From<Millis> for std::time::Duration {
    fn from(duration: Millis) -> Self {
        Self::from_millis(duration.0)
    }
}

/// The owner of a task: the session, or the task that spawned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Owner {
    Session,
    Task(TaskNo),
}

impl Owner {
    pub const fn task(self) -> Option<TaskNo> {
        match self {
            Self::Session => None,
            Self::Task(no) => Some(no),
        }
    }
}

/// The name of a client that acts at top level: a program, a connection or a coding agent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClientName(pub Arc<str>);

impl From<&str> for ClientName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a client's conversation. The client creates it when it starts, and keeps it when it
/// reconnects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConversationId(Arc<str>);

impl ConversationId {
    const LENGTH_MAX: usize = 64;

    /// Returns the conversation of a run that was stored before conversations were recorded. No
    /// client can have it.
    pub fn unrecorded() -> Self {
        Self("".into())
    }

    fn is_unrecorded(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ConversationId {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if text.is_empty() || text.len() > Self::LENGTH_MAX || !is_plain {
            let max = Self::LENGTH_MAX;
            return Err(Refusal::invalid(format!(
                "the id of a conversation has 1 to {max} ASCII letters, digits and hyphens"
            )));
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The client that owns a top-level run, and the conversation that requested it. The name decides
/// who controls the run. The conversation decides who receives its results and messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClientIdentity {
    pub name: ClientName,
    /// `None` for a client without conversations, such as a program that embeds the runtime.
    #[serde(default = "unrecorded")]
    pub conversation: Option<ConversationId>,
}

fn unrecorded() -> Option<ConversationId> {
    Some(ConversationId::unrecorded())
}

impl ClientIdentity {
    /// Returns whether the run was stored before conversations were recorded, so that no client can
    /// be in its conversation.
    pub fn is_unrecorded(&self) -> bool {
        self.conversation.as_ref().is_some_and(ConversationId::is_unrecorded)
    }

    /// Returns whether the results and messages of a run are delivered to this client. That is so
    /// if the same client started it, in the same conversation or in one that has lapsed.
    pub fn receives_from(
        &self,
        starter: &Self,
        has_lapsed: impl FnOnce(&ConversationId) -> bool,
    ) -> bool {
        starter.name == self.name
            && (starter.conversation == self.conversation
                || starter.is_unrecorded()
                || starter.conversation.as_ref().is_some_and(has_lapsed))
    }
}

impl From<&str> for ClientIdentity {
    fn from(name: &str) -> Self {
        Self { name: name.into(), conversation: None }
    }
}

impl fmt::Display for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_optional_task_number_takes_no_extra_bytes() {
        assert_eq!(size_of::<Option<TaskNo>>(), 4);
        assert_eq!(size_of::<Owner>(), 4);
    }

    #[test]
    fn durations_round_up() {
        assert_eq!(Millis::from(Duration::from_micros(1_500)), Millis(2));
        assert_eq!(Millis::from(Duration::from_millis(3)), Millis(3));
        assert_eq!(Millis::from(Duration::MAX), Millis(u64::MAX));
    }
}
