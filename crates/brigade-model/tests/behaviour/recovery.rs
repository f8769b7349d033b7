//! Recovery of each state under each policy.

use brigade_model::call::ConditionRequest;
use brigade_model::command::{AttemptReport, CallRecord, RecoveryFinding};
use brigade_model::event::Event;
use brigade_model::ids::{Millis, TaskNo};
use brigade_model::limits::{CostEstimate, Limits, Usage};
use brigade_model::outcome::{EndConfirmation, Failure, Outcome};
use brigade_model::spec::TaskSpec;
use brigade_model::work::{AgentWork, KindPolicy, RecoveryPolicy, Work};

use crate::support::*;

fn lost() -> RecoveryFinding {
    RecoveryFinding::NotFound { by: "the shim".into(), evidence: "no such pid".into() }
}

/// Creates a task in the named state, under a policy.
fn task_in(state: &str, recovery: RecoveryPolicy) -> (Env, TaskNo) {
    let limits = Limits { running: (state == "queued").then_some(0), ..Limits::default() };
    let mut env = Env::limited(limits);
    let parent_close = brigade_model::work::ParentClosePolicy::AwaitChildren;
    let no = env.spawn(custom(KindPolicy { recovery, parent_close, ..POLICY }));
    match state {
        "waiting" => {
            assert!(env.park(no, 1, ConditionRequest::Message { timeout: None, name: None }))
        }
        "stopping" => {
            env.stop_task(no);
        }
        "closing" => {
            env.spawn_child(no, job());
            env.succeed(no);
        }
        "succeeded" => env.succeed(no),
        _ => {}
    }
    assert_eq!(env.state(no), state);
    (env, no)
}

#[test]
fn every_state_recovers_by_its_policy() {
    let resume = RecoveryPolicy::Resume { max_attempts: 3, backoff: Millis(100) };
    let table = [
        ("queued", resume, "queued"),
        ("queued", RecoveryPolicy::Adopt, "queued"),
        ("queued", RecoveryPolicy::Lost, "failed"),
        ("running", resume, "queued"),
        ("running", RecoveryPolicy::Adopt, "running"),
        ("running", RecoveryPolicy::Lost, "failed"),
        ("waiting", resume, "waiting"),
        ("waiting", RecoveryPolicy::Adopt, "waiting"),
        ("waiting", RecoveryPolicy::Lost, "failed"),
        ("stopping", resume, "cancelled"),
        ("stopping", RecoveryPolicy::Adopt, "stopping"),
        ("stopping", RecoveryPolicy::Lost, "cancelled"),
        ("closing", resume, "closing"),
        ("closing", RecoveryPolicy::Adopt, "closing"),
        ("closing", RecoveryPolicy::Lost, "closing"),
        ("succeeded", resume, "succeeded"),
        ("succeeded", RecoveryPolicy::Adopt, "succeeded"),
        ("succeeded", RecoveryPolicy::Lost, "succeeded"),
    ];
    for (state, policy, expect) in table {
        for finding in [RecoveryFinding::Crash, RecoveryFinding::Shutdown] {
            let (mut env, no) = task_in(state, policy);
            env.recover(no, finding.clone());
            assert_eq!(env.state(no), expect, "{state} under {policy:?} after {finding:?}");
        }
    }
}

#[test]
fn adopted_work_continues_unchanged() {
    for state in ["queued", "running", "waiting", "stopping", "closing", "succeeded"] {
        let (mut env, no) = task_in(state, RecoveryPolicy::Adopt);
        env.clear();
        env.recover(no, RecoveryFinding::Adopted);
        assert!(env.events.is_empty(), "{state}");
    }
}

#[test]
fn work_that_is_not_found_is_lost_with_the_evidence() {
    let (mut env, no) = task_in("running", RecoveryPolicy::Adopt);
    env.recover(no, lost());
    let Outcome::Failed(failed) = env.outcome(no) else { panic!("it is lost") };
    let expect = Failure::Lost { by: "the shim".into(), evidence: "no such pid".into() };
    assert_eq!(failed.failure, expect);
    let (mut env, no) = task_in("stopping", RecoveryPolicy::Adopt);
    env.recover(no, lost());
    assert_eq!(env.state(no), "cancelled", "a stop was requested, and it is not there");
}

