//! `list_approvals`: lists pending approvals and grants.

use brigade_model::refusal::Refusal;
use brigade_runtime::{PendingApproval, Session};
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::RequestContext;
use crate::task_info::ApprovalInfo;

/// Selects the approvals that this client may decide.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListApprovalsRequest {
    /// The session; `None` is all open sessions.
    #[serde(default)]
    pub session: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListApprovalsReply {
    pub pending: Vec<PendingApprovalItem>,
    pub grants: Vec<GrantItem>,
}

/// A tool call that needs an approval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PendingApprovalItem {
    pub session: String,
    /// The task that makes the call.
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The top-level task that is, or whose descendant is, that task.
    pub top_task: String,
    #[serde(flatten)]
    pub approval: ApprovalInfo,
}

impl PendingApprovalItem {
    pub(crate) fn of(session: &str, pending: PendingApproval) -> Self {
        Self {
            session: session.to_owned(),
            address: pending.row.address(pending.task),
            name: pending.row.name.as_ref().map(ToString::to_string),
            top_task: pending.top_task.to_string(),
            approval: ApprovalInfo::of(
                pending.task,
                pending.call,
                &pending.request,
                pending.requested_at,
            ),
        }
    }
}

/// A grant: calls that are always allowed in a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantItem {
    pub session: String,
    /// The number that revokes it.
    pub grant: u32,
    /// The allowed calls, in the syntax of permission rules.
    pub rule: String,
    /// The directory in which it applies; `None` is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// The client to whose tasks it applies; `None` is all tasks of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Milliseconds since the epoch.
    pub granted_at: u64,
}

impl Call for ListApprovalsRequest {
    type Reply = ListApprovalsReply;
    type Item = NoItems;

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<ListApprovalsReply, Refusal> {
        let mut all = ListApprovalsReply::default();
        for session in context.sessions(self.session.as_deref()).await? {
            add_session(&mut all, &session);
        }
        Ok(all)
    }
}

fn add_session(all: &mut ListApprovalsReply, session: &Session) {
    let name = session.row().name.to_string();
    let pending = session.approvals().into_iter();
    all.pending.extend(pending.map(|pending| PendingApprovalItem::of(&name, pending)));
    all.grants.extend(session.grants().into_iter().map(|grant| GrantItem {
        session: name.clone(),
        grant: grant.no,
        rule: grant.scope.to_string(),
        directory: grant.directory.map(|directory| directory.to_string()),
        client: grant.client.map(|client| client.to_string()),
        granted_at: grant.granted_at.0,
    }));
}
