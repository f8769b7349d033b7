//! What is to be done once a decision is stored. Every action can be repeated.

use std::sync::Arc;

use crate::call::{Answer, OpenCall};
use crate::ids::{Attempt, CallIndex, RunNo, TaskNo, Time};
use crate::json::Json;
use crate::message::Message;
use crate::name::SessionName;
use crate::spec::Spec;
use crate::stall::Watch;
use crate::task::Spawner;

#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Start(Start),
    /// A call was answered, as this entry of the journal. It is for an attempt that waits in memory, as a closure
    /// does. Who is not there needs no word of it: its next attempt begins with the journal, which has the answer.
    Tell {
        no: TaskNo,
        attempt: Attempt,
        index: CallIndex,
        ordinal: u32,
        answer: Arc<Answer>,
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
    Forget {
        no: TaskNo,
    },
}

/// Begin an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The name of its session, the first half of its address.
    pub session: SessionName,
    pub no: TaskNo,
    pub run: RunNo,
    pub attempt: Attempt,
    /// What spawned it, when that was a task.
    pub spawner: Option<Spawner>,
    pub spec: Arc<Spec>,
    /// How many journal entries there are to go through first.
    pub journal: u32,
    pub open: Vec<OpenCall>,
    pub state: Option<Json>,
    /// How it is watched: it is to show a sign of life more often than that.
    pub watch: Option<Watch>,
    /// There is no news, and no budget that anything would be set aside from: the first step needs
    /// no leave.
    pub at_leave: bool,
}

impl Action {
    pub fn task(&self) -> TaskNo {
        match self {
            Self::Start(start) => start.no,
            Self::Tell { no, .. }
            | Self::Push { no, .. }
            | Self::Interrupt { no, .. }
            | Self::Stop { no, .. }
            | Self::Kill { no, .. }
            | Self::Forget { no } => *no,
        }
    }
}
