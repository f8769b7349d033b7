//! Pauses between the attempts of a failed call.

use std::sync::Arc;

use brigade_model::action::Action;
use brigade_model::call::{CallCompletion, Condition, ConditionRequest};
use brigade_model::command::{AfterPark, AttemptReport, CallRecord, RecoveryFinding};
use brigade_model::decide::CommandReply;
use brigade_model::entry_label::EntryLabel;
use brigade_model::error_details::ErrorDetails;
use brigade_model::event::Event;
use brigade_model::ids::{CallIndex, Millis, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::outcome::{Failure, Outcome};

use crate::support::*;

fn declined() -> ErrorDetails {
    ErrorDetails::new("declined").with_kind("card_declined").with_payload(json("51"))
}

fn retry(attempt: u32, pause: u64) -> ConditionRequest {
    let label = EntryLabel::step("charge");
    ConditionRequest::Retry { label, attempt, error: declined(), pause: Millis(pause) }
}

fn retried(attempt: u32) -> CallCompletion {
    CallCompletion::Retried { attempt, error: declined() }
}

/// Returns the labels and completions of a call, in order.
fn entries(env: &Env, no: TaskNo, index: u32) -> Vec<(EntryLabel, CallCompletion)> {
    let of_call =
        env.journal.iter().filter(|new| new.no == no && new.entry.index == CallIndex(index));
    of_call.map(|new| (new.entry.label.clone(), (*new.entry.completion).clone())).collect()
}

fn record(env: &mut Env, no: TaskNo, index: u32, completion: CallCompletion) {
    let record =
        CallRecord::new(CallIndex(index), EntryLabel::step("charge"), Arc::new(completion));
    env.report(no, AttemptReport::Record(record));
}

#[test]
fn the_attempts_and_the_result_of_a_call_are_entries_of_one_index() {
    let mut env = Env::new();
    let no = env.spawn(job());
    for attempt in 1..=2 {
        assert!(env.park(no, 7, retry(attempt, 100)), "it is suspended");
        env.advance(99);
        assert_eq!(env.state(no), "waiting");
        env.advance(1);
        assert_eq!(env.state(no), "running");
    }
    record(&mut env, no, 7, CallCompletion::Value(json("paid")));
    let label = || EntryLabel::step("charge");
    assert_eq!(
        entries(&env, no, 7),
        [
            (label(), retried(1)),
            (label(), retried(2)),
            (label(), CallCompletion::Value(json("paid"))),
        ]
    );
    assert_eq!(env.row(no).journal_len, 3);
}

#[test]
fn a_pause_of_nothing_retries_at_once() {
    let mut env = Env::new();
    let no = env.spawn(job());
    assert!(!env.park(no, 1, retry(1, 0)));
    assert_eq!(env.completion(no, 1), Some(&retried(1)));
}

#[test]
fn a_message_does_not_end_the_pause() {
    let mut env = Env::new();
    let no = env.spawn(job());
    assert!(env.park(no, 1, retry(1, 100)));
    env.send_to(no);
    assert_eq!(env.state(no), "waiting");
}

#[test]
fn the_pause_counts_from_its_first_request_across_a_crash() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let again = || vec![(1, retry(1, 1_000))];
    env.park_all(no, again(), AfterPark::Continue).unwrap();
    env.recover(no, RecoveryFinding::Crash);
    env.advance(600);
    let parked = env.park_all(no, again(), AfterPark::Suspend { parked_count: 1 });
    assert_eq!(parked, Ok(CommandReply::Parked { suspended: true }));
    assert_eq!(env.count(|event| matches!(event, Event::Parked { .. })), 1);
    env.advance(400);
    assert_eq!(env.completion(no, 1), Some(&retried(1)));
}

#[test]
fn a_stop_ends_a_task_that_waits_to_retry() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.park(no, 1, retry(1, 100));
    env.stop_task(no);
    assert!(matches!(env.outcome(no), Outcome::Cancelled(_)), "nobody performs it");
    env.advance(1_000);
    assert_eq!(entries(&env, no, 1), [], "the pause went with its run");
}

#[test]
fn a_deadline_ends_a_task_that_waits_to_retry() {
    let mut env = Env::new();
    let no = env.spawn(job().limited(Limits { time: Some(Millis(50)), ..Limits::default() }));
    env.park(no, 1, retry(1, 100));
    env.advance(50);
    let Outcome::Failed(failed) = env.outcome(no) else { panic!("{:?}", env.outcome(no)) };
    assert!(matches!(failed.failure, Failure::Timeout { .. }), "{failed:?}");
}

#[test]
fn the_next_run_knows_the_entries_of_earlier_ones() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.park(no, 1, retry(1, 100));
    env.advance(100);
    record(&mut env, no, 1, CallCompletion::Error(declined()));
    env.fail(no);
    env.clear();
    env.resume(operator(), no).unwrap();
    let starts = |env: &Env, earlier: Option<u32>| {
        env.acted(
            |action| matches!(action, Action::Start(start) if start.earlier_entries == earlier),
        )
    };
    assert_eq!(starts(&env, Some(2)), 1, "a retried entry and an error");
    env.park(no, 1, retry(1, 100));
    env.advance(100);
    assert_eq!(starts(&env, Some(2)), 2, "it is the same run after the pause");
    let other = env.spawn(job());
    env.fail(other);
    env.resume(operator(), other).unwrap();
    let extras = env.row(other).extras.as_ref();
    assert_eq!(extras.and_then(|extras| extras.earlier_entries), None, "there are none");
}

#[test]
fn the_row_shows_what_is_retried_and_why() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let label = EntryLabel::JobRetry;
    let request =
        ConditionRequest::Retry { label, attempt: 3, error: declined(), pause: Millis(9) };
    env.park(no, 0, request);
    let [call] = env.row(no).parked_calls.as_slice() else { panic!("one call is parked") };
    let Condition::Retry(pause) = &call.condition else { panic!("{call:?}") };
    assert_eq!((pause.attempt, &pause.error), (3, &declined()));
    assert_eq!(call.condition.label(), EntryLabel::JobRetry);
    assert_eq!(call.condition.until(), Some(pause.until));
}
