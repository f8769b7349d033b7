//! A step is granted together with the remaining budgets.

use brigade_model::command::AttemptReport;
use brigade_model::decide::CommandReply;
use brigade_model::ids::{CallIndex, Millis};
use brigade_model::limits::{CostEstimate, Limits, Money, Remaining, RemainingBudgets, Usage};

use crate::support::*;

fn remaining(env: &mut Env, no: brigade_model::ids::TaskNo, index: u32) -> RemainingBudgets {
    let max = Usage { tokens: 10, money: Money(5) };
    let index = CallIndex(index);
    match env.report(
        no,
        AttemptReport::BeginStep { index, cost: CostEstimate { max, min: Usage::NONE } },
    ) {
        CommandReply::Reserved { remaining, .. } => remaining,
        other => panic!("nothing was reserved: {other:?}"),
    }
}

#[test]
fn without_a_budget_nothing_is_counted() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    let events = env.events.len();
    assert_eq!(remaining(&mut env, no, 1), RemainingBudgets::default());
    assert_eq!(env.events.len(), events, "nothing is written");
}

#[test]
fn the_smallest_remaining_budget_is_returned() {
    let mut env = Env::limited(Limits { money: Some(Money(1_000)), ..Limits::default() });
    let time = Some(Millis(60_000));
    let top = Limits { tokens: Some(500), time, ..Limits::default() };
    let parent = env.spawn(collecting_agent().limited(top));
    let own = Limits { tokens: Some(100), ..Limits::default() };
    let child = env.spawn_child(parent, collecting_agent().limited(own));
    env.report(parent, AttemptReport::Charge(Usage { tokens: 450, money: Money(300) }));
    env.advance(20_000);
    let budgets = remaining(&mut env, child, 1);
    assert_eq!(budgets.tokens, Some(Remaining { amount: 50, limit: 500, shared: true }));
    assert_eq!(budgets.money, Some(Remaining { amount: 700, limit: 1_000, shared: true }));
    assert_eq!(budgets.time, Some(Remaining { amount: 40_000, limit: 60_000, shared: true }));
    // A call's own reservation counts only for the next one.
    env.report(child, AttemptReport::Charge(Usage { tokens: 1, money: Money(1) }));
    let budgets = remaining(&mut env, child, 2);
    assert_eq!(budgets.tokens, Some(Remaining { amount: 49, limit: 500, shared: true }));
}

#[test]
fn of_equal_remaining_budgets_the_nearest_is_returned() {
    let mut env = Env::new();
    let limits = || Limits { tokens: Some(100), ..Limits::default() };
    let parent = env.spawn(collecting_agent().limited(limits()));
    let child = env.spawn_child(parent, collecting_agent().limited(limits()));
    let budgets = remaining(&mut env, child, 1);
    assert_eq!(budgets.tokens, Some(Remaining { amount: 100, limit: 100, shared: false }));
}
