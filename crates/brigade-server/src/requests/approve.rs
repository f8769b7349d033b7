//! `approve`: decides a pending approval.

use brigade_model::approval::ApprovalVerdict;
use brigade_model::ids::CallIndex;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::ApproveRequest;

use crate::request_context::{RequestContext, ResolvedTarget};
use crate::request_handler::{ItemSender, RequestHandler};
use crate::task_lookup;

impl RequestHandler for ApproveRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<(), Refusal> {
        let ResolvedTarget { session, task } = context.resolve_target(&self.target).await?;
        let task = match task_lookup::locate_task(session.clone(), task.clone()).await {
            Ok(found) => found.no.into(),
            // A client decides for the descendants of its tasks too, which it cannot see.
            Err(refusal) if refusal.kind == RefusalKind::Forbidden => task,
            Err(refusal) => return Err(refusal),
        };
        let call = self.call.map(CallIndex);
        match (self.digest, &self.verdict) {
            (Some(digest), _) => session.approve_shown(task, call, digest, self.verdict).await,
            (None, ApprovalVerdict::Deny { .. }) => session.approve(task, call, self.verdict).await,
            (None, ApprovalVerdict::AllowOnce | ApprovalVerdict::AllowAlways { .. }) => {
                Err(Refusal::invalid(
                    "pass the digest that `brigade approve ADDRESS CALL --show` prints",
                ))
            }
        }
    }
}
