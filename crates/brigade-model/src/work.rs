//! The kinds of work, and the policy of each.
//!
//! [`Work`] is the only place in the model that knows kinds. `decide` reads the data in the
//! [`KindPolicy`] of a kind instead.

mod process_work;
mod readiness_check;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Millis;
use crate::json::{Json, present};
use crate::limits::Limits;
use crate::program_access::ProgramAccess;
use crate::quote_mark::QuoteMark;
use crate::refusal::Refusal;
use crate::sandbox::Sandbox;
use crate::stall::StallPolicy;
use crate::truncate::truncate_chars;

pub use process_work::{CommandLine, EnvValue, ProcessWork, RESERVED_ENV_PREFIX, StdinSource};
pub use readiness_check::ReadinessCheck;

/// The work of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Process(ProcessWork),
    Agent(AgentWork),
    Job(JobWork),
    Custom(CustomWork),
}

/// Work for the agent loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentWork {
    /// The instructions, committed with the task.
    pub task: Arc<str>,
    /// The name of the requested definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Arc<str>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub config: Option<Json>,
    /// The schema of the result, instead of the definition's.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub result_schema: Option<Json>,
    /// The model, instead of the definition's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// The default working directory of its processes, as an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Arc<str>>,
    /// Other overrides of the definition, in the performer's format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Json>,
    /// The names of MCP servers whose tools it has in addition to those of its definition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<Arc<str>>,
    /// True if it may end while children are alive. It then does not receive their results.
    #[serde(default)]
    pub may_end_before_children: bool,
    /// True if the run is unattended: approvals that it and its descendants request are denied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// The blueprint that was resolved for this request: the definition's content and the
    /// permissions. A later edit of the definition changes neither running work nor the comparison
    /// of two requests.
    pub blueprint: Json,
    /// The random word around text that is quoted to the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote_mark: Option<QuoteMark>,
    /// True if the definition requires a git worktree.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    /// The definition's limits, which apply in addition to the requested ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<Limits>>,
    /// The model that was resolved for it, as provider/model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_model: Option<Arc<str>>,
    /// The agent's model, if its price is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpriced_model: Option<Arc<str>>,
    /// True if its backend starts work outside of the runtime, which only the backend can end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub works_remotely: bool,
    /// The access of its program, if that asks before no call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_access: Option<ProgramAccess>,
}

impl PartialEq for AgentWork {
    /// Compares two requests. The resolved values (blueprint, quote mark, definition limits, worktree,
    /// model, remote work, access of its program) are ignored. So is `unattended`: the same key from a
    /// terminal and from a script is the same agent, which stays as it was first requested.
    fn eq(&self, other: &Self) -> bool {
        self.compare_fields(other).iter().all(|(_, same)| *same)
    }
}

impl Eq for AgentWork {}

impl AgentWork {
    fn compare_fields(&self, other: &Self) -> Vec<(String, bool)> {
        let fields = [
            ("prompt", self.task == other.task),
            ("definition", self.definition == other.definition),
            ("config", self.config == other.config),
            ("result schema", self.result_schema == other.result_schema),
            ("model", self.model == other.model),
            ("working directory", self.cwd == other.cwd),
            ("overrides", self.overrides == other.overrides),
            ("MCP servers", self.mcp_servers == other.mcp_servers),
            (
                "treatment of children",
                self.may_end_before_children == other.may_end_before_children,
            ),
        ];
        fields.into_iter().map(|(name, same)| (name.to_owned(), same)).collect()
    }

    /// The maximum length of the instructions in bytes.
    pub const TASK_MAX: usize = 256 * 1024;

