//! A lease on the output that is being shown, so that none of it is dropped before it was read.

use std::time::Duration;

use brigade_server::client::{Answers, Step};
use brigade_server::requests::{OutputPage, RenewLease};
use brigade_server::{Client, ClientError, Target};
use tokio::time::Instant;

/// How often a lease is renewed at least.
const RENEW: Duration = Duration::from_secs(1);
/// Renewals that a lease outlasts at least.
const MISSED: u32 = 4;
/// A reader that has read this part of what is kept says so at once, where the command may wait for it.
const PART: u64 = 8;

/// The lease of one reader.
#[derive(Debug)]
pub(crate) struct ReaderLease {
    target: Target,
    holder: u64,
    /// How long it lasts without being renewed.
    time: Duration,
    /// What was read, and what there is.
    position: u64,
    total: u64,
    /// The position that the daemon was last told.
    told: u64,
    /// Bytes kept of each stream; nothing until the daemon has said so.
    cap: u64,
    due: Instant,
    renewing: Option<Answers<RenewLease>>,
}

impl ReaderLease {
    pub(crate) fn new(target: Target, time: Duration) -> Self {
        let holder = brigade_runtime::new_lease_holder();
        let due = Instant::now();
        let (position, total, told, cap) = (0, 0, 0, 0);
        Self { target, holder, time, position, total, told, cap, due, renewing: None }
    }

    /// Says that a page is here.
    pub(crate) fn note_read(&mut self, page: &OutputPage) {
        self.position = page.next;
        self.total = page.total;
        if self.is_waited_for() {
            self.due = Instant::now();
        }
    }

    /// Whether the command may wait for what was read since the daemon was told.
    fn is_waited_for(&self) -> bool {
        let fresh = self.position - self.told;
        let is_near_cap = self.total >= self.cap - self.cap / 4;
        is_near_cap && fresh > 0 && (fresh >= self.cap / PART || self.position >= self.total)
    }

    /// Renews it when that is due. Nothing is lost when the call is abandoned.
    pub(crate) async fn renew(&mut self, client: &Client) -> Result<(), ClientError> {
        let renewing = match &mut self.renewing {
            Some(renewing) => renewing,
            None => {
                tokio::time::sleep_until(self.due).await;
                self.told = self.position;
                self.due = Instant::now() + RENEW.min(self.time / MISSED);
                let asked = client.stream(self.request(Some(self.position)))?;
                self.renewing.insert(asked)
            }
        };
        let Step::Done(renewed) = renewing.next().await?;
        self.renewing = None;
        self.cap = renewed.output_cap;
        if self.is_waited_for() {
            self.due = Instant::now();
        }
        Ok(())
    }

    /// The daemon that was asked is not there any more; the next one has not been told anything.
    pub(crate) fn forget_daemon(&mut self) {
        self.renewing = None;
        self.due = Instant::now();
    }

    /// Lets the command go on without this reader.
    pub(crate) async fn release(&mut self, client: &Client) -> Result<(), ClientError> {
        self.renewing = None;
        client.ask(self.request(None)).await.map(drop)
    }

    fn request(&self, position: Option<u64>) -> RenewLease {
        let time_ms = u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX);
        RenewLease { target: self.target.clone(), holder: self.holder, position, time_ms }
    }
}
