//! The agent definitions for a directory.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Agents {
    pub cwd: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KnownAgents {
    pub agents: Vec<AgentInfo>,
    /// Files that could not be read as definitions, and why.
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentInfo {
    pub name: String,
    pub description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// None for one that comes with the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

impl Ask for Agents {
    type Done = KnownAgents;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<KnownAgents, Refusal> {
        let definitions = desk.runtime().definitions(Some(&self.cwd))?;
        let agents = definitions.found.into_values().map(|found| AgentInfo {
            name: found.definition.name.clone(),
            description: found.definition.description.clone(),
            model: found.definition.model.clone(),
            file: found.file.map(|file| file.display().to_string()),
        });
        let problems = definitions.problems.iter().map(ToString::to_string);
        Ok(KnownAgents { agents: agents.collect(), problems: problems.collect() })
    }
}
