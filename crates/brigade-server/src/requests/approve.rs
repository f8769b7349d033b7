//! Says yes or no to a call that waits for leave.

use brigade_model::approval::{ApprovalVerdict, CallDigest};
use brigade_model::ids::CallIndex;
use brigade_model::refusal::{Refusal, RefusalKind};
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};
use crate::task_lookup;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApproveRequest {
    pub target: TaskTarget,
    /// Which of its calls; may be left out while only one waits.
    #[serde(default)]
    pub call: Option<u32>,
    /// The digest of the whole call that was shown. Nothing is allowed without it.
    #[serde(default)]
    pub digest: Option<CallDigest>,
    pub verdict: ApprovalVerdict,
}

impl Call for ApproveRequest {
    type Reply = ();
    type Item = NoItems;

    async fn handle(self, desk: &RequestContext, _: &ItemSender<NoItems>) -> Result<(), Refusal> {
        let (session, task) = desk.resolve_target(&self.target).await?;
        let task = match task_lookup::locate_task(session.clone(), task.clone()).await {
            Ok(found) => found.no.into(),
            // A client may decide for what it cannot see: what is below a task of its own.
            Err(refusal) if refusal.kind == RefusalKind::Forbidden => task,
            Err(refusal) => return Err(refusal),
        };
        let call = self.call.map(CallIndex);
        match (self.digest, &self.verdict) {
            (Some(digest), _) => session.approve_shown(task, call, (digest, self.verdict)).await,
            (None, ApprovalVerdict::Deny { .. }) => session.approve(task, call, self.verdict).await,
            (None, ApprovalVerdict::AllowOnce | ApprovalVerdict::AllowAlways { .. }) => {
                Err(Refusal::invalid(
                    "a call is allowed by the digest of what was shown of it; `brigade approve ADDRESS \
                 CALL --show` shows it",
                ))
            }
        }
    }
}
