//! A lease on a command's output, for a reader who must not miss any of it.

use std::time::Duration;

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};

/// The longest time that a lease lasts without being renewed.
const LONGEST: Duration = Duration::from_secs(60);

/// Says how far a reader has read. While it goes on saying so, nothing that it has not read is dropped, and
/// the command waits for it instead.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RenewLease {
    pub target: Target,
    /// A random number of the reader's own.
    pub holder: u64,
    /// Bytes of both streams that it has read. None ends the lease.
    #[serde(default)]
    pub position: Option<u64>,
    /// How long it lasts unless it is renewed.
    pub time_ms: u64,
}

/// A lease that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRenewed {
    /// Bytes that are kept of each stream: so far the command may be ahead of its reader.
    pub output_cap: u64,
}

impl Ask for RenewLease {
    type Done = LeaseRenewed;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<LeaseRenewed, Refusal> {
        let found = desk.find(&self.target).await?;
        if !desk.has_started(&found.row) {
            let address = found.row.address(found.no);
            return Err(Refusal::forbidden(format!(
                "only who started {address}, or the operator, may hold its output"
            )));
        }
        if self.holder == 0 {
            return Err(Refusal::invalid("the holder of a lease is not 0"));
        }
        let time = Duration::from_millis(self.time_ms).min(LONGEST);
        let renewed = found.session.renew_lease(found.no, self.holder, self.position, time).await?;
        Ok(LeaseRenewed { output_cap: renewed })
    }
}
