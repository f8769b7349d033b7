//! Limits: depth, width, total, running at once, budgets, time.

use brigade_model::call::{ConditionRequest, WaitMode};
use brigade_model::command::{
    AttemptReport, Caller, ClientCaller, ClientControl, Command, RecoveryFinding, ResumeCommand,
    SetLimitsCommand, WorkResult,
};
use brigade_model::decide::CommandReply;
use brigade_model::event::Event;
use brigade_model::ids::{Millis, Owner, TaskNo};
use brigade_model::limits::{CostEstimate, LimitKind, Limits};
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::RefusalKind;
use brigade_model::stall::{StallPolicy, StallWatch};

use crate::support::*;

fn running(max: u32) -> Limits {
    Limits { running: Some(max), ..Limits::default() }
}

fn reserve(env: &mut Env, no: TaskNo, max: u64) -> CommandReply {
    env.report(no, AttemptReport::Reserve(CostEstimate { max: tokens(max), min: tokens(10) }))
}

#[test]
fn the_reservation_of_failed_work_is_charged() {
    let mut env = Env::new();
    let no = env.spawn(agent().limited(Limits { tokens: Some(100), ..Limits::default() }));
    reserve(&mut env, no, 60);
    env.fail(no);
    let row = env.row(no);
    assert_eq!((row.usage(), row.unknown_usage()), (tokens(60), tokens(60)));
}

#[test]
fn a_depth_of_one_forbids_nesting() {
    let mut env = Env::limited(Limits { depth: Some(1), ..Limits::default() });
    let parent = env.spawn(agent());
    let caller = env.by(parent);
    refused(env.try_spawn(caller, job()), RefusalKind::Limit, "depth limit of the session");
}

#[test]
fn a_depth_limit_counts_from_its_holder() {
    let mut env = Env::new();
    let top = env.spawn(agent());
    let holder =
        env.spawn_child(top, agent().limited(Limits { depth: Some(2), ..Limits::default() }));
    let one = env.spawn_child(holder, agent());
    let two = env.spawn_child(one, agent());
    let caller = env.by(two);
    refused(env.try_spawn(caller, job()), RefusalKind::Limit, "nothing may nest deeper");
}

#[test]
fn no_session_is_deeper_than_the_maximum() {
    let mut env = Env::new();
    let mut deepest = env.spawn(agent());
    for _ in 1..64 {
        deepest = env.spawn_child(deepest, agent());
    }
    let caller = env.by(deepest);
    refused(env.try_spawn(caller, agent()), RefusalKind::Limit, "depth");
}

#[test]
fn width_counts_alive_children_of_one_parent() {
    let mut env = Env::limited(Limits { width: Some(2), ..Limits::default() });
    let parent = env.spawn(agent());
    env.spawn(agent());
    refused(env.try_spawn(operator(), job()), RefusalKind::Limit, "width");
    let child = env.spawn_child(parent, job());
    env.spawn_child(parent, job());
    let caller = env.by(parent);
    refused(env.try_spawn(caller, job()), RefusalKind::Limit, "2 alive children");
    env.succeed(child);
    env.spawn_child(parent, job());
}

#[test]
fn a_resumed_child_counts_for_the_width() {
    let mut env = Env::new();
    let parent = env.spawn(agent().limited(Limits { width: Some(1), ..Limits::default() }));
    let child = env.spawn_child(parent, agent());
    env.succeed(child);
    env.spawn_child(parent, job());
    let caller = env.by(parent);
    refused(env.resume(caller, child), RefusalKind::Limit, "width");
}

#[test]
fn a_total_counts_for_a_lifetime() {
    let mut env = Env::new();
    let parent = env.spawn(agent().limited(Limits { total: Some(2), ..Limits::default() }));
    for _ in 0..2 {
        let child = env.spawn_child(parent, job());
        env.succeed(child);
    }
    let caller = env.by(parent);
    refused(env.try_spawn(caller, job()), RefusalKind::Limit, "total limit of agent:1");
}

#[test]
fn a_total_on_a_session_counts_per_top_level_run() {
    let mut env = Env::limited(Limits { total: Some(1), ..Limits::default() });
    for _ in 0..3 {
        let parent = env.spawn(agent());
        let child = env.spawn_child(parent, agent());
        let caller = env.by(child);
        refused(env.try_spawn(caller, job()), RefusalKind::Limit, "total");
    }
}

#[test]
fn at_the_running_limit_tasks_queue_and_start_in_order() {
    let mut env = Env::limited(running(1));
    let [one, two, three] = [0; 3].map(|_| env.spawn(job()));
    env.states(&[(one, "running"), (two, "queued"), (three, "queued")]);
    env.succeed(one);
    env.states(&[(two, "running"), (three, "queued")]);
    env.fail(two);
    env.states(&[(three, "running")]);
}

