//! A task as clients see it.

use std::io;

use brigade_agent::ClientToolCall;
use brigade_model::approval::{ApprovalRequest, CallCard, CallDigest};
use brigade_model::call::{Condition, RunResult};
use brigade_model::ids::{CallIndex, Owner, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::limits::{Limits, Usage};
use brigade_model::name::SessionName;
use brigade_model::outcome::{Failure, LateResult, Outcome};
use brigade_model::refusal::Refusal;
use brigade_model::sandbox::Sandbox;
use brigade_model::task::{InheritedDeadline, QueueReason, ResultDelivery, TaskRow, TaskState};
use brigade_model::work::TaskKind;
use brigade_runtime::{SandboxPart, sandbox_parts};
use serde::{Deserialize, Serialize};

/// How much of a command a list has.
const LISTED_TEXT_CHARS: usize = 200;
/// The longest arguments of a call that waits for leave that a list has: more than a screen shows.
const LISTED_CALL_BYTES: usize = 16 * 1024;
/// The longest progress note that a list has.
const LISTED_PROGRESS_BYTES: usize = 2_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskInfo {
    /// `process:4`.
    pub address: String,
    /// `process`, `agent`, `job`; empty in the words of a daemon that does not say.
    #[serde(default)]
    pub kind: String,
    pub session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it does: the command, the job, the agent's task.
    pub description: String,
    /// `queued`, `running`, `waiting`, `stopping`, `closing`, `succeeded`, `failed`, `cancelled`.
    pub state: String,
    /// Why it is queued, or how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    pub alive: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// At top level, the client that started it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The conversation in which that client started it, or asked for its latest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<ConversationInfo>,
    pub run: u32,
    pub attempt: u32,
    /// Milliseconds since the epoch.
    pub spawned_at: u64,
    /// When something last happened to it or it last did something.
    pub last_activity_at: u64,
    /// Nothing has happened for longer than it may be silent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stalled: bool,
    /// How often it was spoken to since it last did something.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nudge_count: u8,
    /// What holds for it and all below it, if anything does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<Limits>>,
    /// When one is shown: whose limits hold for it besides, from the nearest to the session.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inherited_limits: Vec<InheritedLimits>,
    /// The deadline that it has from the task that kept it.
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
    /// The result, or what there is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What it and all below it have spent.
    #[serde(default, skip_serializing_if = "Usage::is_none")]
    pub usage: Usage,
    /// Of that, what it spent itself.
    #[serde(default, skip_serializing_if = "Usage::is_none")]
    pub own_usage: Usage,
    /// Of that, what was set aside for calls of which nobody knows what they cost: it may be less.
    #[serde(default, skip_serializing_if = "Usage::is_none")]
    pub unknown_usage: Usage,
    /// What it asks, or wants its client to do, and waits for the answer to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<QuestionInfo>,
    /// What it asks leave for and waits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalInfo>,
    /// Its result has been taken.
    #[serde(default)]
    pub collected: bool,
    /// In the answer to a wait: it had been taken before.
    #[serde(default)]
    pub collected_before: bool,
    /// What a command was started in, and is kept to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Box<Sandbox>>,
    /// The parts of its sandbox that hold for a command. Unknown until it has run for a moment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox_parts: Vec<SandboxPart>,
    /// When one is shown: how long its output has waited for readers who must not miss any of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
}

/// Limits of a holder above a task, which all under them share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InheritedLimits {
    /// `agent:3`; nothing for the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// The holder has ended, and this is a task that it kept.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holder_ended: bool,
    pub limits: Limits,
    /// Used of them, by all who share them.
    #[serde(default, skip_serializing_if = "Usage::is_none")]
    pub usage: Usage,
}

/// A question that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionInfo {
    /// Which of the task's calls, for an answer to name.
    pub call: u32,
    pub text: String,
    /// What the client is to do, where it is no question: a tool of its own that it runs, and answers
    /// with what came of it.
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
                    Ok(asked) => format!("{} {}", asked.tool, asked.arguments),
                    Err(_) => request.as_str().to_owned(),
                };
                Some(Self { call: call.0, text, client_call: Some(request.clone()) })
            }
            _ => None,
        }
    }

    /// `asks`, or what it waits for: what comes before its text.
    pub fn verb(&self) -> &'static str {
        if self.client_call.is_some() { "waits for its client" } else { "asks" }
    }
}

/// A call that waits for leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalInfo {
    /// Which of the task's calls, for a verdict to name.
    pub call: u32,
    /// What it would do, in a line in which long texts have lost their middle: nothing to decide by.
    pub text: String,
    pub tool: String,
    /// All its arguments as JSON; in a list, empty where they are long.
    pub arguments: String,
    /// The digest of the whole call, for a verdict to name. It is there only beside the whole call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<CallDigest>,
    /// The absolute directory in which it acts, of a tool that acts in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The rule that wants it to be asked about, and whose it is.
    pub rule: String,
    pub rule_source: String,
    /// Milliseconds since the epoch.
    pub requested_at: u64,
}

