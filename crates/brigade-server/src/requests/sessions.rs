//! The sessions that are kept.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sessions {
    /// Closed ones too; for the operator.
    #[serde(default)]
    pub closed: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionInfo {
    pub name: String,
    pub id: String,
    pub state: String,
    /// Milliseconds since the epoch.
    pub opened: u64,
    pub living: usize,
    /// Ended, and nobody has taken the result.
    pub unclaimed: usize,
}

impl Ask for Sessions {
    type Done = Vec<SessionInfo>;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Vec<SessionInfo>, Refusal> {
        let mut infos = Vec::new();
        let mut sessions = desk.sessions(None).await?;
        if self.closed {
            desk.operator_only("see closed sessions")?;
            sessions.extend(desk.closed_sessions().await?);
        }
        for session in sessions {
            let row = session.row();
            let tasks = session.list();
            let living = tasks.iter().filter(|(_, row)| row.is_living()).count();
            infos.push(SessionInfo {
                name: row.name.to_string(),
                id: row.id.to_string(),
                state: format!("{:?}", row.state).to_lowercase(),
                opened: row.opened.0,
                living,
                unclaimed: tasks.len() - living,
            });
        }
        Ok(infos)
    }
}
