//! Events: the stored facts. An event is small, because large values are behind an `Arc`.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::approval::{ApprovalGrant, ApprovalVerdict};
use crate::call::ParkedCall;
use crate::event_author::EventAuthor;
use crate::ids::{
    Attempt, CallIndex, ClientIdentity, ConversationId, MessageNo, Owner, Position, RunNo, Seq,
    SessionId, TaskNo, Time,
};
use crate::json::{Json, present};
use crate::limits::{Limits, Usage};
use crate::message::Message;
use crate::name::SessionName;
use crate::outcome::Outcome;
use crate::spec::TaskSpec;
use crate::task::{AwayState, InheritedDeadline, QueueReason, StopCause};
use crate::worktree::{Worktree, WorktreeState};

/// An event with its session, sequence number and time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    pub session: SessionId,
    pub seq: Seq,
    pub at: Time,
    /// The author of the command that the event was decided for. Consequences have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<EventAuthor>>,
    pub event: Event,
}

/// An event with its position in the whole store, as the feed delivers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedItem {
    pub position: Position,
    pub record: Arc<EventRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    SessionOpened {
        name: SessionName,
        limits: Box<Limits>,
    },
    SessionClosing {
        reason: Option<Arc<str>>,
    },
    SessionClosed,
    LimitsSet {
        holder: Owner,
        limits: Box<Limits>,
    },
    Spawned(Box<SpawnedEvent>),
    /// An attempt starts.
    Started {
        no: TaskNo,
        attempt: Attempt,
        /// The host of a process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<Arc<str>>,
    },
    Queued {
        no: TaskNo,
        reason: QueueReason,
    },
    /// The task's process died, and the task continues by its policy.
    Recovered {
        no: TaskNo,
        crashes: u16,
        until: Time,
    },
    /// The host of a process has no node any more.
    Away {
        no: TaskNo,
        away: Box<AwayState>,
    },
    /// The host of a process has a node, but another node owns the session.
    Unattended {
        no: TaskNo,
    },
    /// The host of a process has adopted it again.
    Returned {
        no: TaskNo,
    },
    /// The work of an attempt is ready to be used.
    Ready {
        no: TaskNo,
    },
    /// A call completed without parking. The journal has the completion.
    Recorded {
        no: TaskNo,
        index: CallIndex,
        digest: u64,
    },
    Parked {
        no: TaskNo,
        call: Box<ParkedCall>,
    },
    /// A parked call completed. The journal has the completion.
    CallCompleted {
        no: TaskNo,
        index: CallIndex,
        digest: u64,
    },
    /// An approval was decided. The call's completion follows.
    ApprovalDecided {
        no: TaskNo,
        index: CallIndex,
        verdict: Box<ApprovalVerdict>,
    },
    /// A grant was added: calls in its scope are allowed always in this session.
    GrantAdded(Box<ApprovalGrant>),
    GrantRevoked {
        grant: u32,
    },
    /// The work dropped a parked call before it completed.
    Abandoned {
        no: TaskNo,
        index: CallIndex,
        digest: u64,
    },
    /// The work acknowledged the last completion and can get the next.
    Acknowledged {
        no: TaskNo,
    },
    /// Every open call is parked, and the performer released the task.
    Suspended {
        no: TaskNo,
        /// The partial result, for a task that is ended while it is suspended.
        #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
        partial: Option<Json>,
    },
    Progressed {
        no: TaskNo,
        note: Json,
    },
    StateSet {
        no: TaskNo,
        state: Json,
    },
    /// The task has a git worktree, in which its work starts after this event.
    WorktreeSet {
        no: TaskNo,
        worktree: Box<Worktree>,
    },
    /// The worktree of an ended task was kept or removed.
    WorktreeReleased {
        no: TaskNo,
        state: WorktreeState,
    },
    /// A task changed a shared value of its session.
    SharedValueSet {
        no: TaskNo,
        name: Arc<str>,
        value: Json,
    },
    /// Nothing happened for too long.
    Stalled {
        no: TaskNo,
        /// True if the task gets a nudge.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        nudged: bool,
    },
    Reserved {
        no: TaskNo,
        amount: Box<Usage>,
    },
    Charged {
        no: TaskNo,
        spent: Box<Usage>,
        /// True if the real cost is unknown and may be less.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        at_most: bool,
    },
    MessageSent(Arc<Message>),
    MessageDelivered {
        to: Owner,
        message: MessageNo,
    },
    MessageRead {
        to: Owner,
        message: MessageNo,
    },
    MessageDeliveryUnknown {
        to: Owner,
        message: MessageNo,
    },
    DeadLettered {
        to: Owner,
        messages: Vec<MessageNo>,
        reason: Arc<str>,
    },
    /// A stop was requested. No new children start in the subtree from here on.
    StopRequested {
        no: TaskNo,
        cause: Box<StopCause>,
        deadline: Time,
    },
    /// The graceful phase took too long.
    StopForced {
        no: TaskNo,
        deadline: Time,
    },
    /// This many tasks of a stopped subtree were handled.
    Swept {
        count: u32,
    },
    /// The task's own work is over, but children are alive.
    Closing {
        no: TaskNo,
        outcome: Arc<Outcome>,
    },
    Ended {
        no: TaskNo,
        run: RunNo,
        outcome: Arc<Outcome>,
        lingering: bool,
    },
    /// The performer of an unconfirmed end has returned.
    SlotReturned {
        no: TaskNo,
    },
    /// A kept child outlives its parent. The limits of its former holders still apply.
    PassedToSession {
        no: TaskNo,
        name_dropped: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<InheritedDeadline>,
    },
    /// These results have reached their owner.
    Collected {
        runs: Vec<CollectedRun>,
    },
    RunOpened {
        no: TaskNo,
        owner: Owner,
        limits: Option<Box<Limits>>,
        name_dropped: bool,
        /// The conversation that requested it, if the client that started the task did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        conversation: Option<ConversationId>,
        /// The number of journal entries of earlier runs, if there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        earlier_entries: Option<u32>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnedEvent {
    pub no: TaskNo,
    pub owner: Owner,
    pub owner_run: RunNo,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallIndex>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientIdentity>,
    pub spec: Arc<TaskSpec>,
    /// The reason to queue. `None` if it started with this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued: Option<QueueReason>,
    /// The host of a process that started with this event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Arc<str>>,
}