#[test]
fn work_that_never_started_is_started_again_a_limited_number_of_times() {
    let (mut env, no) = task_in("running", RecoveryPolicy::Adopt);
    let before = env.row(no).attempt;
    env.recover(no, RecoveryFinding::NeverStarted);
    env.advance(0);
    assert_eq!((env.state(no), env.row(no).attempt), ("running", before.next()));
    for _ in 0..5 {
        env.recover(no, RecoveryFinding::NeverStarted);
        env.advance(60_000);
    }
    let Outcome::Failed(failed) = env.outcome(no) else { panic!("a crash loop") };
    assert_eq!(failed.failure, Failure::CrashLoop { crashes: 6 });
}

#[test]
fn stopping_work_that_never_started_is_cancelled() {
    let (mut env, no) = task_in("stopping", RecoveryPolicy::Adopt);
    env.recover(no, RecoveryFinding::NeverStarted);
    assert_eq!(env.state(no), "cancelled");
}

#[test]
fn the_first_retry_after_a_crash_is_immediate_and_later_ones_back_off() {
    let mut env = Env::new();
    let no = env.spawn(job_that(RecoveryPolicy::Resume { max_attempts: 4, backoff: Millis(100) }));
    for pause in [0, 100, 200, 400] {
        env.recover(no, RecoveryFinding::Crash);
        if pause > 0 {
            env.advance(pause - 1);
            assert_eq!(env.state(no), "queued", "within {pause}");
            env.advance(1);
        } else {
            env.advance(0);
        }
        assert_eq!(env.state(no), "running", "after {pause}");
    }
    env.recover(no, RecoveryFinding::Crash);
    let Outcome::Failed(failed) = env.outcome(no) else { panic!("a crash loop") };
    assert_eq!(failed.failure, Failure::CrashLoop { crashes: 5 });
}

#[test]
fn progress_without_a_record_does_not_hide_a_crash_loop() {
    for report in [AttemptReport::State(json("s")), AttemptReport::Progress(json("soon"))] {
        let mut env = Env::new();
        let no = env.spawn(job_that(RecoveryPolicy::resume_max_crashes(1)));
        env.recover(no, RecoveryFinding::Crash);
        env.advance(0);
        env.report(no, report);
        env.recover(no, RecoveryFinding::Crash);
        let Outcome::Failed(failed) = env.outcome(no) else { panic!("a crash loop") };
        assert_eq!(failed.failure, Failure::CrashLoop { crashes: 2 });
    }
}

#[test]
fn recorded_progress_resets_the_crash_count() {
    let steps = [
        AttemptReport::Park {
            calls: vec![(
                brigade_model::ids::CallIndex(1),
                ConditionRequest::Timer { duration: Millis(9) },
            )],
            acked_entries: u32::MAX,
            then: brigade_model::command::AfterPark::Continue,
        },
        AttemptReport::Record(CallRecord::new(
            brigade_model::ids::CallIndex(1),
            brigade_model::entry_label::EntryLabel::step("step"),
            brigade_model::call::CallCompletion::Value(json("done")).into(),
        )),
    ];
    for step in steps {
        let mut env = Env::new();
        let no = env.spawn(job_that(RecoveryPolicy::resume_max_crashes(1)));
        env.recover(no, RecoveryFinding::Crash);
        env.advance(0);
        env.report(no, step.clone());
        env.recover(no, RecoveryFinding::Crash);
        env.advance(0);
        assert_eq!(env.state(no), "running", "{step:?}");
        env.recover(no, RecoveryFinding::Crash);
        assert_eq!(env.state(no), "failed", "{step:?}");
    }
}

#[test]
fn a_shutdown_is_not_a_crash() {
    let mut env = Env::new();
    let no = env.spawn(job_that(RecoveryPolicy::resume_max_crashes(1)));
    for _ in 0..10 {
        env.recover(no, RecoveryFinding::Shutdown);
        env.advance(0);
        assert_eq!((env.state(no), env.row(no).crashes), ("running", 0));
    }
}

