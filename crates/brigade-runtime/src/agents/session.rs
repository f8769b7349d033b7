//! What a session does with agents beside what it does with every task.

use brigade_agent::definition::Definitions;
use brigade_agent::reading::as_text;
use brigade_model::address::TaskRef;
use brigade_model::call::Entry;
use brigade_model::refusal::Refusal;
use brigade_model::work::Work;

use crate::error::refusal;
use crate::runtime::Runtime;
use crate::session::Session;

impl Runtime {
    /// The definitions that an agent in this directory can be made from.
    pub fn definitions(&self, directory: Option<&str>) -> Result<Definitions, Refusal> {
        let agents = self.inner.handlers.agents.as_ref();
        let agents = agents.ok_or_else(|| Refusal::unavailable("this runtime has no agents"))?;
        Ok(agents.usable_definitions(directory))
    }
}

impl Session {
    /// What an agent has said and done so far, as text. `None` for work that is no agent.
    pub async fn transcript(&self, task: TaskRef) -> Result<Option<String>, Refusal> {
        let (no, row) = self.get(task).await?;
        let Work::Agent(agent) = &row.spec.work else { return Ok(None) };
        let journal: Result<Vec<Entry>, _> = self.runtime.inner.store.journal(self.tree, no).await;
        Ok(Some(as_text(&agent.task, agent.mark, journal.map_err(|error| refusal(&error))?)))
    }
}
