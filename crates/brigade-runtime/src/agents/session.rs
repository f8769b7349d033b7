//! The methods of runtimes and sessions that are for agents only.

use std::path::Path;
use std::sync::Arc;

use brigade_agent::definition::{
    DefinitionOrigin, DefinitionSet, DefinitionText, LoadedDefinition,
};
use brigade_agent::transcript_page::{TranscriptPage, TranscriptPager, TranscriptPlace};
use brigade_agent::transcript_text::{TranscriptItem, list_transcript, render_transcript};
use brigade_model::address::TaskRef;
use brigade_model::call::JournalEntry;
use brigade_model::ids::TaskNo;
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_model::work::Work;
use brigade_store::JournalQuery;

use super::services::AgentServices;
use super::trust;
use crate::error::store_refusal;
use crate::runtime::Runtime;
use crate::sandbox;
use crate::session::Session;

/// The entries that one read of a journal returns at most.
const JOURNAL_PAGE: usize = 128;

impl Runtime {
    /// Returns the services of agents, or refuses if this runtime has none.
    pub(crate) fn agent_services(&self) -> Result<&Arc<AgentServices>, Refusal> {
        let agents = self.inner.handlers.agents.as_ref();
        agents.ok_or_else(|| Refusal::unavailable("this runtime has no agents"))
    }

    /// Returns the definitions for agents in this directory.
    pub fn definitions(&self, directory: Option<&str>) -> Result<DefinitionSet, Refusal> {
        Ok(self.agent_services()?.usable_definitions(directory, None))
    }

    /// Returns true if a model of this name is a file that the runtime reads or writes, such as a
    /// script.
    pub fn is_model_file(&self, model: &str) -> bool {
        self.agent_services().is_ok_and(|agents| agents.options.models.is_file(model))
    }

    /// Returns the texts of the definitions of a workspace, which the operator can trust.
    pub fn workspace_definitions(
        &self,
        directory: Option<&str>,
    ) -> Result<Vec<DefinitionText>, Refusal> {
        let agents = self.agent_services()?;
        let folders = (agents.options.definition_dirs)(directory.map(Path::new));
        let of_workspace = folders.iter().filter(|it| it.origin == DefinitionOrigin::Workspace);
        Ok(of_workspace.flat_map(DefinitionSet::read_texts).collect())
    }

    /// Returns true if agents of this definition get all their permissions in this directory.
    pub fn trusts_definition(&self, found: &LoadedDefinition, directory: Option<&str>) -> bool {
        let agents = self.inner.handlers.agents.as_ref();
        agents.is_some_and(|agents| {
            trust::trust_level(&agents.options, found, directory) == trust::TrustLevel::Trusted
        })
    }
}

impl Session {
    /// Returns the definitions for agents that this caller can start in this directory. A sandboxed
    /// caller gets only those that it could read itself.
    pub fn definitions(&self, directory: &str) -> Result<DefinitionSet, Refusal> {
        let agents = self.runtime.agent_services()?;
        let own = self.acting_task()?;
        let sandbox = own.as_ref().and_then(|row| row.spec.work.sandbox());
        let sandbox = sandbox.filter(|sandbox| !sandbox.layers.is_empty());
        if let Some(sandbox) = sandbox {
            sandbox::check_directory(sandbox, Path::new(directory))?;
        }
        Ok(agents.usable_definitions(Some(directory), sandbox))
    }

    /// Renders the transcript of an agent so far. Returns `None` for other kinds of work.
    pub async fn transcript(&self, task: TaskRef) -> Result<Option<String>, Refusal> {
        let StoredTask { no, row } = self.get(task).await?;
        let Work::Agent(agent) = &row.spec.work else { return Ok(None) };
        let journal = self.journal(no).await?;
        Ok(Some(render_transcript(&agent.task, agent.quote_mark, journal)))
    }

    /// Returns the items of an agent's transcript so far. Returns `None` for other kinds of work.
    pub async fn transcript_items(
        &self,
        task: TaskRef,
    ) -> Result<Option<Vec<TranscriptItem>>, Refusal> {
        let StoredTask { no, row } = self.get(task).await?;
        let Work::Agent(agent) = &row.spec.work else { return Ok(None) };
        let journal = self.journal(no).await?;
        Ok(Some(list_transcript(&agent.task, agent.quote_mark, journal)))
    }

    /// Returns a page of an agent's transcript, from its beginning or from the place of a page.
    /// Returns `None` for other kinds of work. Reads only the entries of the page.
    pub async fn transcript_page(
        &self,
        task: TaskRef,
        start: Option<TranscriptPlace>,
        limit: usize,
    ) -> Result<Option<TranscriptPage>, Refusal> {
        let StoredTask { no, row } = self.get(task).await?;
        let Work::Agent(agent) = &row.spec.work else { return Ok(None) };
        let mut pager = match start {
            Some(start) => TranscriptPager::resume(start, agent.quote_mark, limit),
            None => TranscriptPager::new(&agent.task, agent.quote_mark, limit),
        };
        loop {
            let query = JournalQuery { after: pager.order(), limit: JOURNAL_PAGE };
            let page = self.runtime.inner.store.journal_page(self.id, no, &query).await;
            let page = page.map_err(|error| store_refusal(&error))?;
            let is_complete = !page.iter().all(|entry| pager.push(entry));
            if is_complete || page.len() < JOURNAL_PAGE {
                return Ok(Some(pager.finish()));
            }
        }
    }

    pub(crate) async fn journal(&self, no: TaskNo) -> Result<Vec<JournalEntry>, Refusal> {
        let journal = self.runtime.inner.store.journal(self.id, no).await;
        journal.map_err(|error| store_refusal(&error))
    }
}
