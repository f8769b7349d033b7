//! Tokens and money of turns, from the reports of programs.
//!
//! Some programs report the usage of one step or turn. Others report a total of their session,
//! which goes on after a resume, and some report each model call before such a total. The ledger
//! returns the amount that is new in each report.

use std::collections::{BTreeMap, VecDeque};

use brigade_llm::TokenUsage;
use brigade_model::limits::Money;
use brigade_model::truncate::truncate_end;
use serde::{Deserialize, Serialize};

/// The largest number of model calls whose last report is compared with the next one.
const RECENT_CALLS_MAX: usize = 32;
/// The largest number of sessions of one task. A program has one, and rarely a second one.
const SESSIONS_MAX: usize = 16;
/// The longest id of a model call that is stored, in bytes.
const CALL_ID_MAX: usize = 256;

/// A report of a program about its usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageReport {
    pub amount: ReportedUsage,
    pub scope: UsageScope,
}

/// The part of a session that a report is about.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UsageScope {
    /// A step or a turn that no other report contains.
    Step,
    /// One model call so far. A later total of the session contains it.
    ModelCall { id: String },
    /// The whole session so far.
    SessionTotal,
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

/// The new amount of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedUsage {
    pub tokens: TokenUsage,
    pub money: Money,
}

/// The usage that was counted so far. It is stored with the position up to which the output was
/// processed, so that the next attempt counts nothing twice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageLedger {
    sessions: BTreeMap<String, SessionUsage>,
    counted_to: Option<ReportPosition>,
}

/// The usage of one session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct SessionUsage {
    /// The last total.
    total: ReportedUsage,
    /// The amount of model calls since the last total.
    #[serde(default)]
    calls: ReportedUsage,
    /// The model calls that were reported last, in this order. Calls of sub-agents alternate.
    #[serde(default)]
    recent_calls: VecDeque<CallUsage>,
}

/// The last report of a model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredCall", into = "StoredCall")]
struct CallUsage {
    id: String,
    tokens: TokenUsage,
}

/// A call in the form of a list, since each state of a turn has many: id, input, cached tokens,
/// tokens written to the cache, output.
type StoredCall = (String, u64, u64, u64, u64);

impl From<StoredCall> for CallUsage {
    fn from((id, input, cached, cache_written, output): StoredCall) -> Self {
        Self { id, tokens: TokenUsage { input, cached, cache_written, output } }
    }
}

impl From<CallUsage> for StoredCall {
    fn from(call: CallUsage) -> Self {
        let TokenUsage { input, cached, cache_written, output } = call.tokens;
        (call.id, input, cached, cache_written, output)
    }
}

impl UsageLedger {
    /// Counts a report and returns the new amount. A report at or before the position of an earlier
    /// one is counted already and returns nothing. `price` is the cost of tokens whose cost the
    /// program does not report.
    ///
    /// The new amount of a total is its difference to the last total of the session, without the
    /// model calls that were counted since. A smaller total is a counter that was reset, so all of
    /// it is new. A total of zero changes nothing: programs print it for a turn that failed before
    /// its session was loaded.
    pub fn count(
        &mut self,
        position: ReportPosition,
        session_id: &str,
        report: &UsageReport,
        price: impl Fn(&TokenUsage) -> Money,
    ) -> CountedUsage {
        if self.counted_to.is_some_and(|counted| position <= counted) {
            return CountedUsage::default();
        }
        self.counted_to = Some(position);
        let amount = report.amount;
        let with_price = |tokens: Option<TokenUsage>, cost: Option<Money>| {
            let tokens = tokens.unwrap_or_default();
            CountedUsage { tokens, money: cost.unwrap_or_else(|| price(&tokens)) }
        };
        match &report.scope {
            UsageScope::Step => with_price(amount.tokens, amount.cost),
            UsageScope::ModelCall { id } => {
                let session = self.session(session_id);
                let tokens = session.advance_call(id, amount.tokens.unwrap_or_default());
                let counted = with_price(Some(tokens), amount.cost);
                session.add_call(counted);
                counted
            }
            UsageScope::SessionTotal => {
                let new = self.session(session_id).advance_total(amount);
                with_price(new.tokens, new.cost)
            }
        }
    }

