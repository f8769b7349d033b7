//! A task as clients see it.

use std::fmt::{self, Display, Formatter};

use brigade_agent::ClientToolCall;
use brigade_model::approval::{ApprovalRequest, CallCard, CallDigest};
use brigade_model::call::{Condition, RunResult};
use brigade_model::ids::{CallIndex, Owner, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::limits::{Limits, Usage};
use brigade_model::name::SessionName;
use brigade_model::outcome::{Failure, LateResult, Outcome};
use brigade_model::process_report::{SandboxPart, sandbox_parts};
use brigade_model::program_access::ProgramAccess;
use brigade_model::sandbox::Sandbox;
use brigade_model::task::{
    AwayState, InheritedDeadline, QueueReason, ResultDelivery, TaskRow, TaskState,
};
use brigade_model::truncate::truncate_chars;
use brigade_model::work::{ReadinessCheck, TaskKind, Work};
use serde::{Deserialize, Serialize};

use crate::worktree_info::WorktreeInfo;

/// The maximum length of a description in a list.
const LISTED_TEXT_CHARS: usize = 200;
/// The maximum size of a pending call's arguments in a list: more than a screen shows.
const LISTED_CALL_BYTES: usize = 16 * 1024;
/// The maximum size of a progress note in a list.
const LISTED_PROGRESS_BYTES: usize = 2_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// `process:4`.
    pub address: String,
    /// `process`, `agent` or `job`; empty from a daemon that does not send it.
    #[serde(default)]
    pub kind: String,
    pub session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The command line, the job, or the agent's prompt.
    pub description: String,
    /// `queued`, `running`, `waiting`, `away`, `stopping`, `closing`, `succeeded`, `failed`, `cancelled`.
    pub state: String,
    /// The reason why the task is queued or away, or the details of its outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    pub alive: bool,
    /// The host of the process has no node in the fleet. The process may still run there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<AwayInfo>,
    /// The condition under which it counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness_check: Option<ReadinessCheck>,
    /// The time at which its latest run became ready, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The process is the program of its parent, not a task that the parent started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub part_of_parent: bool,
    /// The client that started a top-level task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The conversation of that client that started the latest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationInfo>,
    pub run: u32,
    pub attempt: u32,
    /// Milliseconds since the epoch.
    pub spawned_at: u64,
    /// The time of the last event of the task or of its last activity.
    pub last_activity_at: u64,
    /// The task has been silent for longer than its stall limit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stalled: bool,
    /// The number of nudges since its last activity.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nudge_count: u8,
    /// The limits of the task and its descendants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<Limits>>,
    /// Limits of other holders that apply too, from the nearest to the session. Only in
    /// `show_task`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherited_limits: Vec<InheritedLimits>,
    /// The deadline that a kept task inherited from its former parent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherited_deadline: Option<InheritedDeadline>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Json>,
    /// The result, or a partial one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The usage of the task and its descendants.
    #[serde(default, skip_serializing_if = "Usage::is_none")]
    pub usage: Usage,
    /// The part of it that the task used itself.
    #[serde(default, skip_serializing_if = "Usage::is_none")]
    pub own_usage: Usage,
    /// The part of it that was reserved for calls with unknown usage. The true usage may be less.
    #[serde(default, skip_serializing_if = "Usage::is_none")]
    pub unknown_usage: Usage,
    /// Open questions, and tool calls that the client must execute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionInfo>,
    /// Pending approvals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalInfo>,
    /// Failed calls that the task makes again after a pause, the next one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<RetryInfo>,
    /// The result was collected.
    #[serde(default)]
    pub collected: bool,
    /// The result was collected before the wait that returns it.
    #[serde(default)]
    pub collected_before: bool,
    /// The sandbox of a process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Box<Sandbox>>,
    /// The parts of the sandbox that are in force. Empty until the process has started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox_parts: Vec<SandboxPart>,
    /// The access of an agent program that asks before no call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_access: Option<ProgramAccess>,
    /// The git worktree of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worktree: Option<WorktreeInfo>,
    /// The time that the process has waited for readers with a lease. Only in `show_task`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
}

