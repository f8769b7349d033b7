//! Everything that can be asked of a tree. Whatever changes a task is one of these.

use std::sync::Arc;

use crate::address::TaskRef;
use crate::approval::{ApprovalVerdict, CallDigest};
use crate::call::{CallCompletion, ConditionRequest, WaitMode};
use crate::ids::{Attempt, CallIndex, ClientIdentity, ConversationId, MessageNo, Millis, TaskNo};
use crate::json::Json;
use crate::limits::{Limits, Usage};
use crate::outcome::{EndConfirmation, Failure};
use crate::shared_values::SharedWrite;
use crate::spec::TaskSpec;

/// Who asks. Scope follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Sees and controls all.
    Operator,
    /// Acts at top level.
    Client(ClientCaller),
    /// The attempt of a task that is at work; an older attempt is refused.
    Task { no: TaskNo, attempt: Attempt },
}

/// A client as it asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCaller {
    pub identity: ClientIdentity,
    pub control: ClientControl,
    /// Conversations of this client that nobody has seen for so long that another may take over what
    /// they started.
    pub lapsed: Arc<[ConversationId]>,
}

impl ClientCaller {
    /// Whether the results and messages of a run come to this caller unasked.
    pub fn receives_from(&self, starter: &ClientIdentity) -> bool {
        self.identity.receives_from(starter, |id| self.lapsed.contains(id))
    }
}

/// The top-level work that a client may stop, write to, answer, resume and close. It sees and awaits all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientControl {
    /// Its own.
    #[default]
    Own,
    /// Also that of other clients and of the operator.
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

#[derive(Clone, Debug, PartialEq)]
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
    Report(ReportCommand),
    /// The clock has moved.
    Tick,
    /// Carry on with stops that were too large for one turn.
    Sweep,
    /// The process that performed this task is gone.
    Recover(RecoverCommand),
}

