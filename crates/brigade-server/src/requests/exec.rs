//! `exec`: starts a process.

use std::time::Duration;

use brigade_model::limits::{Limits, Money};
use brigade_model::refusal::Refusal;
use brigade_model::sandbox::{ResourceLimits, SandboxRequest, TerminalSize};
use brigade_model::work::EnvValue;
use brigade_runtime::NewTask;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{CallerIdentity, RequestContext};
use crate::task_info::TaskInfo;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExecRequest {
    pub session: String,
    pub command: ExecCommandLine,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub key: Option<String>,
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub env: Vec<(String, EnvValue)>,
    /// Messages to the process are lines of its input.
    #[serde(default)]
    pub reads_messages: bool,
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    #[serde(default)]
    pub grace_ms: Option<u64>,
    #[serde(default)]
    pub output_cap: Option<u64>,
    /// The process passes to the session when its parent ends.
    #[serde(default)]
    pub keep: bool,
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
    /// The time that the process waits with its output for a reader that holds a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_reader_timeout_ms: Option<u64>,
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
#[serde(rename_all = "snake_case")]
pub enum ExecCommandLine {
    Shell(String),
    Program(Vec<String>),
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
    pub fn new(session: impl Into<String>, command: ExecCommandLine) -> Self {
        Self {
            session: session.into(),
            command,
            name: None,
            key: None,
            cwd: None,
            env: Vec::new(),
            reads_messages: false,
            deadline_ms: None,
            grace_ms: None,
            output_cap: None,
            keep: false,
            terminal: None,
            resources: ResourceLimits::default(),
            sandbox: None,
            agent_budget: None,
            limits: None,
            first_reader_timeout_ms: None,
        }
    }

    fn new_task(&self) -> NewTask {
        let mut task = match &self.command {
            ExecCommandLine::Shell(text) => NewTask::shell(text),
            ExecCommandLine::Program(words) => NewTask::program(words),
        };
        if let Some(name) = &self.name {
            task = task.name(name);
        }
        if let Some(key) = &self.key {
            task = task.key(key);
        }
        if let Some(cwd) = &self.cwd {
            task = task.cwd(cwd);
        }
        for (name, value) in &self.env {
            task = task.env(name, value.clone());
        }
        if self.reads_messages {
            task = task.reads_messages();
        }
        if self.limits.is_some() || self.agent_budget.is_some() {
            let limits = self.limits.as_deref().copied().unwrap_or_default();
            let budget = self.agent_budget.unwrap_or_default();
            let budget = Limits { tokens: budget.tokens, money: budget.money, ..Limits::default() };
            task = task.limits(limits.intersect(&budget));
        }
        if let Some(ms) = self.deadline_ms {
            task = task.deadline(Duration::from_millis(ms));
        }
        if let Some(ms) = self.grace_ms {
            task = task.grace(Duration::from_millis(ms));
        }
        if let Some(bytes) = self.output_cap {
            task = task.output_cap(bytes);
        }
        if let Some(ms) = self.first_reader_timeout_ms {
            task = task.first_reader_timeout(Duration::from_millis(ms));
        }
        if self.keep {
            task = task.keep();
        }
        if let Some(size) = self.terminal {
            task = task.terminal(size);
        }
        if let Some(sandbox) = &self.sandbox {
            let agents = self.agent_budget.is_some();
            task = task.sandbox(SandboxRequest { agents, ..sandbox.clone() });
        }
        task.resources(self.resources)
    }
}

impl ExecRequest {
    /// Refuses variables of the daemon that it withholds from tasks: a task may not pass them on.
    fn reject_withheld_env(&self, context: &RequestContext) -> Result<(), Refusal> {
        if !matches!(context.caller, CallerIdentity::Task { .. }) {
            return Ok(());
        }
        let secret = self.env.iter().find_map(|(name, value)| match value {
            EnvValue::FromEnv(variable) if context.runtime().withholds(variable) => Some(name),
            _ => None,
        });
        match secret {
            Some(name) => Err(Refusal::forbidden(format!(
                "{name} refers to a provider's key, which only the operator passes on"
            ))),
            None => Ok(()),
        }
    }
}

impl Call for ExecRequest {
    type Reply = StartReply;
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<StartReply, Refusal> {
        self.reject_withheld_env(context)?;
        let session = context.open_session(&self.session).await?;
        let task = session.spawn(self.new_task()).await?;
        let row = task.get().await?;
        let name = session.row().name;
        Ok(StartReply { task: TaskInfo::of(&name, task.no(), &row), existed: task.existed() })
    }
}
