//! The sessions that are kept.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListSessionsRequest {
    /// Closed ones too; for the operator.
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
    /// Ended, and nobody has taken the result.
    pub uncollected_tasks: usize,
}

impl Call for ListSessionsRequest {
    type Reply = Vec<SessionInfo>;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<SessionInfo>, Refusal> {
        let mut infos = Vec::new();
        let mut sessions = desk.sessions(None).await?;
        if self.include_closed {
            desk.require_operator("see closed sessions")?;
            sessions.extend(desk.closed_sessions().await?);
        }
        for session in sessions {
            let row = session.row();
            let tasks = session.list();
            let living = tasks.iter().filter(|(_, row)| row.is_alive()).count();
            infos.push(SessionInfo {
                name: row.name.to_string(),
                id: row.id.to_string(),
                state: format!("{:?}", row.state).to_lowercase(),
                opened_at: row.opened_at.0,
                alive_tasks: living,
                uncollected_tasks: tasks.len() - living,
            });
        }
        Ok(infos)
    }
}
