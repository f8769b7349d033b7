//! Processes outlive the runtime that started them.

use std::time::Duration;

use brigade_model::message::Receipt;
use brigade_model::outcome::{EndConfirmation, Failure, LateResult, Outcome};
use brigade_model::task::StoredTask;
use brigade_runtime::NewTask;
use brigade_store::Retention;

use crate::support::*;

async fn outcome_of(kitchen: &Kitchen, no: u32) -> Outcome {
    let no = brigade_model::ids::TaskNo::new(no).unwrap();
    let mut run_results = kitchen.session.wait_all([no]).await.unwrap();
    Outcome::clone(&run_results.pop().unwrap().outcome)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_process_is_adopted_by_the_next_runtime() {
    let first = kitchen().await;
    let text = "echo begun; for n in $(seq 1000); do test -e go && break; sleep 0.02; done; echo went; exit 6";
    let task = NewTask::shell(text).cwd(first.dir.path());
    let task = first.session.spawn(task).await.unwrap();
    until_output(&task, "begun").await;
    drop(task);
    let next = first.reopened().await;
    let StoredTask { row, .. } = next.session.list().pop().unwrap();
    assert_eq!((row.state.label(), row.attempt.0), ("running", 1));
    std::fs::write(next.dir.path().join("go"), "").unwrap();
    let outcome = outcome_of(&next, 1).await;
    assert_eq!(outcome.to_string(), "failed (exit code 6)");
    assert_eq!(report(&outcome).tail, "begun\nwent\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ended_meanwhile_has_its_real_outcome() {
    let first = kitchen().await;
    for text in ["sleep 0.2; exit 0", "sleep 0.2; exit 8", "sleep 0.2; kill -9 $$"] {
        first.session.spawn(NewTask::shell(text)).await.unwrap();
    }
    let mark = task_mark(&first);
    until("three commands", || processes_with(&mark).len() >= 6).await;
    let wait = |_: &std::path::Path| {
        while !processes_with(&mark).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let next = first.reopened_after(wait).await;
    let run_results: Vec<String> =
        [outcome_of(&next, 1).await, outcome_of(&next, 2).await, outcome_of(&next, 3).await]
            .map(|outcome| outcome.to_string())
            .to_vec();
    assert_eq!(run_results, ["succeeded", "failed (exit code 8)", "failed (signal 9)"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adopted_process_gets_input_and_is_stopped() {
    let first = kitchen().await;
    let text = "trap 'exit 3' TERM; while read line; do echo got $line; done; sleep 60 & wait";
    let task = first.session.spawn(NewTask::shell(text).reads_messages()).await.unwrap();
    task.send("one").await.unwrap();
    until_output(&task, "got one").await;
    let no = task.no();
    drop(task);
    let next = first.reopened().await;
    let message = next.session.send(no, "two").await.unwrap();
    let execution_dir = next.execution_dir();
    until("two", || {
        std::fs::read_to_string(execution_dir.join("stdout")).unwrap().contains("got two")
    })
    .await;
    let receipt = next.session.receipt(message).await.unwrap().unwrap().receipt;
    assert!(matches!(receipt, Receipt::Delivered | Receipt::Accepted), "{receipt:?}");
    next.session.close_input(no).await.unwrap();
    next.session.stop(no, None).await.unwrap();
    let outcome = outcome_of(&next, 1).await;
    let Outcome::Cancelled(cancelled) = &outcome else { panic!("{outcome:?}") };
    let code = Some(LateResult::Failure(Failure::ExitCode(3)));
    assert_eq!((&cancelled.late, &cancelled.confirmation), (&code, &EndConfirmation::Confirmed));
    assert_eq!(processes_with(&task_mark(&next)), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_of_a_process_continues_after_a_restart() {
    let first = kitchen().await;
    let deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done";
    let task = NewTask::shell(deaf).grace(Duration::from_millis(800));
    let task = first.session.spawn(task).await.unwrap();
    until_output(&task, "up").await;
    task.stop(None).await.unwrap();
    drop(task);
    let next = first.reopened().await;
    let outcome = outcome_of(&next, 1).await;
    assert_eq!(outcome.to_string(), "cancelled");
    assert_eq!(processes_with(&task_mark(&next)), Vec::<u32>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_continues_without_a_runtime() {
    let first = kitchen().await;
    let task = NewTask::shell("exec sleep 60").deadline(Duration::from_millis(200));
    first.session.spawn(task).await.unwrap();
    let mark = task_mark(&first);
    until("the command", || processes_with(&mark).len() == 2).await;
    let next = first.reopened_after(|_| std::thread::sleep(Duration::from_millis(250))).await;
    assert_eq!(outcome_of(&next, 1).await.to_string(), "failed (timeout after 200 ms)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_stays_until_the_task_is_pruned() {
    let kitchen = kitchen().await;
    let task = kitchen.session.spawn(NewTask::shell("echo kept")).await.unwrap();
    kitchen.task(&task).await;
    let alive = kitchen.session.spawn(NewTask::shell("exec sleep 60")).await.unwrap();
    let now = brigade_model::ids::Millis(0);
    let everything = Retention { ended: now, events: now };
    until_output(&task, "kept").await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let pruned = kitchen.runtime.prune(&everything).await.unwrap();
    assert_eq!(pruned.tasks, 1);
    let execution_dir = kitchen.execution_dir();
    assert!(execution_dir.ends_with("2.1.1"), "{}", execution_dir.display());
    alive.stop(None).await.unwrap();
    assert_eq!(kitchen.task(&alive).await.label(), "cancelled");
}