impl ApprovalInfo {
    pub(crate) fn of(
        (no, call): (TaskNo, CallIndex),
        request: &ApprovalRequest,
        since: Time,
    ) -> Self {
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

    /// All of the call, for whoever decides. None where it is not here whole.
    pub fn card(&self) -> Option<CallCard> {
        let whole = self.digest.is_some();
        whole.then(|| CallCard::of(&self.tool, &self.arguments, self.directory.as_deref()))
    }

    /// The same without a long call, and then without what a verdict has to name.
    fn omit_long_call(&mut self) {
        if self.arguments.len() > LISTED_CALL_BYTES {
            self.arguments.clear();
            self.digest = None;
        }
    }
}

fn is_zero(number: &u8) -> bool {
    *number == 0
}

fn open_approvals(no: TaskNo, row: &TaskRow) -> Vec<ApprovalInfo> {
    let open = row.parked_calls.iter().filter_map(|call| match &call.condition {
        Condition::Approval { request, since } => {
            Some(ApprovalInfo::of((no, call.index), request, *since))
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

/// A conversation of a client, as whoever asks sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationInfo {
    /// Empty for a client without conversations, and for what was stored before they were recorded.
    pub id: String,
    pub state: ConversationState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationState {
    /// The one that asks.
    Own,
    /// Nobody has seen it for a minute: the client's others take over its results and messages.
    Lapsed,
    /// Another one, which has not lapsed.
    #[serde(other)]
    Other,
}

impl TaskInfo {
    pub fn of(session: &SessionName, no: TaskNo, row: &TaskRow) -> Self {
        let mut info = Self {
            address: row.address(no),
            kind: row.spec.work.kind().to_string(),
            session: session.to_string(),
            name: row.name.as_ref().map(ToString::to_string),
            description: row.spec.work.description(),
            state: row.state.label().to_owned(),
            detail: render_queue_reason(&row.state),
            alive: row.is_alive(),
            parent: match row.owner {
                Owner::Session => None,
                Owner::Task(parent) => Some(parent.to_string()),
            },
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
            progress: row.extras.as_ref().and_then(|extra| extra.progress.clone()),
            result: None,
            outcome: None,
            usage: row.usage(),
            own_usage: row.own_usage(),
            unknown_usage: row.unknown_usage(),
            questions: open_questions(row),
            approvals: open_approvals(no, row),
            collected: row.ended().is_some_and(|e| e.delivery == ResultDelivery::Collected),
            collected_before: false,
            sandbox: row.spec.work.sandbox().cloned().map(Box::new),
            sandbox_parts: sandbox_parts(row),
            held_ms: None,
        };
        if let Some(ended) = row.ended() {
            info.set_outcome(&ended.outcome);
        }
        info
    }

    /// The same without what may be long: the result, what it is kept to, and the end of a long command.
    pub fn for_list(session: &SessionName, no: TaskNo, row: &TaskRow) -> Self {
        let mut info = Self::of(session, no, row);
        (info.result, info.outcome) = (None, None);
        (info.sandbox, info.limits, info.inherited_deadline) = (None, None, None);
        info.sandbox_parts = Vec::new();
        info.progress =
            info.progress.filter(|progress| progress.as_str().len() <= LISTED_PROGRESS_BYTES);
        info.approvals.iter_mut().for_each(ApprovalInfo::omit_long_call);
        for text in std::iter::once(&mut info.description).chain(&mut info.detail) {
            if let Some((cut, _)) = text.char_indices().nth(LISTED_TEXT_CHARS) {
                text.truncate(cut);
                text.push('…');
            }
        }
        info
    }

    /// The same task as one of its runs left it.
    pub(crate) fn for_run(mut self, ending: &RunResult) -> Self {
        if ending.run.0 != self.run {
            self.address = format!("{}#{}", self.address, ending.run);
            (self.run, self.ended_at, self.progress) =
                (ending.run.0, Some(ending.ended_at.0), None);
            self.collected = ending.collected_before;
            self.questions.clear();
        }
        self.set_outcome(&ending.outcome);
        self.collected_before = ending.collected_before;
        self
    }

    fn set_outcome(&mut self, outcome: &Outcome) {
        (self.result, self.exit_code, self.signal) = (None, None, None);
        self.state = outcome.label().to_owned();
        self.detail = Some(outcome.to_string());
        self.alive = false;
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

    pub fn is_agent(&self) -> bool {
        self.is_kind(&TaskKind::Agent)
    }

    pub fn is_process(&self) -> bool {
        self.is_kind(&TaskKind::Process)
    }

    fn is_kind(&self, kind: &TaskKind) -> bool {
        let said = match self.kind.as_str() {
            "" => self.address.split(':').next().unwrap_or_default(),
            said => said,
        };
        said == kind.to_string()
    }

    /// What people call it.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.address)
    }
}

#[derive(Deserialize)]
struct ExitCodeField {
    exit_code: Option<i32>,
}

fn render_queue_reason(state: &TaskState) -> Option<String> {
    match state {
        TaskState::Queued(queued) => Some(match &queued.reason {
            QueueReason::RunningLimit(Owner::Session) => {
                "the session's running limit is reached".to_owned()
            }
            QueueReason::RunningLimit(Owner::Task(no)) => {
                format!("the running limit of {no} is reached")
            }
            QueueReason::Backoff { .. } => "it crashed and tries again soon".to_owned(),
            QueueReason::NoPerformer { reason } => reason.to_string(),
        }),
        _ => None,
    }
}

pub(crate) fn output_unreadable(error: &io::Error) -> Refusal {
    Refusal::unavailable(format!("the output cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_what_the_daemon_says_it_is() {
        let told = |address: &str, kind: Option<&str>| -> TaskInfo {
            let mut info = serde_json::json!({
                "address": address, "session": "here", "what": "x", "state": "running",
                "living": true, "run": 1, "attempt": 1, "spawned": 0, "moved": 0,
            });
            if let Some(kind) = kind {
                info["kind"] = kind.into();
            }
            serde_json::from_value(info).expect("it is one")
        };
        assert!(told("3", Some("process")).is_process());
        assert!(!told("process:3", Some("agent")).is_process());
        // A daemon of before says it with the address only.
        assert!(told("process:3", None).is_process() && told("agent:3", None).is_agent());
    }
}
