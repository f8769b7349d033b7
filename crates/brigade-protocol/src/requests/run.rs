//! `run`: starts an agent.

use brigade_agent::AgentOverrides;
use brigade_agent::permission::{PermissionRule, PermissionRules};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::sandbox::{ResourceLimits, SandboxRequest};
use brigade_model::spec::RequestedNotifier;
use serde::{Deserialize, Serialize};

use super::StartReply;
use crate::call::{Call, NoItems};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRequest {
    pub session: String,
    pub prompt: String,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub key: Option<String>,
    /// The name of the definition; `None` is a general one.
    #[serde(default)]
    pub agent: Option<String>,
    /// The model, in place of the definition's.
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub config: Option<Json>,
    #[serde(default)]
    pub result_schema: Option<Json>,
    /// The working directory, in which its definitions are found too.
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub limits: Box<Limits>,
    /// The upper bound of its permissions.
    #[serde(default)]
    pub permissions: PermissionRules,
    /// MCP servers whose tools it has beside those of its definition. `permissions` apply to them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mcp_servers: Vec<String>,
    /// The agent passes to the session when its parent ends.
    #[serde(default)]
    pub keep: bool,
    /// The agent works in a git worktree of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    /// The configured notifiers to call for the task. Only for the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notify: Option<RequestedNotifier>,
    /// No person is present who could approve calls.
    #[serde(default)]
    pub unattended: bool,
    /// The sandbox of its processes and of those of its descendants.
    #[serde(default)]
    pub sandbox: Option<SandboxRequest>,
    /// The resource limits of each of these processes.
    #[serde(default)]
    pub resources: ResourceLimits,
    /// Parameters of the model in place of the definition's, and client tools. `permissions` apply
    /// to the tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrides: Option<Box<AgentOverrides>>,
}

impl RunRequest {
    pub fn new(session: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self {
            session: session.into(),
            prompt: prompt.into(),
            name: None,
            key: None,
            agent: None,
            model: None,
            config: None,
            result_schema: None,
            cwd: None,
            limits: Box::default(),
            permissions: PermissionRules::all(),
            mcp_servers: Vec::new(),
            keep: false,
            worktree: false,
            notify: None,
            unattended: false,
            sandbox: None,
            resources: ResourceLimits::default(),
            overrides: None,
        }
    }

    /// Returns the default permissions with additional rules. An agent may delegate, wait, ask, and
    /// read and search files, but not write files or run processes.
    pub fn default_permissions(more: impl IntoIterator<Item = PermissionRule>) -> PermissionRules {
        let tools =
            brigade_delegation::TOOL_NAMES.into_iter().filter(|name| *name != "run_process");
        let tools =
            tools.chain(brigade_file_tools::READING_TOOLS).filter_map(|name| name.parse().ok());
        PermissionRules { allow: Some(tools.chain(more).collect()), ..PermissionRules::default() }
    }
}

impl Call for RunRequest {
    type Reply = StartReply;
    type Item = NoItems;
}