    /// Forgets model calls that no later total contains, since their program was killed before it
    /// stored its totals.
    pub fn forget_calls(&mut self) {
        for session in self.sessions.values_mut() {
            session.calls = ReportedUsage::default();
            session.recent_calls.clear();
        }
    }

    /// Returns the usage of a session. Only this one keeps its recent calls.
    fn session(&mut self, id: &str) -> &mut SessionUsage {
        let id = truncate_end(id, CALL_ID_MAX);
        if !self.sessions.contains_key(&id) && self.sessions.len() >= SESSIONS_MAX {
            self.sessions.pop_first();
        }
        for (other, session) in &mut self.sessions {
            if *other != id {
                session.recent_calls.clear();
            }
        }
        self.sessions.entry(id).or_default()
    }
}

impl SessionUsage {
    /// Stores the report of a model call, and returns the amount that is new in it.
    fn advance_call(&mut self, id: &str, tokens: TokenUsage) -> TokenUsage {
        let id = truncate_end(id, CALL_ID_MAX);
        let found = self.recent_calls.iter().position(|call| call.id == id);
        let before = found.and_then(|index| self.recent_calls.remove(index));
        let before = before.map(|call| call.tokens).unwrap_or_default();
        let new = tokens_beyond(tokens, before);
        if self.recent_calls.len() >= RECENT_CALLS_MAX {
            self.recent_calls.pop_front();
        }
        self.recent_calls.push_back(CallUsage { id, tokens: sum_tokens(before, new) });
        new
    }

    fn add_call(&mut self, counted: CountedUsage) {
        let tokens = sum_tokens(self.calls.tokens.unwrap_or_default(), counted.tokens);
        let money = self.calls.cost.unwrap_or_default().0.saturating_add(counted.money.0);
        self.calls = ReportedUsage { tokens: Some(tokens), cost: Some(Money(money)) };
    }

    /// Stores a total, and returns the amount that is new in it.
    fn advance_total(&mut self, amount: ReportedUsage) -> ReportedUsage {
        let tokens = amount.tokens.filter(|tokens| *tokens != TokenUsage::default()).map(|total| {
            let new = advance_tokens(&mut self.total.tokens, total);
            tokens_beyond(new, self.calls.tokens.take().unwrap_or_default())
        });
        let cost = amount.cost.filter(|cost| *cost != Money(0)).map(|total| {
            let new = advance_cost(&mut self.total.cost, total);
            Money(new.0.saturating_sub(self.calls.cost.take().unwrap_or_default().0))
        });
        ReportedUsage { tokens: tokens.or(amount.tokens), cost: cost.or(amount.cost) }
    }
}

/// Returns the part of `tokens` that exceeds `counted`, for each kind of token.
fn tokens_beyond(tokens: TokenUsage, counted: TokenUsage) -> TokenUsage {
    TokenUsage {
        input: tokens.input.saturating_sub(counted.input),
        cached: tokens.cached.saturating_sub(counted.cached),
        cache_written: tokens.cache_written.saturating_sub(counted.cache_written),
        output: tokens.output.saturating_sub(counted.output),
    }
}

fn sum_tokens(a: TokenUsage, b: TokenUsage) -> TokenUsage {
    TokenUsage {
        input: a.input.saturating_add(b.input),
        cached: a.cached.saturating_add(b.cached),
        cache_written: a.cache_written.saturating_add(b.cache_written),
        output: a.output.saturating_add(b.output),
    }
}

fn advance_tokens(last: &mut Option<TokenUsage>, total: TokenUsage) -> TokenUsage {
    let before = last.replace(total).unwrap_or_default();
    match total.input < before.input || total.output < before.output {
        true => total,
        false => tokens_beyond(total, before),
    }
}

