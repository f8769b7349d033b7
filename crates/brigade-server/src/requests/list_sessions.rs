//! `list_sessions`: lists the stored sessions.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListSessionsRequest {
    /// Includes closed sessions. Only for the operator.
    #[serde(default)]
    pub include_closed: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionInfo {
    pub name: String,
    pub id: String,
    pub state: String,
    /// Milliseconds since the epoch.
    pub opened_at: u64,
    pub alive_tasks: usize,
    /// Ended tasks whose results were not collected.
    pub uncollected_tasks: usize,
}

impl Call for ListSessionsRequest {
    type Reply = Vec<SessionInfo>;
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<SessionInfo>, Refusal> {
        let mut infos = Vec::new();
        let mut sessions = context.sessions(None).await?;
        if self.include_closed {
            context.require_operator("see closed sessions")?;
            sessions.extend(context.closed_sessions().await?);
        }
        for session in sessions {
            let row = session.row();
            let tasks = session.list();
            let alive_tasks = tasks.iter().filter(|(_, row)| row.is_alive()).count();
            infos.push(SessionInfo {
                name: row.name.to_string(),
                id: row.id.to_string(),
                state: format!("{:?}", row.state).to_lowercase(),
                opened_at: row.opened_at.0,
                alive_tasks,
                uncollected_tasks: tasks.len() - alive_tasks,
            });
        }
        Ok(infos)
    }
}
