//! `resume`: starts the next run of an ended task.

use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::ResumeRequest;
use brigade_protocol::task_info::TaskInfo;

use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

impl RequestHandler for ResumeRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<TaskInfo, Refusal> {
        let found = context.find_task(&self.target).await?;
        found.session.resume(found.no, self.limits).await?;
        let StoredTask { no, row } = found.session.get(found.no).await?;
        Ok(TaskInfo::of(&found.session.row().name, no, &row))
    }
}
