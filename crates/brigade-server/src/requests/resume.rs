//! Opens the next run of a task that has ended.

use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};
use crate::info::TaskInfo;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Resume {
    pub target: Target,
    /// Instead of what it had, as far as they say anything.
    #[serde(default)]
    pub limits: Option<Limits>,
}

impl Ask for Resume {
    type Done = TaskInfo;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<TaskInfo, Refusal> {
        let found = desk.find(&self.target).await?;
        found.session.resume(found.no, self.limits).await?;
        let (no, row) = found.session.get(found.no).await?;
        Ok(TaskInfo::of(&found.session.row().name, no, &row))
    }
}
