//! Tokens and money of turns, from the reports of programs.
//!
//! Some programs report the usage of one step or turn. Others report a total of their session,
//! which goes on after a resume. The ledger returns the amount that is new in each report.

use std::collections::BTreeMap;

use brigade_llm::TokenUsage;
use brigade_model::limits::Money;
use serde::{Deserialize, Serialize};

/// A report of a program about its usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    pub amount: ReportedUsage,
    /// True if the amount is the total of the session so far.
    pub is_total: bool,
}

/// An amount as a program reports it. An absent part is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedUsage {
    pub tokens: Option<TokenUsage>,
    pub cost: Option<Money>,
}

/// The place of a report in the output of a task's programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReportPosition {
    /// The number of the turn in its task.
    pub turn: u64,
    /// The offset after the line.
    pub offset: u64,
    /// The index of the report in the events of the line.
    pub index: u32,
}

/// The usage that was counted so far. It is stored with the position up to which the output was
/// processed, so that the next attempt counts nothing twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLedger {
    /// The last total of each session.
    totals: BTreeMap<String, ReportedUsage>,
    counted_to: Option<ReportPosition>,
}

impl UsageLedger {
    /// Counts a report and returns the new amount. A report at or before the position of an earlier
    /// one is counted already and returns nothing.
    ///
    /// The new amount of a total is its difference to the last total of the session. A smaller
    /// total is a counter that was reset, so all of it is new. A total of zero changes nothing:
    /// programs print it for a turn that failed before its session was loaded.
    pub fn count(
        &mut self,
        position: ReportPosition,
        session_id: &str,
        report: &UsageReport,
    ) -> ReportedUsage {
        if self.counted_to.is_some_and(|counted| position <= counted) {
            return ReportedUsage::default();
        }
        self.counted_to = Some(position);
        if !report.is_total {
            return report.amount;
        }
        let total = self.totals.entry(session_id.to_owned()).or_default();
        let tokens = report.amount.tokens.map(|tokens| advance_tokens(&mut total.tokens, tokens));
        let cost = report.amount.cost.map(|cost| advance_cost(&mut total.cost, cost));
        ReportedUsage { tokens, cost }
    }
}

fn advance_tokens(last: &mut Option<TokenUsage>, total: TokenUsage) -> TokenUsage {
    if total == TokenUsage::default() {
        return total;
    }
    let before = last.replace(total).unwrap_or_default();
    if total.input < before.input || total.output < before.output {
        return total;
    }
    TokenUsage {
        input: total.input - before.input,
        cached: total.cached.saturating_sub(before.cached),
        cache_written: total.cache_written.saturating_sub(before.cache_written),
        output: total.output - before.output,
    }
}

fn advance_cost(last: &mut Option<Money>, total: Money) -> Money {
    if total == Money(0) {
        return total;
    }
    let before = last.replace(total).unwrap_or_default();
    total.0.checked_sub(before.0).map_or(total, Money)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(input: u64, output: u64, cost: u64) -> ReportedUsage {
        let tokens = TokenUsage { input, output, ..TokenUsage::default() };
        ReportedUsage { tokens: Some(tokens), cost: Some(Money(cost)) }
    }

    fn total(input: u64, output: u64, cost: u64) -> UsageReport {
        UsageReport { amount: amount(input, output, cost), is_total: true }
    }

    fn at(turn: u64, offset: u64) -> ReportPosition {
        ReportPosition { turn, offset, index: 0 }
    }

    #[test]
    fn totals_of_a_session_are_counted_by_their_difference() {
        let mut ledger = UsageLedger::default();
        assert_eq!(ledger.count(at(1, 10), "a", &total(200, 40, 1600)), amount(200, 40, 1600));
        assert_eq!(ledger.count(at(1, 20), "a", &total(200, 40, 1600)), amount(0, 0, 0));
        assert_eq!(ledger.count(at(2, 10), "a", &total(300, 60, 2400)), amount(100, 20, 800));
        assert_eq!(ledger.count(at(3, 10), "b", &total(50, 5, 100)), amount(50, 5, 100));
        assert_eq!(ledger.count(at(4, 10), "a", &total(310, 61, 2500)), amount(10, 1, 100));
    }

    #[test]
    fn a_smaller_total_is_counted_whole_and_zero_changes_nothing() {
        let mut ledger = UsageLedger::default();
        ledger.count(at(1, 10), "a", &total(200, 40, 1600));
        assert_eq!(ledger.count(at(2, 10), "a", &total(0, 0, 0)), amount(0, 0, 0));
        assert_eq!(ledger.count(at(3, 10), "a", &total(250, 50, 2000)), amount(50, 10, 400));
        assert_eq!(ledger.count(at(4, 10), "a", &total(100, 20, 800)), amount(100, 20, 800));
        assert_eq!(ledger.count(at(5, 10), "a", &total(150, 30, 900)), amount(50, 10, 100));
    }

    #[test]
    fn several_reports_of_one_line_are_all_counted() {
        let step = UsageReport { amount: amount(100, 20, 140), is_total: false };
        let mut ledger = UsageLedger::default();
        let second = ReportPosition { index: 1, ..at(1, 10) };
        assert_eq!(ledger.count(at(1, 10), "a", &step), amount(100, 20, 140));
        assert_eq!(ledger.count(second, "a", &step), amount(100, 20, 140));
        assert_eq!(ledger.count(second, "a", &step), ReportedUsage::default());
    }

    #[test]
    fn unknown_parts_stay_unknown() {
        let mut ledger = UsageLedger::default();
        let unknown = UsageReport { amount: ReportedUsage::default(), is_total: true };
        ledger.count(at(1, 1), "a", &total(10, 1, 7));
        assert_eq!(ledger.count(at(1, 2), "a", &unknown), ReportedUsage::default());
        assert_eq!(ledger.count(at(1, 3), "a", &total(11, 1, 8)), amount(1, 0, 1));
    }

    #[test]
    fn a_report_that_is_read_again_is_counted_once() {
        let step = UsageReport { amount: amount(100, 20, 140), is_total: false };
        let mut ledger = UsageLedger::default();
        assert_eq!(ledger.count(at(1, 10), "a", &step), amount(100, 20, 140));
        assert_eq!(ledger.count(at(1, 20), "a", &step), amount(100, 20, 140));
        let stored = serde_json::to_string(&ledger).unwrap();
        let mut ledger: UsageLedger = serde_json::from_str(&stored).unwrap();
        assert_eq!(ledger.count(at(1, 10), "a", &step), ReportedUsage::default());
        assert_eq!(ledger.count(at(1, 20), "a", &step), ReportedUsage::default());
        assert_eq!(ledger.count(at(2, 10), "a", &step), amount(100, 20, 140));
    }
}
