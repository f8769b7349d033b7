//! The ledger of providers' limits in memory.

use std::collections::BTreeMap;

use brigade_model::ids::{Millis, Time};

use crate::fleet::NodeId;
use crate::provider_limits::{LimitAmounts, LimitGrant, LimitReport, NodeDemand, RateLevels};

const SECONDS_PER_MINUTE: f64 = 60.0;

/// The limits of all providers, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitLedgers(BTreeMap<String, LimitLedger>);

/// The limits of one provider.
#[derive(Clone, Debug)]
struct LimitLedger {
    closed_until: Time,
    /// The levels of the amounts that nobody holds.
    levels: RateLevels,
    refilled_at: Time,
    holders: BTreeMap<NodeId, LimitHolder>,
}

#[derive(Clone, Debug)]
struct LimitHolder {
    last_report: u64,
    held: LimitAmounts,
    demand: LimitAmounts,
}

impl LimitLedgers {
    /// Stores the report of an open node, and grants what is free.
    pub(crate) fn exchange(
        &mut self,
        report: &LimitReport,
        open: &[NodeId],
        now: Time,
    ) -> Option<LimitGrant> {
        let levels = RateLevels {
            requests: report.limits.requests as f64,
            tokens: report.limits.tokens as f64,
        };
        let ledger = self.0.entry(report.provider.clone()).or_insert_with(|| LimitLedger {
            closed_until: Time(0),
            levels,
            refilled_at: now,
            holders: BTreeMap::new(),
        });
        ledger.holders.retain(|node, _| open.contains(node));
        ledger.exchange(report, open.len(), now)
    }
}

impl LimitLedger {
    fn exchange(&mut self, report: &LimitReport, open: usize, now: Time) -> Option<LimitGrant> {
        let mut others = LimitAmounts::default();
        for (_, holder) in self.holders.iter().filter(|(node, _)| **node != report.node) {
            others.running += holder.held.running;
            others.requests += holder.held.requests;
            others.tokens += holder.held.tokens;
        }
        let before = self.holders.get(&report.node);
        if before.is_some_and(|holder| holder.last_report >= report.number) {
            return None;
        }
        let before = before.map_or(LimitAmounts::default(), |holder| holder.held);
        let minutes = now.since(self.refilled_at).0 as f64 / 1000.0 / SECONDS_PER_MINUTE;
        let (limits, held, wanted) = (report.limits, report.held, report.wanted);
        let running = AmountExchange {
            limit: limits.running,
            others: others.running,
            held: held.running,
            wanted: wanted.running,
        };
        let requests = AmountExchange {
            limit: limits.requests,
            others: others.requests,
            held: held.requests,
            wanted: wanted.requests,
        };
        let tokens = AmountExchange {
            limit: limits.tokens,
            others: others.tokens,
            held: held.tokens,
            wanted: wanted.tokens,
        };
        let level = self.levels.requests;
        let level = requests.refill(before.requests, level, minutes) + report.returned.requests;
        let (requests_level, added_requests) = requests.divide_level(level);
        let level = self.levels.tokens;
        let level = tokens.refill(before.tokens, level, minutes) + report.returned.tokens;
        let (tokens_level, added_tokens) = tokens.divide_level(level);
        self.levels = RateLevels { requests: requests_level, tokens: tokens_level };
        self.refilled_at = now;
        if let Some(pause) = report.closed_for {
            self.closed_until = self.closed_until.max(now.after(pause.into()));
        }
        let held = LimitAmounts {
            running: running.granted(),
            requests: requests.granted(),
            tokens: tokens.granted(),
        };
        let holder = LimitHolder { last_report: report.number, held, demand: report.demand };
        self.holders.insert(report.node, holder);
        let closed_for = self.closed_until.since(now);
        let demands = self.holders.iter();
        Some(LimitGrant {
            held,
            free: LimitAmounts {
                running: running.free() - running.added(),
                requests: requests.free() - requests.added(),
                tokens: tokens.free() - tokens.added(),
            },
            added: RateLevels { requests: added_requests, tokens: added_tokens },
            closed_for: (closed_for > Millis(0)).then(|| closed_for.into()),
            now,
            open_nodes: open as u64,
            demands: demands
                .map(|(node, holder)| NodeDemand { node: *node, demand: holder.demand })
                .collect(),
        })
    }
}

/// The exchange of one amount.
#[derive(Clone, Copy, Debug)]
struct AmountExchange {
    limit: u64,
    others: u64,
    held: u64,
    wanted: u64,
}

impl AmountExchange {
    /// Returns the amount that nobody holds, before anything is added.
    fn free(&self) -> u64 {
        self.limit.saturating_sub(self.others).saturating_sub(self.held)
    }

    fn added(&self) -> u64 {
        self.wanted.saturating_sub(self.held).min(self.free())
    }

    fn granted(&self) -> u64 {
        self.held + self.added()
    }

    /// Returns the level of the free amount after a time in which the node held another amount.
    fn refill(&self, held_before: u64, level: f64, minutes: f64) -> f64 {
        let free = self.limit.saturating_sub(self.others).saturating_sub(held_before) as f64;
        (level + minutes * free).min(free)
    }

    /// Returns the level that stays, and the level that goes to the node.
    fn divide_level(&self, level: f64) -> (f64, f64) {
        let level = level.min(self.free() as f64);
        let added = match self.added() {
            0 => 0.0,
            added => level * added as f64 / self.free() as f64,
        };
        (level - added, added)
    }
}
