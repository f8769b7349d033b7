//! `approve`: decides a pending approval.

use brigade_model::approval::{ApprovalVerdict, CallDigest};
use brigade_model::ids::CallIndex;
use brigade_model::refusal::{Refusal, RefusalKind};
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, ResolvedTarget, TaskTarget};
use crate::task_lookup;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApproveRequest {
    pub target: TaskTarget,
    /// The number of the call. Optional while only one is pending.
    #[serde(default)]
    pub call: Option<u32>,
    /// The digest of the whole call that was shown. Required to allow a call.
    #[serde(default)]
    pub digest: Option<CallDigest>,
    pub verdict: ApprovalVerdict,
}

impl Call for ApproveRequest {
    type Reply = ();
    type Item = NoItems;

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
            (Some(digest), _) => session.approve_shown(task, call, (digest, self.verdict)).await,
            (None, ApprovalVerdict::Deny { .. }) => session.approve(task, call, self.verdict).await,
            (None, ApprovalVerdict::AllowOnce | ApprovalVerdict::AllowAlways { .. }) => {
                Err(Refusal::invalid(
                    "pass the digest that `brigade approve ADDRESS CALL --show` prints",
                ))
            }
        }
    }
}
