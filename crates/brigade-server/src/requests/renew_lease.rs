//! `renew_lease`: renews a reader lease on a process's output.

use std::time::Duration;

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};

/// The longest duration of a lease without renewal.
const LEASE_TIME_MAX: Duration = Duration::from_secs(60);

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

    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<RenewLeaseReply, Refusal> {
        let found = context.find_task(&self.target).await?;
        if !context.is_owner_of(&found.row) {
            let address = found.row.address(found.no);
            return Err(Refusal::forbidden(format!(
                "only the starter of {address} or the operator may hold its output"
            )));
        }
        if self.holder == 0 {
            return Err(Refusal::invalid("the holder of a lease must not be 0"));
        }
        let duration = Duration::from_millis(self.duration_ms).min(LEASE_TIME_MAX);
        let output_cap =
            found.session.renew_lease(found.no, self.holder, self.position, duration).await?;
        Ok(RenewLeaseReply { output_cap })
    }
}
