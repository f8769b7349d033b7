//! `list_subtree`: lists a task and its descendants.

use std::collections::HashSet;

use brigade_model::ids::{Owner, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::ListSubtreeRequest;
use brigade_protocol::task_info::TaskInfo;
use brigade_store::TaskQuery;

use crate::request_context::{LocatedTask, RequestContext};
use crate::request_handler::{ItemSender, RequestHandler};

/// The maximum number of tasks in one reply, so that it fits a line.
pub(crate) const SUBTREE_TASKS_MAX: usize = 10_000;

/// The number of tasks that are read together.
const READ_TASKS: usize = 500;

impl RequestHandler for ListSubtreeRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<Vec<TaskInfo>, Refusal> {
        let found = context.find_task(&self.target).await?;
        let name = found.session.row().name;
        let tasks = find_subtree(&found).await?.into_iter();
        Ok(tasks.map(|task| TaskInfo::for_list(&name, task.no, &task.row)).collect())
    }
}

/// Returns a task and its descendants, parents first, and not more than [`SUBTREE_TASKS_MAX`].
pub(crate) async fn find_subtree(found: &LocatedTask) -> Result<Vec<StoredTask>, Refusal> {
    // A child has a higher number than its parent.
    let after = found.no.get().checked_sub(1).and_then(TaskNo::new);
    let mut query = TaskQuery { after, limit: READ_TASKS, ..TaskQuery::default() };
    let mut owners = HashSet::from([Owner::Task(found.no)]);
    let mut tasks = Vec::new();
    loop {
        let page = found.session.history(&query).await?;
        let Some(last) = page.last().map(|task| task.no) else { return Ok(tasks) };
        for task in page {
            if task.no == found.no || owners.contains(&task.row.owner) {
                owners.insert(Owner::Task(task.no));
                tasks.push(task);
            }
            if tasks.len() == SUBTREE_TASKS_MAX {
                return Ok(tasks);
            }
        }
        query.after = Some(last);
    }
}
