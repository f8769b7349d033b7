//! Actions: effects to perform after the commit. Every action can be repeated.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::call::{CallCompletion, ParkedCall};
use crate::ids::{Attempt, CallIndex, RunNo, TaskNo, Time};
use crate::json::Json;
use crate::message::Message;
use crate::name::SessionName;
use crate::refusal::Refusal;
use crate::spec::TaskSpec;
use crate::stall::StallWatch;
use crate::task::SpawningAttempt;
use crate::work::Work;
use crate::worktree::Worktree;

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Start(StartAction),
    /// Delivers the completion of a call to an attempt that waits in memory, as a closure does. Any
    /// other task gets the completion from the journal at its next attempt.
    DeliverCompletion {
        no: TaskNo,
        attempt: Attempt,
        index: CallIndex,
        ordinal: u32,
        completion: Arc<CallCompletion>,
    },
    /// Pushes a message to work with a pushed inbox.
    Push {
        no: TaskNo,
        attempt: Attempt,
        message: Arc<Message>,
    },
    /// Interrupts work that pulls its inbox, because a message is to be read at once.
    Interrupt {
        no: TaskNo,
        attempt: Attempt,
    },
    /// Stops the attempt gracefully. The stop is forced at `deadline`.
    Stop {
        no: TaskNo,
        attempt: Attempt,
        deadline: Time,
    },
    /// Stops the attempt by force.
    Kill {
        no: TaskNo,
        attempt: Attempt,
    },
    /// Releases everything held for a task whose own work is over.
    Release {
        no: TaskNo,
    },
}

/// Starts an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct StartAction {
    /// The name of its session, the first half of its address.
    pub session: SessionName,
    pub no: TaskNo,
    pub run: RunNo,
    pub attempt: Attempt,
    /// The attempt that spawned it, if a task did.
    pub spawner: Option<SpawningAttempt>,
    pub spec: Arc<TaskSpec>,
    /// The number of journal entries to replay first.
    pub journal_len: u32,
    /// The number of journal entries that earlier runs wrote, if known.
    pub earlier_entries: Option<u32>,
    pub parked_calls: Vec<ParkedCall>,
    pub state: Option<Json>,
    /// The worktree of an earlier attempt or run.
    pub worktree: Option<Box<Worktree>>,
    /// The stall watch. The performer must show activity more often than it requires.
    pub stall_watch: Option<StallWatch>,
    /// True if the inbox is empty and no budget applies, so that the first step needs no gate.
    pub skip_first_gate: bool,
}

impl StartAction {
    /// Decodes the payload of work of a custom kind. Refuses a payload of another type, and work
    /// that has no payload.
    ///
    /// A performer reports the refusal as the failure of the task.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let kind = self.spec.work.kind();
        match &self.spec.work {
            Work::Custom(custom) => custom.payload.decode().map_err(|refusal| {
                let message = refusal.message;
                Refusal::invalid(format!("the payload of {kind}:{} is wrong: {message}", self.no))
            }),
            _ => Err(Refusal::invalid(format!("{kind}:{} has no payload", self.no))),
        }
    }

    /// Decodes the state that an earlier attempt saved, if there is one.
    pub fn saved_state<T: DeserializeOwned>(&self) -> Result<Option<T>, Refusal> {
        self.state.as_ref().map(Json::decode).transpose()
    }
}

impl Action {
    pub fn task(&self) -> TaskNo {
        match self {
            Self::Start(start) => start.no,
            Self::DeliverCompletion { no, .. }
            | Self::Push { no, .. }
            | Self::Interrupt { no, .. }
            | Self::Stop { no, .. }
            | Self::Kill { no, .. }
            | Self::Release { no } => *no,
        }
    }
}
