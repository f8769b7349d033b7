//! One task.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};
use crate::info::TaskInfo;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Show {
    pub target: Target,
}

impl Ask for Show {
    type Done = TaskInfo;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<TaskInfo, Refusal> {
        let found = desk.find(&self.target).await?;
        Ok(TaskInfo::of(&found.session.row().name, found.no, &found.row))
    }
}
