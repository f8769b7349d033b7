//! The kinds of work, and how each wants to be treated.
//!
//! [`Work`] is the only place in the model that knows kinds. What `decide` needs to know of one is
//! said as data in its [`Conduct`].

mod process_work;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Millis;
use crate::json::{Json, present};
use crate::limits::Limits;
use crate::quote_mark::QuoteMark;
use crate::refusal::Refusal;
use crate::sandbox::Sandbox;
use crate::stall::StallPolicy;

pub use process_work::{CommandLine, EnvValue, ProcessWork, RESERVED_ENV_PREFIX, StdinSource};

/// What a task does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Process(ProcessWork),
    Agent(AgentWork),
    External(ExternalWork),
    Job(JobWork),
    Custom(CustomWork),
}

/// Our own agent loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentWork {
    /// The instructions, committed with the task.
    pub task: Arc<str>,
    /// The definition by name, as asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Arc<str>>,
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub config: Option<Json>,
    /// What the result must look like, instead of what the definition says.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub result_schema: Option<Json>,
    /// Instead of the definition's model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Arc<str>>,
    /// Where its commands run unless they say otherwise: an absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Arc<str>>,
    /// What is changed of the definition besides, as the performer understands it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Json>,
    /// MCP servers whose tools it has beside those of its definition, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<Arc<str>>,
    /// Whether it ends although children of its live, whose results it then does not hear of.
    #[serde(default)]
    pub may_end_before_children: bool,
    /// Nobody is there to approve what it asks leave for: that is denied, to it and to all below it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// What was found for this request: the definition's content, and what the agent may do. An edit
    /// of the definition changes neither running work nor whether two requests are the same.
    pub blueprint: Json,
    /// The word that stands around what is quoted to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote_mark: Option<QuoteMark>,
    /// The definition's limits, which hold beside those that were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<Limits>>,
    /// The model that was found for it: provider/model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_model: Option<Arc<str>>,
    /// Its model, where nobody knows what that costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpriced_model: Option<Arc<str>>,
}

impl PartialEq for AgentWork {
    /// Whether two requests are the same. What was found for them (the blueprint, the mark, limits of the definition,
    /// the model) is no part of it. Nor is `unattended`, which says from where it was asked: the same key from a
    /// terminal and from a script is the same agent, which stays as it was first asked for.
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

    /// The longest instructions.
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
            limits: None,
            resolved_model: None,
            unpriced_model: None,
        }
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.task.trim().is_empty() {
            return Err(Refusal::invalid("the task is blank; say what the agent is to do"));
        }
        if self.task.len() > Self::TASK_MAX {
            let most = Self::TASK_MAX;
            return Err(Refusal::invalid(format!("the task is longer than {most} bytes")));
        }
        Ok(())
    }
}

/// An agent program of somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalWork {
    pub program: Arc<str>,
    pub task: Arc<str>,
}

/// An async function of the program that embeds Brigade.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobWork {
    /// Registered under a name; can be entered again after a crash.
    Named { handler: Arc<str>, args: Json, recovery: RecoveryPolicy },
    /// A closure, which ends with its process.
    Closure { label: Arc<str> },
}

/// A kind of work whose performer the program registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomWork {
    /// The kind's name, also the prefix of its addresses: lower-case letters, digits and `-`.
    pub kind: Arc<str>,
    pub payload: Json,
    pub policy: KindPolicy,
}

impl Work {
    pub fn kind(&self) -> TaskKind {
        match self {
            Self::Process(_) => TaskKind::Process,
            Self::Agent(_) => TaskKind::Agent,
            Self::External(_) => TaskKind::External,
            Self::Job(_) => TaskKind::Job,
            Self::Custom(custom) => TaskKind::Custom(custom.kind.clone()),
        }
    }

    /// What it does, in the words of whoever asked for it.
    pub fn description(&self) -> String {
        match self {
            Self::Process(process) => match &process.command {
                CommandLine::Shell(text) => text.to_string(),
                CommandLine::Program(words) => words.join(" "),
            },
            Self::Agent(agent) => agent.task.to_string(),
            Self::External(external) => format!("{}: {}", external.program, external.task),
            Self::Job(JobWork::Named { handler, .. }) => handler.to_string(),
            Self::Job(JobWork::Closure { label }) => label.to_string(),
            Self::Custom(custom) => custom.kind.to_string(),
        }
    }

    /// Refuses what could not be performed whatever happens.
    pub fn check(&self) -> Result<(), Refusal> {
        match self {
            Self::Process(process) => process.check(),
            Self::Agent(agent) => agent.check(),
            Self::External(_) | Self::Job(_) | Self::Custom(_) => Ok(()),
        }
    }

    /// What it is kept to, and with it all that is started from inside of it.
    pub fn sandbox(&self) -> Option<&Sandbox> {
        match self {
            Self::Process(process) => process.sandbox.as_deref(),
            Self::Agent(_) | Self::External(_) | Self::Job(_) | Self::Custom(_) => None,
        }
    }

    /// Limits that come with the work, beside those that were asked for.
    pub fn limits(&self) -> Option<&Limits> {
        match self {
            Self::Agent(agent) => agent.limits.as_deref(),
            Self::Process(_) | Self::External(_) | Self::Job(_) | Self::Custom(_) => None,
        }
    }

