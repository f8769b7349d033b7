//! The inputs of a loop.

use std::sync::Arc;

use brigade_model::command::{CollectCommand, Command};
use brigade_model::decide::CommandReply;
use brigade_model::event_author::CallerOrigin;
use brigade_model::ids::SessionId;
use brigade_model::limits::Limits;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_store::{CallId, NodeId, NodeRow, OpenCall};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::fleet::ClaimedSessions;
use crate::view::SessionView;

pub(crate) type SubmitResult<T> = Result<T, Refusal>;

#[derive(Debug)]
pub(crate) enum LoopInput {
    /// A request for the open session of this name, or a new one.
    Open { name: SessionName, limits: Limits, reply: oneshot::Sender<SubmitResult<OpenReply>> },
    Submit {
        session: SessionId,
        command: Command,
        /// The origin of the caller, a label of the events that the command makes.
        origin: Option<CallerOrigin>,
        reply: oneshot::Sender<SubmitResult<CommandReply>>,
    },
    /// Many commands with one acknowledgement.
    SubmitAll {
        session: SessionId,
        commands: Vec<Command>,
        origin: Option<CallerOrigin>,
        reply: oneshot::Sender<Vec<SubmitResult<CommandReply>>>,
    },
    /// A performer's report. If the store fails, the loop retries it.
    Report { session: SessionId, command: Command },
    /// A wait, which the loop answers when its condition is met.
    Wait(WaitInput),
    /// A request to give a session to another node.
    Move { session: SessionId, to: NodeId, reply: oneshot::Sender<SubmitResult<CommandReply>> },
    /// Sessions that this node has claimed.
    Claimed { claimed: ClaimedSessions, done: oneshot::Sender<()> },
    /// Sessions that this node owns, of which some may not be in memory.
    HoldOwned(Vec<SessionId>),
    /// The nodes of the fleet, when hosts have come or gone.
    Hosts(Arc<[NodeRow]>),
    /// Calls of other nodes for sessions of this one.
    Calls(Vec<OpenCall>),
    /// Calls that their askers have removed.
    CancelCalls(Vec<CallId>),
    /// The end of a wait whose caller does not need it any more.
    CancelWait { id: u64 },
    /// A request to start nothing new, answered when no task runs.
    Drain { reply: oneshot::Sender<()> },
    /// A request to shut down in good order.
    Shutdown { reply: oneshot::Sender<SubmitResult<()>> },
}

impl LoopInput {
    pub(crate) fn command_count(&self) -> usize {
        match self {
            Self::SubmitAll { commands, .. } => commands.len(),
            Self::Calls(calls) => calls.len(),
            _ => 1,
        }
    }
}

/// The reply to a request for the open session of a name.
#[derive(Clone, Debug)]
pub(crate) enum OpenReply {
    Opened(OpenedView),
    /// The session exists, and another loop has it.
    OfLoop(SessionId),
}

/// The view of an open session.
#[derive(Clone, Debug)]
pub(crate) struct OpenedView {
    pub(crate) view: Arc<SessionView>,
    /// True if the request opened the session.
    pub(crate) opened: bool,
}

#[derive(Debug)]
pub(crate) struct WaitInput {
    pub(crate) id: u64,
    pub(crate) session: SessionId,
    pub(crate) collect: CollectCommand,
    pub(crate) origin: Option<CallerOrigin>,
    /// Cancelled when the caller may no longer wait.
    pub(crate) cancellation: Option<CancellationToken>,
    pub(crate) reply: ReplyTo,
}

/// The receiver of a reply: a caller in this process, or one of another node.
#[derive(Debug)]
pub(crate) enum ReplyTo {
    Local(oneshot::Sender<SubmitResult<CommandReply>>),
    /// The reply is stored with the events of the command.
    Call(CallId),
}

impl ReplyTo {
    /// Sends a reply to a caller in this process.
    pub(crate) fn send(self, result: SubmitResult<CommandReply>) {
        if let Self::Local(reply) = self {
            // A caller that dropped its receiver is not an error.
            let _ = reply.send(result);
        }
    }

    pub(crate) fn call(&self) -> Option<CallId> {
        match self {
            Self::Local(_) => None,
            Self::Call(id) => Some(*id),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Local(reply) => reply.is_closed(),
            Self::Call(_) => false,
        }
    }
}

impl WaitInput {
    /// Returns true if nobody waits for the answer, or may no longer.
    pub(crate) fn is_cancelled(&self) -> bool {
        let is_cancelled = self.cancellation.as_ref().is_some_and(CancellationToken::is_cancelled);
        is_cancelled || self.reply.is_closed()
    }
}
