//! Kept tasks: they outlive their parent, and so do the limits under which they were spawned.

use brigade_model::command::{AttemptReport, Caller, Command, ResumeCommand};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{Millis, Owner, TaskNo, Time};
use brigade_model::limits::{CostEstimate, LimitKind, Limits, Money, Usage};
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::RefusalKind;
use brigade_model::spec::TaskSpec;
use brigade_model::task::InheritedDeadline;
use brigade_model::work::KeptDeadline;

use crate::support::*;

fn of_tokens(max: u64) -> Limits {
    Limits { tokens: Some(max), ..Limits::default() }
}

fn of_time(max: u64) -> Limits {
    Limits { time: Some(Millis(max)), ..Limits::default() }
}

fn running(max: u32) -> Limits {
    Limits { running: Some(max), ..Limits::default() }
}

fn reserve(env: &mut Env, no: TaskNo, max: u64) -> CommandReply {
    env.report(no, AttemptReport::Reserve(CostEstimate { max: tokens(max), min: tokens(10) }))
}

/// Returns a parent that has ended, and the task that it kept.
fn kept_by(env: &mut Env, parent: TaskSpec, child: TaskSpec) -> (TaskNo, TaskNo) {
    let parent = env.spawn(parent);
    let kept = env.spawn_child(parent, child.kept());
    env.succeed(parent);
    assert_eq!(env.row(kept).owner, Owner::Session);
    (parent, kept)
}

#[track_caller]
fn failed_with(env: &Env, no: TaskNo, expected: &Failure) {
    match env.outcome(no) {
        Outcome::Failed(failed) => assert_eq!(failed.failure, *expected),
        other => panic!("{no:?} ended {other}"),
    }
}

#[test]
fn a_kept_child_spends_from_its_parents_budget() {
    let mut env = Env::new();
    let parent = env.spawn(agent().limited(of_tokens(100)));
    env.report(parent, AttemptReport::Charge(tokens(30)));
    let [one, two] = [0; 2].map(|_| env.spawn_child(parent, agent().kept()));
    env.succeed(parent);
    assert_eq!(reserve(&mut env, one, 1_000), CommandReply::Granted(tokens(70)));
    env.report(one, AttemptReport::Charge(tokens(50)));
    assert_eq!(env.row(parent).usage(), tokens(80), "an ended parent is still charged");
    assert_eq!(env.row(parent).own_usage(), tokens(30));
    assert_eq!(reserve(&mut env, two, 15), CommandReply::Granted(tokens(15)));
    assert_eq!(reserve(&mut env, one, 15), CommandReply::Exhausted(LimitKind::Tokens));
    env.states(&[(parent, "succeeded"), (one, "stopping"), (two, "running")]);
    env.aborted(one);
    failed_with(&env, one, &Failure::Budget { limit: LimitKind::Tokens });
}

#[test]
fn a_kept_child_spends_from_its_parents_money_budget() {
    let mut env = Env::new();
    let limits = Limits { money: Some(Money(100)), ..Limits::default() };
    let (_, kept) = kept_by(&mut env, agent().limited(limits), agent());
    let of = |money| Usage { tokens: 0, money: Money(money) };
    let granted =
        env.report(kept, AttemptReport::Reserve(CostEstimate { max: of(500), min: of(10) }));
    assert_eq!(granted, CommandReply::Granted(of(100)));
    env.report(kept, AttemptReport::Charge(of(95)));
    let granted =
        env.report(kept, AttemptReport::Reserve(CostEstimate { max: of(500), min: of(10) }));
    assert_eq!(granted, CommandReply::Exhausted(LimitKind::Money));
}

#[test]
fn a_chain_of_kept_children_ends_where_the_budget_does() {
    let mut env = Env::new();
    let mut parent = env.spawn(agent().limited(of_tokens(100)));
    for spent in [40, 80] {
        let kept = env.spawn_child(parent, agent().kept());
        env.succeed(parent);
        env.report(kept, AttemptReport::Charge(tokens(40)));
        assert_eq!(env.row(TaskNo::FIRST).usage(), tokens(spent));
        parent = kept;
    }
    assert_eq!(reserve(&mut env, parent, 1_000), CommandReply::Granted(tokens(20)));
    let by = env.by(parent);
    refused(env.try_spawn(by, agent().kept()), RefusalKind::Limit, "the token budget of agent:1");
}

