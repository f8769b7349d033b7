//! `stop`: stops a task and its descendants.

use std::time::Duration;

use brigade_model::command::StopTarget;
use brigade_model::decide::StopResult;
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{StopReply, StopRequest};
use brigade_protocol::task_info::TaskInfo;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for StopRequest {
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
        let StoredTask { no, row } = found.session.get(found.no).await?;
        let task = TaskInfo::of(&found.session.row().name, no, &row);
        Ok(StopReply { task, task_count: tasks as u64, already })
    }
}