#[test]
fn a_waiting_task_releases_its_slot() {
    let mut env = Env::limited(running(1));
    let one = env.spawn(job());
    let two = env.spawn(job());
    assert!(env.park(one, 1, ConditionRequest::Timer { duration: Millis(10) }));
    env.states(&[(one, "waiting"), (two, "running")]);
    env.advance(10);
    env.states(&[(one, "queued"), (two, "running")]);
    env.succeed(two);
    assert_eq!(env.state(one), "running");
}

#[test]
fn nested_running_limits_all_apply() {
    let mut env = Env::limited(running(3));
    let parent = env.spawn(agent().limited(running(1)));
    let [a, b] = [0; 2].map(|_| env.spawn_child(parent, job()));
    let other = env.spawn(job());
    let late = env.spawn(job());
    env.states(&[(a, "running"), (b, "queued"), (other, "running"), (late, "queued")]);
    // The slot of `a` is free under the parent and in the session. The first task in the queue of
    // the nearer holder gets it.
    env.succeed(a);
    env.states(&[(b, "running"), (late, "queued")]);
    env.succeed(other);
    env.states(&[(late, "running")]);
}

#[test]
fn a_raised_limit_starts_queued_tasks() {
    let mut env = Env::limited(running(0));
    let [one, two, three] = [0; 3].map(|_| env.spawn(job()));
    env.set_limits(None, running(2));
    env.states(&[(one, "running"), (two, "running"), (three, "queued")]);
    env.set_limits(None, Limits::default());
    env.states(&[(three, "running")]);
}

#[test]
fn a_reservation_is_limited_to_the_remaining_budget_and_released_by_the_charge() {
    let mut env = Env::new();
    let no = env.spawn(agent().limited(Limits { tokens: Some(100), ..Limits::default() }));
    assert_eq!(reserve(&mut env, no, 70), CommandReply::Granted(tokens(70)));
    env.report(no, AttemptReport::Charge(tokens(40)));
    assert_eq!(reserve(&mut env, no, 90), CommandReply::Granted(tokens(60)));
}

#[test]
fn siblings_share_a_budget_while_their_calls_are_in_progress() {
    let mut env = Env::new();
    let parent = env.spawn(agent().limited(Limits { tokens: Some(100), ..Limits::default() }));
    let [a, b] = [0; 2].map(|_| env.spawn_child(parent, agent()));
    assert_eq!(reserve(&mut env, a, 80), CommandReply::Granted(tokens(80)));
    assert_eq!(reserve(&mut env, b, 80), CommandReply::Granted(tokens(20)));
}

#[test]
fn usage_is_charged_to_all_ancestors() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, agent());
    env.report(child, AttemptReport::Charge(tokens(30)));
    env.report(parent, AttemptReport::Charge(tokens(5)));
    let used = [env.row(child).usage(), env.row(parent).usage(), env.tree.row().usage];
    assert_eq!(used, [tokens(30), tokens(35), tokens(35)]);
    let own = [env.row(child).own_usage(), env.row(parent).own_usage()];
    assert_eq!(own, [tokens(30), tokens(5)]);
}

#[test]
fn an_exhausted_budget_ends_its_holder_with_a_partial_result_and_stops_its_descendants() {
    let mut env = Env::new();
    let top = env.spawn(agent());
    let holder =
        env.spawn_child(top, agent().limited(Limits { tokens: Some(50), ..Limits::default() }));
    let child = env.spawn_child(holder, agent());
    env.report(child, AttemptReport::Charge(tokens(45)));
    assert_eq!(reserve(&mut env, child, 20), CommandReply::Exhausted(LimitKind::Tokens));
    env.states(&[(top, "running"), (holder, "stopping"), (child, "stopping")]);
    env.aborted(child);
    env.report(holder, AttemptReport::Ended(WorkResult::Returned(json("half a soup")).into()));
    let Outcome::Failed(failed) = env.outcome(holder) else { panic!("not a success") };
    assert_eq!(failed.failure, Failure::Budget { limit: LimitKind::Tokens });
    assert_eq!(failed.partial, Some(json("half a soup")));
    assert!(matches!(env.outcome(child), Outcome::Cancelled(_)));
}

