//! `list_subtree`: lists a task and its descendants.

use std::collections::HashSet;

use brigade_model::ids::{Owner, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::ListSubtreeRequest;
use brigade_protocol::task_info::TaskInfo;
use brigade_store::TaskQuery;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

/// The maximum number of tasks in one reply, so that it fits a line.
const SUBTREE_TASKS_MAX: usize = 10_000;

impl RequestHandler for ListSubtreeRequest {
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
        for StoredTask { no, row } in found.session.history(&query).await? {
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
