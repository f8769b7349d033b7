//! Tests of replayed and retried calls.

use super::*;
use brigade_model::call::{Condition, ParkedCall, RetryPause};
use brigade_model::error_details::ErrorDetails;
use brigade_model::ids::{Attempt, Millis, Seq, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::spec::TaskSpec;
use brigade_model::work::{JobWork, Work};

fn charge() -> EntryLabel {
    EntryLabel::step("charge")
}

fn error() -> ErrorDetails {
    ErrorDetails::new("declined")
}

fn retried(attempt: u32) -> CallCompletion {
    CallCompletion::Retried { attempt, error: error() }
}

fn value() -> CallCompletion {
    CallCompletion::Value(Json::null())
}

fn failed() -> CallCompletion {
    CallCompletion::Error(error())
}

fn start(run: u32, earlier_entries: Option<u32>) -> StartAction {
    let work = Work::Job(JobWork::Closure { label: "c".into() });
    StartAction {
        session: "here".parse().unwrap(),
        no: TaskNo::FIRST,
        run: RunNo(run),
        attempt: Attempt(2),
        spawner: None,
        spec: Arc::new(TaskSpec::new(work)),
        journal_len: 0,
        earlier_entries,
        parked_calls: Vec::new(),
        worktree: None,
        state: None,
        stall_watch: None,
        skip_first_gate: false,
    }
}

fn journal(entries: Vec<(u32, EntryLabel, CallCompletion)>) -> Vec<JournalEntry> {
    let entries = (1..).zip(entries);
    let entry = |(order, (index, label, completion))| JournalEntry {
        index: CallIndex(index),
        order: Seq(order),
        label,
        completion: Arc::new(completion),
    };
    entries.map(entry).collect()
}

/// Returns the replayed completion of each call.
fn replayed(journal: Vec<JournalEntry>, start: &StartAction) -> Vec<(u32, CallCompletion)> {
    let calls = JobCalls::default();
    calls.load(journal, start);
    let replay = std::mem::take(&mut calls.lock().replay);
    replay.iter().map(|n| (n.entry.index.0, (*n.entry.completion).clone())).collect()
}

#[test]
fn the_last_attempt_of_a_call_is_replayed() {
    let entries =
        vec![(0, charge(), retried(1)), (1, charge(), value()), (0, charge(), retried(2))];
    let expected = [(1, value()), (0, retried(2))];
    assert_eq!(replayed(journal(entries), &start(1, None)), expected);
    let entries = vec![(0, charge(), retried(1)), (0, charge(), value())];
    assert_eq!(replayed(journal(entries), &start(1, None)), [(0, value())]);
}

#[test]
fn a_call_that_waits_to_be_retried_is_not_replayed() {
    let pause = RetryPause { label: charge(), attempt: 2, error: error(), until: Time(9) };
    let condition = Condition::Retry(Box::new(pause));
    let mut start = start(1, None);
    start.parked_calls = vec![ParkedCall { index: CallIndex(0), condition }];
    let calls = Arc::new(JobCalls::default());
    calls.load(journal(vec![(0, charge(), retried(1))]), &start);
    assert!(!calls.is_replaying());
    assert!(matches!(calls.begin(&charge()), Ok(CallStart::Known(CallIndex(0)))));
}

#[test]
fn entries_that_are_not_replayed_are_acknowledged() {
    let calls = Arc::new(JobCalls::default());
    let entries = vec![(0, charge(), value()), (1, EntryLabel::JobRetry, retried(1))];
    calls.load(journal(entries), &start(1, None));
    assert!(matches!(calls.begin(&charge()), Ok(CallStart::Known(_))));
    let sleep = EntryLabel::Sleep;
    let Ok(CallStart::New(index)) = calls.begin(&sleep) else { panic!("a new call") };
    calls.park(index, ConditionRequest::Timer { duration: Millis(1) });
    let DriverStep::Park { acked_entries, .. } = calls.next_step(Waker::noop()) else {
        panic!("it parks")
    };
    assert_eq!(acked_entries, 2);
}

#[test]
fn a_new_run_begins_its_retries_anew_and_keeps_them_after_a_pause() {
    let first_run =
        vec![(0, charge(), value()), (1, charge(), retried(1)), (1, charge(), failed())];
    let start = start(2, Some(3));
    assert_eq!(replayed(journal(first_run.clone()), &start), [(0, value())]);
    let mut entries = first_run;
    entries.push((1, charge(), retried(1)));
    assert_eq!(replayed(journal(entries), &start), [(0, value()), (1, retried(1))]);
}

#[test]
fn a_job_that_is_tried_again_keeps_its_results_and_repeats_its_last_failure() {
    let job = || (u32::MAX, EntryLabel::JobRetry, retried(1));
    let mut entries = vec![(0, charge(), value()), (1, charge(), failed()), job()];
    assert_eq!(replayed(journal(entries.clone()), &start(1, None)), [(0, value())]);
    entries.extend([(1, charge(), retried(1)), (1, charge(), failed())]);
    let expected = [(0, value()), (1, failed())];
    assert_eq!(replayed(journal(entries.clone()), &start(1, None)), expected);
    entries.push(job());
    assert_eq!(replayed(journal(entries), &start(1, None)), [(0, value())]);
}
