//! Keeps the limits of providers together with the other nodes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use brigade_llm::{LimitShare, LimiterShare, OpeningTurn, ShareGrant, ShareLevels, SharedLimits};
use brigade_store::{LimitAmounts, LimitGrant, LimitReport, NodeId, RateLevels, StoreError};
use tokio::time::{Instant, sleep_until, timeout};

use super::Node;
use super::limit_shares::ProviderDemands;

/// The time between two reports about a provider.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two reports while calls wait, and the least time after a hint.
const WAITING_INTERVAL: Duration = Duration::from_millis(250);
/// The least time between two reports.
const REPORT_PAUSE: Duration = Duration::from_millis(100);
/// The time after which a demand that is over is halved. An agent calls its model again after its tools.
const DEMAND_DECAY: Duration = Duration::from_secs(2);
/// The time that a report may take.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The limits of providers, as a node divides them with the others.
#[derive(Debug)]
pub(crate) struct NodeLimits(pub(crate) Weak<Node>);

impl SharedLimits for NodeLimits {
    fn divide(&self, provider: &str, share: LimiterShare) {
        if let Some(node) = self.0.upgrade() {
            let keeper = LimitKeeper::new(node.clone(), provider, share);
            node.start(keeper.run());
        }
    }
}

/// The part of a node in the limits of one provider.
struct LimitKeeper {
    node: Arc<Node>,
    provider: String,
    share: LimiterShare,
    /// The node that the share belongs to. A runtime that joins again is another node.
    holder: NodeId,
    last_number: u64,
    demand: RecentDemand,
    /// The demands of the last exchange; `None` if they are old.
    demands: Option<ProviderDemands>,
    exchanged_at: Instant,
    /// True after an exchange without an answer. Nothing is given up then.
    is_failing: bool,
    /// The closing that the other nodes have had a hint of.
    hinted_closing: Option<Instant>,
}

impl LimitKeeper {
    fn new(node: Arc<Node>, provider: &str, share: LimiterShare) -> Self {
        Self {
            holder: node.id(),
            node,
            provider: provider.to_owned(),
            share,
            last_number: 0,
            demand: RecentDemand { amounts: LimitAmounts::default(), changed_at: Instant::now() },
            demands: None,
            exchanged_at: Instant::now(),
            is_failing: false,
            hinted_closing: None,
        }
    }

    async fn run(mut self) {
        while self.share.is_current() {
            let reported_at = Instant::now();
            let node = self.node.id();
            let is_held = self.node.lease.is_held();
            if !is_held || node != self.holder {
                // Another node may have this part already. Its levels are lost.
                self.share.lower(Some(LimitShare::default()));
                self.holder = node;
            }
            let is_waiting = is_held && self.report().await;
            self.wait(reported_at, is_waiting).await;
        }
    }

    /// Waits until the next report is due.
    async fn wait(&self, reported_at: Instant, is_waiting: bool) {
        let holds_nothing = self.share.lower(None).held == LimitShare::default();
        let is_idle = holds_nothing && self.demand.amounts.is_zero();
        let interval = if is_waiting { WAITING_INTERVAL } else { REPORT_INTERVAL };
        let hinted = async {
            self.node.fleet().next_hint().await;
            sleep_until(reported_at + WAITING_INTERVAL).await;
        };
        let needed = async {
            loop {
                self.share.wait_for_change().await;
                sleep_until(reported_at + REPORT_PAUSE).await;
                // Most calls start at once and need no report.
                let is_closed = self.share.lower(None).closed_for.is_some();
                if is_closed || self.share.demand().waiting > 0 {
                    return;
                }
            }
        };
        tokio::select! {
            () = sleep_until(reported_at + interval), if !is_idle => {}
            () = hinted, if !is_idle => {}
            () = needed => {}
        }
    }

    /// Exchanges the node's part. Returns true if calls wait for a larger one.
    async fn report(&mut self) -> bool {
        let demand = self.share.demand();
        let amounts =
            LimitAmounts { running: demand.calls, requests: demand.calls, tokens: demand.tokens };
        self.demand.update(amounts, Instant::now());
        if self.exchanged_at.elapsed() > 2 * REPORT_INTERVAL {
            self.demands = None;
        }
        let wanted = self.target();
        if let Some(grant) = self.exchange(wanted).await {
            // The other nodes' demands may leave more than was known before.
            let target = self.target();
            let is_more = |target: u64, wanted: u64, free: u64| target > wanted && free > 0;
            let free = grant.free;
            if is_more(target.running, wanted.running, free.running)
                || is_more(target.requests, wanted.requests, free.requests)
                || is_more(target.tokens, wanted.tokens, free.tokens)
            {
                self.exchange(target).await;
            }
        }
        demand.waiting > 0
    }

