//! Stalls: silent tasks are reported, nudged and ended.

use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{AttemptReport, CallRecord, WorkResult};
use brigade_model::decide::CommandReply;
use brigade_model::entry_label::EntryLabel;
use brigade_model::event::Event;
use brigade_model::ids::{CallIndex, Millis};
use brigade_model::limits::{CostEstimate, Limits, Usage};
use brigade_model::message::MessageSender;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::spec::TaskSpec;
use brigade_model::stall::StallPolicy;

use crate::support::*;

fn watched() -> TaskSpec {
    agent().limited(Limits {
        stall: Some(StallPolicy::report_after(Millis(1_000))),
        ..Limits::default()
    })
}

fn stalls(env: &Env) -> usize {
    env.count(|event| matches!(event, Event::Stalled { .. }))
}

#[test]
fn a_stall_is_reported_once_and_the_task_continues() {
    let mut env = Env::new();
    let no = env.spawn(watched());
    env.advance(999);
    assert_eq!(stalls(&env), 0);
    env.advance(1);
    env.advance(60_000);
    assert_eq!((stalls(&env), env.state(no)), (1, "running"));
}

#[test]
fn progress_delays_and_ends_a_stall() {
    let mut env = Env::new();
    let no = env.spawn(watched());
    for _ in 0..5 {
        env.advance(900);
        env.report(no, AttemptReport::Progress(json("stirring")));
    }
    assert_eq!(stalls(&env), 0);
    env.advance(1_000);
    assert_eq!(stalls(&env), 1);
    env.report(no, AttemptReport::Progress(json("stirring")));
    env.advance(1_000);
    assert_eq!(stalls(&env), 2, "a second silence is a second stall");
}

#[test]
fn a_waiting_or_queued_task_does_not_stall() {
    let mut env = Env::limited(Limits { running: Some(1), ..Limits::default() });
    let no = env.spawn(watched());
    let queued = env.spawn(watched());
    env.park(no, 1, ConditionRequest::Message { timeout: None, name: None });
    env.park(queued, 1, ConditionRequest::Message { timeout: None, name: None });
    env.advance(60_000);
    assert_eq!(stalls(&env), 0);
}

#[test]
fn a_wake_restarts_the_silence() {
    let mut env = Env::new();
    let no = env.spawn(watched());
    env.park(no, 1, ConditionRequest::Timer { duration: Millis(50_000) });
    env.advance(50_000);
    env.advance(999);
    assert_eq!(stalls(&env), 0);
    env.advance(1);
    assert_eq!(stalls(&env), 1);
}

#[test]
fn the_time_of_a_session_does_not_run_backwards() {
    let mut env = Env::new();
    let no = env.spawn(watched());
    let later = env.now.after(Millis(500));
    env.now = later;
    env.report(no, AttemptReport::Progress(json("one")));
    env.now = brigade_model::ids::Time(5);
    env.report(no, AttemptReport::Progress(json("two")));
    let times: Vec<_> = env.events.iter().map(|record| record.at).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(env.row(no).last_activity_at, later);
}

fn nudges(env: &Env) -> usize {
    env.count(|event| match event {
        Event::MessageSent(message) => message.from == MessageSender::Runtime && message.interrupt,
        _ => false,
    })
}

fn begin_step(index: u32) -> AttemptReport {
    let max = Usage { tokens: 10, ..Usage::NONE };
    AttemptReport::BeginStep {
        index: CallIndex(index),
        cost: CostEstimate { max, min: Usage::NONE },
    }
}

fn record(index: u32) -> AttemptReport {
    let completion = CallCompletion::Value(json("a reply")).into();
    AttemptReport::Record(CallRecord::new(CallIndex(index), EntryLabel::ModelReply, completion))
}

fn with_policy(stall: StallPolicy) -> TaskSpec {
    collecting_agent().limited(Limits { stall: Some(stall), ..Limits::default() })
}

