//! The evidence of a run: the stored state, the histories of clients, and the lines of performers.

use crate::history::{Operation, TaskNumber};

/// Everything that the checker reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) operations: Vec<Operation>,
    pub(crate) sessions: Vec<StoredSession>,
    pub(crate) lanes: Vec<StoredLane>,
    /// The events as stored, in any order.
    pub(crate) events: Vec<StoredEvent>,
    /// The events of the feed of all sessions, in its order.
    pub(crate) feed: Vec<EventPlace>,
    /// The lines of performers. Those of one session are in the order in which they were written.
    pub(crate) effects: Vec<Effect>,
    pub(crate) takeovers: Vec<Takeover>,
    /// Tasks that never ended, as text.
    pub(crate) alive_tasks: Vec<String>,
    /// Processes that outlived their tasks.
    pub(crate) stray_processes: Vec<String>,
    /// Lines of the nodes' logs that report a defect.
    pub(crate) defects: Vec<String>,
}

/// The place of an event: its position in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EventPlace {
    pub(crate) lane: i64,
    pub(crate) position: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredSession {
    pub(crate) key: i64,
    pub(crate) name: String,
    pub(crate) epoch: u64,
    pub(crate) seq: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredLane {
    pub(crate) lane: i64,
    pub(crate) head: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredEvent {
    pub(crate) place: EventPlace,
    /// The key of the session.
    pub(crate) session: i64,
    pub(crate) seq: u64,
    /// The event before this one, if that is in another lane.
    pub(crate) after: Option<EventPlace>,
    pub(crate) fact: EventFact,
}

/// The part of an event that the checker needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EventFact {
    Spawned { task: TaskNumber, key: Option<String>, parent: Option<TaskNumber>, is_process: bool },
    Started { task: TaskNumber, attempt: u64 },
    RunOpened { task: TaskNumber },
    Ended { task: TaskNumber, run: u64, ending: RunEnding },
    Collected { runs: Vec<(TaskNumber, u64)> },
    StopRequested { task: TaskNumber },
    MessageSent { message: u64, to: Option<TaskNumber>, key: Option<String> },
    MessageDelivered { message: u64 },
    Other,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RunEnding {
    Succeeded,
    Cancelled,
    Failed(String),
}

/// A line that a process of a task appended to the file of its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    /// The name of the session.
    pub(crate) session: String,
    pub(crate) task: TaskNumber,
    pub(crate) kind: EffectKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EffectKind {
    Began,
    Ended,
    /// The process read this message.
    Read(String),
}

/// The takeover of the sessions of one node that was killed or stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Takeover {
    pub(crate) node: String,
    pub(crate) sessions: usize,
    pub(crate) lease_ms: u64,
    /// From the fault to the last change of an owner. `None` if a session kept its owner.
    pub(crate) took_ms: Option<u64>,
    /// The time for which the machine did not run the checker when it should have run.
    pub(crate) stall_ms: u64,
}

impl Effect {
    /// Parses a line of a performer, such as `begin s-3/process:4`.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, ' ');
        let kind = parts.next()?;
        let (session, task) = parts.next()?.split_once('/')?;
        let task = task.split_once(':')?.1.parse().ok()?;
        let kind = match (kind, parts.next()) {
            ("begin", None) => EffectKind::Began,
            ("end", None) => EffectKind::Ended,
            ("line", Some(text)) => EffectKind::Read(text.to_owned()),
            _ => return None,
        };
        Some(Self { session: session.to_owned(), task, kind })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_performers_are_parsed() {
        let effect = |kind| Some(Effect { session: "s-3".into(), task: 4, kind });
        assert_eq!(Effect::parse("begin s-3/process:4"), effect(EffectKind::Began));
        assert_eq!(Effect::parse("end s-3/process:4"), effect(EffectKind::Ended));
        let read = EffectKind::Read("two words".into());
        assert_eq!(Effect::parse("line s-3/process:4 two words"), effect(read));
        for wrong in ["", "begin", "begin s-3", "begin s-3/process", "soup s-3/process:4"] {
            assert_eq!(Effect::parse(wrong), None, "{wrong}");
        }
    }
}