/// The absence of the host of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwayInfo {
    /// The last node on that host, or its machine.
    pub node: String,
    /// The time at which the node was last seen, in milliseconds since the epoch.
    pub since: u64,
    /// The time at which the process ends as lost, unless its host returns.
    pub until: u64,
}

impl AwayInfo {
    pub fn of(away: &AwayState) -> Self {
        Self { node: away.node.to_string(), since: away.since.0, until: away.until.0 }
    }
}

/// The limits of another holder that apply to a task. All tasks under the holder share them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedLimits {
    /// `agent:3`; `None` for the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The holder has ended and kept this task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holder_ended: bool,
    pub limits: Limits,
    /// The usage of all tasks that share the limits.
    #[serde(default, skip_serializing_if = "Usage::is_none")]
    pub usage: Usage,
}

/// An open question of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionInfo {
    /// The number of the call, which an answer names.
    pub call: u32,
    pub text: String,
    /// The tool call that the client must execute, if this is not a question. The answer is its
    /// result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_call: Option<Json>,
}

impl QuestionInfo {
    fn of(call: CallIndex, on: &Condition) -> Option<Self> {
        match on {
            Condition::Question { question } => {
                let text = question.decode().unwrap_or_else(|_| question.as_str().to_owned());
                Some(Self { call: call.0, text, client_call: None })
            }
            Condition::ClientTool { request } => {
                let text = match request.decode::<ClientToolCall>() {
                    Ok(call) => format!("{} {}", call.tool, call.arguments),
                    Err(_) => request.as_str().to_owned(),
                };
                Some(Self { call: call.0, text, client_call: Some(request.clone()) })
            }
            _ => None,
        }
    }

    /// Returns the words before the text of the question.
    pub fn verb(&self) -> &'static str {
        if self.client_call.is_some() { "waits for its client" } else { "asks" }
    }
}

/// A pending approval of one tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalInfo {
    /// The number of the call, which a verdict names.
    pub call: u32,
    /// The call in one line, with long texts truncated. Not sufficient for a decision.
    pub text: String,
    pub tool: String,
    /// All arguments as JSON; empty in a list if they are long.
    pub arguments: String,
    /// The digest of the whole call, which a verdict names. Present only with the whole call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<CallDigest>,
    /// The absolute working directory of the call, for a tool that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The `ask` rule that requires the approval.
    pub rule: String,
    /// The owner of the rule.
    pub rule_source: String,
    /// Milliseconds since the epoch.
    pub requested_at: u64,
}

impl ApprovalInfo {
    pub fn of(no: TaskNo, call: CallIndex, request: &ApprovalRequest, since: Time) -> Self {
        Self {
            call: call.0,
            digest: (!request.is_too_large()).then(|| CallDigest::of(no, call, request)),
            directory: request.directory.as_deref().map(str::to_owned),
            text: request.to_string(),
            tool: request.tool.to_string(),
            arguments: request.arguments.text.to_string(),
            rule: request.rule.to_string(),
            rule_source: request.rule_source.to_string(),
            requested_at: since.0,
        }
    }

    /// Returns the whole call for a decision; `None` if it is not here whole.
    pub fn card(&self) -> Option<CallCard> {
        let is_whole = self.digest.is_some();
        is_whole.then(|| CallCard::of(&self.tool, &self.arguments, self.directory.as_deref()))
    }

    /// Removes long arguments, and the digest with them.
    fn omit_long_call(&mut self) {
        if self.arguments.len() > LISTED_CALL_BYTES {
            self.arguments.clear();
            self.digest = None;
        }
    }
}

/// A failed call that is made again after a pause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryInfo {
    /// The call, such as `step charge`, or `job` for the job as a whole.
    pub call: String,
    /// The number of the attempt that failed, from 1.
    pub attempt: u32,
    /// The message of the error, with its kind in brackets.
    pub error: String,
    /// Milliseconds since the epoch.
    pub retry_at: u64,
}

impl Display for RetryInfo {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { call, attempt, error, .. } = self;
        write!(f, "waits to retry {call}; attempt {attempt} failed: {error}")
    }
}