impl Command {
    /// Who asks, where somebody does.
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
            Self::Report(_) | Self::Tick | Self::Sweep | Self::Recover(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct SetLimitsCommand {
    pub caller: Caller,
    /// The session, when there is none.
    pub task: Option<TaskRef>,
    pub limits: Limits,
}

/// Ends a session: nothing new starts in it, and what runs is stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct CloseCommand {
    pub caller: Caller,
    pub reason: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SpawnCommand {
    pub caller: Caller,
    pub spec: Arc<TaskSpec>,
    /// The caller's call that asks, to be recorded with the answer.
    pub call: Option<CallIndex>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SendCommand {
    pub caller: Caller,
    pub to: Recipient,
    pub body: Json,
    pub interrupt: bool,
    pub reply_to: Option<MessageNo>,
    /// Nothing is to follow: closes the input of work that is handed its messages.
    pub closes_input: bool,
    pub call: Option<CallIndex>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Recipient {
    Task(TaskRef),
    Parent,
    /// Every living child of the caller.
    Children,
}

/// Reads what reached the session and nobody has read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadInboxCommand {
    pub caller: Caller,
    pub mark_read: MarkRead,
}

/// Which messages count as read afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkRead {
    /// None: it is only looked.
    Nothing,
    /// The oldest so many.
    Oldest(usize),
    /// Those of these that nobody has read yet.
    These(Vec<MessageNo>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct StopCommand {
    pub caller: Caller,
    pub target: StopTarget,
    pub reason: Option<Arc<str>>,
    /// Instead of each task's own grace.
    pub grace: Option<Millis>,
    /// The caller's call that asks, to be recorded with the answer.
    pub call: Option<CallIndex>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StopTarget {
    Task(TaskRef),
    Itself,
    /// Every living child of the caller.
    Children,
}

/// A client's wait: answers if it can be answered now.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectCommand {
    pub caller: Caller,
    /// The runs whose results come to the client unasked, when empty.
    pub tasks: Vec<TaskRef>,
    pub mode: WaitMode,
}

/// Answers a parked question, approval or client-side tool.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerCommand {
    pub caller: Caller,
    pub task: TaskRef,
    /// Which of its calls; may be left out while there is only one to answer.
    pub call: Option<CallIndex>,
    pub answer: GivenAnswer,
    /// The caller's own call that answers, to be recorded.
    pub caller_call: Option<CallIndex>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum GivenAnswer {
    Reply(Json),
    Verdict(ApprovalVerdict),
    /// A verdict on exactly the call that somebody was shown, and on no other.
    ShownVerdict {
        shown: CallDigest,
        verdict: ApprovalVerdict,
    },
}

/// Takes back what was allowed for good. Calls that have begun go on.
#[derive(Clone, Debug, PartialEq)]
pub struct RevokeCommand {
    pub caller: Caller,
    pub grant: u32,
}

/// Opens the next run of an ended task.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeCommand {
    pub caller: Caller,
    pub task: TaskRef,
    pub limits: Option<Limits>,
}

/// What a performer says of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportCommand {
    pub no: TaskNo,
    pub attempt: Attempt,
    pub report: AttemptReport,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AttemptReport {
    Record(CallRecord),
    /// Something else, and before it what the work has not written down yet: all or nothing, in one
    /// commit.
    WithRecords {
        records: Vec<CallRecord>,
        report: Box<AttemptReport>,
    },
    /// Before the next costly step: takes all news under this call, if there is any; else sets
    /// aside up to `most`, of which less than `least` is of no use.
    BeginStep {
        index: CallIndex,
        max: Usage,
        min: Usage,
    },
    /// Calls that wait. The work has reacted to the first `heard` entries of its journal.
    Park {
        calls: Vec<(CallIndex, ConditionRequest)>,
        acked_entries: u32,
        then: AfterPark,
    },
    /// It can do nothing until one of its open calls, of which it knows so many, is answered. This
    /// is what there is of a result until then.
    Suspend {
        parked_count: usize,
        partial: Option<Json>,
    },
    /// The work dropped these calls.
    Abandon {
        calls: Vec<CallIndex>,
    },
    Progress(Json),
    State(Json),
    /// Sets aside up to `most` before it is spent; less than `least` is of no use.
    Reserve {
        most: Usage,
        least: Usage,
    },
    /// What was really spent. Whatever was reserved is free again.
    Charge(Usage),
    /// What became of a message that was pushed.
    Pushed {
        message: MessageNo,
        result: PushResult,
    },
    /// This attempt cannot be performed here.
    NoPerformer {
        reason: Arc<str>,
    },
    /// The work itself is over.
    Ended(EndReport),
}

/// A call that was carried out by the work itself, and what it cost. With a cost, whatever was
/// reserved is free again.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    pub index: CallIndex,
    pub label: Arc<str>,
    pub completion: Arc<CallCompletion>,
    pub spent: Option<Usage>,
    /// What it changed of that which the session shares. If somebody else changed it meanwhile, the
    /// record is refused as a conflict.
    pub shared_writes: Vec<SharedWrite>,
}

impl CallRecord {
    /// At no cost.
    pub fn new(index: CallIndex, label: impl Into<Arc<str>>, answer: Arc<CallCompletion>) -> Self {
        Self {
            index,
            label: label.into(),
            completion: answer,
            spent: None,
            shared_writes: Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushResult {
    Delivered,
    Refused { reason: Arc<str> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterPark {
    /// The work has other things to do.
    Continue,
    /// It can do nothing until one of its open calls, of which it knows so many, is answered.
    Suspend { parked_count: usize },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndReport {
    pub result: WorkResult,
    pub confirmation: EndConfirmation,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkResult {
    Returned(Json),
    Failed {
        failure: Failure,
        partial: Option<Json>,
    },
    /// It was made to end.
    Stopped {
        /// What there was of a result.
        partial: Option<Json>,
        /// What it has spent of what was set aside, as far as it knows.
        spent: Option<Usage>,
    },
    /// It was made to end and said nothing.
    Aborted,
}

impl From<WorkResult> for EndReport {
    fn from(how: WorkResult) -> Self {
        Self { result: how, confirmation: EndConfirmation::Confirmed }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RecoverCommand {
    pub no: TaskNo,
    pub finding: RecoveryFinding,
}

/// How it came that a task has no performer any more.
#[derive(Clone, Debug, PartialEq)]
pub enum RecoveryFinding {
    /// The process died.
    Crash,
    /// The process left in good order.
    Shutdown,
    /// The performer looked for work that may have outlived the process, and found it.
    Adopted,
    /// The performer made sure that the attempt was never carried out and never will be.
    NeverStarted,
    /// The performer looked and found nothing.
    NotFound { by: Arc<str>, evidence: Arc<str> },
}
