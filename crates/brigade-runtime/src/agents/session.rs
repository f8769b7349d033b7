//! What a session does with agents beside what it does with every task.

use std::path::Path;

use brigade_agent::definition::{
    DefinitionOrigin, DefinitionSet, DefinitionText, LoadedDefinition,
};
use brigade_agent::transcript_text::render_transcript;
use brigade_model::address::TaskRef;
use brigade_model::call::JournalEntry;
use brigade_model::refusal::Refusal;
use brigade_model::work::Work;

use super::trust;
use crate::error::store_refusal;
use crate::runtime::Runtime;
use crate::sandbox;
use crate::session::Session;

impl Runtime {
    /// The definitions that an agent in this directory can be made from.
    pub fn definitions(&self, directory: Option<&str>) -> Result<DefinitionSet, Refusal> {
        let agents = self.inner.handlers.agents.as_ref();
        let agents = agents.ok_or_else(|| Refusal::unavailable("this runtime has no agents"))?;
        Ok(agents.usable_definitions(directory, None))
    }

    /// The definitions that come with a directory, whole: what trust in them is trust in.
    pub fn workspace_definitions(
        &self,
        directory: Option<&str>,
    ) -> Result<Vec<DefinitionText>, Refusal> {
        let agents = self.inner.handlers.agents.as_ref();
        let agents = agents.ok_or_else(|| Refusal::unavailable("this runtime has no agents"))?;
        let folders = (agents.options.definition_folders)(directory.map(Path::new));
        let theirs = folders.iter().filter(|it| it.origin == DefinitionOrigin::Workspace);
        Ok(theirs.flat_map(DefinitionSet::read_texts).collect())
    }

    /// Whether agents of this definition may have all that they are granted in this directory.
    pub fn trusts_definition(&self, found: &LoadedDefinition, directory: Option<&str>) -> bool {
        let agents = self.inner.handlers.agents.as_ref();
        agents.is_some_and(|agents| {
            trust::trust_level(&agents.options, found, directory) == trust::TrustLevel::Trusted
        })
    }
}

impl Session {
    /// The definitions that whoever acts here can make an agent in this directory from: no others than it
    /// could read itself, where it is confined.
    pub fn definitions(&self, directory: &str) -> Result<DefinitionSet, Refusal> {
        let agents = self.runtime.inner.handlers.agents.as_ref();
        let agents = agents.ok_or_else(|| Refusal::unavailable("this runtime has no agents"))?;
        let own = self.acting_task()?;
        let confined = own.as_ref().and_then(|row| row.spec.work.sandbox());
        let confined = confined.filter(|enclosure| !enclosure.layers.is_empty());
        if let Some(confined) = confined {
            sandbox::check_directory(confined, Path::new(directory))?;
        }
        Ok(agents.usable_definitions(Some(directory), confined))
    }

    /// What an agent has said and done so far, as text. `None` for work that is no agent.
    pub async fn transcript(&self, task: TaskRef) -> Result<Option<String>, Refusal> {
        let (no, row) = self.get(task).await?;
        let Work::Agent(agent) = &row.spec.work else { return Ok(None) };
        let journal: Result<Vec<JournalEntry>, _> =
            self.runtime.inner.store.journal(self.id, no).await;
        Ok(Some(render_transcript(
            &agent.task,
            agent.quote_mark,
            journal.map_err(|error| store_refusal(&error))?,
        )))
    }
}
