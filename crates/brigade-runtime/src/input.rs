//! What reaches the loop.

use std::sync::Arc;

use brigade_model::command::{Collect, Command};
use brigade_model::decide::Reply;
use brigade_model::ids::TreeId;
use brigade_model::limits::Limits;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use tokio::sync::oneshot;

use crate::view::TreeView;

pub(crate) type Outcome<T> = Result<T, Refusal>;

#[derive(Debug)]
pub(crate) enum Input {
    /// A session of this name: the open one, or a new one.
    Open {
        name: SessionName,
        limits: Limits,
        reply: oneshot::Sender<Outcome<Arc<TreeView>>>,
    },
    One {
        tree: TreeId,
        command: Command,
        reply: oneshot::Sender<Outcome<Reply>>,
    },
    /// One acknowledgement for many commands.
    Many {
        tree: TreeId,
        commands: Vec<Command>,
        reply: oneshot::Sender<Vec<Outcome<Reply>>>,
    },
    /// What a performer says. It is not lost: when the store fails, it is tried again.
    Report {
        tree: TreeId,
        command: Command,
    },
    /// Answered when its condition holds.
    Wait(WaitInput),
    /// Nobody listens to this wait any more.
    Unwait {
        id: u64,
    },
    /// Let go of everything in good order.
    Shutdown {
        reply: oneshot::Sender<Outcome<()>>,
    },
}

#[derive(Debug)]
pub(crate) struct WaitInput {
    pub(crate) id: u64,
    pub(crate) tree: TreeId,
    pub(crate) collect: Collect,
    pub(crate) reply: oneshot::Sender<Outcome<Reply>>,
}
