//! One task.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::wait::earlier_ending;
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
        let info = TaskInfo::of(&found.session.row().name, found.no, &found.row);
        match found.run.filter(|run| *run < found.row.run) {
            Some(run) => Ok(info.of_run(&earlier_ending(&found, run).await?)),
            None => Ok(info),
        }
    }
}
