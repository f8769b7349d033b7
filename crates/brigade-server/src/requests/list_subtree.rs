//! `list_subtree`: lists a task and its descendants.

use std::collections::HashSet;

use brigade_model::ids::{Owner, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_store::TaskQuery;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};
use crate::task_info::TaskInfo;

/// The maximum number of tasks in one reply, so that it fits a line.
const SUBTREE_TASKS_MAX: usize = 10_000;

/// Selects alive and ended tasks, without results, in the order of their start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListSubtreeRequest {
    pub target: TaskTarget,
}

impl Call for ListSubtreeRequest {
    type Reply = Vec<TaskInfo>;
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<TaskInfo>, Refusal> {
        let found = context.find_task(&self.target).await?;
        let name = found.session.row().name;
        // A child has a higher number than its parent.
        let after = found.no.get().checked_sub(1).and_then(TaskNo::new);
        let query = TaskQuery { after, ..TaskQuery::default() };
        let mut owners = HashSet::from([Owner::Task(found.no)]);
        let mut tasks = Vec::new();
        for (no, row) in found.session.history(&query).await? {
            if no == found.no || owners.contains(&row.owner) {
                owners.insert(Owner::Task(no));
                tasks.push(TaskInfo::for_list(&name, no, &row));
            }
            if tasks.len() == SUBTREE_TASKS_MAX {
                break;
            }
        }
        Ok(tasks)
    }
}