fn pending_retries(row: &TaskRow) -> Vec<RetryInfo> {
    let pauses = row.parked_calls.iter().filter_map(|call| match &call.condition {
        Condition::Retry(pause) => Some(RetryInfo {
            call: pause.label.to_string(),
            attempt: pause.attempt,
            error: pause.error.to_string(),
            retry_at: pause.until.0,
        }),
        _ => None,
    });
    let mut retries: Vec<RetryInfo> = pauses.collect();
    retries.sort_by_key(|retry| retry.retry_at);
    retries
}

fn is_zero(number: &u8) -> bool {
    *number == 0
}

fn open_approvals(no: TaskNo, row: &TaskRow) -> Vec<ApprovalInfo> {
    let open = row.parked_calls.iter().filter_map(|call| match &call.condition {
        Condition::Approval { request, since } => {
            Some(ApprovalInfo::of(no, call.index, request, *since))
        }
        _ => None,
    });
    open.collect()
}

fn open_questions(row: &TaskRow) -> Vec<QuestionInfo> {
    row.parked_calls
        .iter()
        .filter_map(|call| QuestionInfo::of(call.index, &call.condition))
        .collect()
}

/// A conversation of a client, from the view of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationInfo {
    /// The id; empty for a client without conversations, and for old runs that did not record one.
    pub id: String,
    pub state: ConversationState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationState {
    /// The caller's conversation.
    Own,
    /// A conversation without a connection for a minute. The client's others take over its results
    /// and messages.
    Lapsed,
    /// Another conversation that has not lapsed.
    #[serde(other)]
    Other,
}

impl TaskInfo {
    pub fn of(session: &SessionName, no: TaskNo, row: &TaskRow) -> Self {
        let retries = pending_retries(row);
        let is_waiting = matches!(row.state, TaskState::Waiting);
        let retry = retries.first().filter(|_| is_waiting).map(ToString::to_string);
        let mut info = Self {
            address: row.address(no),
            kind: row.spec.work.kind().to_string(),
            session: session.to_string(),
            name: row.name.as_ref().map(ToString::to_string),
            description: row.spec.work.description(),
            state: row.state.label().to_owned(),
            detail: render_state_reason(&row.state).or(retry),
            alive: row.is_alive(),
            away: row.away().map(AwayInfo::of),
            readiness_check: row.spec.work.readiness_check().cloned(),
            ready_at: row.ready_at().map(|at| at.0),
            parent: match row.owner {
                Owner::Session => None,
                Owner::Task(parent) => Some(parent.to_string()),
            },
            part_of_parent: row.spec.part_of_parent,
            client: row.client.as_ref().map(ToString::to_string),
            conversation: None,
            run: row.run.0,
            attempt: row.attempt.0,
            spawned_at: row.spawned_at.0,
            last_activity_at: row.last_activity_at.0,
            stalled: row.is_stalled(),
            nudge_count: row.nudges().count,
            limits: row.limits.clone(),
            inherited_limits: Vec::new(),
            inherited_deadline: row.inherited_deadline().filter(|_| row.is_alive()),
            ended_at: row.ended().map(|ended| ended.at.0),
            exit_code: None,
            signal: None,
            progress: row.progress().cloned(),
            result: None,
            outcome: None,
            usage: row.usage(),
            own_usage: row.own_usage(),
            unknown_usage: row.unknown_usage(),
            questions: open_questions(row),
            approvals: open_approvals(no, row),
            retries,
            collected: row.ended().is_some_and(|e| e.delivery == ResultDelivery::Collected),
            collected_before: false,
            sandbox: row.spec.work.sandbox().cloned().map(Box::new),
            sandbox_parts: sandbox_parts(row),
            program_access: match &row.spec.work {
                Work::Agent(agent) => agent.program_access,
                _ => None,
            },
            worktree: row.worktree().map(WorktreeInfo::of),
            held_ms: None,
        };
        if let Some(ended) = row.ended() {
            info.set_outcome(&ended.outcome);
        }
        info
    }