#[test]
fn a_late_report_of_the_attempt_before_the_crash_is_refused() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let old = env.row(no).attempt;
    env.recover(no, RecoveryFinding::Crash);
    env.advance(0);
    let end =
        AttemptReport::Ended(brigade_model::command::WorkResult::Returned(json("old")).into());
    let report = brigade_model::command::ReportCommand { no, attempt: old, report: end };
    let late = env.submit(&brigade_model::command::Command::Report(report));
    refused(late, brigade_model::refusal::RefusalKind::Ended, "attempt 1 of job:1 is over");
    assert_eq!(env.state(no), "running");
}

#[test]
fn a_reservation_is_charged_when_the_process_dies() {
    let mut env = Env::new();
    let no = env.spawn(agent().limited(Limits { tokens: Some(100), ..Limits::default() }));
    env.report(no, AttemptReport::Reserve(CostEstimate { max: tokens(60), min: Usage::NONE }));
    env.recover(no, RecoveryFinding::Crash);
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
    env.recover(no, RecoveryFinding::Crash);
    assert_eq!(env.state(next), "running");
}

#[test]
fn work_without_a_performer_stays_queued() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.report(no, AttemptReport::NoPerformer { reason: "no handler \"cook\"".into() });
    assert_eq!(env.state(no), "queued");
    env.advance(1_000_000);
    assert_eq!(env.state(no), "queued");
    env.recover(no, RecoveryFinding::Shutdown);
    assert_eq!(env.state(no), "running", "the next process may know it");
}

#[test]
fn a_stop_survives_the_crash_that_interrupts_it() {
    let mut env = Env::new();
    let no = env.spawn(process());
    env.stop_task(no);
    env.recover(no, RecoveryFinding::Crash);
    env.advance(5_000);
    env.advance(5_000);
    let Outcome::Cancelled(cancelled) = env.outcome(no) else { panic!("a stop was requested") };
    assert_eq!(cancelled.confirmation, EndConfirmation::Unconfirmed);
}

/// Returns the confirmation of a stopped remote agent, whose first attempt has recorded something or
/// not, and which is stopped before or after its process dies.
fn remote_confirmation(has_record: bool, stop_first: bool) -> EndConfirmation {
    let mut env = Env::new();
    let work = AgentWork { works_remotely: true, ..AgentWork::new("make soup") };
    let no = env.spawn(TaskSpec::new(Work::Agent(work)));
    if has_record {
        let record = CallRecord::new(
            brigade_model::ids::CallIndex(1),
            brigade_model::entry_label::EntryLabel::step("message"),
            brigade_model::call::CallCompletion::Value(json("sent")).into(),
        );
        env.report(no, AttemptReport::Record(record));
    }
    if stop_first {
        env.stop_task(no);
        env.recover(no, RecoveryFinding::Shutdown);
    } else {
        env.recover(no, RecoveryFinding::Crash);
        assert_eq!(env.state(no), "queued");
        env.stop_task(no);
    }
    match env.outcome(no) {
        Outcome::Cancelled(cancelled) => cancelled.confirmation.clone(),
        other => panic!("it ended as {other}"),
    }
}

#[test]
fn remote_work_that_nobody_was_asked_to_end_is_a_survivor() {
    for stop_first in [true, false] {
        let EndConfirmation::Survivors(names) = remote_confirmation(true, stop_first) else {
            panic!("stopped first: {stop_first}");
        };
        assert!(names[0].contains("may still run"), "{names:?}");
        // A message to a remote agent is stored before it is sent.
        assert_eq!(remote_confirmation(false, stop_first), EndConfirmation::Confirmed);
    }
}

#[test]
fn a_lost_closure_stops_its_children() {
    let mut env = Env::new();
    let no = env.spawn(closure());
    let child = env.spawn_child(no, job());
    let kept = env.spawn_child(no, job().kept());
    env.recover(no, RecoveryFinding::Crash);
    env.states(&[(no, "closing"), (child, "stopping"), (kept, "running")]);
    env.aborted(child);
    assert_eq!(env.state(no), "failed");
    assert_eq!(env.count(|event| matches!(event, Event::PassedToSession { .. })), 1);
}

#[test]
fn a_custom_kind_is_adopted_like_a_process() {
    let mut env = Env::new();
    let no = env.spawn(custom(KindPolicy { recovery: RecoveryPolicy::Adopt, ..POLICY }));
    env.recover(no, RecoveryFinding::Crash);
    assert_eq!(env.state(no), "running");
    env.recover(no, lost());
    assert_eq!(env.state(no), "failed");
}