/// A run whose result has reached its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CollectedRun {
    pub no: TaskNo,
    pub run: RunNo,
}

impl Event {
    /// Returns the task that the event concerns, if it is one.
    pub fn task(&self) -> Option<TaskNo> {
        match self {
            Self::SessionOpened { .. }
            | Self::SessionClosing { .. }
            | Self::SessionClosed
            | Self::GrantAdded(_)
            | Self::GrantRevoked { .. }
            | Self::Swept { .. }
            | Self::Collected { .. } => None,
            Self::LimitsSet { holder: owner, .. }
            | Self::MessageDelivered { to: owner, .. }
            | Self::MessageRead { to: owner, .. }
            | Self::MessageDeliveryUnknown { to: owner, .. }
            | Self::DeadLettered { to: owner, .. } => owner.task(),
            Self::MessageSent(message) => message.to.task(),
            Self::Spawned(spawned) => Some(spawned.no),
            Self::Started { no, .. }
            | Self::Queued { no, .. }
            | Self::Recovered { no, .. }
            | Self::Away { no, .. }
            | Self::Unattended { no }
            | Self::Returned { no }
            | Self::Ready { no }
            | Self::Recorded { no, .. }
            | Self::Parked { no, .. }
            | Self::CallCompleted { no, .. }
            | Self::ApprovalDecided { no, .. }
            | Self::Abandoned { no, .. }
            | Self::Acknowledged { no }
            | Self::Suspended { no, .. }
            | Self::Progressed { no, .. }
            | Self::StateSet { no, .. }
            | Self::WorktreeSet { no, .. }
            | Self::WorktreeReleased { no, .. }
            | Self::SharedValueSet { no, .. }
            | Self::Stalled { no, .. }
            | Self::Reserved { no, .. }
            | Self::Charged { no, .. }
            | Self::StopRequested { no, .. }
            | Self::StopForced { no, .. }
            | Self::Closing { no, .. }
            | Self::Ended { no, .. }
            | Self::SlotReturned { no }
            | Self::PassedToSession { no, .. }
            | Self::RunOpened { no, .. } => Some(*no),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_small() {
        assert!(size_of::<Event>() <= 64, "an event has {} bytes", size_of::<Event>());
    }
}
