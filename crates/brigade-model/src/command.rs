//! Commands: the inputs of the state machine. Every change of a task begins with one.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::address::TaskRef;
use crate::approval::{ApprovalVerdict, CallDigest};
use crate::call::{CallCompletion, ConditionRequest, WaitMode};
use crate::entry_label::EntryLabel;
use crate::ids::{
    Attempt, CallIndex, ClientIdentity, ConversationId, MessageNo, Millis, TaskNo, Time,
};
use crate::json::Json;
use crate::limits::{CostEstimate, Limits, Usage};
use crate::name::IdempotencyKey;
use crate::outcome::{EndConfirmation, Failure};
use crate::shared_values::SharedWrite;
use crate::spec::TaskSpec;
use crate::utc_time::render_utc;
use crate::worktree::{Worktree, WorktreeState};

/// The caller of a command. Its scope follows from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Caller {
    /// Sees and controls all tasks.
    Operator,
    /// Acts at top level.
    Client(ClientCaller),
    /// The current attempt of a task. An older attempt is refused.
    Task { no: TaskNo, attempt: Attempt },
}

/// A client as the caller of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientCaller {
    pub identity: ClientIdentity,
    pub control: ClientControl,
    /// Conversations of this client that have been unseen for so long that another may take over
    /// their runs.
    pub lapsed: Arc<[ConversationId]>,
}

impl ClientCaller {
    /// Returns whether the results and messages of a run are delivered to this caller.
    pub fn receives_from(&self, starter: &ClientIdentity) -> bool {
        self.identity.receives_from(starter, |id| self.lapsed.contains(id))
    }
}

/// The top-level tasks that a client may stop, write to, answer, resume and close. It sees and
/// awaits all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientControl {
    /// Those that it started.
    #[default]
    Own,
    /// Those that it started, without looser limits: the client may only tighten them.
    Confined,
    /// Also those of other clients and of the operator.
    Shared,
}

impl From<ClientIdentity> for ClientCaller {
    fn from(identity: ClientIdentity) -> Self {
        Self { identity, control: ClientControl::Own, lapsed: Arc::default() }
    }
}

impl From<&str> for ClientCaller {
    fn from(name: &str) -> Self {
        ClientIdentity::from(name).into()
    }
}

/// A command. Those with a caller can be sent to the node that owns the session; the others are of the
/// owner itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    SetLimits(SetLimitsCommand),
    Close(CloseCommand),
    Spawn(SpawnCommand),
    Send(SendCommand),
    ReadInbox(ReadInboxCommand),
    Stop(StopCommand),
    Collect(CollectCommand),
    Answer(AnswerCommand),
    Revoke(RevokeCommand),
    Resume(ResumeCommand),
    #[serde(skip)]
    Report(ReportCommand),
    /// Fires the timers that are due.
    #[serde(skip)]
    Tick,
    /// Continues stops that were too large for one transition.
    #[serde(skip)]
    Sweep,
    /// Recovers a task whose process is gone.
    #[serde(skip)]
    Recover(RecoverCommand),
    /// Stores the end of a task's worktree.
    #[serde(skip)]
    ReleaseWorktree(ReleaseWorktreeCommand),
}

