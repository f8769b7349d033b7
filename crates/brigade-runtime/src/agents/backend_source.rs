//! Backends that a program finds by name, such as those for agent programs of other vendors.

use std::fmt::Debug;
use std::sync::Arc;

use brigade_agent::Backend;
use brigade_agent::backend::OwnLoop;
use brigade_agent::definition::Definition;
use brigade_model::refusal::Refusal;

use super::services::AgentServices;

/// A source of backends beside those that are registered by name.
pub trait BackendSource: Debug + Send + Sync + 'static {
    /// Returns the backend. If it is refused as unavailable, an agent waits for a runtime that has
    /// it.
    fn find(&self, choice: BackendChoice<'_>) -> Result<Arc<dyn Backend>, Refusal>;

    /// Refuses a backend that lacks something, such as its program, before an agent starts with it.
    fn check_ready(&self, _choice: BackendChoice<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    /// Returns definitions that exist without a file. A file with the same name replaces one.
    fn definitions(&self) -> Vec<Definition> {
        Vec::new()
    }

    /// Returns the reason why [`Self::definitions`] lacks a definition that the user meant to have,
    /// such as the fault of a file.
    fn definition_problem(&self, _name: &str) -> Option<String> {
        None
    }
}

/// The backend that an agent names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendChoice<'a> {
    pub name: &'a str,
    /// The command line that the backend starts, if the definition has one.
    pub command: &'a [String],
}

impl AgentServices {
    /// Returns the backend, or the agent loop without one.
    pub(super) fn backend(
        &self,
        choice: Option<BackendChoice<'_>>,
    ) -> Result<Arc<dyn Backend>, Refusal> {
        let Some(choice) = choice else { return Ok(Arc::new(OwnLoop)) };
        if let Some(registered) = self.options.backends.get(choice.name) {
            return Ok(registered.clone());
        }
        match &self.options.backend_source {
            Some(source) => source.find(choice),
            None => {
                let name = choice.name;
                Err(Refusal::unavailable(format!("no backend is registered as {name:?}")))
            }
        }
    }

    /// Returns the backend of a new agent. Existing work waits for its backend; new work is refused
    /// at once.
    pub(super) fn backend_for_new_agent(
        &self,
        choice: Option<BackendChoice<'_>>,
    ) -> Result<Arc<dyn Backend>, Refusal> {
        let backend = self.backend(choice).map_err(|refusal| Refusal::invalid(refusal.message))?;
        let is_registered =
            |choice: &BackendChoice<'_>| self.options.backends.contains_key(choice.name);
        if let (Some(source), Some(choice)) = (&self.options.backend_source, choice)
            && !is_registered(&choice)
        {
            source.check_ready(choice)?;
        }
        Ok(backend)
    }
}
