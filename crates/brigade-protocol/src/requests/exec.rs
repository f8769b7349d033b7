//! `exec`: starts a process.

use brigade_model::limits::{Limits, Money};
use brigade_model::sandbox::{ResourceLimits, SandboxRequest, TerminalSize};
use brigade_model::spec::RequestedNotifier;
use brigade_model::work::ProcessWork;
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_info::TaskInfo;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExecRequest {
    pub session: String,
    /// The process as requested. The server chooses its shell and resolves its sandbox.
    #[serde(flatten)]
    pub process: ProcessWork,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub key: Option<String>,
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    #[serde(default)]
    pub grace_ms: Option<u64>,
    /// The process passes to the session when its parent ends.
    #[serde(default)]
    pub keep: bool,
    /// The process works in a git worktree of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    /// The configured notifiers to call for the task. Only for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<RequestedNotifier>,
    /// A terminal instead of pipes.
    #[serde(default)]
    pub terminal: Option<TerminalSize>,
    /// The resource limits of each OS process of the task.
    #[serde(default)]
    pub resources: ResourceLimits,
    #[serde(default)]
    pub sandbox: Option<SandboxRequest>,
    /// The budget of all agents that the process and its descendants start. A sandboxed process
    /// starts no agents without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_budget: Option<AgentBudget>,
    /// Limits for the process and its descendants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Box<Limits>>,
}

/// A budget of tokens, of money, or of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentBudget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<Money>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartReply {
    pub task: TaskInfo,
    /// An earlier request with the same key started the task.
    pub existed: bool,
}

impl StartReply {
    /// Clears `existed` for a caller that gave no key. The client made one to repeat the request,
    /// so an existing task is the one that this call started.
    pub fn forget_existed_without_key(&mut self, key: Option<&str>) {
        self.existed &= key.is_some();
    }
}

impl ExecRequest {
    pub fn new(session: impl Into<String>, process: ProcessWork) -> Self {
        Self {
            session: session.into(),
            process,
            name: None,
            key: None,
            deadline_ms: None,
            grace_ms: None,
            keep: false,
            worktree: false,
            notify: None,
            terminal: None,
            resources: ResourceLimits::default(),
            sandbox: None,
            agent_budget: None,
            limits: None,
        }
    }
}

impl Call for ExecRequest {
    type Reply = StartReply;
    type Item = NoItems;
}