impl Command {
    /// Returns the caller, if the command has one.
    pub fn caller(&self) -> Option<&Caller> {
        match self {
            Self::SetLimits(set) => Some(&set.caller),
            Self::Close(close) => Some(&close.caller),
            Self::Spawn(spawn) => Some(&spawn.caller),
            Self::Send(send) => Some(&send.caller),
            Self::ReadInbox(read) => Some(&read.caller),
            Self::Stop(stop) => Some(&stop.caller),
            Self::Collect(collect) => Some(&collect.caller),
            Self::Answer(given) => Some(&given.caller),
            Self::Revoke(revoke) => Some(&revoke.caller),
            Self::Resume(resume) => Some(&resume.caller),
            Self::Report(_)
            | Self::Tick
            | Self::Sweep
            | Self::Recover(_)
            | Self::ReleaseWorktree(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetLimitsCommand {
    pub caller: Caller,
    /// The task, or the session if `None`.
    pub task: Option<TaskRef>,
    pub limits: Limits,
}

/// Ends a session: nothing new starts in it, and running tasks are stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CloseCommand {
    pub caller: Caller,
    pub reason: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpawnCommand {
    pub caller: Caller,
    pub spec: Arc<TaskSpec>,
    /// The caller's call, under which the reply is recorded.
    pub call: Option<CallIndex>,
}

/// Sends a message.
///
/// With a key it is accepted once: a repeat gets the number of the first message and changes
/// nothing, also after the recipient has ended. A repeat with another body, name or flag is refused
/// as a conflict. [`MessageKeyScope`](crate::message::MessageKeyScope) is the scope of a key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendCommand {
    pub caller: Caller,
    pub to: Recipient,
    pub body: Json,
    pub interrupt: bool,
    pub reply_to: Option<MessageNo>,
    /// True if this is the last message. It closes the input of work with a pushed inbox.
    pub closes_input: bool,
    /// The name by which the recipient can wait for it.
    pub name: Option<Arc<str>>,
    pub key: Option<IdempotencyKey>,
    /// True if the message opens no run: a recipient that has ended refuses it.
    pub alive_only: bool,
    pub call: Option<CallIndex>,
}

impl SendCommand {
    /// Creates a command without a key, a name, flags or a recorded call.
    pub fn new(caller: Caller, to: Recipient, body: Json) -> Self {
        Self {
            caller,
            to,
            body,
            interrupt: false,
            reply_to: None,
            closes_input: false,
            name: None,
            key: None,
            alive_only: false,
            call: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Recipient {
    Task(TaskRef),
    /// The caller's parent, or the session. A key is the caller's own: another child may use the
    /// same one.
    Parent,
    /// Every alive child of the caller. With a key, each child gets the message once: a repeat
    /// reaches only children that do not have it yet, and its reply has the number of each child
    /// that is still alive.
    Children,
}

/// Reads the session's unread messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadInboxCommand {
    pub caller: Caller,
    pub mark_read: MarkRead,
}

/// The messages that are marked as read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MarkRead {
    /// None: the caller only looks.
    Nothing,
    /// The oldest ones, up to this number.
    Oldest(usize),
    /// Those of these that are unread.
    These(Vec<MessageNo>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopCommand {
    pub caller: Caller,
    pub target: StopTarget,
    pub reason: Option<Arc<str>>,
    /// Overrides each task's own grace.
    pub grace: Option<Millis>,
    /// The caller's call, under which the reply is recorded.
    pub call: Option<CallIndex>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StopTarget {
    Task(TaskRef),
    Itself,
    /// Every alive child of the caller.
    Children,
}

/// Collects results for a client's wait, if they are there now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CollectCommand {
    pub caller: Caller,
    /// The tasks to collect. If empty, those whose results are delivered to the client.
    pub tasks: Vec<TaskRef>,
    pub mode: WaitMode,
}

/// Answers a parked question, approval or client-side tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerCommand {
    pub caller: Caller,
    pub task: TaskRef,
    /// The call to answer. It may be omitted if only one can be answered.
    pub call: Option<CallIndex>,
    pub answer: GivenAnswer,
    /// The caller's own call that answers, to be recorded.
    pub caller_call: Option<CallIndex>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum GivenAnswer {
    Reply(Json),
    Verdict(ApprovalVerdict),
    /// A verdict on exactly the call that was shown, and on no other.
    ShownVerdict {
        shown: CallDigest,
        verdict: ApprovalVerdict,
    },
}

/// Revokes a grant. Calls that have started continue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RevokeCommand {
    pub caller: Caller,
    pub grant: u32,
}

/// Opens the next run of an ended task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResumeCommand {
    pub caller: Caller,
    pub task: TaskRef,
    pub limits: Option<Limits>,
}

/// A performer's report about an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportCommand {
    pub no: TaskNo,
    pub attempt: Attempt,
    pub report: AttemptReport,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AttemptReport {
    Record(CallRecord),
    /// Another report, preceded by records that the work has not yet flushed. They are committed
    /// together or not at all.
    WithRecords {
        records: Vec<CallRecord>,
        report: Box<AttemptReport>,
    },
    /// Begins a step: takes the whole inbox under this call if it holds items, otherwise reserves
    /// up to `max`. Less than `min` exhausts the budget.
    BeginStep {
        index: CallIndex,
        cost: CostEstimate,
    },
    /// Parks calls. The work has acknowledged the first `acked_entries` entries of its journal.
    Park {
        calls: Vec<(CallIndex, ConditionRequest)>,
        acked_entries: u32,
        then: AfterPark,
    },
    /// Suspends the task until one of its parked calls completes. `parked_count` is the number of
    /// calls that the work knows of, and `partial` the result so far.
    Suspend {
        parked_count: usize,
        partial: Option<Json>,
    },
    /// Drops these calls.
    Abandon {
        calls: Vec<CallIndex>,
    },
    Progress(Json),
    State(Json),
    /// Stores the git worktree in which the work is about to start.
    Worktree(Box<Worktree>),
    /// Reports that the work meets its readiness check.
    Ready,
    /// Reserves up to the estimate's maximum. Less than its minimum exhausts the budget.
    Reserve(CostEstimate),
    /// Charges the real cost and releases the reservation.
    Charge(Usage),
    /// The result of pushing a message.
    Pushed {
        message: MessageNo,
        result: PushResult,
    },
    /// Reports that this attempt cannot be performed here.
    NoPerformer {
        reason: Arc<str>,
    },
    /// Reports that the work itself is over.
    Ended(EndReport),
}

/// A call that the work itself completed, and its cost. A cost releases the reservation.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    pub index: CallIndex,
    pub label: EntryLabel,
    pub completion: Arc<CallCompletion>,
    pub spent: Option<Usage>,
    /// Writes to the session's shared values. If another task changed one of them meanwhile, the
    /// record is refused as a conflict.
    pub shared_writes: Vec<SharedWrite>,
}

impl CallRecord {
    /// Creates a record without a cost.
    pub fn new(index: CallIndex, label: EntryLabel, completion: Arc<CallCompletion>) -> Self {
        Self { index, label, completion, spent: None, shared_writes: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushResult {
    Delivered,
    Refused {
        reason: Arc<str>,
    },
    /// It was on its way when the connection to its host was lost.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterPark {
    /// The work continues.
    Continue,
    /// The work can do nothing until one of its parked calls completes. `parked_count` is the
    /// number of calls that it knows of.
    Suspend { parked_count: usize },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndReport {
    pub result: WorkResult,
    pub confirmation: EndConfirmation,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkResult {
    Returned(Json),
    Failed {
        failure: Failure,
        partial: Option<Json>,
    },
    /// The work was made to end.
    Stopped {
        /// The partial result, if any.
        partial: Option<Json>,
        /// The part of the reservation that it spent, if known.
        spent: Option<Usage>,
    },
    /// The work was made to end and reported nothing.
    Aborted,
}

impl From<WorkResult> for EndReport {
    fn from(result: WorkResult) -> Self {
        Self { result, confirmation: EndConfirmation::Confirmed }
    }
}

/// Stores whether the worktree of an ended task was kept or removed.
#[derive(Clone, Debug, PartialEq)]
pub struct ReleaseWorktreeCommand {
    pub no: TaskNo,
    /// The number of the worktree among those of the task.
    pub serial: u32,
    pub state: WorktreeState,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RecoverCommand {
    pub no: TaskNo,
    pub finding: RecoveryFinding,
}

/// The fact that recovery established about an attempt without a performer.
#[derive(Clone, Debug, PartialEq)]
pub enum RecoveryFinding {
    /// The process died.
    Crash,
    /// The process shut down in good order.
    Shutdown,
    /// The performer looked for work that may have outlived the process, and found it.
    Adopted,
    /// The performer established that the attempt was never executed and never will be.
    NeverStarted,
    /// The performer looked and found nothing.
    NotFound { by: Arc<str>, evidence: Arc<str> },
    /// It was started on another host, which has a node that will look.
    HostPresent,
    /// It was started on another host, which has no node now.
    HostAway(HostAbsence),
}

/// The absence of a host, as a node found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostAbsence {
    /// The name of the host's last node, or of its machine.
    pub node: Arc<str>,
    /// The end of the last lease of that node, if it is known.
    pub last_seen: Option<Time>,
    /// The time within which the host may return.
    pub grace: Millis,
}

impl fmt::Display for HostAbsence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last_seen {
            Some(last_seen) => {
                write!(f, "{}, which was last seen {}", self.node, render_utc(last_seen))
            }
            None => write!(f, "{}, which has no node in the fleet", self.node),
        }
    }
}
