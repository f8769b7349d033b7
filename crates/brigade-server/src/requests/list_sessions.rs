//! `list_sessions`: lists the stored sessions.

use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{ListSessionsRequest, SessionInfo};

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ListSessionsRequest {
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
        let placements = context.session_placements(&sessions).await?;
        for session in sessions {
            let row = session.row();
            let tasks = session.list();
            let alive_tasks = tasks.iter().filter(|task| task.row.is_alive()).count();
            infos.push(SessionInfo {
                name: row.name.to_string(),
                id: row.id.to_string(),
                state: format!("{:?}", row.state).to_lowercase(),
                opened_at: row.opened_at.0,
                alive_tasks,
                uncollected_tasks: tasks.len() - alive_tasks,
                node: placements.node_of(row.id),
                required_labels: placements.labels_of(row.id),
            });
        }
        Ok(infos)
    }
}
