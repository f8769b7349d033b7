//! What waits for leave, and what was allowed for good.

use brigade_model::refusal::Refusal;
use brigade_runtime::{PendingApproval, Session};
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;
use crate::info::Approval;

/// All that this client may decide about.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Approvals {
    /// All that are open, when there is none.
    #[serde(default)]
    pub session: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ApprovalsInfo {
    pub pending: Vec<PendingInfo>,
    pub grants: Vec<GrantInfo>,
}

/// A call that waits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PendingInfo {
    pub session: String,
    /// Whose call it is.
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The top-level task that it is below, or is.
    pub top: String,
    #[serde(flatten)]
    pub approval: Approval,
}

impl PendingInfo {
    pub(crate) fn of(session: &str, pending: PendingApproval) -> Self {
        Self {
            session: session.to_owned(),
            address: pending.row.address(pending.task),
            name: pending.row.name.as_ref().map(ToString::to_string),
            top: pending.top.to_string(),
            approval: Approval::of((pending.task, pending.call), &pending.request, pending.since),
        }
    }
}

/// Something that is allowed for good in a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantInfo {
    pub session: String,
    /// To revoke it by.
    pub grant: u32,
    /// As rules are written.
    pub allows: String,
    /// The directory that it is for; for any, when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Whose tasks it is for; for all of the session, when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Milliseconds since the epoch.
    pub at: u64,
}

impl Ask for Approvals {
    type Done = ApprovalsInfo;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<ApprovalsInfo, Refusal> {
        let mut all = ApprovalsInfo::default();
        for session in desk.sessions(self.session.as_deref()).await? {
            add(&mut all, &session);
        }
        Ok(all)
    }
}

fn add(all: &mut ApprovalsInfo, session: &Session) {
    let name = session.row().name.to_string();
    let pending = session.approvals().into_iter();
    all.pending.extend(pending.map(|pending| PendingInfo::of(&name, pending)));
    all.grants.extend(session.grants().into_iter().map(|grant| GrantInfo {
        session: name.clone(),
        grant: grant.no,
        allows: grant.covers.to_string(),
        directory: grant.directory.map(|directory| directory.to_string()),
        client: grant.client.map(|client| client.to_string()),
        at: grant.at.0,
    }));
}
