//! Stops end the whole process tree: gracefully first, then by force.

use std::time::{Duration, Instant};

use brigade_model::command::StopTarget;
use brigade_model::outcome::{CancelledOutcome, EndConfirmation, Failure, LateResult, Outcome};
use brigade_runtime::{NewTask, TaskHandle};

use crate::support::*;

async fn stopped<T>(kitchen: &Kitchen, task: &TaskHandle<T>) -> CancelledOutcome {
    task.stop(Some("enough")).await.unwrap();
    cancelled(kitchen, task).await
}

async fn cancelled<T>(kitchen: &Kitchen, task: &TaskHandle<T>) -> CancelledOutcome {
    let outcome = kitchen.task(task).await;
    let Outcome::Cancelled(cancelled) = &outcome else { panic!("{outcome:?}") };
    cancelled.clone()
}

fn signal(cancelled: &CancelledOutcome) -> Option<i32> {
    match &cancelled.late {
        Some(LateResult::Failure(Failure::Signal(signal))) => Some(*signal),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_is_graceful_first_and_keeps_the_real_exit() {
    let kitchen = kitchen().await;
    let polite = "trap 'echo bye; exit 9' TERM; echo up; while :; do sleep 0.05; done";
    let task = kitchen.session.spawn(NewTask::shell(polite)).await.unwrap();
    until_output(&task, "up").await;
    let ended = stopped(&kitchen, &task).await;
    assert_eq!(ended.late, Some(LateResult::Failure(Failure::ExitCode(9))));
    assert_eq!(ended.confirmation, EndConfirmation::Confirmed);
    until_output(&task, "bye").await;
    let task = kitchen.session.spawn(NewTask::shell("exec sleep 60")).await.unwrap();
    assert_eq!(signal(&stopped(&kitchen, &task).await), Some(15));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ignores_the_stop_is_killed_after_the_grace_period() {
    let kitchen = kitchen().await;
    let deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let task = NewTask::shell(deaf).grace(Duration::from_millis(300));
    let task = kitchen.session.spawn(task).await.unwrap();
    until_output(&task, "up").await;
    let began = Instant::now();
    let ended = stopped(&kitchen, &task).await;
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    assert_eq!((signal(&ended), ended.confirmation), (Some(9), EndConfirmation::Confirmed));
    assert_eq!(processes_with(&task_mark(&kitchen)), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_with_its_own_grace_overrides_the_task_s() {
    let kitchen = kitchen().await;
    let deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let task = NewTask::shell(deaf).grace(Duration::from_secs(60));
    let task = kitchen.session.spawn(task).await.unwrap();
    until_output(&task, "up").await;
    let target = StopTarget::Task(task.no().into());
    kitchen.session.stop_with(target, None, Some(Duration::ZERO)).await.unwrap();
    assert_eq!(signal(&cancelled(&kitchen, &task).await), Some(9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn detached_processes_and_their_children_are_stopped_too() {
    if !brigade_process::IS_COMPLETE {
        return;
    }
    let kitchen = kitchen().await;
    // One in another session, one that was forked twice, one that ignores TERM, each with a child.
    let tree = "
        setsid sh -c 'sleep 61 & echo one; wait' &
        (setsid sh -c 'trap \"\" TERM; sleep 62 & echo two; while :; do sleep 0.05; done' &)
        sh -c 'trap \"\" TERM; (trap \"\" TERM; sleep 63) & echo three; while :; do sleep 0.05; done' &
        echo four; wait";
    let task = NewTask::shell(tree).grace(Duration::from_millis(200));
    let task = kitchen.session.spawn(task).await.unwrap();
    for word in ["one", "two", "three", "four"] {
        until_output(&task, word).await;
    }
    assert!(processes_with(&task_mark(&kitchen)).len() >= 7);
    let ended = stopped(&kitchen, &task).await;
    assert_eq!(ended.confirmation, EndConfirmation::Confirmed);
    assert_eq!(processes_with(&task_mark(&kitchen)), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_suspended_by_sigstop_is_ended_too() {
    let kitchen = kitchen().await;
    let task = kitchen.session.spawn(NewTask::shell("echo up; kill -STOP $$")).await.unwrap();
    until_output(&task, "up").await;
    assert_eq!(stopped(&kitchen, &task).await.confirmation, EndConfirmation::Confirmed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_may_come_at_any_moment_of_the_start() {
    let kitchen = kitchen().await;
    for round in 0..40 {
        let task = kitchen.session.spawn(NewTask::shell("exec sleep 60")).await.unwrap();
        tokio::time::sleep(Duration::from_micros(round * 100)).await;
        let ended = stopped(&kitchen, &task).await;
        assert_eq!(ended.confirmation, EndConfirmation::Confirmed, "round {round}");
    }
    assert_eq!(processes_with(&task_mark(&kitchen)), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_twice_is_stopping_once() {
    let kitchen = kitchen().await;
    let deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let task = NewTask::shell(deaf).grace(Duration::from_millis(200));
    let task = kitchen.session.spawn(task).await.unwrap();
    until_output(&task, "up").await;
    assert!(!task.stop(None).await.unwrap().already_stopped);
    assert!(task.stop(None).await.unwrap().already_stopped);
    assert_eq!(signal(&cancelled(&kitchen, &task).await), Some(9));
    assert!(task.stop(None).await.unwrap().already_stopped, "after the end it is a no-op");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_prints_forever_can_be_stopped_and_fills_no_disk() {
    let kitchen = kitchen().await;
    let task = NewTask::shell("yes").output_cap(1 << 20);
    let task = kitchen.session.spawn(task).await.unwrap();
    let execution_dir = loop {
        if kitchen.dir.path().join("processes").exists() {
            break kitchen.execution_dir();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    until("four mebibytes", || {
        execution_dir.join("claim").exists() && record(&execution_dir).produced_bytes[0] > 4 << 20
    })
    .await;
    assert_eq!(stopped(&kitchen, &task).await.confirmation, EndConfirmation::Confirmed);
    let sizes = std::fs::read_dir(&execution_dir)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len());
    assert!(sizes.sum::<u64>() < 2 << 20);
}
