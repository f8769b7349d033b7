//! Blueprints: agents as resolved for one spawn, so that later edits of a definition do not change
//! them.

use std::sync::Arc;

use brigade_agent::AgentOverrides;
use brigade_agent::definition::Definition;
use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_file_tools::WorkingDirectory;
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::sandbox::{ResourceLimits, Sandbox, SandboxRequest};
use serde::{Deserialize, Serialize};

use super::backend_source::BackendChoice;
use super::model_choice::BlueprintModel;
use crate::sandbox;

/// An agent as resolved for one spawn. Stored with the task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Blueprint {
    pub(crate) definition: Arc<Definition>,
    pub(crate) permissions: Permissions,
    pub(crate) model: BlueprintModel,
    /// The default working directory of its processes.
    #[serde(default)]
    pub(crate) directory: Option<Arc<str>>,
    #[serde(default)]
    pub(crate) config: Option<Json>,
    #[serde(default)]
    pub(crate) result_schema: Option<Json>,
    /// The definitions that it and its descendants may use. `None` means all.
    #[serde(default)]
    pub(super) may_delegate_to: Option<Vec<String>>,
    /// The MCP servers that it and its descendants may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) mcp_servers: Vec<Arc<str>>,
    /// True if a money budget applies, so that the price of a model must be known.
    #[serde(default)]
    pub(super) has_money_budget: bool,
    #[serde(default)]
    pub(crate) is_child: bool,
    /// True if nobody approves calls of the agent and its descendants.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unattended: bool,
    #[serde(default, skip_serializing_if = "AgentOverrides::is_empty")]
    pub(crate) overrides: AgentOverrides,
    /// The sandbox of its processes and those of its descendants.
    #[serde(default, skip_serializing_if = "Sandbox::is_empty")]
    pub(crate) sandbox: Sandbox,
    /// True if the agent's programs get no variables of the runtime's environment, such as keys.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) withholds_variables: bool,
    /// True if a process of the agent acts with this blueprint, and not the agent itself.
    #[serde(skip)]
    pub(crate) acts_through_process: bool,
}

/// The permissions, limits and sandbox that a spawn gives to a new agent.
#[derive(Debug)]
pub(crate) struct SpawnGrant<'a> {
    pub(crate) rules: PermissionRules,
    pub(crate) limits: &'a Limits,
    pub(crate) sandbox_request: Option<&'a SandboxRequest>,
    pub(crate) resources: ResourceLimits,
    pub(crate) withholds_variables: bool,
}

impl Blueprint {
    /// Restricts the blueprint for a process of its agent, which has at least the agent's sandbox.
    /// A sandboxed process gets no MCP servers, since these run outside of the sandbox.
    pub(crate) fn restrict_to_process(&mut self, process: &Sandbox) {
        self.sandbox.clone_from(process);
        self.acts_through_process = true;
        if !process.layers.is_empty() {
            self.mcp_servers.clear();
        }
    }

    /// Returns the backend, if it is not the agent loop.
    pub(super) fn backend(&self) -> Option<BackendChoice<'_>> {
        backend_choice(&self.overrides, &self.definition)
    }

    /// Returns the directory of the file tools, if it is known. These tools run outside of the
    /// sandbox, so they get only a directory that the sandbox allows to write.
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

/// Returns the backend of an agent, if it is not the agent loop. An override has no command line.
pub(super) fn backend_choice<'a>(
    overrides: &'a AgentOverrides,
    definition: &'a Definition,
) -> Option<BackendChoice<'a>> {
    if let Some(name) = &overrides.backend {
        return Some(BackendChoice { name, command: &[] });
    }
    let name = definition.backend.as_deref()?;
    Some(BackendChoice { name, command: &definition.backend_command })
}
