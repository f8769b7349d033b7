//! The definitions that a listener publishes.

use std::path::PathBuf;

use brigade_model::refusal::Refusal;
use brigade_runtime::Runtime;
use serde::{Deserialize, Serialize};

/// The definitions to publish as agents, as stored with their listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct A2aOptions {
    /// The names of the definitions. The first one is the agent of the server's own card.
    pub agents: Vec<String>,
    /// The directory in which the definitions are found for their cards.
    pub directory: PathBuf,
}

/// A published definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishedAgent {
    pub(crate) name: String,
    pub(crate) description: String,
}

/// The agents of a listener.
#[derive(Clone, Debug, Default)]
pub(crate) struct PublishedAgents {
    pub(crate) agents: Vec<PublishedAgent>,
    /// The URL of the listener for other machines, with its base path.
    pub(crate) public_url: Option<String>,
    pub(crate) is_https: bool,
}

impl A2aOptions {
    /// Refuses names without a definition.
    pub(crate) fn check(&self, runtime: &Runtime) -> Result<(), Refusal> {
        if self.agents.is_empty() {
            return Err(Refusal::invalid("name the definitions to publish"));
        }
        for name in &self.agents {
            self.find(runtime, name)?;
        }
        Ok(())
    }

    /// Returns the agents that exist. A definition that was removed is only logged.
    pub(crate) fn resolve(&self, runtime: &Runtime) -> Vec<PublishedAgent> {
        let mut agents: Vec<PublishedAgent> = Vec::new();
        for name in &self.agents {
            match self.find(runtime, name) {
                Ok(agent) if agents.contains(&agent) => {}
                Ok(agent) => agents.push(agent),
                Err(refusal) => tracing::warn!(%refusal, "a definition is not published"),
            }
        }
        agents
    }

    fn find(&self, runtime: &Runtime, name: &str) -> Result<PublishedAgent, Refusal> {
        let definitions = runtime.definitions(self.directory.to_str())?;
        match definitions.find(name) {
            Ok(found) => Ok(PublishedAgent {
                name: name.to_owned(),
                description: found.definition.description.clone(),
            }),
            Err(error) => Err(Refusal::not_found(format!("cannot publish {name}: {error}"))),
        }
    }
}

impl PublishedAgents {
    pub(crate) fn find(&self, name: &str) -> Option<&PublishedAgent> {
        self.agents.iter().find(|agent| agent.name == name)
    }
}