#[test]
fn a_kept_child_is_as_deep_as_it_was() {
    let mut env = Env::new();
    let depth = Limits { depth: Some(2), ..Limits::default() };
    let (_, kept) = kept_by(&mut env, agent().limited(depth), agent());
    let second = env.spawn_child(kept, agent().kept());
    env.succeed(kept);
    let by = env.by(second);
    refused(env.try_spawn(by, agent()), RefusalKind::Limit, "the depth limit of agent:1");
}

#[test]
fn the_spawn_rate_of_a_parent_applies_to_tasks_that_it_kept() {
    let mut env = Env::new();
    let limits = Limits { spawn_rate: "2/h".parse().ok(), ..Limits::default() };
    let (_, kept) = kept_by(&mut env, agent().limited(limits), agent());
    env.spawn_child(kept, job());
    let by = env.by(kept);
    refused(env.try_spawn(by, job()), RefusalKind::Limit, "the spawn rate of agent:1 is reached");
}

#[test]
fn the_width_and_total_limits_of_an_ended_parent_do_not_apply() {
    let mut env = Env::new();
    let limits = Limits { width: Some(1), total: Some(1), ..Limits::default() };
    let (parent, kept) = kept_by(&mut env, agent().limited(limits), agent());
    let [one, two] = [0; 2].map(|_| env.spawn_child(kept, job()));
    env.states(&[(parent, "succeeded"), (one, "running"), (two, "running")]);
}

#[test]
fn the_total_limit_of_an_alive_root_counts_spawns_of_a_kept_task() {
    let mut env = Env::new();
    let total = Limits { total: Some(3), ..Limits::default() };
    let root = env.spawn(agent().limited(total));
    let middle = env.spawn_child(root, agent());
    let kept = env.spawn_child(middle, agent().kept());
    env.succeed(middle);
    assert_eq!(env.row(kept).owner, Owner::Session);
    env.spawn_child(kept, job());
    let by = env.by(kept);
    refused(env.try_spawn(by, job()), RefusalKind::Limit, "the total limit of agent:1 is reached");
    env.succeed(root);
    env.spawn_child(kept, job());
}

#[test]
fn a_kept_child_keeps_its_slot() {
    let mut env = Env::new();
    let parent = env.spawn(agent().limited(running(1)));
    let kept = env.spawn_child(parent, job().kept());
    let awaited = env.spawn_child(parent, job());
    env.succeed(parent);
    env.states(&[(parent, "closing"), (kept, "running"), (awaited, "queued")]);
    env.succeed(kept);
    env.states(&[(awaited, "running")]);
    env.succeed(awaited);
    assert_eq!(env.state(parent), "succeeded");
}

#[test]
fn a_kept_child_stays_queued_until_its_holders_limit_is_raised() {
    let mut env = Env::new();
    let (parent, kept) = kept_by(&mut env, job().limited(running(0)), job());
    env.states(&[(parent, "succeeded"), (kept, "queued")]);
    env.set_limits(Some(parent), running(1));
    assert_eq!(env.state(kept), "running");
    env.succeed(kept);
    let set = brigade_model::command::SetLimitsCommand {
        caller: operator(),
        task: Some(parent.into()),
        limits: running(2),
    };
    refused(env.submit(&Command::SetLimits(set)), RefusalKind::Ended, "resume it with more");
}

