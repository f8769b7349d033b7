//! Waiting: any, all, timeouts, messages, cycles. A task is woken once, and gets each result once.

use brigade_model::action::Action;
use brigade_model::call::{CallCompletion, ConditionRequest, WaitMode};
use brigade_model::command::{AfterPark, AttemptReport};
use brigade_model::decide::CommandReply;
use brigade_model::event::Event;
use brigade_model::ids::{CallIndex, Millis, Owner, TaskNo};
use brigade_model::outcome::Outcome;
use brigade_model::refusal::RefusalKind;
use brigade_model::work::{KindPolicy, WakeOn};

use crate::support::*;

fn family(env: &mut Env) -> (TaskNo, [TaskNo; 3]) {
    let parent = env.spawn(agent());
    let children = [0; 3].map(|_| env.spawn_child(parent, job()));
    (parent, children)
}

fn wait_at_most(tasks: &[TaskNo], timeout: u64) -> ConditionRequest {
    ConditionRequest::Tasks {
        tasks: tasks.to_vec(),
        mode: WaitMode::All,
        timeout: Some(Millis(timeout)),
        interruptible: true,
    }
}

#[test]
fn a_wait_for_any_completes_at_the_first_end() {
    let mut env = Env::new();
    let (parent, [a, b, c]) = family(&mut env);
    assert!(env.park(parent, 1, wait_for(&[a, b, c], WaitMode::Any)));
    env.succeed(b);
    assert_eq!(env.state(parent), "running");
    assert_eq!(env.results(parent, 1), [(b, false)]);
}

#[test]
fn a_wait_for_all_completes_at_the_last_end() {
    let mut env = Env::new();
    let (parent, [a, b, c]) = family(&mut env);
    assert!(env.park(parent, 1, wait_for(&[c, a], WaitMode::All)));
    env.succeed(a);
    env.succeed(b);
    assert_eq!(env.state(parent), "waiting");
    env.fail(c);
    assert_eq!(env.results(parent, 1), [(a, false), (c, false)]);
}

#[test]
fn a_task_that_has_ended_completes_the_wait_at_once() {
    let mut env = Env::new();
    let (parent, [a, _, _]) = family(&mut env);
    env.succeed(a);
    assert!(!env.park(parent, 1, wait_for(&[a], WaitMode::All)), "no wake-up is missed");
    assert_eq!(env.state(parent), "running");
    assert_eq!(env.results(parent, 1), [(a, false)]);
}

#[test]
fn a_wait_for_all_children_covers_those_not_collected() {
    let mut env = Env::new();
    let (parent, [a, b, c]) = family(&mut env);
    env.succeed(a);
    env.park(parent, 1, wait_for(&[a], WaitMode::All));
    env.succeed(b);
    env.park(parent, 2, wait_for(&[], WaitMode::Any));
    assert_eq!(env.results(parent, 2), [(b, false)]);
    assert!(env.park(parent, 3, wait_for(&[], WaitMode::All)));
    env.succeed(c);
    assert_eq!(env.results(parent, 3), [(c, false)]);
    assert!(!env.park(parent, 4, wait_for(&[], WaitMode::All)));
    assert_eq!(env.results(parent, 4), [], "there is nothing to wait for");
}

#[test]
fn a_timeout_consumes_nothing() {
    let mut env = Env::new();
    let (parent, [a, b, _]) = family(&mut env);
    env.succeed(a);
    assert!(env.park(parent, 1, wait_at_most(&[a, b], 500)));
    env.advance(499);
    assert_eq!(env.state(parent), "waiting");
    env.advance(1);
    assert_eq!(env.completion(parent, 1), Some(&CallCompletion::Elapsed));
    env.succeed(b);
    env.park(parent, 2, wait_for(&[a, b], WaitMode::All));
    assert_eq!(env.results(parent, 2), [(a, false), (b, false)]);
}

#[test]
fn an_overdue_timer_fires_once() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.park(no, 1, ConditionRequest::Timer { duration: Millis(10) });
    env.advance(1_000_000);
    env.advance(1_000_000);
    assert_eq!(env.completion(no, 1), Some(&CallCompletion::Elapsed));
}

#[test]
fn a_wait_for_a_cancelled_task_returns_its_outcome() {
    let mut env = Env::new();
    let (parent, [a, _, _]) = family(&mut env);
    env.park(parent, 1, wait_for(&[a], WaitMode::All));
    env.stop_task(a);
    assert_eq!(env.state(parent), "waiting", "a stopping task has not ended");
    env.aborted(a);
    let Some(CallCompletion::Results(results)) = env.completion(parent, 1) else {
        panic!("it has no result")
    };
    assert!(matches!(*results[0].outcome, Outcome::Cancelled(_)));
}