    /// Returns the info without its long parts: the result, the sandbox, and the end of a long
    /// description.
    pub fn for_list(session: &SessionName, no: TaskNo, row: &TaskRow) -> Self {
        let mut info = Self::of(session, no, row);
        info.result = None;
        info.outcome = None;
        info.sandbox = None;
        info.limits = None;
        info.inherited_deadline = None;
        info.sandbox_parts = Vec::new();
        info.progress =
            info.progress.filter(|progress| progress.as_str().len() <= LISTED_PROGRESS_BYTES);
        info.approvals.iter_mut().for_each(ApprovalInfo::omit_long_call);
        let errors = info.retries.iter_mut().map(|retry| &mut retry.error);
        for text in std::iter::once(&mut info.description).chain(&mut info.detail).chain(errors) {
            *text = truncate_chars(text, LISTED_TEXT_CHARS);
        }
        info
    }

    /// Returns the info with the result of one of its runs.
    pub fn for_run(mut self, result: &RunResult) -> Self {
        if result.run.0 != self.run {
            self.address = format!("{}#{}", self.address, result.run);
            self.run = result.run.0;
            self.ended_at = Some(result.ended_at.0);
            self.progress = None;
            self.ready_at = None;
            self.collected = result.collected_before;
            self.questions.clear();
            self.retries.clear();
        }
        self.set_outcome(&result.outcome);
        self.collected_before = result.collected_before;
        self
    }

    fn set_outcome(&mut self, outcome: &Outcome) {
        self.result = None;
        self.exit_code = None;
        self.signal = None;
        self.state = outcome.label().to_owned();
        self.detail = Some(outcome.to_string());
        self.alive = false;
        self.away = None;
        let failure = match outcome {
            Outcome::Succeeded { result } => {
                self.result = Some(result.clone());
                self.exit_code =
                    result.decode::<ExitCodeField>().ok().and_then(|exit| exit.exit_code);
                None
            }
            Outcome::Failed(failed) => {
                self.result = failed.partial.clone();
                Some(&failed.failure)
            }
            Outcome::Cancelled(cancelled) => match &cancelled.late {
                Some(LateResult::Failure(failure)) => Some(failure),
                Some(LateResult::Result(result)) => {
                    self.result = Some(result.clone());
                    None
                }
                None => {
                    self.result = cancelled.partial.clone();
                    None
                }
            },
        };
        match failure {
            Some(Failure::ExitCode(code)) => self.exit_code = Some(*code),
            Some(Failure::Signal(signal)) => self.signal = Some(*signal),
            _ => {}
        }
        self.outcome = Some(outcome.clone());
    }

    /// Returns whether it runs and is ready.
    pub fn is_ready(&self) -> bool {
        self.state == "running" && self.ready_at.is_some()
    }

    pub fn is_agent(&self) -> bool {
        self.is_kind(&TaskKind::Agent)
    }

    pub fn is_process(&self) -> bool {
        self.is_kind(&TaskKind::Process)
    }

    fn is_kind(&self, kind: &TaskKind) -> bool {
        let own = match self.kind.as_str() {
            "" => self.address.split(':').next().unwrap_or_default(),
            own => own,
        };
        own == kind.to_string()
    }

    /// Returns the name, or the address of a task without a name.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.address)
    }
}

#[derive(Deserialize)]
struct ExitCodeField {
    exit_code: Option<i32>,
}

fn render_state_reason(state: &TaskState) -> Option<String> {
    match state {
        TaskState::Queued(queued) => Some(match &queued.reason {
            QueueReason::RunningLimit(Owner::Session) => {
                "the session's running limit is reached".to_owned()
            }
            QueueReason::RunningLimit(Owner::Task(no)) => {
                format!("the running limit of {no} is reached")
            }
            QueueReason::RuntimeLimit => "the runtime's running limit is reached".to_owned(),
            QueueReason::Backoff { .. } => "it crashed and tries again soon".to_owned(),
            QueueReason::NoPerformer { reason } => reason.to_string(),
        }),
        TaskState::Away(away) => Some(away.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