#[test]
fn a_kept_agent_keeps_the_deadline_and_a_kept_process_does_not() {
    let mut env = Env::new();
    let parent = env.spawn(agent().limited(of_time(1_000)));
    let kept = env.spawn_child(parent, agent().kept());
    let server = env.spawn_child(parent, process().kept());
    let bound = TaskSpec { kept_deadline: Some(KeptDeadline::Inherited), ..process().kept() };
    let bound = env.spawn_child(parent, bound);
    let free = TaskSpec { kept_deadline: Some(KeptDeadline::Dropped), ..agent().kept() };
    let free = env.spawn_child(parent, free);
    let queued = env.spawn_child(parent, agent().limited(running(0)).kept());
    let waiting = env.spawn_child(queued, agent());
    env.advance(400);
    env.succeed(parent);
    assert_eq!(
        env.row(kept).inherited_deadline(),
        Some(InheritedDeadline { at: Time(1_001_000), limit: Millis(1_000), holder: parent })
    );
    assert_eq!(env.state(waiting), "queued");
    env.advance(599);
    env.states(&[(kept, "running"), (bound, "running"), (queued, "running")]);
    env.advance(1);
    env.states(&[(kept, "stopping"), (bound, "stopping"), (queued, "stopping")]);
    env.states(&[(server, "running"), (free, "running"), (waiting, "cancelled")]);
    env.aborted(kept);
    failed_with(&env, kept, &Failure::Timeout { after: Millis(1_000) });
}

/// Returns a parent with a time limit of one second that has ended, and the process that it kept.
fn server_kept(env: &mut Env) -> (TaskNo, TaskNo) {
    kept_by(env, agent().limited(of_time(1_000)), process())
}

#[test]
fn agents_of_a_kept_process_end_at_the_deadline_that_the_process_outlives() {
    let mut env = Env::new();
    let parent = env.spawn(agent().limited(of_time(1_000)));
    let server = env.spawn_child(parent, process().kept());
    let early = env.spawn_child(server, agent());
    let inner = env.spawn_child(server, process());
    env.succeed(parent);
    let late = env.spawn_child(server, agent());
    let deeper = env.spawn_child(inner, agent());
    let helper = env.spawn_child(server, process());
    let free = TaskSpec { kept_deadline: Some(KeptDeadline::Dropped), ..agent() };
    let free = env.spawn_child(server, free);
    env.advance(999);
    env.states(&[(early, "running"), (late, "running"), (deeper, "running")]);
    env.advance(1);
    env.states(&[(early, "stopping"), (late, "stopping"), (deeper, "stopping")]);
    env.states(&[(server, "running"), (helper, "running"), (free, "running")]);
    env.aborted(late);
    failed_with(&env, late, &Failure::Timeout { after: Millis(1_000) });
}

#[test]
fn nothing_escapes_the_deadline_of_a_kept_process_through_another_kept_one() {
    let mut env = Env::new();
    let (_, server) = server_kept(&mut env);
    let second = env.spawn_child(server, process().kept());
    let agent_kept = env.spawn_child(server, agent().kept());
    env.succeed(server);
    let late = env.spawn_child(second, agent());
    env.advance(1_000);
    env.states(&[(second, "running"), (agent_kept, "stopping"), (late, "stopping")]);
}

#[test]
fn after_its_deadline_a_kept_process_starts_and_resumes_no_agents() {
    let mut env = Env::new();
    let (_, server) = server_kept(&mut env);
    let early = env.spawn_child(server, agent());
    env.succeed(early);
    env.advance(1_000);
    let by = env.by(server);
    let over = "the deadline of agent:1 has passed; no agent starts under it";
    refused(env.try_spawn(by.clone(), agent()), RefusalKind::Limit, over);
    env.spawn_child(server, process());
    env.resume(by, early).expect("its owner resumes it");
    env.advance(1);
    assert_ne!(env.state(early), "running");
}

#[test]
fn an_inherited_deadline_applies_to_a_queued_task() {
    let mut env = Env::new();
    let parent = env.spawn(agent().limited(of_time(1_000)));
    let kept = env.spawn_child(parent, agent().limited(of_time(60_000)).kept());
    env.set_limits(None, running(0));
    env.report(kept, AttemptReport::NoPerformer { reason: "nobody".into() });
    env.succeed(parent);
    assert_eq!(env.state(kept), "queued");
    env.advance(1_000);
    failed_with(&env, kept, &Failure::Timeout { after: Millis(1_000) });
}

