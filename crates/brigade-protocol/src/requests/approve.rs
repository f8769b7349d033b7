//! `approve`: decides a pending approval.

use brigade_model::approval::{ApprovalVerdict, CallDigest};
use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_target::TaskTarget;

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
}
