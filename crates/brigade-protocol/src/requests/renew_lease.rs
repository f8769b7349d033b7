//! `renew_lease`: renews a reader lease on a process's output.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};
use crate::task_target::TaskTarget;

/// The position of a reader. While it renews its lease, no unread output is dropped: the process
/// waits instead.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewLeaseRequest {
    pub target: TaskTarget,
    /// A random number that identifies the reader.
    pub holder: u64,
    /// The bytes of both streams that the reader has read. `None` ends the lease.
    #[serde(default)]
    pub position: Option<u64>,
    /// The time after which the lease ends unless it is renewed.
    pub duration_ms: u64,
}

/// The reply to a renewed lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewLeaseReply {
    /// The stored bytes of each stream, which bound the unread output.
    pub output_cap: u64,
}

impl Call for RenewLeaseRequest {
    type Reply = RenewLeaseReply;
    type Item = NoItems;
}
