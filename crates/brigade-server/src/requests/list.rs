//! The tasks of a session, or of all.

use brigade_model::ids::TaskNo;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_runtime::Session;
use brigade_store::TaskQuery;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;
use crate::info::TaskInfo;

/// The most that one answer has, so that it fits a line.
const LISTED_MAX: usize = 10_000;

/// Tasks without their results.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct List {
    /// All that are open, when there is none; for the operator who asks for what has ended, those
    /// that are closed too.
    #[serde(default)]
    pub session: Option<String>,
    /// Ended and collected ones too.
    #[serde(default)]
    pub ended: bool,
    /// Only the newest so many.
    #[serde(default)]
    pub most: Option<usize>,
}

impl Ask for List {
    type Done = Vec<TaskInfo>;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Vec<TaskInfo>, Refusal> {
        let mut found: Vec<TaskInfo> = Vec::new();
        let mut sessions = desk.sessions(self.session.as_deref()).await?;
        if self.ended && self.session.is_none() {
            sessions.extend(desk.closed_sessions().await?);
        }
        for session in sessions {
            let name = session.row().name;
            if self.ended {
                let rows = session.history(&self.newest(&session)).await?;
                found.extend(rows.iter().map(|(no, row)| listed(desk, &name, *no, row)));
            } else {
                let rows = session.list();
                found.extend(rows.iter().map(|(no, row)| listed(desk, &name, *no, row)));
            }
        }
        let found = self.cut(found);
        if found.len() > LISTED_MAX {
            return Err(Refusal::limit(format!(
                "there are more than {LISTED_MAX} tasks; ask for the newest so many"
            )));
        }
        Ok(found)
    }
}

fn listed(desk: &Desk, session: &SessionName, no: TaskNo, row: &TaskRow) -> TaskInfo {
    let conversation = desk.conversation_of(row);
    TaskInfo { conversation, ..TaskInfo::in_a_list(session, no, row) }
}

impl List {
    /// Of several sessions the newest are not those of the last one.
    fn cut(&self, mut found: Vec<TaskInfo>) -> Vec<TaskInfo> {
        let surplus = found.len().saturating_sub(self.most.unwrap_or(usize::MAX));
        if surplus > 0 {
            found.sort_by_key(|task| task.spawned);
        }
        found.split_off(surplus)
    }

    /// Numbers are given out in order, so the newest have the highest.
    fn newest(&self, session: &Session) -> TaskQuery {
        let last = session.row().last_task.map_or(0, |no| no.get());
        let most = self.most.and_then(|most| u32::try_from(most).ok());
        let after = most.and_then(|most| TaskNo::new(last.checked_sub(most)?));
        TaskQuery { after, most: LISTED_MAX + 1, ..TaskQuery::default() }
    }
}
