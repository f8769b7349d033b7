//! What is to be done once a decision is stored. Every action can be repeated.

use std::sync::Arc;

use crate::call::{CallCompletion, ParkedCall};
use crate::ids::{Attempt, CallIndex, RunNo, TaskNo, Time};
use crate::json::Json;
use crate::message::Message;
use crate::name::SessionName;
use crate::spec::TaskSpec;
use crate::stall::StallWatch;
use crate::task::SpawningAttempt;

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Start(StartAction),
    /// A call was answered, as this entry of the journal. It is for an attempt that waits in memory, as a closure
    /// does. Who is not there needs no word of it: its next attempt begins with the journal, which has the answer.
    DeliverCompletion {
        no: TaskNo,
        attempt: Attempt,
        index: CallIndex,
        ordinal: u32,
        completion: Arc<CallCompletion>,
    },
    /// A message for work that takes them as they come.
    Push {
        no: TaskNo,
        attempt: Attempt,
        message: Arc<Message>,
    },
    /// A message came that is to be heard now, for work that asks for its messages.
    Interrupt {
        no: TaskNo,
        attempt: Attempt,
    },
    /// End kindly; `deadline` is when it becomes firm.
    Stop {
        no: TaskNo,
        attempt: Attempt,
        deadline: Time,
    },
    /// End now.
    Kill {
        no: TaskNo,
        attempt: Attempt,
    },
    /// It ended while it waited: let go of whatever is kept for it.
    Release {
        no: TaskNo,
    },
}

/// Begin an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct StartAction {
    /// The name of its session, the first half of its address.
    pub session: SessionName,
    pub no: TaskNo,
    pub run: RunNo,
    pub attempt: Attempt,
    /// What spawned it, when that was a task.
    pub spawner: Option<SpawningAttempt>,
    pub spec: Arc<TaskSpec>,
    /// How many journal entries there are to go through first.
    pub journal_len: u32,
    pub parked_calls: Vec<ParkedCall>,
    pub state: Option<Json>,
    /// How it is watched: it is to show a sign of life more often than that.
    pub stall_watch: Option<StallWatch>,
    /// There is no news, and no budget that anything would be set aside from: the first step needs
    /// no leave.
    pub skip_first_gate: bool,
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
