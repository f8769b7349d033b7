//! Says yes or no to a call that waits for leave.

use brigade_model::approval::{CallDigest, Verdict};
use brigade_model::ids::CallIndex;
use brigade_model::refusal::{Refusal, RefusalKind};
use serde::{Deserialize, Serialize};

use crate::addresses;
use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Approve {
    pub target: Target,
    /// Which of its calls; may be left out while only one waits.
    #[serde(default)]
    pub call: Option<u32>,
    /// The digest of the whole call that was shown. Nothing is allowed without it.
    #[serde(default)]
    pub digest: Option<CallDigest>,
    pub verdict: Verdict,
}

impl Ask for Approve {
    type Done = ();
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<(), Refusal> {
        let (session, task) = desk.addressed(&self.target).await?;
        let task = match addresses::locate(session.clone(), task.clone()).await {
            Ok(found) => found.no.into(),
            // A client may decide for what it cannot see: what is below a task of its own.
            Err(refusal) if refusal.kind == RefusalKind::Forbidden => task,
            Err(refusal) => return Err(refusal),
        };
        let call = self.call.map(CallIndex);
        match (self.digest, &self.verdict) {
            (Some(digest), _) => session.approve_shown(task, call, (digest, self.verdict)).await,
            (None, Verdict::Deny { .. }) => session.approve(task, call, self.verdict).await,
            (None, Verdict::AllowOnce | Verdict::AllowAlways { .. }) => Err(Refusal::invalid(
                "a call is allowed by the digest of what was shown of it; `brigade approve ADDRESS \
                 CALL --show` shows it",
            )),
        }
    }
}
