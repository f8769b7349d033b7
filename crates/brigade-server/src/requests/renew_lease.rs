//! A lease on a command's output, for a reader who must not miss any of it.

use std::time::Duration;

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::call::{Call, ItemSender, NoItems};
use crate::request_context::{RequestContext, TaskTarget};

/// The longest time that a lease lasts without being renewed.
const LEASE_TIME_MAX: Duration = Duration::from_secs(60);

/// Says how far a reader has read. While it goes on saying so, nothing that it has not read is dropped, and
/// the command waits for it instead.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewLeaseRequest {
    pub target: TaskTarget,
    /// A random number of the reader's own.
    pub holder: u64,
    /// Bytes of both streams that it has read. None ends the lease.
    #[serde(default)]
    pub position: Option<u64>,
    /// How long it lasts unless it is renewed.
    pub duration_ms: u64,
}

/// A lease that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewLeaseReply {
    /// Bytes that are kept of each stream: so far the command may be ahead of its reader.
    pub output_cap: u64,
}

impl Call for RenewLeaseRequest {
    type Reply = RenewLeaseReply;
    type Item = NoItems;

    async fn handle(
        self,
        desk: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<RenewLeaseReply, Refusal> {
        let found = desk.find_task(&self.target).await?;
        if !desk.is_owner_of(&found.row) {
            let address = found.row.address(found.no);
            return Err(Refusal::forbidden(format!(
                "only who started {address}, or the operator, may hold its output"
            )));
        }
        if self.holder == 0 {
            return Err(Refusal::invalid("the holder of a lease is not 0"));
        }
        let time = Duration::from_millis(self.duration_ms).min(LEASE_TIME_MAX);
        let renewed = found.session.renew_lease(found.no, self.holder, self.position, time).await?;
        Ok(RenewLeaseReply { output_cap: renewed })
    }
}