#[test]
fn an_exhausted_session_ends_only_the_top_level_run_that_reserves() {
    let mut env = Env::limited(Limits { tokens: Some(50), ..Limits::default() });
    let one = env.spawn(agent());
    let other = env.spawn(agent());
    let child = env.spawn_child(one, agent());
    env.report(child, AttemptReport::Charge(tokens(50)));
    assert_eq!(reserve(&mut env, child, 20), CommandReply::Exhausted(LimitKind::Tokens));
    env.states(&[(one, "stopping"), (other, "running")]);
    refused(env.try_spawn(operator(), agent()), RefusalKind::Limit, "token budget");
}

#[test]
fn a_task_with_an_exhausted_budget_can_be_resumed_with_more() {
    let mut env = Env::new();
    let no = env.spawn(agent().limited(Limits { tokens: Some(50), ..Limits::default() }));
    env.report(no, AttemptReport::Charge(tokens(50)));
    reserve(&mut env, no, 20);
    env.aborted(no);
    let limits = Some(Limits { tokens: Some(80), ..Limits::default() });
    let resume = ResumeCommand { caller: client("me"), task: no.into(), limits };
    env.submit(&Command::Resume(resume)).unwrap();
    assert_eq!(env.state(no), "running");
    assert_eq!(reserve(&mut env, no, 100), CommandReply::Granted(tokens(30)));
}

#[test]
fn a_confined_client_only_tightens_limits() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let watch = StallWatch { after: Millis(1_000), nudges: 0, then_stop: true };
    let stall = Some(StallPolicy::Watched(watch));
    let set = Limits { tokens: Some(50), running: Some(2), stall, ..Limits::default() };
    env.set_limits(Some(no), set);
    env.succeed(no);
    let confined = || {
        let control = ClientControl::Confined;
        Caller::Client(ClientCaller { control, ..ClientCaller::from("me") })
    };
    let resume = |limits| {
        let limits = Some(limits);
        Command::Resume(ResumeCommand { caller: confined(), task: no.into(), limits })
    };
    for looser in [
        Limits { tokens: Some(51), ..Limits::default() },
        Limits { tokens: Some(49), running: Some(3), ..Limits::default() },
        Limits { stall: Some(StallPolicy::Off), ..Limits::default() },
    ] {
        refused(env.submit(&resume(looser)), RefusalKind::Forbidden, "can only be tightened");
    }
    let set = SetLimitsCommand { caller: confined(), task: None, limits: Limits::default() };
    refused(env.submit(&Command::SetLimits(set)), RefusalKind::Forbidden, "only the operator");
    let tighter = Limits { tokens: Some(40), width: Some(1), ..Limits::default() };
    env.submit(&resume(tighter)).unwrap();
    let limits = env.row(no).limits.as_deref().copied();
    assert_eq!(limits, Some(Limits { running: Some(2), stall, ..tighter }));
}

#[test]
fn limits_of_an_ended_task_cannot_be_changed() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.succeed(no);
    let set = brigade_model::command::SetLimitsCommand {
        caller: operator(),
        task: Some(no.into()),
        limits: running(1),
    };
    refused(env.submit(&Command::SetLimits(set)), RefusalKind::Ended, "resume it with more");
}

#[test]
fn a_time_limit_fails_the_run_and_stops_its_descendants() {
    let mut env = Env::new();
    let limits = Limits { time: Some(Millis(1_000)), ..Limits::default() };
    let no = env.spawn(job().limited(limits));
    let child = env.spawn_child(no, job().kept());
    env.advance(999);
    assert_eq!(env.state(no), "running");
    env.advance(1);
    env.states(&[(no, "stopping"), (child, "stopping")]);
    env.aborted(child);
    env.succeed(no);
    let Outcome::Failed(failed) = env.outcome(no) else { panic!("too late is not a success") };
    assert_eq!(failed.failure, Failure::Timeout { after: Millis(1_000) });
    assert_eq!(failed.partial, Some(json("soup")));
    assert!(matches!(env.outcome(child), Outcome::Cancelled(_)), "kept, but in a stopped subtree");
}

#[test]
fn a_time_limit_does_not_run_while_the_task_queues() {
    let mut env = Env::limited(running(1));
    let first = env.spawn(job());
    let limits = Limits { time: Some(Millis(1_000)), ..Limits::default() };
    let no = env.spawn(job().limited(limits));
    env.advance(60_000);
    assert_eq!(env.state(no), "queued");
    env.succeed(first);
    env.advance(600);
    // If it is queued again during its run, it keeps its remaining time.
    let other = env.spawn(job());
    assert!(env.park(no, 1, ConditionRequest::Timer { duration: Millis(1) }));
    env.advance(1);
    env.states(&[(no, "queued"), (other, "running")]);
    env.advance(60_000);
    env.succeed(other);
    env.advance(398);
    assert_eq!(env.state(no), "running");
    env.advance(1);
    assert_eq!(env.state(no), "stopping");
}

