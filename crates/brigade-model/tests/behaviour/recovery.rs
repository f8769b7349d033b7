//! Recovery: each state, each policy.

use brigade_model::call::Asked;
use brigade_model::command::{Gone, Reported, Written};
use brigade_model::event::Event;
use brigade_model::ids::{Millis, TaskNo};
use brigade_model::limits::{Limits, Usage};
use brigade_model::outcome::{Failure, Outcome, Verified};
use brigade_model::work::{Conduct, Recovery};

use crate::support::*;

fn lost() -> Gone {
    Gone::NotFound { by: "the shim".into(), evidence: "no such pid".into() }
}

/// A task in the named state, under a policy.
fn task_in(state: &str, recovery: Recovery) -> (Env, TaskNo) {
    let limits = Limits { running: (state == "queued").then_some(0), ..Limits::default() };
    let mut env = Env::limited(limits);
    let on_return = brigade_model::work::OnReturn::AwaitChildren;
    let no = env.spawn(custom(Conduct { recovery, on_return, ..CONDUCT }));
    match state {
        "waiting" => assert!(env.park(no, 1, Asked::Message { patience: None })),
        "stopping" => {
            env.stop_task(no);
        }
        "closing" => {
            env.below(no, job());
            env.succeed(no);
        }
        "succeeded" => env.succeed(no),
        _ => {}
    }
    assert_eq!(env.state(no), state);
    (env, no)
}

#[test]
fn every_state_under_every_policy() {
    let resume = Recovery::Resume { max: 3, backoff: Millis(100) };
    let table = [
        ("queued", resume, "queued"),
        ("queued", Recovery::Adopt, "queued"),
        ("queued", Recovery::Lost, "failed"),
        ("running", resume, "queued"),
        ("running", Recovery::Adopt, "running"),
        ("running", Recovery::Lost, "failed"),
        ("waiting", resume, "waiting"),
        ("waiting", Recovery::Adopt, "waiting"),
        ("waiting", Recovery::Lost, "failed"),
        ("stopping", resume, "cancelled"),
        ("stopping", Recovery::Adopt, "stopping"),
        ("stopping", Recovery::Lost, "cancelled"),
        ("closing", resume, "closing"),
        ("closing", Recovery::Adopt, "closing"),
        ("closing", Recovery::Lost, "closing"),
        ("succeeded", resume, "succeeded"),
        ("succeeded", Recovery::Adopt, "succeeded"),
        ("succeeded", Recovery::Lost, "succeeded"),
    ];
    for (state, policy, expect) in table {
        for why in [Gone::Crash, Gone::Shutdown] {
            let (mut env, no) = task_in(state, policy);
            env.recover(no, why.clone());
            assert_eq!(env.state(no), expect, "{state} under {policy:?} after {why:?}");
        }
    }
}

#[test]
fn what_the_performer_found_again_goes_on_as_it_was() {
    for state in ["queued", "running", "waiting", "stopping", "closing", "succeeded"] {
        let (mut env, no) = task_in(state, Recovery::Adopt);
        env.clear();
        env.recover(no, Gone::Adopted);
        assert!(env.events.is_empty(), "{state}");
    }
}

#[test]
fn what_the_performer_did_not_find_is_lost_on_its_evidence() {
    let (mut env, no) = task_in("running", Recovery::Adopt);
    env.recover(no, lost());
    let Outcome::Failed(failed) = env.outcome(no) else { panic!("it is gone") };
    let expect = Failure::Lost { by: "the shim".into(), evidence: "no such pid".into() };
    assert_eq!(failed.failure, expect);
    let (mut env, no) = task_in("stopping", Recovery::Adopt);
    env.recover(no, lost());
    assert_eq!(env.state(no), "cancelled", "it was told to stop, and it is gone");
}

#[test]
fn what_never_began_is_begun_again_but_not_for_ever() {
    let (mut env, no) = task_in("running", Recovery::Adopt);
    let before = env.row(no).attempt;
    env.recover(no, Gone::NeverBegan);
    env.advance(0);
    assert_eq!((env.state(no), env.row(no).attempt), ("running", before.next()));
    for _ in 0..5 {
        env.recover(no, Gone::NeverBegan);
        env.advance(60_000);
    }
    let Outcome::Failed(failed) = env.outcome(no) else { panic!("a crash loop") };
    assert_eq!(failed.failure, Failure::CrashLoop { crashes: 6 });
}

#[test]
fn what_never_began_and_was_told_to_stop_does_not_begin() {
    let (mut env, no) = task_in("stopping", Recovery::Adopt);
    env.recover(no, Gone::NeverBegan);
    assert_eq!(env.state(no), "cancelled");
}

#[test]
fn the_first_attempt_after_a_crash_follows_at_once_and_later_ones_back_off() {
    let mut env = Env::new();
    let no = env.spawn(job_that(Recovery::Resume { max: 4, backoff: Millis(100) }));
    for pause in [0, 100, 200, 400] {
        env.recover(no, Gone::Crash);
        if pause > 0 {
            env.advance(pause - 1);
            assert_eq!(env.state(no), "queued", "within {pause}");
            env.advance(1);
        } else {
            env.advance(0);
        }
        assert_eq!(env.state(no), "running", "after {pause}");
    }
    env.recover(no, Gone::Crash);
    let Outcome::Failed(failed) = env.outcome(no) else { panic!("a crash loop") };
    assert_eq!(failed.failure, Failure::CrashLoop { crashes: 5 });
}