#[test]
fn a_deadline_is_passed_on_from_one_kept_agent_to_the_next() {
    let mut env = Env::new();
    let (_, first) = kept_by(&mut env, agent().limited(of_time(1_000)), agent());
    let second = env.spawn_child(first, agent().limited(of_time(5_000)).kept());
    env.succeed(first);
    env.advance(1_000);
    assert_eq!(env.state(second), "stopping");
}

#[test]
fn an_inherited_deadline_applies_to_one_run() {
    let mut env = Env::new();
    let (_, kept) = kept_by(&mut env, agent().limited(of_time(1_000)), agent());
    env.advance(1_000);
    env.aborted(kept);
    env.resume(operator(), kept).expect("the operator gives it another run");
    assert_eq!(env.row(kept).inherited_deadline(), None);
    env.advance(10_000);
    assert_eq!(env.state(kept), "running");
}

#[test]
fn a_parent_that_is_resumed_with_a_larger_budget_extends_that_of_kept_tasks() {
    let mut env = Env::new();
    let (parent, kept) = kept_by(&mut env, agent().limited(of_tokens(100)), agent());
    env.report(kept, AttemptReport::Charge(tokens(100)));
    env.succeed(kept);
    refused(env.resume(operator(), kept), RefusalKind::Limit, "the token budget of agent:1");
    let more = Some(of_tokens(150));
    let resume = ResumeCommand { caller: operator(), task: parent.into(), limits: more };
    env.submit(&Command::Resume(resume)).expect("more is given");
    env.resume(operator(), kept).expect("there is more");
    assert_eq!(reserve(&mut env, parent, 30), CommandReply::Granted(tokens(30)));
    assert_eq!(reserve(&mut env, kept, 30), CommandReply::Granted(tokens(20)));
    env.report(kept, AttemptReport::Charge(tokens(20)));
    // Only the run that reserves is ended. The other keeps its reservation.
    assert_eq!(reserve(&mut env, kept, 10), CommandReply::Exhausted(LimitKind::Tokens));
    env.states(&[(parent, "running"), (kept, "stopping")]);
}

#[test]
fn a_parent_that_is_resumed_with_more_slots_starts_the_tasks_that_it_kept() {
    let mut env = Env::new();
    let (parent, kept) = kept_by(&mut env, job().limited(running(0)), job());
    assert_eq!(env.state(kept), "queued");
    let resume =
        ResumeCommand { caller: operator(), task: parent.into(), limits: Some(running(1)) };
    env.submit(&Command::Resume(resume)).expect("more is given");
    env.states(&[(parent, "running"), (kept, "running")]);
}

#[test]
fn a_child_that_is_resumed_at_top_level_keeps_its_budget() {
    let mut env = Env::new();
    let parent = env.spawn(agent().limited(of_tokens(100)));
    let child = env.spawn_child(parent, agent());
    env.succeed(child);
    env.succeed(parent);
    env.resume(operator(), child).expect("the operator goes on with it");
    assert_eq!(env.row(child).owner, Owner::Session);
    assert_eq!(reserve(&mut env, child, 1_000), CommandReply::Granted(tokens(100)));
}

#[test]
fn a_limit_holder_stays_in_memory_as_long_as_the_tasks_under_its_limits() {
    let mut env = Env::new();
    let top =
        env.try_spawn(Caller::Operator, agent().limited(of_tokens(100))).expect("it starts").no;
    let middle = env.spawn_child(top, agent());
    let kept = env.spawn_child(middle, agent().kept());
    env.succeed(middle);
    env.succeed(top);
    env.tree.take_dirty();
    assert_eq!(env.tree.evict(), []);
    env.succeed(kept);
    env.tree.take_dirty();
    let mut evicted = env.tree.evict();
    evicted.extend(env.tree.evict());
    evicted.sort();
    assert_eq!(evicted, [top, middle, kept]);
}