#[test]
fn a_time_limit_runs_while_the_task_waits() {
    let mut env = Env::new();
    let limits = Limits { time: Some(Millis(1_000)), ..Limits::default() };
    let no = env.spawn(job().limited(limits));
    env.park(no, 1, ConditionRequest::Message { timeout: None, name: None });
    env.advance(1_000);
    assert!(matches!(env.outcome(no), Outcome::Failed(_)));
}

#[test]
fn a_time_limit_runs_while_children_are_awaited() {
    let mut env = Env::new();
    let limits = Limits { time: Some(Millis(1_000)), ..Limits::default() };
    let no = env.spawn(agent().limited(limits));
    let child = env.spawn_child(no, job());
    env.succeed(no);
    env.states(&[(no, "closing"), (child, "running")]);
    env.advance(1_000);
    assert_eq!(env.state(child), "stopping");
    env.aborted(child);
    let Outcome::Failed(failed) = env.outcome(no) else { panic!("it took too long") };
    assert_eq!(failed.partial, Some(json("soup")), "its result is kept");
}

#[test]
fn a_changed_time_limit_counts_the_used_time() {
    let mut env = Env::new();
    let limits = |time| Limits { time: Some(Millis(time)), ..Limits::default() };
    let no = env.spawn(job().limited(limits(1_000)));
    env.advance(900);
    env.set_limits(Some(no), limits(2_000));
    env.advance(1_099);
    assert_eq!(env.state(no), "running");
    env.advance(1);
    assert_eq!(env.state(no), "stopping");
    let free = env.spawn(job());
    env.set_limits(Some(free), limits(500));
    env.advance(500);
    assert_eq!(env.state(free), "stopping");
}

#[test]
fn the_reservation_of_unreported_work_is_charged() {
    let mut env = Env::new();
    let limits = Limits { tokens: Some(1_000), ..Limits::default() };
    let [aborted, stuck] = [0; 2].map(|_| env.spawn(agent().grace(1).limited(limits)));
    for no in [aborted, stuck] {
        reserve(&mut env, no, 60);
        env.stop_task(no);
    }
    env.aborted(aborted);
    env.advance(1);
    env.advance(5_000);
    for no in [aborted, stuck] {
        assert_eq!((env.state(no), env.row(no).usage()), ("cancelled", tokens(60)));
    }
}

#[test]
fn a_full_inbox_refuses() {
    let mut env = Env::limited(Limits { inbox: Some(2), ..Limits::default() });
    let no = env.spawn(job());
    env.send_to(no);
    env.send_to(no);
    let to = brigade_model::command::Recipient::Task(no.into());
    refused(env.send(operator(), to), RefusalKind::Limit, "the inbox of job:1 is full");
    env.park(no, 1, ConditionRequest::Message { timeout: None, name: None });
    env.send_to(no);
    assert_eq!(env.unread(Owner::Task(no)), 2);
}

#[test]
fn a_finished_child_returns_its_slot() {
    let mut env = Env::limited(running(1));
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, agent());
    assert!(env.park(parent, 1, wait_for(&[child], WaitMode::All)));
    assert_eq!(env.state(child), "running");
    env.succeed(child);
    assert_eq!(env.state(parent), "running");
    let starts = |event: &Event| matches!(event, Event::Started { no, .. } if *no == parent);
    assert_eq!(env.count(starts), 1);
}

#[test]
fn a_call_of_unknown_cost_is_charged_in_full_and_marked() {
    let mut env = Env::limited(Limits { tokens: Some(1_000), ..Limits::default() });
    let parent = env.spawn(agent());
    let no = env.spawn_child(parent, agent());
    reserve(&mut env, no, 100);
    env.recover(no, RecoveryFinding::Crash);
    for no in [no, parent] {
        assert_eq!((env.row(no).usage(), env.row(no).unknown_usage()), (tokens(100), tokens(100)));
    }
}

#[test]
fn stopped_work_reports_its_cost() {
    // A cost is charged once, and never more than the reservation.
    for (charged, reported, expect) in [(false, 30, 30), (false, 500, 100), (true, 30, 40)] {
        let mut env = Env::limited(Limits { tokens: Some(1_000), ..Limits::default() });
        let no = env.spawn(agent());
        reserve(&mut env, no, 100);
        if charged {
            env.report(no, AttemptReport::Charge(tokens(40)));
        }
        env.stop_task(no);
        let result = WorkResult::Stopped { partial: None, spent: Some(tokens(reported)) };
        env.report(no, AttemptReport::Ended(result.into()));
        let row = env.row(no);
        assert_eq!((row.usage(), row.unknown_usage()), (tokens(expect), tokens(0)));
    }
}