    pub fn new(task: impl Into<Arc<str>>) -> Self {
        Self {
            task: task.into(),
            definition: None,
            config: None,
            result_schema: None,
            model: None,
            cwd: None,
            overrides: None,
            mcp_servers: Vec::new(),
            may_end_before_children: false,
            unattended: false,
            blueprint: Json::null(),
            quote_mark: None,
            worktree: false,
            limits: None,
            resolved_model: None,
            unpriced_model: None,
            works_remotely: false,
            program_access: None,
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.task.trim().is_empty() {
            return Err(Refusal::invalid("the task is blank; write instructions for the agent"));
        }
        if self.task.len() > Self::TASK_MAX {
            let max = Self::TASK_MAX;
            return Err(Refusal::invalid(format!("the task is longer than {max} bytes")));
        }
        Ok(())
    }
}

/// Work for an async function of the program that embeds Brigade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobWork {
    /// A handler registered under a name, which can be entered again after a crash.
    Named { handler: Arc<str>, args: Json, recovery: RecoveryPolicy },
    /// A closure, which is lost with its process.
    Closure { label: Arc<str> },
}

/// Work of a kind whose performer the embedding program registers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CustomWork {
    /// The name of the kind, which is also the prefix of its addresses: lower-case letters, digits
    /// and `-`.
    pub kind: Arc<str>,
    pub payload: Json,
    /// The rules of the kind. Without them, the spawn stores those with which the performer is
    /// registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<KindPolicy>,
}

impl PartialEq for CustomWork {
    /// Compares two requests. The policy is ignored: a task keeps the policy of its first request,
    /// also if the performer is registered with another one later.
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.payload == other.payload
    }
}

impl Eq for CustomWork {}

impl CustomWork {
    fn check(&self) -> Result<(), Refusal> {
        match self.policy {
            Some(_) => Ok(()),
            None => Err(Refusal::invalid(format!(
                "no performer for {} is registered, and the request has no policy",
                self.kind
            ))),
        }
    }
}

impl Work {
    pub fn kind(&self) -> TaskKind {
        match self {
            Self::Process(_) => TaskKind::Process,
            Self::Agent(_) => TaskKind::Agent,
            Self::Job(_) => TaskKind::Job,
            Self::Custom(custom) => TaskKind::Custom(custom.kind.clone()),
        }
    }

    /// Returns a description of the work in the caller's words.
    pub fn description(&self) -> String {
        match self {
            Self::Process(process) => match &process.command {
                CommandLine::Shell(text) => text.to_string(),
                CommandLine::Program(words) => words.join(" "),
            },
            Self::Agent(agent) => agent.task.to_string(),
            Self::Job(JobWork::Named { handler, .. }) => handler.to_string(),
            Self::Job(JobWork::Closure { label }) => label.to_string(),
            Self::Custom(custom) => custom.kind.to_string(),
        }
    }

