//! A task with all details.

use std::sync::Arc;

use brigade_agent::permission::PermissionGrant;
use brigade_model::ids::{RunNo, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::outcome::Outcome;
use brigade_model::process_report::SandboxPart;
use brigade_model::sandbox::{NetworkPolicy, Sandbox, SandboxLayer, TcpPolicy};
use brigade_model::task::TaskRow;
use brigade_model::work::{AgentWork, Work};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::new_task::TerminalBody;
use super::task::TaskSession;
use super::{
    ApiTime, InheritedLimitsBody, LimitsBody, OutcomeBody, PermissionsBody, RemainingBody,
    ResourcesBody, SandboxBody, TaskBody,
};
use crate::task_info::{RetryInfo, TaskInfo};
use crate::worktree_info::WorktreeInfo;

/// A task with all details.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = TaskDetail)]
pub struct TaskDetailBody {
    #[serde(flatten)]
    pub task: TaskBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeBody>,
    /// The result of a task that succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub result: Option<Json>,
    /// The partial result of a task that did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    pub partial: Option<Json>,
    /// The limits of the task and its descendants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<LimitsBody>,
    pub remaining: RemainingBody,
    /// Limits of other holders that apply too, from the nearest to the session.
    pub inherited_limits: Vec<InheritedLimitsBody>,
    /// The sandbox of a process, or of an agent's processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxStateBody>,
    /// The parts of a process's sandbox that are in force. Open: `landlock`, `seccomp`, `mount`,
    /// `network`, `control_group`, `memory_limit`.
    pub sandbox_parts: Vec<String>,
    /// The permissions of an agent. A call must be allowed by the rules of each source.
    pub permissions: Vec<PermissionSourceBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The git worktree of the task, in which it works instead of `cwd`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worktree: Option<WorktreeBody>,
    /// The model of an agent, as provider/model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The name of the agent's definition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// Nobody approves calls of the agent.
    pub unattended: bool,
    /// Failed calls that the task makes again after a pause, the next one first.
    pub retries: Vec<RetryBody>,
    /// Reminders since its last activity.
    pub nudges: u8,
    /// The time that the process has waited for readers of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_ms: Option<u64>,
    /// The latest earlier runs that are stored, the oldest first.
    pub earlier_runs: Vec<RunBody>,
    /// The place in the feed at which this was read, or an earlier one.
    pub cursor: String,
}

/// The sandbox of processes: every layer must allow an access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SandboxState)]
pub struct SandboxStateBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalBody>,
    pub resources: ResourcesBody,
    pub layers: Vec<SandboxBody>,
}

/// The git worktree of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Worktree)]
pub struct WorktreeBody {
    pub path: String,
    pub branch: String,
    /// The id of the commit with which the branch began.
    pub base: String,
    /// True if folder and branch hold work and were kept, false if they were removed. Absent until
    /// the task has ended and that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<bool>,
}

impl WorktreeBody {
    fn of(info: WorktreeInfo) -> Self {
        let WorktreeInfo { path, branch, base, kept } = info;
        Self { path, branch, base, kept }
    }
}

/// The permission rules of one source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = PermissionSource)]
pub struct PermissionSourceBody {
    /// The source, such as a definition or a parent.
    pub by: String,
    pub rules: PermissionsBody,
}

/// A failed call that is made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Retry)]
pub struct RetryBody {
    pub call: String,
    /// The attempt that failed, from 1.
    pub attempt: u32,
    pub error: String,
    pub retry_at: ApiTime,
}

/// An ended run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Run)]
pub struct RunBody {
    pub run: u32,
    pub outcome: OutcomeBody,
    pub ended_at: ApiTime,
    /// Its result has been taken: by the parent, or by a wait that collects.
    pub collected: bool,
}

/// A task and its descendants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Subtree)]
pub struct SubtreeBody {
    /// The task first, parents before their children.
    pub items: Vec<TaskBody>,
    /// There are more descendants than one answer holds.
    pub truncated: bool,
    /// The place in the feed at which this was read, or an earlier one.
    pub cursor: String,
}

/// The facts about a task that its row and its info do not have.
#[derive(Clone, Debug, Default)]
pub struct DetailFacts {
    pub inherited_limits: Vec<InheritedLimitsBody>,
    pub earlier_runs: Vec<RunBody>,
    pub cursor: String,
    pub now: Time,
}