fn advance_cost(last: &mut Option<Money>, total: Money) -> Money {
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
        UsageReport { amount: amount(input, output, cost), scope: UsageScope::SessionTotal }
    }

    fn step() -> UsageReport {
        UsageReport { amount: amount(100, 20, 140), scope: UsageScope::Step }
    }

    fn call(id: &str, input: u64, output: u64) -> UsageReport {
        let amount = ReportedUsage { cost: None, ..amount(input, output, 0) };
        UsageReport { amount, scope: UsageScope::ModelCall { id: id.into() } }
    }

    /// Counts a report at a price of one millionth of a dollar for each token.
    fn count(
        ledger: &mut UsageLedger,
        position: ReportPosition,
        session: &str,
        report: &UsageReport,
    ) -> CountedUsage {
        ledger.count(position, session, report, |tokens| Money(tokens.total()))
    }

    fn counted(input: u64, output: u64, money: u64) -> CountedUsage {
        let tokens = TokenUsage { input, output, ..TokenUsage::default() };
        CountedUsage { tokens, money: Money(money) }
    }

    fn at(turn: u64, offset: u64) -> ReportPosition {
        ReportPosition { turn, offset, index: 0 }
    }

    #[test]
    fn totals_of_a_session_are_counted_by_their_difference() {
        let mut ledger = UsageLedger::default();
        assert_eq!(
            count(&mut ledger, at(1, 10), "a", &total(200, 40, 1600)),
            counted(200, 40, 1600)
        );
        assert_eq!(count(&mut ledger, at(1, 20), "a", &total(200, 40, 1600)), counted(0, 0, 0));
        assert_eq!(
            count(&mut ledger, at(2, 10), "a", &total(300, 60, 2400)),
            counted(100, 20, 800)
        );
        assert_eq!(count(&mut ledger, at(3, 10), "b", &total(50, 5, 100)), counted(50, 5, 100));
        assert_eq!(count(&mut ledger, at(4, 10), "a", &total(310, 61, 2500)), counted(10, 1, 100));
    }

    #[test]
    fn a_smaller_total_is_counted_whole_and_zero_changes_nothing() {
        let mut ledger = UsageLedger::default();
        count(&mut ledger, at(1, 10), "a", &total(200, 40, 1600));
        assert_eq!(count(&mut ledger, at(2, 10), "a", &total(0, 0, 0)), counted(0, 0, 0));
        assert_eq!(count(&mut ledger, at(3, 10), "a", &total(250, 50, 2000)), counted(50, 10, 400));
        assert_eq!(count(&mut ledger, at(4, 10), "a", &total(100, 20, 800)), counted(100, 20, 800));
        assert_eq!(count(&mut ledger, at(5, 10), "a", &total(150, 30, 900)), counted(50, 10, 100));
    }

    #[test]
    fn several_reports_of_one_line_are_all_counted() {
        let mut ledger = UsageLedger::default();
        let second = ReportPosition { index: 1, ..at(1, 10) };
        assert_eq!(count(&mut ledger, at(1, 10), "a", &step()), counted(100, 20, 140));
        assert_eq!(count(&mut ledger, second, "a", &step()), counted(100, 20, 140));
        assert_eq!(count(&mut ledger, second, "a", &step()), CountedUsage::default());
    }

    #[test]
    fn unknown_parts_stay_unknown() {
        let mut ledger = UsageLedger::default();
        let amount = ReportedUsage::default();
        let unknown = UsageReport { amount, scope: UsageScope::SessionTotal };
        count(&mut ledger, at(1, 1), "a", &total(10, 1, 7));
        assert_eq!(count(&mut ledger, at(1, 2), "a", &unknown), CountedUsage::default());
        assert_eq!(count(&mut ledger, at(1, 3), "a", &total(11, 1, 8)), counted(1, 0, 1));
    }

    #[test]
    fn a_report_that_is_read_again_is_counted_once() {
        let mut ledger = UsageLedger::default();
        assert_eq!(count(&mut ledger, at(1, 10), "a", &step()), counted(100, 20, 140));
        assert_eq!(count(&mut ledger, at(1, 20), "a", &step()), counted(100, 20, 140));
        let stored = serde_json::to_string(&ledger).unwrap();
        let mut ledger: UsageLedger = serde_json::from_str(&stored).unwrap();
        assert_eq!(count(&mut ledger, at(1, 10), "a", &step()), CountedUsage::default());
        assert_eq!(count(&mut ledger, at(1, 20), "a", &step()), CountedUsage::default());
        assert_eq!(count(&mut ledger, at(2, 10), "a", &step()), counted(100, 20, 140));
    }

    #[test]
    fn model_calls_are_counted_once_and_a_total_adds_the_rest() {
        let mut ledger = UsageLedger::default();
        assert_eq!(count(&mut ledger, at(1, 1), "a", &call("m1", 100, 1)), counted(100, 1, 101));
        assert_eq!(count(&mut ledger, at(1, 2), "a", &call("sub", 50, 2)), counted(50, 2, 52));
        assert_eq!(count(&mut ledger, at(1, 3), "a", &call("m1", 100, 1)), counted(0, 0, 0));
        assert_eq!(count(&mut ledger, at(1, 4), "a", &call("m1", 100, 9)), counted(0, 8, 8));
        let stored = serde_json::to_string(&ledger).unwrap();
        let mut ledger: UsageLedger = serde_json::from_str(&stored).unwrap();
        assert_eq!(count(&mut ledger, at(1, 4), "a", &call("m1", 100, 9)), counted(0, 0, 0));
        assert_eq!(count(&mut ledger, at(1, 9), "a", &total(160, 40, 400)), counted(10, 29, 239));
        assert_eq!(count(&mut ledger, at(2, 1), "a", &call("m2", 30, 1)), counted(30, 1, 31));
        assert_eq!(count(&mut ledger, at(2, 9), "a", &total(190, 50, 500)), counted(0, 9, 69));
    }

    #[test]
    fn calls_of_a_stopped_turn_are_not_counted_again_with_the_next_total() {
        let mut ledger = UsageLedger::default();
        count(&mut ledger, at(1, 1), "a", &call("m1", 100, 10));
        assert_eq!(count(&mut ledger, at(2, 1), "a", &call("m2", 30, 3)), counted(30, 3, 33));
        assert_eq!(count(&mut ledger, at(2, 9), "a", &total(130, 20, 200)), counted(0, 7, 57));
    }

    #[test]
    fn a_total_without_the_calls_of_a_killed_turn_is_counted_beside_them() {
        let mut ledger = UsageLedger::default();
        count(&mut ledger, at(1, 1), "a", &call("m1", 100, 10));
        ledger.forget_calls();
        assert_eq!(count(&mut ledger, at(2, 1), "a", &call("m2", 30, 3)), counted(30, 3, 33));
        assert_eq!(count(&mut ledger, at(2, 9), "a", &total(30, 10, 40)), counted(0, 7, 7));
    }

    #[test]
    fn a_call_that_is_reported_again_and_again_stays_known() {
        let mut ledger = UsageLedger::default();
        assert_eq!(count(&mut ledger, at(1, 0), "a", &call("long", 9, 1)), counted(9, 1, 10));
        for offset in 1..1000 {
            let id = if offset % 20 == 0 { "long".to_owned() } else { format!("m{offset}") };
            let expect = if id == "long" { counted(0, 0, 0) } else { counted(9, 1, 10) };
            assert_eq!(count(&mut ledger, at(1, offset), "a", &call(&id, 9, 1)), expect);
        }
    }

    #[test]
    fn the_stored_calls_are_bounded() {
        let mut ledger = UsageLedger::default();
        for offset in 0..1000 {
            count(&mut ledger, at(1, offset), "a", &call(&format!("m{offset}"), 1, 1));
        }
        let long = "x".repeat(1 << 20);
        count(&mut ledger, at(1, 1000), "a", &call(&long, 5, 5));
        assert_eq!(count(&mut ledger, at(1, 1001), "a", &call(&long, 5, 6)), counted(0, 1, 1));
        for turn in 2..2000 {
            let session = format!("{}{long}", turn % 20);
            count(&mut ledger, at(turn, 0), &session, &call(&format!("m{turn}{long}"), 1, 1));
            count(&mut ledger, at(turn, 1), &session, &total(turn, turn, turn));
        }
        let size = serde_json::to_string(&ledger).unwrap().len();
        assert!(size < 10_000, "{size} bytes");
    }
}
