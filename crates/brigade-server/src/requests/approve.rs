//! Says yes or no to a call that waits for leave.

use brigade_model::approval::Verdict;
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
        session.approve(task, self.call.map(CallIndex), self.verdict).await
    }
}
