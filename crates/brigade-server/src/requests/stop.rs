//! `stop`: stops a task and its descendants.

use std::time::Duration;

use brigade_model::command::StopTarget;
use brigade_model::decide::StopResult;
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};
use crate::task_info::TaskInfo;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StopRequest {
    pub target: TaskTarget,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub grace_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StopReply {
    /// The task after the request.
    pub task: TaskInfo,
    /// The number of tasks that are stopped.
    pub task_count: u64,
    /// The task was already stopping or had ended.
    pub already: bool,
}

impl Call for StopRequest {
    type Reply = StopReply;
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<StopReply, Refusal> {
        let found = context.find_task(&self.target).await?;
        let grace = self.grace_ms.map(Duration::from_millis);
        let target = StopTarget::Task(found.no.into());
        let stopped = found.session.stop_with(target, self.reason.as_deref(), grace).await?;
        let StopResult { tasks, already_stopped: already } = stopped;
        let (no, row) = found.session.get(found.no).await?;
        let task = TaskInfo::of(&found.session.row().name, no, &row);
        Ok(StopReply { task, task_count: tasks as u64, already })
    }
}
