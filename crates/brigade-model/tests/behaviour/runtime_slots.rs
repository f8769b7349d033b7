//! The running limit of the runtime, of which a session gets a number of starts at a time.

use brigade_model::apply::apply;
use brigade_model::call::WaitMode;
use brigade_model::command::{Command, RecoveryFinding};
use brigade_model::ids::{Epoch, Owner, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::task::{QueueReason, TaskState};
use brigade_model::task_tree::TaskTree;

use crate::support::*;

fn running(max: u32) -> Limits {
    Limits { running: Some(max), ..Limits::default() }
}

/// Lets this many tasks start, as the runtime does before each command of a session.
fn grant(env: &mut Env, starts: u32) {
    env.tree.allow_starts(Some(starts));
    env.submit(&Command::Sweep).expect("a sweep is never refused");
}

#[track_caller]
fn reason(env: &Env, no: TaskNo) -> QueueReason {
    match &env.row(no).state {
        TaskState::Queued(queued) => queued.reason.clone(),
        other => panic!("{no:?} is {}", other.label()),
    }
}

#[test]
fn without_a_start_tasks_queue_for_the_runtime_and_start_in_order() {
    let mut env = Env::new();
    env.tree.allow_starts(Some(1));
    let [one, two, three] = [env.spawn(job()), env.spawn(job()), env.spawn(job())];
    env.states(&[(one, "running"), (two, "queued"), (three, "queued")]);
    assert_eq!(reason(&env, two), QueueReason::RuntimeLimit);
    assert_eq!(env.tree.runtime_queue_len(), 2);
    // A slot that becomes free belongs to the runtime, which may give it to another session.
    env.succeed(one);
    env.states(&[(two, "queued"), (three, "queued")]);
    grant(&mut env, 1);
    env.states(&[(two, "running"), (three, "queued")]);
    grant(&mut env, 0);
    env.states(&[(two, "running"), (three, "queued")]);
    grant(&mut env, 5);
    env.states(&[(three, "running")]);
    assert_eq!(env.tree.runtime_queue_len(), 0);
    assert_eq!(env.tree.running_count(), 2);
}

#[test]
fn nobody_overtakes_a_task_that_queues_for_the_runtime() {
    let mut env = Env::new();
    env.tree.allow_starts(Some(0));
    let first = env.spawn(job());
    env.tree.allow_starts(Some(1));
    let second = env.spawn(job());
    env.states(&[(first, "running"), (second, "queued")]);
}

#[test]
fn a_suspended_parent_frees_its_slot_for_the_child_that_it_awaits() {
    let mut env = Env::new();
    env.tree.allow_starts(Some(1));
    let parent = env.spawn(job());
    let child = env.spawn_child(parent, job());
    assert_eq!(reason(&env, child), QueueReason::RuntimeLimit);
    assert!(env.park(parent, 0, wait_for(&[child], WaitMode::All)));
    env.states(&[(parent, "waiting"), (child, "queued")]);
    assert_eq!(env.tree.running_count(), 0);
    grant(&mut env, 1);
    env.states(&[(parent, "waiting"), (child, "running")]);
    // The woken parent queues like every other task.
    env.succeed(child);
    assert_eq!(reason(&env, parent), QueueReason::RuntimeLimit);
    grant(&mut env, 1);
    assert_eq!(env.state(parent), "running");
}

#[test]
fn a_task_that_queues_for_the_runtime_has_its_place_in_the_session() {
    let mut env = Env::limited(running(1));
    env.tree.allow_starts(Some(0));
    let [one, two] = [env.spawn(job()), env.spawn(job())];
    assert_eq!(reason(&env, one), QueueReason::RuntimeLimit);
    assert_eq!(reason(&env, two), QueueReason::RunningLimit(Owner::Session));
    grant(&mut env, 2);
    env.states(&[(one, "running"), (two, "queued")]);
    // The place of the ended task passes to the next one, which then queues for the runtime.
    env.tree.allow_starts(Some(0));
    env.succeed(one);
    assert_eq!(reason(&env, two), QueueReason::RuntimeLimit);
    grant(&mut env, 1);
    assert_eq!(env.state(two), "running");
}

#[test]
fn a_stopped_task_gives_its_place_in_the_session_to_the_next_one() {
    let mut env = Env::limited(running(1));
    env.tree.allow_starts(Some(0));
    let [one, two] = [env.spawn(job()), env.spawn(job())];
    env.stop_task(one);
    env.states(&[(one, "cancelled")]);
    assert_eq!(reason(&env, two), QueueReason::RuntimeLimit);
    assert_eq!(env.tree.runtime_queue_len(), 1);
}

#[test]
fn a_lowered_session_limit_sends_a_task_back_to_the_queue_of_the_session() {
    let mut env = Env::limited(running(2));
    env.tree.allow_starts(Some(1));
    let [one, two] = [env.spawn(job()), env.spawn(job())];
    assert_eq!(reason(&env, two), QueueReason::RuntimeLimit);
    env.set_limits(None, running(1));
    grant(&mut env, 1);
    assert_eq!(reason(&env, two), QueueReason::RunningLimit(Owner::Session));
    env.tree.allow_starts(Some(1));
    env.succeed(one);
    assert_eq!(env.state(two), "running");
}

#[test]
fn a_runtime_without_a_limit_starts_what_queued_for_one_with_a_limit() {
    let mut env = Env::new();
    env.tree.allow_starts(Some(0));
    let [one, two] = [env.spawn(job()), env.spawn(job())];
    let attempt = env.row(one).attempt;
    for no in [two, one] {
        env.recover(no, RecoveryFinding::Crash);
    }
    env.states(&[(one, "queued"), (two, "queued")]);
    env.tree.allow_starts(None);
    env.submit(&Command::Sweep).expect("a sweep is never refused");
    env.states(&[(one, "running"), (two, "running")]);
    assert_eq!(env.row(one).attempt, attempt.next());
    assert_eq!(env.row(one).crashes, 0);
}

#[test]
fn the_fold_of_the_events_does_not_depend_on_the_allowed_starts() {
    let mut env = Env::limited(running(3));
    env.tree.allow_starts(Some(2));
    let tasks: Vec<TaskNo> = (0..6).map(|_| env.spawn(job())).collect();
    env.succeed(tasks[0]);
    grant(&mut env, 1);
    env.succeed(tasks[1]);
    grant(&mut env, 1);
    let mut folded = TaskTree::open(&env.events[0], Epoch(1)).expect("the first event opens it");
    for event in &env.events[1..] {
        apply(&mut folded, event);
    }
    assert!(folded == env.tree);
    assert_eq!(folded.runtime_queue_len(), env.tree.runtime_queue_len());
    assert_eq!(folded.running_count(), env.tree.running_count());
}
