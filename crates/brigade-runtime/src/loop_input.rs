//! What reaches the loop.

use std::sync::Arc;

use brigade_model::command::{CollectCommand, Command};
use brigade_model::decide::CommandReply;
use brigade_model::ids::SessionId;
use brigade_model::limits::Limits;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use tokio::sync::oneshot;

use crate::view::SessionView;

pub(crate) type SubmitResult<T> = Result<T, Refusal>;

#[derive(Debug)]
pub(crate) enum LoopInput {
    /// A session of this name: the open one, or a new one.
    Open {
        name: SessionName,
        limits: Limits,
        reply: oneshot::Sender<SubmitResult<Arc<SessionView>>>,
    },
    Submit {
        session: SessionId,
        command: Command,
        reply: oneshot::Sender<SubmitResult<CommandReply>>,
    },
    /// One acknowledgement for many commands.
    SubmitAll {
        tree: SessionId,
        commands: Vec<Command>,
        reply: oneshot::Sender<Vec<SubmitResult<CommandReply>>>,
    },
    /// What a performer says. It is not lost: when the store fails, it is tried again.
    Report { tree: SessionId, command: Command },
    /// Answered when its condition holds.
    Wait(WaitInput),
    /// Nobody listens to this wait any more.
    CancelWait { id: u64 },
    /// Let go of everything in good order.
    Shutdown { reply: oneshot::Sender<SubmitResult<()>> },
}

#[derive(Debug)]
pub(crate) struct WaitInput {
    pub(crate) id: u64,
    pub(crate) session: SessionId,
    pub(crate) collect: CollectCommand,
    pub(crate) reply: oneshot::Sender<SubmitResult<CommandReply>>,
}