#[test]
fn a_task_cannot_wait_for_itself_or_for_its_ancestors() {
    let mut env = Env::new();
    let top = env.spawn(agent());
    let middle = env.spawn_child(top, agent());
    let low = env.spawn_child(middle, agent());
    let wait = |env: &mut Env, no| {
        env.park_all(low, vec![(1, wait_for(&[no], WaitMode::All))], AfterPark::Continue)
    };
    refused(wait(&mut env, low), RefusalKind::Invalid, "cannot wait for itself");
    refused(wait(&mut env, middle), RefusalKind::Invalid, "a wait cycle");
    refused(wait(&mut env, top), RefusalKind::Invalid, "agent:1 > agent:2 > agent:3");
}

#[test]
fn waiting_for_a_foreign_task_is_forbidden_and_for_an_unknown_one_not_found() {
    let mut env = Env::new();
    let (parent, _) = family(&mut env);
    let other = env.spawn(agent());
    let nobody = TaskNo::new(77).unwrap();
    let wait = |env: &mut Env, no| {
        env.park_all(parent, vec![(1, wait_for(&[no], WaitMode::All))], AfterPark::Continue)
    };
    refused(wait(&mut env, other), RefusalKind::Forbidden, "agent:5 is not a child of agent:1");
    refused(wait(&mut env, nobody), RefusalKind::NotFound, "there is no task 77");
}

#[test]
fn a_message_interrupts_a_wait_and_consumes_no_result() {
    let mut env = Env::new();
    let (parent, [a, b, _]) = family(&mut env);
    env.succeed(a);
    assert!(env.park(parent, 1, wait_at_most(&[a, b], 60_000)));
    env.send_to(parent);
    assert_eq!(env.completion(parent, 1), Some(&CallCompletion::Interrupted));
    assert_eq!(env.unread(Owner::Task(parent)), 1, "the message is still to be read");
    env.succeed(b);
    env.park(parent, 2, wait_for(&[a, b], WaitMode::All));
    assert_eq!(env.results(parent, 2), [(a, false), (b, false)]);
}

#[test]
fn a_message_does_not_interrupt_an_uninterruptible_wait() {
    let mut env = Env::new();
    let (parent, [a, _, _]) = family(&mut env);
    env.park(parent, 1, wait_for(&[a], WaitMode::All));
    env.send_to(parent);
    assert_eq!(env.state(parent), "waiting");
}

#[test]
fn under_any_completion_the_first_of_several_calls_wakes() {
    let mut env = Env::new();
    let no = env.spawn(custom(KindPolicy { wake_on: WakeOn::AnyCompletion, ..POLICY }));
    let calls = vec![
        (1, ConditionRequest::Timer { duration: Millis(100) }),
        (2, ConditionRequest::Message { timeout: None, name: None }),
    ];
    env.park_all(no, calls, AfterPark::Suspend { parked_count: 2 }).unwrap();
    assert_eq!(env.state(no), "waiting");
    env.send_to(no);
    assert_eq!(env.state(no), "running");
    env.report(no, AttemptReport::Abandon { calls: vec![CallIndex(1)] });
    assert_eq!(env.completion(no, 1), Some(&CallCompletion::Abandoned));
    env.advance(1_000);
    assert_eq!(
        env.completion(no, 1),
        Some(&CallCompletion::Abandoned),
        "its timer was removed with it"
    );
}

#[test]
fn under_all_completions_only_the_last_of_several_calls_wakes() {
    let mut env = Env::new();
    let no = env.spawn(custom(KindPolicy { wake_on: WakeOn::AllCompletions, ..POLICY }));
    let calls = vec![
        (1, ConditionRequest::Timer { duration: Millis(100) }),
        (2, ConditionRequest::Message { timeout: None, name: None }),
    ];
    env.park_all(no, calls, AfterPark::Suspend { parked_count: 2 }).unwrap();
    env.send_to(no);
    assert_eq!(env.state(no), "waiting");
    env.advance(100);
    assert_eq!(env.state(no), "running");
    let starts = |event: &Event| matches!(event, Event::Started { .. });
    assert_eq!(env.count(starts), 1, "woken once for both");
}