    /// Refuses work that could never be performed.
    pub fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::Process(process) => process.check(),
            Self::Agent(agent) => agent.check(),
            Self::Custom(custom) => custom.check(),
            Self::Job(_) => Ok(()),
        }
    }

    /// Returns the sandbox of the work, which also applies to everything started inside it.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        match self {
            Self::Process(process) => process.sandbox.as_deref(),
            Self::Agent(_) | Self::Job(_) | Self::Custom(_) => None,
        }
    }

    /// Returns whether the work itself requires a git worktree, without a request for one.
    pub fn has_worktree(&self) -> bool {
        match self {
            Self::Agent(agent) => agent.worktree,
            Self::Process(_) | Self::Job(_) | Self::Custom(_) => false,
        }
    }

    /// Returns the working directory of the work, if it has one.
    pub fn cwd(&self) -> Option<&str> {
        match self {
            Self::Process(process) => process.cwd.as_deref(),
            Self::Agent(agent) => agent.cwd.as_deref(),
            Self::Job(_) | Self::Custom(_) => None,
        }
    }

    /// Returns the condition under which the work counts as ready, if it was started with one.
    pub fn readiness_check(&self) -> Option<&ReadinessCheck> {
        match self {
            Self::Process(process) => process.ready.as_ref(),
            Self::Agent(_) | Self::Job(_) | Self::Custom(_) => None,
        }
    }

    /// Returns the limits that come with the work, in addition to the requested ones.
    pub fn limits(&self) -> Option<&Limits> {
        match self {
            Self::Agent(agent) => agent.limits.as_deref(),
            Self::Process(_) | Self::Job(_) | Self::Custom(_) => None,
        }
    }

    /// Returns the stall policy that applies if none was requested. Agents show activity often;
    /// other work may be silent.
    pub fn default_stall_policy(&self) -> Option<StallPolicy> {
        match self {
            Self::Agent(_) => Some(StallPolicy::AGENT_DEFAULT),
            _ => None,
        }
    }

    /// Returns the default effect of a holder's deadline on a kept task. A server may outlive the
    /// deadline, but other work may not.
    pub fn kept_deadline(&self) -> KeptDeadline {
        match self {
            Self::Process(_) => KeptDeadline::Dropped,
            Self::Agent(_) | Self::Job(_) | Self::Custom(_) => KeptDeadline::Inherited,
        }
    }

    /// Returns the model that spends its tokens, if known.
    pub fn resolved_model(&self) -> Option<&str> {
        match self {
            Self::Agent(agent) => agent.resolved_model.as_deref(),
            Self::Process(_) | Self::Job(_) | Self::Custom(_) => None,
        }
    }

    /// Returns its model if the price is not known. It cannot run under a money budget then.
    pub fn unpriced_model(&self) -> Option<&str> {
        match self {
            Self::Agent(agent) => agent.unpriced_model.as_deref(),
            _ => None,
        }
    }

    /// Returns the names of the fields that differ, without their values.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let fields: Vec<(String, bool)> = match (self, other) {
            (Self::Process(one), Self::Process(other)) => one.compare_fields(other),
            (Self::Agent(one), Self::Agent(other)) => one.compare_fields(other),
            (one, other) if one.kind() != other.kind() => vec![("kind".to_owned(), false)],
            (one, other) => vec![("task".to_owned(), one == other)],
        };
        fields.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }

    /// Returns the reason why no message can reach it, with the option that allows messages. `None`
    /// if messages arrive.
    pub fn missing_input_reason(&self) -> Option<&'static str> {
        match self {
            Self::Process(process) if !process.reads_messages() => Some(
                "was started without an input; start it with one: `brigade exec --stdin`, or `stdin: true` in \
                 run_process",
            ),
            _ => None,
        }
    }

    pub fn policy(&self) -> KindPolicy {
        let base = KindPolicy::lost_with_runtime();
        match self {
            Self::Process(_) => {
                KindPolicy { recovery: RecoveryPolicy::Adopt, inbox_mode: InboxMode::Push, ..base }
            }
            Self::Agent(agent) => KindPolicy {
                recovery: RecoveryPolicy::Resume { max_attempts: 5, backoff: Millis(500) },
                parent_close: match agent.may_end_before_children {
                    true => ParentClosePolicy::AwaitChildren,
                    false => ParentClosePolicy::CollectChildren,
                },
                follow_up: FollowUp::NewRun,
                wake_on: WakeOn::AllCompletions,
                ..base
            },
            Self::Job(JobWork::Named { recovery, .. }) => {
                KindPolicy { recovery: *recovery, ..base }
            }
            Self::Job(JobWork::Closure { .. }) => base,
            Self::Custom(custom) => custom.policy.unwrap_or(base),
        }
    }
}

/// The kind of a task, which is the prefix of its address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    Process,
    Agent,
    Job,
    Custom(Arc<str>),
}

impl TaskKind {
    pub const CUSTOM_MAX: usize = 32;

    /// Parses an address prefix. A custom kind must be spelled as it may be registered.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        Ok(match text {
            "process" => Self::Process,
            "agent" => Self::Agent,
            "job" => Self::Job,
            other => Self::Custom(parse_custom_kind(other)?),
        })
    }
}

/// Checks the name of a custom kind.
pub fn parse_custom_kind(text: &str) -> Result<Arc<str>, Refusal> {
    let is_valid = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.len() <= TaskKind::CUSTOM_MAX
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if is_valid {
        Ok(text.into())
    } else {
        Err(Refusal::invalid(format!(
            "the kind {:?} is not 1 to {} lower-case letters, digits and '-', a letter first",
            truncate_chars(text, TaskKind::CUSTOM_MAX),
            TaskKind::CUSTOM_MAX
        )))
    }
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::Agent => "agent",
            Self::Job => "job",
            Self::Custom(kind) => kind,
        })
    }
}

