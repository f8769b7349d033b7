//! What one agent is made of: settled when it is spawned, so that a later edit does not change it.

use std::sync::Arc;

use brigade_agent::Overrides;
use brigade_agent::definition::Definition;
use brigade_agent::permission::{Permissions, Rules};
use brigade_agent::tools::Workspace;
use brigade_model::enclosure::{Confine, Enclosure, Resources};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use serde::{Deserialize, Serialize};

use crate::enclosing;

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
    pub(super) counts_money: bool,
    #[serde(default)]
    pub(crate) is_child: bool,
    /// Nobody is there to approve anything, here and below.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) unattended: bool,
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub(crate) overrides: Overrides,
    /// What its commands are kept to, and those of all below it.
    #[serde(default, skip_serializing_if = "Enclosure::is_empty")]
    pub(crate) enclosure: Enclosure,
    /// A command of the agent acts with it, and not the agent itself.
    #[serde(skip)]
    pub(super) is_through_command: bool,
}

/// Whom an agent is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Parent<'a> {
    Nobody,
    Agent(&'a Blueprint),
    /// A command that is kept to something.
    Enclosed(&'a Enclosure),
}

impl<'a> Parent<'a> {
    /// What whoever asks is kept to itself. An agent is not: only its commands are.
    pub(crate) fn confinement(self) -> Option<&'a Enclosure> {
        let enclosure = match self {
            Self::Nobody => None,
            Self::Agent(parent) => parent.is_through_command.then_some(&parent.enclosure),
            Self::Enclosed(enclosure) => Some(enclosure),
        };
        enclosure.filter(|enclosure| !enclosure.confinement.is_empty())
    }

    /// What everything that it starts is kept to as well.
    pub(crate) fn enclosure(self) -> Option<&'a Enclosure> {
        match self {
            Self::Nobody => None,
            Self::Agent(parent) => Some(&parent.enclosure),
            Self::Enclosed(enclosure) => Some(enclosure),
        }
    }
}

/// What whoever starts an agent leaves to it.
#[derive(Debug)]
pub(crate) struct Grant<'a> {
    pub(crate) rules: Rules,
    pub(crate) limits: &'a Limits,
    pub(crate) confine: Option<&'a Confine>,
    pub(crate) resources: Resources,
}

impl Blueprint {
    /// What is left of it for a command of its: that is kept to no less than the agent is, and where it
    /// is confined it has none of the servers, which are outside.
    pub(crate) fn act_through(&mut self, command: &Enclosure) {
        self.enclosure.clone_from(command);
        self.is_through_command = true;
        if !command.confinement.is_empty() {
            self.mcp_servers.clear();
        }
    }

    /// The name of what carries it out, where that is not our own loop.
    pub(super) fn backend(&self) -> Option<&str> {
        backend(&self.overrides, &self.definition)
    }

    /// The files that it works on, where it is known which. Those tools work outside of what its
    /// commands are confined to, so they are for directories only that these may write.
    pub(super) fn workspace(&self) -> Option<Workspace> {
        let directory = self.directory.as_deref().filter(|path| path.starts_with('/'))?;
        let workspace = Workspace::new(directory, self.permissions.clone());
        if self.enclosure.confinement.is_empty() {
            return Some(workspace);
        }
        let found = std::fs::canonicalize(directory).ok()?;
        let may_write = enclosing::may_write(&self.enclosure, found.to_str()?);
        may_write.then(|| workspace.found_at(found))
    }
}

/// The name of what carries out an agent, where that is not our own loop.
pub(super) fn backend<'a>(overrides: &'a Overrides, definition: &'a Definition) -> Option<&'a str> {
    overrides.backend.as_deref().or(definition.backend.as_deref())
}
