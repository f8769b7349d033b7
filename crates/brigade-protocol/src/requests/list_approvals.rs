//! `list_approvals`: lists pending approvals and grants.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
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
}
