//! A lease on the output that is being shown, so that none of it is dropped before it was read.

use std::time::Duration;

use brigade_server::daemon_connection::{ReplyStream, ReplyStreamPart};
use brigade_server::requests::{OutputPageItem, RenewLeaseRequest};
use brigade_server::{ClientError, DaemonConnection, TaskTarget};
use tokio::time::Instant;

/// How often a lease is renewed at least.
const RENEW_INTERVAL: Duration = Duration::from_secs(1);
/// Renewals that a lease outlasts at least.
const RENEWALS_PER_LEASE: u32 = 4;
/// A reader that has read this part of what is kept says so at once, where the command may wait for it.
const REPORT_FRACTION: u64 = 8;

/// The lease of one reader.
#[derive(Debug)]
pub(crate) struct ReaderLease {
    target: TaskTarget,
    holder: u64,
    /// How long it lasts without being renewed.
    duration: Duration,
    /// What was read, and what there is.
    position: u64,
    total: u64,
    /// The position that the daemon was last told.
    reported_position: u64,
    /// Bytes kept of each stream; nothing until the daemon has said so.
    output_cap: u64,
    renew_at: Instant,
    pending_renewal: Option<ReplyStream<RenewLeaseRequest>>,
}

impl ReaderLease {
    pub(crate) fn new(target: TaskTarget, time: Duration) -> Self {
        let holder = brigade_runtime::new_lease_holder();
        let due = Instant::now();
        let (position, total, told, cap) = (0, 0, 0, 0);
        Self {
            target,
            holder,
            duration: time,
            position,
            total,
            reported_position: told,
            output_cap: cap,
            renew_at: due,
            pending_renewal: None,
        }
    }

    /// Says that a page is here.
    pub(crate) fn note_read(&mut self, page: &OutputPageItem) {
        self.position = page.next;
        self.total = page.total;
        if self.is_renewal_urgent() {
            self.renew_at = Instant::now();
        }
    }

    /// Whether the command may wait for what was read since the daemon was told.
    fn is_renewal_urgent(&self) -> bool {
        let fresh = self.position - self.reported_position;
        let is_near_cap = self.total >= self.output_cap - self.output_cap / 4;
        is_near_cap
            && fresh > 0
            && (fresh >= self.output_cap / REPORT_FRACTION || self.position >= self.total)
    }

    /// Renews it when that is due. Nothing is lost when the call is abandoned.
    pub(crate) async fn renew(&mut self, client: &DaemonConnection) -> Result<(), ClientError> {
        let renewing = match &mut self.pending_renewal {
            Some(renewing) => renewing,
            None => {
                tokio::time::sleep_until(self.renew_at).await;
                self.reported_position = self.position;
                self.renew_at =
                    Instant::now() + RENEW_INTERVAL.min(self.duration / RENEWALS_PER_LEASE);
                let asked = client.call_streaming(self.to_request(Some(self.position)))?;
                self.pending_renewal.insert(asked)
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

    /// The daemon that was asked is not there any more; the next one has not been told anything.
    pub(crate) fn reset(&mut self) {
        self.pending_renewal = None;
        self.renew_at = Instant::now();
    }

    /// Lets the command go on without this reader.
    pub(crate) async fn release(&mut self, client: &DaemonConnection) -> Result<(), ClientError> {
        self.pending_renewal = None;
        client.call(self.to_request(None)).await.map(drop)
    }

    fn to_request(&self, position: Option<u64>) -> RenewLeaseRequest {
        let time_ms = u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX);
        RenewLeaseRequest {
            target: self.target.clone(),
            holder: self.holder,
            position,
            duration_ms: time_ms,
        }
    }
}
