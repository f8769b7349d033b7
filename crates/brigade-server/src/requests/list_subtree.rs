//! A task and all that came of it.

use std::collections::HashSet;

use brigade_model::ids::{Owner, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_store::TaskQuery;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};
use crate::task_info::TaskInfo;

/// The most that one answer has, so that it fits a line.
const SUBTREE_TASKS_MAX: usize = 10_000;

/// Living and ended, without their results, in the order in which they were started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListSubtreeRequest {
    pub target: TaskTarget,
}

impl Call for ListSubtreeRequest {
    type Reply = Vec<TaskInfo>;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<TaskInfo>, Refusal> {
        let found = desk.find_task(&self.target).await?;
        let name = found.session.row().name;
        // A child has a higher number than its parent.
        let after = found.no.get().checked_sub(1).and_then(TaskNo::new);
        let query = TaskQuery { after, ..TaskQuery::default() };
        let mut within = HashSet::from([Owner::Task(found.no)]);
        let mut tasks = Vec::new();
        for (no, row) in found.session.history(&query).await? {
            if no == found.no || within.contains(&row.owner) {
                within.insert(Owner::Task(no));
                tasks.push(TaskInfo::for_list(&name, no, &row));
            }
            if tasks.len() == SUBTREE_TASKS_MAX {
                break;
            }
        }
        Ok(tasks)
    }
}
