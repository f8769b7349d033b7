//! Readiness: stored once for each attempt, and only for work with a readiness check.

use brigade_model::call::{CallCompletion, ConditionRequest, WaitMode};
use brigade_model::command::{AfterPark, AttemptReport, RecoveryFinding};
use brigade_model::event::Event;
use brigade_model::ids::{CallIndex, TaskNo, Time};
use brigade_model::refusal::RefusalKind;
use brigade_model::spec::TaskSpec;
use brigade_model::task::TaskRow;
use brigade_model::work::{ReadinessCheck, Work};

use crate::support::*;

fn server() -> TaskSpec {
    with_check(process(), ReadinessCheck::Port(8_000))
}

fn with_check(mut spec: TaskSpec, check: ReadinessCheck) -> TaskSpec {
    if let Work::Process(process) = &mut spec.work {
        process.ready = Some(check);
    }
    spec
}

fn count_ready(env: &Env) -> usize {
    env.count(|event| matches!(event, Event::Ready { .. }))
}

#[test]
fn an_attempt_is_ready_once() {
    let mut env = Env::new();
    let no = env.spawn(server());
    assert_eq!(env.row(no).ready_at(), None);
    env.now = Time(env.now.0 + 5);
    let ready_at = env.now;
    env.report(no, AttemptReport::Ready);
    assert_eq!(env.row(no).ready_at(), Some(ready_at));
    assert_eq!(env.row(no).last_activity_at, ready_at);
    env.now = Time(env.now.0 + 5);
    env.report(no, AttemptReport::Ready);
    assert_eq!(count_ready(&env), 1, "a repeat changes nothing");
    env.succeed(no);
    assert_eq!(env.row(no).ready_at(), Some(ready_at), "it was ready before it ended");
}

#[test]
fn only_work_with_a_readiness_check_becomes_ready() {
    let mut env = Env::new();
    for spec in [process(), job()] {
        let no = env.spawn(spec);
        let refused_report = env.try_report(no, AttemptReport::Ready);
        refused(refused_report, RefusalKind::Invalid, "without a readiness check");
    }
}

#[test]
fn work_that_is_being_stopped_does_not_become_ready() {
    let mut env = Env::new();
    let no = env.spawn(server());
    env.stop_task(no);
    env.report(no, AttemptReport::Ready);
    assert_eq!(count_ready(&env), 0);
    assert_eq!(env.row(no).ready_at(), None);
}

#[test]
fn an_attempt_that_starts_again_is_not_ready() {
    let mut env = Env::new();
    let no = env.spawn(server());
    env.report(no, AttemptReport::Ready);
    env.recover(no, RecoveryFinding::Adopted);
    assert!(env.row(no).ready_at().is_some(), "an adopted process stays ready");
    env.recover(no, RecoveryFinding::NeverStarted);
    assert_eq!(env.row(no).ready_at(), None);
    env.advance(1);
    assert!(env.row(no).is_performed());
    assert_eq!(env.row(no).ready_at(), None);
    env.report(no, AttemptReport::Ready);
    assert_eq!(count_ready(&env), 2);
}

fn until_ready(tasks: &[TaskNo], mode: WaitMode) -> ConditionRequest {
    ConditionRequest::Ready { tasks: tasks.to_vec(), mode, timeout: None, interruptible: true }
}

/// Returns the tasks of a completed wait: whether each was ready, and whether it had ended.
fn completed(env: &Env, no: TaskNo, index: u32) -> Option<Vec<(TaskNo, bool, bool)>> {
    let completion = env.completion(no, index)?;
    let CallCompletion::Readiness(tasks) = completion else { panic!("{completion:?}") };
    let tasks = tasks.iter();
    Some(tasks.map(|one| (one.no, one.ready_at.is_some(), one.result.is_some())).collect())
}

#[test]
fn a_parked_wait_ends_when_all_are_ready_and_consumes_nothing() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let [one, two] = [(); 2].map(|()| env.spawn_child(parent, server()));
    assert!(env.park(parent, 1, until_ready(&[two, one], WaitMode::All)));
    env.report(one, AttemptReport::Ready);
    assert_eq!(completed(&env, parent, 1), None);
    env.report(two, AttemptReport::Ready);
    let expected = vec![(one, true, false), (two, true, false)];
    assert_eq!(completed(&env, parent, 1), Some(expected));
    assert_eq!(env.state(parent), "running");
    env.succeed(one);
    assert!(!env.row(one).is_collected(), "its result is not consumed");
    assert!(!env.park(parent, 2, until_ready(&[one], WaitMode::Any)), "it was ready");
    assert_eq!(completed(&env, parent, 2), Some(vec![(one, true, true)]));
}

#[test]
fn a_parked_wait_ends_with_a_task_that_was_never_ready() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let [one, two] = [(); 2].map(|()| env.spawn_child(parent, server()));
    assert!(env.park(parent, 1, until_ready(&[one, two], WaitMode::All)));
    env.fail(two);
    let expected = vec![(one, false, false), (two, false, true)];
    assert_eq!(completed(&env, parent, 1), Some(expected));
    assert!(!env.row(two).is_collected(), "its result is not consumed");
}

#[test]
fn a_wait_for_readiness_names_tasks_with_a_check() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, process());
    let park = |tasks: &[TaskNo]| AttemptReport::Park {
        calls: vec![(CallIndex(1), until_ready(tasks, WaitMode::All))],
        acked_entries: u32::MAX,
        then: AfterPark::Continue,
    };
    refused(env.try_report(parent, park(&[child])), RefusalKind::Invalid, "--ready");
    refused(env.try_report(parent, park(&[])), RefusalKind::Invalid, "name the tasks");
}

#[test]
fn a_row_of_an_earlier_version_has_no_readiness() {
    let mut env = Env::new();
    let no = env.spawn(process());
    let text = serde_json::to_string(env.row(no)).unwrap();
    assert!(!text.contains("ready"), "{text}");
    let row: TaskRow = serde_json::from_str(&text).unwrap();
    assert_eq!(row.ready_at(), None);
    assert_eq!(row.spec.work.readiness_check(), None);
    let no = env.spawn(server());
    env.report(no, AttemptReport::Ready);
    let text = serde_json::to_string(env.row(no)).unwrap();
    let row: TaskRow = serde_json::from_str(&text).unwrap();
    assert_eq!(row, *env.row(no));
}

#[test]
fn a_request_with_another_check_is_another_request() {
    let mut env = Env::new();
    let no = env.spawn(server().keyed("k"));
    assert_eq!(env.spawn(server().keyed("k")), no);
    let other = with_check(process(), ReadinessCheck::Port(8_001)).keyed("k");
    let refusal = env.try_spawn(operator(), other).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    assert!(refusal.message.contains("readiness check"), "{refusal}");
}

#[test]
fn a_wrong_check_is_refused_before_anything_starts() {
    let mut env = Env::new();
    let wrong = with_check(process(), ReadinessCheck::Port(0));
    let refusal = env.try_spawn(operator(), wrong).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert_eq!(env.count(|event| matches!(event, Event::Spawned(_))), 0);
}