#[test]
fn talk_without_a_record_does_not_hide_a_crash_loop() {
    for talk in [Reported::State(json("s")), Reported::Progress(json("soon"))] {
        let mut env = Env::new();
        let no = env.spawn(job_that(Recovery::resume(1)));
        env.recover(no, Gone::Crash);
        env.advance(0);
        env.report(no, talk);
        env.recover(no, Gone::Crash);
        let Outcome::Failed(failed) = env.outcome(no) else { panic!("a crash loop") };
        assert_eq!(failed.failure, Failure::CrashLoop { crashes: 2 });
    }
}

#[test]
fn recorded_progress_resets_the_count_of_crashes() {
    let steps = [
        Reported::Park {
            calls: vec![(brigade_model::ids::CallIndex(1), Asked::Sleep { span: Millis(9) })],
            heard: u32::MAX,
            then: brigade_model::command::AfterPark::GoOn,
        },
        Reported::Record(Written::new(
            brigade_model::ids::CallIndex(1),
            "step",
            brigade_model::call::Answer::Value(json("done")).into(),
        )),
    ];
    for step in steps {
        let mut env = Env::new();
        let no = env.spawn(job_that(Recovery::resume(1)));
        env.recover(no, Gone::Crash);
        env.advance(0);
        env.report(no, step.clone());
        env.recover(no, Gone::Crash);
        env.advance(0);
        assert_eq!(env.state(no), "running", "{step:?}");
        env.recover(no, Gone::Crash);
        assert_eq!(env.state(no), "failed", "{step:?}");
    }
}

#[test]
fn a_shutdown_is_not_a_crash() {
    let mut env = Env::new();
    let no = env.spawn(job_that(Recovery::resume(1)));
    for _ in 0..10 {
        env.recover(no, Gone::Shutdown);
        env.advance(0);
        assert_eq!((env.state(no), env.row(no).crashes), ("running", 0));
    }
}

#[test]
fn late_words_of_the_attempt_before_the_crash_are_not_heard() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let old = env.row(no).attempt;
    env.recover(no, Gone::Crash);
    env.advance(0);
    let what = Reported::Ended(brigade_model::command::EndedHow::Returned(json("old")).into());
    let report = brigade_model::command::Report { no, attempt: old, what };
    let late = env.submit(&brigade_model::command::Command::Report(report));
    refused(late, brigade_model::refusal::RefusalKind::Ended, "attempt 1 of job:1 is over");
    assert_eq!(env.state(no), "running");
}

#[test]
fn what_was_set_aside_when_the_process_died_counts_as_spent() {
    let mut env = Env::new();
    let no = env.spawn(agent().limited(Limits { tokens: Some(100), ..Limits::default() }));
    env.report(no, Reported::Reserve { most: tokens(60), least: Usage::NONE });
    env.recover(no, Gone::Crash);
    assert_eq!((env.row(no).usage(), env.row(no).reserved()), (tokens(60), Usage::NONE));
}

#[test]
fn a_lingering_slot_is_free_when_the_process_that_held_it_is_gone() {
    let mut env = Env::limited(Limits { running: Some(1), ..Limits::default() });
    let no = env.spawn(closure().grace(1));
    let next = env.spawn(job());
    env.stop_task(no);
    env.advance(1);
    env.advance(5_000);
    assert_eq!(env.state(next), "queued");
    env.recover(no, Gone::Crash);
    assert_eq!(env.state(next), "running");
}

#[test]
fn work_without_a_performer_stays_queued_and_says_so() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.report(no, Reported::NoPerformer { reason: "no handler \"cook\"".into() });
    assert_eq!(env.state(no), "queued");
    env.advance(1_000_000);
    assert_eq!(env.state(no), "queued");
    env.recover(no, Gone::Shutdown);
    assert_eq!(env.state(no), "running", "the next process may know it");
}

#[test]
fn a_stop_survives_the_crash_that_interrupts_it() {
    let mut env = Env::new();
    let no = env.spawn(process());
    env.stop_task(no);
    env.recover(no, Gone::Crash);
    env.advance(5_000);
    env.advance(5_000);
    let Outcome::Cancelled(cancelled) = env.outcome(no) else { panic!("it was told to stop") };
    assert_eq!(cancelled.verified, Verified::Unconfirmed);
}

#[test]
fn a_lost_closure_takes_what_it_spawned_with_it() {
    let mut env = Env::new();
    let no = env.spawn(closure());
    let child = env.below(no, job());
    let kept = env.below(no, job().kept());
    env.recover(no, Gone::Crash);
    env.states(&[(no, "closing"), (child, "stopping"), (kept, "running")]);
    env.aborted(child);
    assert_eq!(env.state(no), "failed");
    assert_eq!(env.count(|event| matches!(event, Event::PassedToSession { .. })), 1);
}

#[test]
fn an_external_agent_is_looked_for_like_a_process() {
    let mut env = Env::new();
    let no = env.spawn(external());
    env.recover(no, Gone::Crash);
    assert_eq!(env.state(no), "running");
    env.recover(no, lost());
    assert_eq!(env.state(no), "failed");
}
