//! What one agent is made of: settled when it is spawned, so that a later edit does not change it.

use std::sync::Arc;

use brigade_agent::AgentOverrides;
use brigade_agent::definition::Definition;
use brigade_file_tools::WorkingDirectory;
use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::sandbox::{ResourceLimits, Sandbox, SandboxRequest};
use serde::{Deserialize, Serialize};

use crate::sandbox;

/// Kept with the task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Blueprint {
    pub(crate) definition: Arc<Definition>,
    pub(crate) permissions: Permissions,
    pub(crate) model: Arc<str>,
    /// Where its commands run, unless they say otherwise.
    #[serde(default)]
    pub(crate) directory: Option<Arc<str>>,
    #[serde(default)]
    pub(crate) config: Option<Json>,
    #[serde(default)]
    pub(crate) result_schema: Option<Json>,
    /// The definitions that it and all below it may use. None is all.
    #[serde(default)]
    pub(super) may_delegate_to: Option<Vec<String>>,
    /// The MCP servers that it and all below it may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) mcp_servers: Vec<Arc<str>>,
    /// A budget of money holds here, so what a model costs must be known.
    #[serde(default)]
    pub(super) has_money_budget: bool,
    #[serde(default)]
    pub(crate) is_child: bool,
    /// Nobody is there to approve anything, here and below.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unattended: bool,
    #[serde(default, skip_serializing_if = "AgentOverrides::is_empty")]
    pub(crate) overrides: AgentOverrides,
    /// What its commands are kept to, and those of all below it.
    #[serde(default, skip_serializing_if = "Sandbox::is_empty")]
    pub(crate) sandbox: Sandbox,
    /// A command of the agent acts with it, and not the agent itself.
    #[serde(skip)]
    pub(super) acts_through_process: bool,
}

/// Whom an agent is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpawnParent<'a> {
    TopLevel,
    Agent(&'a Blueprint),
    /// A command that is kept to something.
    SandboxedProcess(&'a Sandbox),
}

impl<'a> SpawnParent<'a> {
    /// What whoever asks is kept to itself. An agent is not: only its commands are.
    pub(crate) fn own_sandbox(self) -> Option<&'a Sandbox> {
        let enclosure = match self {
            Self::TopLevel => None,
            Self::Agent(parent) => parent.acts_through_process.then_some(&parent.sandbox),
            Self::SandboxedProcess(enclosure) => Some(enclosure),
        };
        enclosure.filter(|enclosure| !enclosure.layers.is_empty())
    }

    /// What everything that it starts is kept to as well.
    pub(crate) fn inherited_sandbox(self) -> Option<&'a Sandbox> {
        match self {
            Self::TopLevel => None,
            Self::Agent(parent) => Some(&parent.sandbox),
            Self::SandboxedProcess(enclosure) => Some(enclosure),
        }
    }
}

/// What whoever starts an agent leaves to it.
#[derive(Debug)]
pub(crate) struct SpawnGrant<'a> {
    pub(crate) rules: PermissionRules,
    pub(crate) limits: &'a Limits,
    pub(crate) sandbox_request: Option<&'a SandboxRequest>,
    pub(crate) resources: ResourceLimits,
}

impl Blueprint {
    /// What is left of it for a command of its: that is kept to no less than the agent is, and where it
    /// is confined it has none of the servers, which are outside.
    pub(crate) fn restrict_to_process(&mut self, command: &Sandbox) {
        self.sandbox.clone_from(command);
        self.acts_through_process = true;
        if !command.layers.is_empty() {
            self.mcp_servers.clear();
        }
    }

    /// The name of what carries it out, where that is not our own loop.
    pub(super) fn backend(&self) -> Option<&str> {
        backend(&self.overrides, &self.definition)
    }

    /// The files that it works on, where it is known which. Those tools work outside of what its
    /// commands are confined to, so they are for directories only that these may write.
    pub(super) fn workspace(&self) -> Option<WorkingDirectory> {
        let directory = self.directory.as_deref().filter(|path| path.starts_with('/'))?;
        let workspace = WorkingDirectory::new(directory, self.permissions.clone());
        if self.sandbox.layers.is_empty() {
            return Some(workspace);
        }
        let found = std::fs::canonicalize(directory).ok()?;
        let may_write = sandbox::may_write(&self.sandbox, found.to_str()?);
        may_write.then(|| workspace.pinned_at(found))
    }
}

/// The name of what carries out an agent, where that is not our own loop.
pub(super) fn backend<'a>(
    overrides: &'a AgentOverrides,
    definition: &'a Definition,
) -> Option<&'a str> {
    overrides.backend.as_deref().or(definition.backend.as_deref())
}
