//! Tasks that are a part of their parent's own work.

use brigade_model::call::{ConditionRequest, WaitMode};
use brigade_model::command::{Recipient, RecoveryFinding};
use brigade_model::ids::Millis;
use brigade_model::limits::Limits;
use brigade_model::refusal::RefusalKind;
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::spec::TaskSpec;

use crate::support::*;

fn part() -> TaskSpec {
    TaskSpec { part_of_parent: true, ..process() }
}

#[test]
fn a_part_runs_in_the_slot_of_its_parent() {
    let mut env = Env::limited(Limits { running: Some(1), ..Limits::default() });
    let parent = env.spawn(agent());
    let part = env.spawn_child(parent, part());
    let child = env.spawn_child(parent, job());
    env.states(&[(parent, "running"), (part, "running"), (child, "queued")]);
    assert_eq!(env.tree.running_count(), 1);
    env.succeed(part);
    env.states(&[(child, "queued")]);
}

#[test]
fn a_part_needs_no_start_of_the_runtime() {
    let mut env = Env::new();
    env.tree.allow_starts(Some(1));
    let parent = env.spawn(agent());
    let queued = env.spawn(job());
    let part = env.spawn_child(parent, part());
    env.states(&[(queued, "queued"), (part, "running")]);
}

#[test]
fn limits_on_the_number_of_tasks_do_not_count_a_part() {
    let rate = SpawnRate { count: 1, per: Millis(60_000) };
    for limits in [
        Limits { width: Some(1), ..Limits::default() },
        Limits { total: Some(1), ..Limits::default() },
        Limits { spawn_rate: Some(rate), ..Limits::default() },
    ] {
        let mut env = Env::new();
        let parent = env.spawn(agent().limited(limits));
        let first = env.spawn_child(parent, part());
        env.spawn_child(parent, job());
        env.spawn_child(parent, part());
        let caller = env.by(parent);
        assert_eq!(env.try_spawn(caller, job()).expect_err("full").kind, RefusalKind::Limit);
        env.succeed(first);
        let caller = env.by(parent);
        assert_eq!(env.try_spawn(caller, job()).expect_err("full").kind, RefusalKind::Limit);
    }
    let mut env = Env::limited(Limits { depth: Some(1), ..Limits::default() });
    let parent = env.spawn(agent());
    env.spawn_child(parent, part());
    let caller = env.by(parent);
    refused(env.try_spawn(caller, job()), RefusalKind::Limit, "depth");
}

#[test]
fn a_budget_still_holds_for_a_part() {
    let mut env = Env::new();
    let parent = env.spawn(agent().limited(Limits { tokens: Some(0), ..Limits::default() }));
    let caller = env.by(parent);
    refused(env.try_spawn(caller, part()), RefusalKind::Limit, "token budget");
}

#[test]
fn a_part_has_a_parent_with_which_it_ends() {
    let mut env = Env::new();
    refused(env.try_spawn(operator(), part()), RefusalKind::Invalid, "top level");
    let parent = env.spawn(agent());
    let caller = env.by(parent);
    refused(env.try_spawn(caller, part().kept()), RefusalKind::Invalid, "kept");
    let part = env.spawn_child(parent, part());
    env.stop_task(parent);
    env.states(&[(part, "stopping")]);
}

#[test]
fn a_part_that_never_started_starts_after_a_crash_without_a_slot() {
    let mut env = Env::limited(Limits { running: Some(1), ..Limits::default() });
    let parent = env.spawn(agent());
    let part = env.spawn_child(parent, part());
    env.recover(part, RecoveryFinding::NeverStarted);
    env.advance(0);
    env.states(&[(part, "running")]);
    assert_eq!(env.row(part).attempt.0, 2);
}

#[test]
fn a_part_collects_in_the_place_of_its_parent() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let first = env.spawn_child(parent, job());
    let caller = env.by(parent);
    let refusal = env.collect(caller, &[first.into()], WaitMode::All).expect_err("it parks");
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    let program = env.spawn_child(parent, part());
    let caller = env.by(parent);
    let refusal = env.collect(caller, &[program.into()], WaitMode::All).expect_err("itself");
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    env.succeed(first);
    let caller = env.by(parent);
    assert_eq!(env.collected(caller, &[]), [(first, false)], "all other children");
    let caller = env.by(parent);
    assert_eq!(env.collected(caller, &[]), [], "once");
}

#[test]
fn a_part_gets_no_messages_and_its_result_is_not_in_the_inbox() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let program = env.spawn_child(parent, part());
    for caller in [operator(), env.by(parent)] {
        let refusal = env.send(caller, Recipient::Task(program.into())).expect_err("a part");
        assert_eq!(refusal.kind, RefusalKind::Invalid);
    }
    env.succeed(program);
    assert!(env.park(parent, 1, ConditionRequest::Inbox), "nothing has arrived");
}
