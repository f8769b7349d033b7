//! The parent of a new task, whose sandbox and permissions the task inherits.

use brigade_model::sandbox::Sandbox;

#[cfg(feature = "agents")]
use crate::agents::Blueprint;

/// The parent of a new task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpawnParent<'a> {
    TopLevel,
    #[cfg(feature = "agents")]
    Agent(&'a Blueprint),
    /// A process in a sandbox.
    #[cfg_attr(
        not(feature = "processes"),
        expect(dead_code, reason = "only processes inherit a sandbox")
    )]
    SandboxedProcess(&'a Sandbox),
}

#[cfg(feature = "processes")]
impl<'a> SpawnParent<'a> {
    /// Returns the sandbox of the parent itself. An agent has none: only its processes have.
    #[cfg(feature = "agents")]
    pub(crate) fn own_sandbox(self) -> Option<&'a Sandbox> {
        let sandbox = match self {
            Self::TopLevel => None,
            Self::Agent(parent) => parent.acts_through_process.then_some(&parent.sandbox),
            Self::SandboxedProcess(sandbox) => Some(sandbox),
        };
        sandbox.filter(|sandbox| !sandbox.layers.is_empty())
    }

    /// Returns the sandbox that everything started by the parent inherits.
    pub(crate) fn inherited_sandbox(self) -> Option<&'a Sandbox> {
        match self {
            Self::TopLevel => None,
            #[cfg(feature = "agents")]
            Self::Agent(parent) => Some(&parent.sandbox),
            Self::SandboxedProcess(sandbox) => Some(sandbox),
        }
    }
}