/// The parts of an agent's blueprint that a client sees.
#[derive(Deserialize)]
struct BlueprintFacts {
    #[serde(default)]
    permissions: Vec<PermissionGrant>,
    #[serde(default)]
    sandbox: Sandbox,
    #[serde(default)]
    directory: Option<Arc<str>>,
}

impl TaskDetailBody {
    pub fn of(
        session: &TaskSession,
        no: TaskNo,
        row: &TaskRow,
        info: TaskInfo,
        facts: DetailFacts,
    ) -> Self {
        let DetailFacts { inherited_limits, earlier_runs, cursor, now } = facts;
        let outcome = info.outcome.as_ref();
        let is_success = matches!(outcome, Some(Outcome::Succeeded { .. }));
        let mut body = Self {
            outcome: outcome.map(OutcomeBody::of),
            result: info.result.clone().filter(|_| is_success),
            partial: info.result.clone().filter(|_| !is_success),
            limits: info.limits.as_deref().map(LimitsBody::of),
            remaining: RemainingBody::of_task(row, now),
            inherited_limits,
            sandbox: info.sandbox.as_deref().map(SandboxStateBody::of),
            sandbox_parts: info.sandbox_parts.iter().map(|part| part_name(*part)).collect(),
            permissions: Vec::new(),
            cwd: None,
            worktree: info.worktree.clone().map(WorktreeBody::of),
            model: row.spec.work.resolved_model().map(str::to_owned),
            definition: None,
            unattended: false,
            retries: info.retries.iter().map(RetryBody::of).collect(),
            nudges: info.nudge_count,
            held_ms: info.held_ms,
            earlier_runs,
            cursor,
            task: TaskBody::from_info(session, no, row, info),
        };
        match &row.spec.work {
            Work::Process(process) => body.cwd = process.cwd.as_deref().map(str::to_owned),
            Work::Agent(agent) => body.add_agent(agent),
            Work::Job(_) | Work::Custom(_) => {}
        }
        body
    }

    fn add_agent(&mut self, agent: &AgentWork) {
        self.cwd = agent.cwd.as_deref().map(str::to_owned);
        self.definition = agent.definition.as_deref().map(str::to_owned);
        self.unattended = agent.unattended;
        let Ok(blueprint) = agent.blueprint.decode::<BlueprintFacts>() else { return };
        let BlueprintFacts { permissions, sandbox, directory } = blueprint;
        self.cwd = self.cwd.take().or(directory.as_deref().map(str::to_owned));
        self.sandbox = (!sandbox.is_empty()).then(|| SandboxStateBody::of(&sandbox));
        let sources = permissions.iter().map(|grant| PermissionSourceBody {
            by: grant.by.to_string(),
            rules: PermissionsBody::of(&grant.rules),
        });
        self.permissions = sources.collect();
    }
}

impl SandboxStateBody {
    fn of(sandbox: &Sandbox) -> Self {
        let size = sandbox.terminal;
        Self {
            terminal: size.map(|size| TerminalBody { columns: size.columns, rows: size.rows }),
            resources: sandbox.resources.into(),
            layers: sandbox.layers.iter().map(layer_body).collect(),
        }
    }
}

fn layer_body(layer: &SandboxLayer) -> SandboxBody {
    let text = |path: &Arc<str>| path.to_string();
    SandboxBody {
        read: layer.read.iter().map(text).collect(),
        write: layer.write.iter().chain(&layer.write_plain).map(text).collect(),
        deny_tcp: layer.tcp == TcpPolicy::Denied,
        deny_network: layer.network == NetworkPolicy::Denied,
    }
}

fn part_name(part: SandboxPart) -> String {
    let name = match part {
        SandboxPart::Landlock => "landlock",
        SandboxPart::Seccomp => "seccomp",
        SandboxPart::Mount => "mount",
        SandboxPart::Network => "network",
        SandboxPart::ControlGroup => "control_group",
        SandboxPart::MemoryLimit => "memory_limit",
    };
    name.to_owned()
}

impl RetryBody {
    fn of(retry: &RetryInfo) -> Self {
        Self {
            call: retry.call.clone(),
            attempt: retry.attempt,
            error: retry.error.clone(),
            retry_at: Time(retry.retry_at).into(),
        }
    }
}

impl RunBody {
    pub fn of(run: RunNo, outcome: &Outcome, ended_at: Time, collected: bool) -> Self {
        let outcome = OutcomeBody::of(outcome);
        Self { run: run.0, outcome, ended_at: ended_at.into(), collected }
    }
}