#[test]
fn one_end_that_completes_several_calls_wakes_once() {
    let mut env = Env::new();
    let (parent, [a, b, _]) = family(&mut env);
    let calls = vec![(1, wait_for(&[a], WaitMode::All)), (2, wait_for(&[a, b], WaitMode::Any))];
    env.park_all(parent, calls, AfterPark::Suspend { parked_count: 2 }).unwrap();
    env.clear();
    env.succeed(a);
    assert_eq!(env.results(parent, 1), [(a, false)]);
    assert_eq!(
        env.results(parent, 2),
        [(a, true)],
        "the second call sees that the first collected it"
    );
    assert_eq!(env.acted(|action| matches!(action, Action::Start(_))), 1);
}

#[test]
fn an_undelivered_completion_prevents_a_suspension() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.park_all(
        no,
        vec![(1, ConditionRequest::Message { timeout: None, name: None })],
        AfterPark::Continue,
    )
    .unwrap();
    env.send_to(no);
    let parked = env.park_all(
        no,
        vec![(2, ConditionRequest::Timer { duration: Millis(500) })],
        AfterPark::Suspend { parked_count: 2 },
    );
    assert_eq!(parked, Ok(CommandReply::Parked { suspended: false }));
}

#[test]
fn a_timer_that_is_due_at_the_suspension_is_not_lost() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.park_all(
        no,
        vec![(1, ConditionRequest::Timer { duration: Millis(100) })],
        AfterPark::Continue,
    )
    .unwrap();
    env.now = env.now.after(Millis(100));
    let parked = env.park_all(
        no,
        vec![(2, ConditionRequest::Message { timeout: None, name: None })],
        AfterPark::Suspend { parked_count: 2 },
    );
    assert_eq!(parked, Ok(CommandReply::Parked { suspended: false }));
    assert_eq!(env.completion(no, 1), Some(&CallCompletion::Elapsed));
    assert_eq!(env.state(no), "running");
}

#[test]
fn a_dropped_call_whose_time_is_up_completes_once() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let calls = vec![
        (1, ConditionRequest::Message { timeout: None, name: None }),
        (2, ConditionRequest::Timer { duration: Millis(100) }),
    ];
    env.park_all(no, calls, AfterPark::Continue).unwrap();
    env.now = env.now.after(Millis(100));
    env.report(no, AttemptReport::Abandon { calls: vec![CallIndex(1), CallIndex(2)] });
    assert_eq!(env.completion(no, 1), Some(&CallCompletion::Abandoned));
    assert!(env.completion(no, 2).is_some());
    assert_eq!(env.row(no).journal_len, 2);
}

#[test]
fn a_task_without_open_calls_is_not_suspended() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let parked = env.park_all(no, Vec::new(), AfterPark::Suspend { parked_count: 0 });
    assert_eq!(parked, Ok(CommandReply::Parked { suspended: false }));
    assert_eq!(env.state(no), "running");
}

#[test]
fn a_job_that_is_entered_again_finds_its_call_still_parked() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let sleep = || vec![(1, ConditionRequest::Timer { duration: Millis(1_000) })];
    env.park_all(no, sleep(), AfterPark::Continue).unwrap();
    env.recover(no, brigade_model::command::RecoveryFinding::Crash);
    env.advance(600);
    let again = env.park_all(no, sleep(), AfterPark::Suspend { parked_count: 1 });
    assert_eq!(again, Ok(CommandReply::Parked { suspended: true }));
    assert_eq!(env.count(|event| matches!(event, Event::Parked { .. })), 1);
    env.advance(400);
    assert_eq!(
        env.completion(no, 1),
        Some(&CallCompletion::Elapsed),
        "the time counts from the first request"
    );
}

#[test]
fn a_finished_child_wakes_its_idle_parent() {
    let mut env = Env::new();
    let (parent, [a, b, c]) = family(&mut env);
    assert!(env.park(parent, 1, wait_for(&[], WaitMode::Any)));
    env.clear();
    env.fail(c);
    assert_eq!(env.acted(|action| matches!(action, Action::Start(start) if start.no == parent)), 1);
    env.states(&[(parent, "running"), (a, "running"), (b, "running")]);
}

#[test]
fn a_resumed_child_is_waited_for_again() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let [a, b] = [0; 2].map(|_| env.spawn_child(parent, agent()));
    env.succeed(a);
    assert!(env.park(parent, 1, wait_for(&[a, b], WaitMode::All)));
    env.send_to(a);
    env.succeed(b);
    assert_eq!(env.state(parent), "waiting", "the second run of the first is alive");
    env.succeed(a);
    assert_eq!(env.results(parent, 1), [(a, false), (a, false), (b, false)], "both runs of it");
}
