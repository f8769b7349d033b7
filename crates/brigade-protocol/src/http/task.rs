//! A task.

use brigade_model::call::{Condition, ParkedCall, WaitMode};
use brigade_model::ids::{Owner, SessionId, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::limits::Usage;
use brigade_model::name::SessionName;
use brigade_model::outcome::{Failure, Outcome, StopInitiator};
use brigade_model::task::TaskRow;
use serde::Serialize;
use utoipa::ToSchema;

use super::limits::render_money;
use super::new_task::ReadinessBody;
use super::{ApiTime, TaskId};
use crate::task_info::{ApprovalInfo, AwayInfo, QuestionInfo, TaskInfo};

/// A task, as a list has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Task)]
pub struct TaskBody {
    pub id: TaskId,
    /// The id of its session.
    pub session: String,
    pub session_name: String,
    pub number: u32,
    /// The address within its session, such as `agent:3`.
    pub address: String,
    /// Open: `process`, `agent`, `job`, or the name of a custom kind.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The command line, the job, or the agent's prompt; in a list its first 200 characters.
    pub description: String,
    /// Open: `queued`, `running`, `waiting`, `away`, `stopping`, `closing`, `succeeded`, `failed`,
    /// `cancelled`.
    pub state: String,
    pub alive: bool,
    /// The host of the process has no node in the fleet. The process may still run there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub away: Option<AwayBody>,
    /// When this state began; absent if an earlier version of the server did not store it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_since: Option<ApiTime>,
    /// A message can reach it now: it reads messages, and it has not ended or a message opens its
    /// next run.
    pub takes_messages: bool,
    /// The reason why it is queued, away or tries again, or the way it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// The client that started a top-level task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    pub run: u32,
    pub attempt: u32,
    /// Recoveries since its last recorded progress.
    pub crashes: u16,
    pub spawned_at: ApiTime,
    /// When the first attempt of this run started; absent before it, and if an earlier version of
    /// the server did not store it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<ApiTime>,
    pub last_activity_at: ApiTime,
    /// The condition under which it counts as ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness: Option<ReadinessBody>,
    /// When this run became ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<ApiTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<ApiTime>,
    /// It has been silent for longer than its stall limit.
    pub stalled: bool,
    /// The last progress note.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub progress: Option<Json>,
    /// The conditions that it waits for.
    pub waits: Vec<WaitBody>,
    pub questions: Vec<QuestionBody>,
    pub approvals: Vec<ApprovalBody>,
    /// The usage of the task and its descendants.
    pub usage: UsageBody,
    pub own_usage: UsageBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Its result has been taken: by its parent, or by a wait that collects. A wait of an operator's
    /// token does so only with `collect=true`.
    pub collected: bool,
}

/// The absence of the host of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Away)]
pub struct AwayBody {
    /// The last node on that host, or its machine.
    pub node: String,
    /// When that node was last seen.
    pub since: ApiTime,
    /// When the process ends as lost, unless its host returns.
    pub until: ApiTime,
}

impl From<AwayInfo> for AwayBody {
    fn from(away: AwayInfo) -> Self {
        Self { node: away.node, since: Time(away.since).into(), until: Time(away.until).into() }
    }
}

/// A condition that a task waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Wait)]
pub struct WaitBody {
    /// Open: `tasks`, `readiness`, `message`, `inbox`, `timer`, `retry`, `question`, `approval`,
    /// `client_tool`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The number of the call that waits.
    pub call: u32,
    /// The tasks that are waited for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskId>,
    /// `any` or `all` of the tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The end of the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<ApiTime>,
    /// The name of the messages that are waited for, or the call that is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// An open question, or a tool call that the client executes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Question)]
pub struct QuestionBody {
    /// The number that an answer names.
    pub call: u32,
    pub text: String,
    /// The tool call, if this is not a question. The answer is its result.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub client_call: Option<Json>,
}

/// A tool call that needs an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Approval)]
pub struct ApprovalBody {
    /// The number that a verdict names.
    pub call: u32,
    pub tool: String,
    /// The call in one line, with long texts truncated. Not sufficient for a decision.
    pub text: String,
    /// All arguments as JSON text; absent in a list if they are long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The digest of the whole call, which a verdict names. Absent without all arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The working directory of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The rule that requires the approval.
    pub rule: String,
    pub rule_source: String,
    pub requested_at: ApiTime,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize, ToSchema)]
#[schema(as = Usage)]
pub struct UsageBody {
    pub tokens: u64,
    /// Dollars as decimal text.
    pub money: String,
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Outcome)]
pub struct OutcomeBody {
    /// Open: `succeeded`, `failed`, `cancelled`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Open: the kind of a failure, such as `exit_code` or `timeout`, or who cancelled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    pub text: String,
    /// The reason of the stop that cancelled it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A page of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TaskList)]
pub struct TaskListBody {
    pub items: Vec<TaskBody>,
    /// The parameter `page` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_page: Option<String>,
    /// The place in the feed at which the page was read, or an earlier one.
    pub cursor: String,
}

/// The session of a task, as its body names it.
#[derive(Clone, Debug)]
pub struct TaskSession {
    pub id: SessionId,
    pub name: SessionName,
    /// It is not closed, and is not being closed.
    pub is_open: bool,
}

impl TaskBody {
    /// Returns the list form of a task.
    pub fn of(session: &TaskSession, no: TaskNo, row: &TaskRow) -> Self {
        Self::from_info(session, no, row, TaskInfo::for_list(&session.name, no, row))
    }

