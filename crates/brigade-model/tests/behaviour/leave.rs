//! Who is let go on is told what is left, before it bites.

use brigade_model::command::AttemptReport;
use brigade_model::decide::CommandReply;
use brigade_model::ids::{CallIndex, Millis};
use brigade_model::limits::{Limits, Money, Remaining, RemainingBudgets, Usage};

use crate::support::*;

fn left(env: &mut Env, no: brigade_model::ids::TaskNo, index: u32) -> RemainingBudgets {
    let (most, least) = (Usage { tokens: 10, money: Money(5) }, Usage::NONE);
    match env
        .report(no, AttemptReport::BeginStep { index: CallIndex(index), max: most, min: least })
    {
        CommandReply::Reserved { remaining: left, .. } => left,
        other => panic!("no leave: {other:?}"),
    }
}

#[test]
fn without_a_budget_nothing_is_counted() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    let events = env.events.len();
    assert_eq!(left(&mut env, no, 1), RemainingBudgets::default());
    assert_eq!(env.events.len(), events, "and nothing is written");
}

#[test]
fn of_several_budgets_the_smallest_rest_is_told() {
    let mut env = Env::limited(Limits { money: Some(Money(1_000)), ..Limits::default() });
    let time = Some(Millis(60_000));
    let top = Limits { tokens: Some(500), time, ..Limits::default() };
    let parent = env.spawn(hearing_agent().limited(top));
    let own = Limits { tokens: Some(100), ..Limits::default() };
    let child = env.below(parent, hearing_agent().limited(own));
    env.report(parent, AttemptReport::Charge(Usage { tokens: 450, money: Money(300) }));
    env.advance(20_000);
    let told = left(&mut env, child, 1);
    assert_eq!(told.tokens, Some(Remaining { amount: 50, limit: 500, shared: true }));
    assert_eq!(told.money, Some(Remaining { amount: 700, limit: 1_000, shared: true }));
    assert_eq!(told.time, Some(Remaining { amount: 40_000, limit: 60_000, shared: true }));
    // What the call itself sets aside counts for the next one only.
    env.report(child, AttemptReport::Charge(Usage { tokens: 1, money: Money(1) }));
    let told = left(&mut env, child, 2);
    assert_eq!(told.tokens, Some(Remaining { amount: 49, limit: 500, shared: true }));
}

#[test]
fn the_nearest_of_equal_rests_is_ones_own() {
    let mut env = Env::new();
    let limits = || Limits { tokens: Some(100), ..Limits::default() };
    let parent = env.spawn(hearing_agent().limited(limits()));
    let child = env.below(parent, hearing_agent().limited(limits()));
    let told = left(&mut env, child, 1);
    assert_eq!(told.tokens, Some(Remaining { amount: 100, limit: 100, shared: false }));
}