    /// Returns the share that the node should have. Without the demands of the others it wants nothing: the
    /// first exchange returns them.
    fn target(&self) -> LimitAmounts {
        let Some(demands) = &self.demands else { return LimitAmounts::default() };
        let limits = from_share(self.share.limits());
        demands.share(limits, self.holder, self.demand.amounts)
    }

    /// Sends one report and takes the grant. Returns `None` if there is no answer.
    async fn exchange(&mut self, wanted: LimitAmounts) -> Option<LimitGrant> {
        let lowered = self.share.lower((!self.is_failing).then(|| to_share(wanted)));
        self.last_number += 1;
        let report = LimitReport {
            node: self.holder,
            provider: self.provider.clone(),
            number: self.last_number,
            limits: from_share(self.share.limits()),
            held: from_share(lowered.held),
            wanted,
            demand: self.demand.amounts,
            returned: RateLevels {
                requests: lowered.given_up.requests,
                tokens: lowered.given_up.tokens,
            },
            closed_for: lowered.closed_for,
        };
        let answer = timeout(REPORT_TIMEOUT, self.node.fleet().exchange_limits(&report)).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(StoreError::Unavailable("the database does not answer".into()))
        });
        // An answer for a node that has lost its lease, or has joined again, says nothing about this one.
        let grant = match answer {
            Ok(Some(grant)) if self.node.lease.is_held() && report.node == self.node.id() => grant,
            Ok(_) => return None,
            Err(error) => {
                tracing::debug!(%error, provider = self.provider, "the share stays as it is");
                self.is_failing = true;
                return None;
            }
        };
        self.is_failing = false;
        let demands = ProviderDemands::of(&grant);
        let (earlier, processes) = demands.opening_turn(report.node);
        self.demands = Some(demands);
        self.exchanged_at = Instant::now();
        let mut share = to_share(grant.held);
        if grant.held.running <= report.held.running {
            // Running calls that are too many are held until they end, and none takes their place.
            share.running = share.running.min(wanted.running);
        }
        self.share.grant(&ShareGrant {
            share,
            added: ShareLevels { requests: grant.added.requests, tokens: grant.added.tokens },
            closed_for: grant.closed_for,
            turn: OpeningTurn { earlier, processes },
        });
        self.hint_closing(report.closed_for).await;
        Some(grant)
    }

    /// Lets the other nodes look at a closing at once that this node has stored.
    async fn hint_closing(&mut self, closed_for: Option<Duration>) {
        let Some(pause) = closed_for else { return };
        let until = Instant::now() + pause;
        let is_known = |known: Instant| until <= known + REPORT_INTERVAL;
        if self.hinted_closing.is_some_and(is_known) {
            return;
        }
        self.hinted_closing = Some(until);
        let _ = self.node.fleet().notify().await;
    }
}

/// A demand that falls slowly.
#[derive(Clone, Copy, Debug)]
struct RecentDemand {
    amounts: LimitAmounts,
    changed_at: Instant,
}

impl RecentDemand {
    fn update(&mut self, now: LimitAmounts, at: Instant) {
        let before = self.amounts;
        let is_over = at >= self.changed_at + DEMAND_DECAY;
        let halved = |amount: u64| if is_over { amount / 2 } else { amount };
        self.amounts = LimitAmounts {
            running: now.running.max(halved(before.running)),
            requests: now.requests.max(halved(before.requests)),
            tokens: now.tokens.max(halved(before.tokens)),
        };
        if is_over || now.running >= before.running {
            self.changed_at = at;
        }
    }
}

fn from_share(share: LimitShare) -> LimitAmounts {
    LimitAmounts {
        running: share.running,
        requests: share.requests_per_minute,
        tokens: share.tokens_per_minute,
    }
}

fn to_share(amounts: LimitAmounts) -> LimitShare {
    LimitShare {
        running: amounts.running,
        requests_per_minute: amounts.requests,
        tokens_per_minute: amounts.tokens,
    }
}