#[test]
fn a_silent_agent_is_nudged_and_then_ended_with_its_partial_result() {
    let mut env = Env::new();
    let no = env.spawn(with_policy(StallPolicy::after(Millis(1_000))));
    env.advance(1_000);
    assert_eq!((stalls(&env), nudges(&env), env.state(no)), (1, 1, "running"));
    env.advance(999);
    assert_eq!(env.state(no), "running");
    env.advance(1);
    assert_eq!((stalls(&env), nudges(&env), env.state(no)), (2, 1, "stopping"));
    let result = WorkResult::Stopped { partial: Some(json("half")), spent: None };
    env.report(no, AttemptReport::Ended(result.into()));
    let Some(Outcome::Failed(failed)) = env.row(no).ended().map(|ended| &*ended.outcome) else {
        panic!("it has not failed");
    };
    assert_eq!(failed.failure, Failure::Stalled { quiet: Millis(2_000) });
    assert_eq!(failed.partial, Some(json("half")));
}

#[test]
fn reading_a_nudge_is_no_progress() {
    let mut env = Env::new();
    let no = env.spawn(with_policy(StallPolicy::after(Millis(1_000))));
    env.advance(1_000);
    // It takes the inbox, calls its model again, reports progress, and hangs again.
    assert!(matches!(env.report(no, begin_step(1)), CommandReply::InboxTaken(_)));
    env.report(no, AttemptReport::Progress(json("thinking")));
    assert!(!env.row(no).is_stalled(), "something has happened");
    env.advance(1_000);
    assert_eq!((nudges(&env), env.state(no)), (1, "stopping"), "the second silence is the last");
}

#[test]
fn recorded_work_resets_the_nudges() {
    let mut env = Env::new();
    let no = env.spawn(with_policy(StallPolicy::after(Millis(1_000))));
    for step in 0..4 {
        env.advance(1_000);
        assert_eq!((nudges(&env), env.state(no)), (step + 1, "running"));
        env.report(no, begin_step(step as u32 * 10 + 1));
        env.report(no, record(step as u32 * 10 + 2));
    }
}

#[test]
fn a_report_only_policy_never_ends_a_task_and_off_reports_nothing() {
    for (stall, expect) in [(StallPolicy::report_after(Millis(1_000)), 1), (StallPolicy::Off, 0)] {
        let mut env = Env::new();
        let no = env.spawn(with_policy(stall));
        env.advance(1_000);
        env.advance(10_000_000);
        assert_eq!(
            (stalls(&env), nudges(&env), env.state(no)),
            (expect, 0, "running"),
            "{stall:?}"
        );
    }
}

#[test]
fn only_agents_are_watched_by_default() {
    for (spec, watched) in [(collecting_agent(), true), (job(), false), (process(), false)] {
        let mut env = Env::new();
        let no = env.spawn(spec);
        env.advance(20 * 60_000);
        assert_eq!(stalls(&env), usize::from(watched), "{:?}", env.row(no).spec.work.kind());
    }
}

#[test]
fn a_nudge_is_not_pushed_to_a_process() {
    let mut env = Env::new();
    let stall = Some(StallPolicy::after(Millis(1_000)));
    let no = env.spawn(process().limited(Limits { stall, ..Limits::default() }));
    env.advance(1_000);
    assert_eq!((stalls(&env), nudges(&env), env.state(no)), (1, 0, "stopping"));
}

#[test]
fn a_task_that_waits_for_a_child_never_stalls() {
    let mut env = Env::new();
    let no = env.spawn(with_policy(StallPolicy::after(Millis(1_000))));
    let child = env.spawn_child(no, job());
    env.park(no, 1, ConditionRequest::Inbox);
    for _ in 0..100 {
        env.advance(900);
        env.report(child, AttemptReport::Progress(json("stirring")));
    }
    assert_eq!((stalls(&env), env.state(no)), (0, "waiting"));
}

#[test]
fn a_new_run_starts_without_the_nudges_of_the_last() {
    let mut env = Env::new();
    let no = env.spawn(with_policy(StallPolicy::after(Millis(1_000))));
    env.advance(1_000);
    env.advance(1_000);
    env.report(no, AttemptReport::Ended(WorkResult::Aborted.into()));
    env.resume(operator(), no).expect("it can be resumed");
    assert_eq!((env.row(no).nudges().count, env.row(no).is_stalled()), (0, false));
    env.advance(1_000);
    assert_eq!((nudges(&env), env.state(no)), (2, "running"));
}
