//! A lease on the output of a process, so that none of it is dropped before it is printed.

use std::time::Duration;

use brigade_protocol::daemon_connection::{ReplyStream, ReplyStreamPart};
use brigade_protocol::requests::{OutputPageItem, RenewLeaseRequest};
use brigade_protocol::{ClientError, DaemonConnection, TaskTarget};
use tokio::time::Instant;

/// The longest time between two renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(1);
/// Renewals within the duration of a lease.
const RENEWALS_PER_LEASE: u32 = 4;
/// A reader reports its position after this fraction of the cap, if the process may wait for it.
const REPORT_FRACTION: u64 = 8;

/// The lease of one reader.
#[derive(Debug)]
pub(crate) struct ReaderLease {
    target: TaskTarget,
    holder: u64,
    /// The time that the lease lasts without a renewal.
    duration: Duration,
    /// The bytes read, and the bytes available.
    position: u64,
    total: u64,
    /// The position in the last renewal.
    reported_position: u64,
    /// The cap of each stream; 0 before the first renewal.
    output_cap: u64,
    renew_at: Instant,
    pending_renewal: Option<ReplyStream<RenewLeaseRequest>>,
}

impl ReaderLease {
    pub(crate) fn new(target: TaskTarget, duration: Duration) -> Self {
        let holder = brigade_runtime::new_lease_holder();
        Self {
            target,
            holder,
            duration,
            position: 0,
            total: 0,
            reported_position: 0,
            output_cap: 0,
            renew_at: Instant::now(),
            pending_renewal: None,
        }
    }

    /// Notes that a page was read.
    pub(crate) fn note_read(&mut self, page: &OutputPageItem) {
        self.position = page.next;
        self.total = page.total;
        if self.is_renewal_urgent() {
            self.renew_at = Instant::now();
        }
    }

    /// Returns true if the process may wait for the bytes read since the last renewal.
    fn is_renewal_urgent(&self) -> bool {
        let unreported = self.position - self.reported_position;
        let is_near_cap = self.total >= self.output_cap - self.output_cap / 4;
        is_near_cap
            && unreported > 0
            && (unreported >= self.output_cap / REPORT_FRACTION || self.position >= self.total)
    }

    /// Renews the lease when it is due. A cancelled call loses nothing.
    pub(crate) async fn renew(&mut self, client: &DaemonConnection) -> Result<(), ClientError> {
        let renewing = match &mut self.pending_renewal {
            Some(renewing) => renewing,
            None => {
                tokio::time::sleep_until(self.renew_at).await;
                self.reported_position = self.position;
                self.renew_at =
                    Instant::now() + RENEW_INTERVAL.min(self.duration / RENEWALS_PER_LEASE);
                let renewal = client.call_streaming(self.to_request(Some(self.position)))?;
                self.pending_renewal.insert(renewal)
            }
        };
        let ReplyStreamPart::Reply(renewed) = renewing.next_part().await?;
        self.pending_renewal = None;
        self.output_cap = renewed.output_cap;
        if self.is_renewal_urgent() {
            self.renew_at = Instant::now();
        }
        Ok(())
    }

    /// Starts over with the next daemon, which knows nothing of this lease yet.
    pub(crate) fn reset(&mut self) {
        self.pending_renewal = None;
        self.renew_at = Instant::now();
    }

    /// Ends the lease, so that the process does not wait for this reader.
    pub(crate) async fn release(&mut self, client: &DaemonConnection) -> Result<(), ClientError> {
        self.pending_renewal = None;
        client.call(self.to_request(None)).await.map(drop)
    }

    fn to_request(&self, position: Option<u64>) -> RenewLeaseRequest {
        let duration_ms = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        RenewLeaseRequest {
            target: self.target.clone(),
            holder: self.holder,
            position,
            duration_ms,
        }
    }
}
