//! The tasks that the agent started.

use brigade_agent::{Call, Effect, Outcome, ToolError};
use brigade_delegation::list_tasks::PAGE;
use brigade_delegation::{Audience, ListReply, ListTasks};
use brigade_store::TaskQuery;

use super::summary::summary;
use super::{Delegate, Delegation};

impl Delegation for ListTasks {
    const EFFECT: Effect = Effect::Pure;

    async fn run(self, delegate: &Delegate, _call: &Call) -> Result<Outcome, ToolError> {
        let session = delegate.link.session().await?;
        let query = TaskQuery::default();
        let mut tasks = delegate.link.insist(|| session.history(&query)).await?;
        tasks.retain(|(_, row)| {
            self.state.is_none_or(|filter| filter.fits(row.state.word(), row.is_living()))
        });
        let total = tasks.len();
        if let Some(before) = self.before()? {
            tasks.retain(|(no, _)| no.get() < before);
        }
        let older = tasks.len().saturating_sub(PAGE);
        let now = delegate.agents.now();
        let tasks = tasks.split_off(older);
        let tasks = tasks.iter().map(|(no, row)| summary(*no, row, now)).collect();
        let (audience, filter) = (Audience::Agent, self.state);
        let reply = ListReply { audience, tasks, total, older, filter, notes: Vec::new() };
        Ok(Outcome::text(reply.render().text()))
    }
}