/// The rules of one kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindPolicy {
    pub recovery: RecoveryPolicy,
    pub parent_close: ParentClosePolicy,
    pub follow_up: FollowUp,
    pub inbox_mode: InboxMode,
    pub wake_on: WakeOn,
}

/// Presets. They differ in what becomes of work whose runtime is gone. In all of them, a successful end
/// stops the children, an ended task takes no messages, and work reads its own inbox. Change single
/// fields with `KindPolicy { inbox_mode: InboxMode::Push, ..KindPolicy::adopted() }`.
impl KindPolicy {
    /// The number of attempts without progress before a restarted task fails as a crash loop.
    pub const RESTARTS_MAX: u16 = 5;

    /// Returns the policy of work that ends with the runtime's process and cannot be repeated.
    ///
    /// After a crash or a shutdown the task has failed as lost, with the evidence.
    pub const fn lost_with_runtime() -> Self {
        Self {
            recovery: RecoveryPolicy::Lost,
            parent_close: ParentClosePolicy::StopChildren,
            follow_up: FollowUp::Refused,
            inbox_mode: InboxMode::Pull,
            wake_on: WakeOn::AnyCompletion,
        }
    }

    /// Returns the policy of work that ends with the runtime's process and can be done again.
    ///
    /// The next runtime calls `start` again, with the next attempt and the state that the last one
    /// saved. So `start` must be able to repeat what an earlier attempt may have done. After
    /// [`KindPolicy::RESTARTS_MAX`] crashes without a recorded step the task fails as a crash loop.
    pub const fn restarted() -> Self {
        let recovery = RecoveryPolicy::resume_max_crashes(Self::RESTARTS_MAX);
        Self { recovery, ..Self::lost_with_runtime() }
    }

    /// Returns the policy of work that runs outside the runtime's process and may outlive it.
    ///
    /// The task stays running. The next runtime asks the performer by `reconcile` before it answers
    /// any request, and the performer continues under the same attempt. A runtime without that
    /// performer ends the task as lost.
    pub const fn adopted() -> Self {
        Self { recovery: RecoveryPolicy::Adopt, ..Self::lost_with_runtime() }
    }
}

/// The effect of a holder's deadline on a kept task after the task has passed to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptDeadline {
    /// The deadline ends the task too.
    Inherited,
    /// The deadline does not apply to the task.
    Dropped,
}

/// The rule for a running task whose runtime process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryPolicy {
    /// Starts the next attempt, at most `max_attempts` times without progress, each with a longer
    /// backoff than the one before.
    Resume { max_attempts: u16, backoff: Millis },
    /// The work may have outlived the runtime, so the performer looks for it.
    Adopt,
    /// The work ended with the process.
    Lost,
}

impl RecoveryPolicy {
    /// Resumes at most three times without progress, with the default backoff.
    pub const DEFAULT_RESUME: Self = Self::resume_max_crashes(3);

    /// Resumes after a crash of the runtime, until it has crashed more than `max` times without
    /// progress in between. The pauses grow from the default backoff.
    pub const fn resume_max_crashes(max: u16) -> Self {
        Self::Resume { max_attempts: max, backoff: Millis(500) }
    }
}

/// The effect of a successful end on children that are still alive. A failure always stops them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParentClosePolicy {
    StopChildren,
    AwaitChildren,
    /// The work does not end while a child is alive or its inbox holds items. For work with a
    /// pushed inbox, this is the same as `AwaitChildren`.
    CollectChildren,
}

/// The effect of a message to an ended task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowUp {
    Refused,
    NewRun,
}

/// The side that takes a message out of the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxMode {
    /// The work requests it, and the request is recorded with it.
    Pull,
    /// The runtime pushes it to the performer when it arrives.
    Push,
}

/// The completions that wake a waiting task with several parked calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeOn {
    AnyCompletion,
    AllCompletions,
}