    /// Returns the task with its whole description and calls.
    pub fn whole(session: &TaskSession, no: TaskNo, row: &TaskRow) -> Self {
        Self::from_info(session, no, row, TaskInfo::of(&session.name, no, row))
    }

    /// Returns the task with the facts of an info, which may be those of an earlier run.
    pub fn from_info(session: &TaskSession, no: TaskNo, row: &TaskRow, info: TaskInfo) -> Self {
        let task = |no| TaskId { session: session.id, no };
        let waits = row.parked_calls.iter().filter(|_| info.alive);
        let is_latest_run = info.run == row.run.0;
        let state_since = match is_latest_run {
            true => row.state_since(),
            false => info.ended_at.map(Time),
        };
        Self {
            id: task(no),
            session: session.id.to_string(),
            session_name: info.session,
            number: no.get(),
            address: info.address,
            kind: info.kind,
            name: info.name,
            description: info.description,
            state: info.state,
            alive: info.alive,
            away: info.away.map(AwayBody::from),
            state_since: state_since.map(ApiTime),
            takes_messages: is_latest_run && session.is_open && row.takes_messages(),
            reason: info.detail,
            parent: match row.owner {
                Owner::Session => None,
                Owner::Task(parent) => Some(task(parent)),
            },
            client: row.client.as_ref().map(|client| client.name.to_string()),
            run: info.run,
            attempt: info.attempt,
            crashes: row.crashes,
            spawned_at: row.spawned_at.into(),
            started_at: row.started_at().filter(|_| is_latest_run).map(ApiTime),
            last_activity_at: row.last_activity_at.into(),
            readiness: info.readiness_check.as_ref().map(ReadinessBody::of),
            ready_at: info.ready_at.map(|at| Time(at).into()),
            ended_at: info.ended_at.map(|at| Time(at).into()),
            stalled: info.stalled,
            progress: info.progress,
            waits: waits.map(|call| WaitBody::of(session.id, call)).collect(),
            questions: info.questions.into_iter().map(QuestionBody::from).collect(),
            approvals: info.approvals.into_iter().map(ApprovalBody::from).collect(),
            usage: info.usage.into(),
            own_usage: info.own_usage.into(),
            exit_code: info.exit_code,
            signal: info.signal,
            collected: info.collected,
        }
    }
}

impl WaitBody {
    pub(super) fn of(session: SessionId, call: &ParkedCall) -> Self {
        let mut wait = Self {
            kind: String::new(),
            call: call.index.0,
            tasks: Vec::new(),
            mode: None,
            until: None,
            name: None,
        };
        let kind = match &call.condition {
            Condition::Tasks(condition) => {
                wait.tasks = condition.tasks.iter().map(|no| TaskId { session, no: *no }).collect();
                wait.mode = Some(match condition.mode {
                    WaitMode::Any => "any".to_owned(),
                    WaitMode::All => "all".to_owned(),
                });
                wait.until = condition.until.map(ApiTime);
                if condition.until_ready { "readiness" } else { "tasks" }
            }
            Condition::Message { until, name } => {
                wait.until = until.map(ApiTime);
                wait.name = name.as_deref().map(str::to_owned);
                "message"
            }
            Condition::Messages => "message",
            Condition::Inbox => "inbox",
            Condition::Timer { until } => {
                wait.until = Some(ApiTime(*until));
                "timer"
            }
            Condition::Retry(pause) => {
                wait.until = Some(ApiTime(pause.until));
                wait.name = Some(pause.label.to_string());
                "retry"
            }
            Condition::Question { .. } => "question",
            Condition::Approval { .. } => "approval",
            Condition::ClientTool { .. } => "client_tool",
            _ => "other",
        };
        Self { kind: kind.to_owned(), ..wait }
    }
}

impl From<QuestionInfo> for QuestionBody {
    fn from(question: QuestionInfo) -> Self {
        let QuestionInfo { call, text, client_call } = question;
        Self { call, text, client_call }
    }
}

impl From<ApprovalInfo> for ApprovalBody {
    fn from(approval: ApprovalInfo) -> Self {
        Self {
            call: approval.call,
            tool: approval.tool,
            text: approval.text,
            arguments: Some(approval.arguments).filter(|_| approval.digest.is_some()),
            digest: approval.digest.map(|digest| digest.to_string()),
            directory: approval.directory,
            rule: approval.rule,
            rule_source: approval.rule_source,
            requested_at: Time(approval.requested_at).into(),
        }
    }
}

impl From<Usage> for UsageBody {
    fn from(usage: Usage) -> Self {
        Self { tokens: usage.tokens, money: render_money(usage.money) }
    }
}

impl OutcomeBody {
    pub fn of(outcome: &Outcome) -> Self {
        let code = match outcome {
            Outcome::Succeeded { .. } => None,
            Outcome::Failed(failed) => Some(failure_code(&failed.failure)),
            Outcome::Cancelled(cancelled) => Some(initiator_code(&cancelled.order.by)),
        };
        Self {
            kind: outcome.label().to_owned(),
            code: code.map(str::to_owned),
            text: outcome.to_string(),
            reason: match outcome {
                Outcome::Cancelled(cancelled) => {
                    cancelled.order.reason.as_deref().map(str::to_owned)
                }
                Outcome::Succeeded { .. } | Outcome::Failed(_) => None,
            },
        }
    }
}

pub(super) fn initiator_code(by: &StopInitiator) -> &'static str {
    match by {
        StopInitiator::Operator => "operator",
        StopInitiator::Client => "client",
        StopInitiator::Owner => "owner",
        StopInitiator::Itself => "itself",
        StopInitiator::ParentEnded => "parent_ended",
        StopInitiator::SessionClosed => "session_closed",
    }
}

pub(super) fn failure_code(failure: &Failure) -> &'static str {
    match failure {
        Failure::Error(_) => "error",
        Failure::Panic(_) => "panic",
        Failure::Timeout { .. } => "timeout",
        Failure::Stalled { .. } => "stalled",
        Failure::Budget { .. } => "budget",
        Failure::MaxSteps { .. } => "max_steps",
        Failure::Loop { .. } => "loop",
        Failure::Errors { .. } => "errors",
        Failure::ExitCode(_) => "exit_code",
        Failure::Signal(_) => "signal",
        Failure::CrashLoop { .. } => "crash_loop",
        Failure::Lost { .. } => "lost",
        _ => "failure",
    }
}