    /// What is done about a silence that nobody said anything of. Agents are heard of often; what
    /// others do may be quiet.
    pub fn default_stall_policy(&self) -> Option<StallPolicy> {
        match self {
            Self::Agent(_) => Some(StallPolicy::AGENT_DEFAULT),
            _ => None,
        }
    }

    /// Whether a deadline above holds on when the task is kept, unless its spawner says otherwise. A
    /// server that an agent starts may live on; what goes on by itself may not.
    pub fn kept_deadline(&self) -> KeptDeadline {
        match self {
            Self::Process(_) => KeptDeadline::Dropped,
            Self::Agent(_) | Self::External(_) | Self::Job(_) | Self::Custom(_) => {
                KeptDeadline::Inherited
            }
        }
    }

    /// The model that its tokens are spent on, where that is known.
    pub fn resolved_model(&self) -> Option<&str> {
        match self {
            Self::Agent(agent) => agent.resolved_model.as_deref(),
            Self::Process(_) | Self::External(_) | Self::Job(_) | Self::Custom(_) => None,
        }
    }

    /// What it uses whose price nobody knows: under a budget of money it cannot run.
    pub fn unpriced_model(&self) -> Option<&str> {
        match self {
            Self::Agent(agent) => agent.unpriced_model.as_deref(),
            _ => None,
        }
    }

    /// Names what differs between two pieces of work, without the values.
    pub(crate) fn differences(&self, other: &Self) -> Vec<String> {
        let fields: Vec<(String, bool)> = match (self, other) {
            (Self::Process(one), Self::Process(other)) => one.compare_fields(other),
            (Self::Agent(one), Self::Agent(other)) => one.compare_fields(other),
            (one, other) if one.kind() != other.kind() => vec![("kind".to_owned(), false)],
            (one, other) => vec![("task".to_owned(), one == other)],
        };
        fields.into_iter().filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }

    /// Says why no message can reach it, and how it is started so that one can. None where messages arrive.
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
        let base = KindPolicy {
            recovery: RecoveryPolicy::Lost,
            parent_close: ParentClosePolicy::StopChildren,
            follow_up: FollowUp::Refused,
            inbox_mode: InboxMode::Pull,
            wake_on: WakeOn::AnyCompletion,
        };
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
            Self::External(_) => KindPolicy {
                recovery: RecoveryPolicy::Adopt,
                follow_up: FollowUp::NewRun,
                inbox_mode: InboxMode::Push,
                ..base
            },
            Self::Job(JobWork::Named { recovery, .. }) => {
                KindPolicy { recovery: *recovery, ..base }
            }
            Self::Job(JobWork::Closure { .. }) => base,
            Self::Custom(custom) => custom.policy,
        }
    }
}

/// The prefix of an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskKind {
    Process,
    Agent,
    External,
    Job,
    Custom(Arc<str>),
}

impl TaskKind {
    pub const CUSTOM_MAX: usize = 32;

    /// The kind an address prefix means. A custom kind must be spelled as it may be registered.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        Ok(match text {
            "process" => Self::Process,
            "agent" => Self::Agent,
            "external" => Self::External,
            "job" => Self::Job,
            other => Self::Custom(parse_custom_kind(other)?),
        })
    }
}

/// Checks the name of a custom kind.
pub fn parse_custom_kind(text: &str) -> Result<Arc<str>, Refusal> {
    let fine = text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.len() <= TaskKind::CUSTOM_MAX
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if fine {
        Ok(text.into())
    } else {
        Err(Refusal::invalid(format!(
            "the kind {:?} is not 1 to {} lower-case letters, digits and '-', a letter first",
            crate::name::truncate(text, TaskKind::CUSTOM_MAX),
            TaskKind::CUSTOM_MAX
        )))
    }
}

impl fmt::Display for TaskKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "process",
            Self::Agent => "agent",
            Self::External => "external",
            Self::Job => "job",
            Self::Custom(kind) => kind,
        })
    }
}

/// How the model treats one kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindPolicy {
    pub recovery: RecoveryPolicy,
    pub parent_close: ParentClosePolicy,
    pub follow_up: FollowUp,
    pub inbox_mode: InboxMode,
    pub wake_on: WakeOn,
}

/// The effect of a deadline above a kept task after the task has passed to the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptDeadline {
    /// It ends the task too.
    Inherited,
    /// It ends with those who held it.
    Dropped,
}

/// What becomes of a running task when its runtime process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryPolicy {
    /// Start the next attempt, at most `max` times without progress in between, each a `backoff`
    /// later than the one before.
    Resume { max_attempts: u16, backoff: Millis },
    /// The work may have outlived us: the performer looks.
    Adopt,
    /// It ended with the process.
    Lost,
}

impl RecoveryPolicy {
    /// Goes on at most `max` times without progress in between.
    pub const fn resume(max: u16) -> Self {
        Self::Resume { max_attempts: max, backoff: Millis(500) }
    }
}

/// What a successful end does to children that still live. A failure always stops them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParentClosePolicy {
    StopChildren,
    AwaitChildren,
    /// The work does not end while a child lives, or something came that it has not heard of. For
    /// work that is handed its messages, this is the same as waiting for children.
    CollectChildren,
}

/// What a message to an ended task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowUp {
    Refused,
    NewRun,
}

/// Who moves a message out of the inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxMode {
    /// The work asks for it, and having asked is recorded with it.
    Pull,
    /// It is handed to the performer as it comes.
    Push,
}

/// When a waiting task with several parked calls goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WakeOn {
    AnyCompletion,
    AllCompletions,
}
