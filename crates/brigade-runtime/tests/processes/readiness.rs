//! Readiness of real processes: by output, by port, after a restart, and never.

use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::readiness::Readiness;
use brigade_model::refusal::RefusalKind;
use brigade_model::work::ReadinessCheck;
use brigade_runtime::{NewTask, ProcessTask, TaskError};

use crate::support::*;

fn by_output(command: &str, pattern: &str) -> NewTask<ProcessTask> {
    NewTask::shell(command).ready(ReadinessCheck::Output(pattern.into()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_is_ready_when_a_line_matches() {
    let kitchen = kitchen().await;
    let text = "echo one; until test -e go; do sleep 0.02; done; printf 'prompt> '; sleep 60";
    let task = by_output(text, "^prompt> $").cwd(kitchen.dir.path());
    let task = kitchen.session.spawn(task).await.unwrap();
    until_output(&task, "one").await;
    let timeout = Some(Duration::from_millis(50));
    let early =
        kitchen.session.wait_ready(vec![task.no().into()], WaitMode::All, timeout).await.unwrap();
    assert!(early.timed_out);
    assert_eq!(early.tasks[0].row.readiness(), Readiness::Pending);
    std::fs::write(kitchen.dir.path().join("go"), "").unwrap();
    let row = task.wait_ready().await.unwrap();
    assert!(matches!(row.readiness(), Readiness::Ready(_)) && row.is_alive());
    task.stop(None).await.unwrap();
    task.wait().await.unwrap();
    let row = task.wait_ready().await.unwrap();
    assert!(!row.is_alive(), "it was ready before it ended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_ends_before_is_an_error_and_keeps_its_result() {
    let kitchen = kitchen().await;
    let task = kitchen.session.spawn(by_output("echo almost; exit 4", "ready")).await.unwrap();
    let error = task.wait_ready().await.unwrap_err();
    assert_eq!(error.to_string(), "process:1 failed (exit code 4)");
    assert!(matches!(error, TaskError::Ended { .. }));
    let result = task.wait().await.unwrap();
    assert!(!result.collected_before, "the wait for readiness consumed nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_any_ends_with_the_first() {
    let kitchen = kitchen().await;
    let slow = kitchen.session.spawn(by_output("sleep 60", "never")).await.unwrap();
    let quick = kitchen.session.spawn(by_output("echo ready; sleep 60", "ready")).await.unwrap();
    let tasks = vec![slow.no().into(), quick.no().into()];
    let waited = kitchen.session.wait_ready(tasks, WaitMode::Any, None).await.unwrap();
    let readiness: Vec<bool> = waited
        .tasks
        .iter()
        .map(|task| matches!(task.row.readiness(), Readiness::Ready(_)))
        .collect();
    assert_eq!(readiness, [false, true]);
    let plain = kitchen.session.spawn(NewTask::shell("sleep 60")).await.unwrap();
    let Err(TaskError::Refused(refusal)) = plain.wait_ready().await else { panic!("it waited") };
    assert_eq!(refusal.kind, RefusalKind::Invalid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_runtime_continues_to_watch() {
    let first = kitchen().await;
    let text = "echo begun; until test -e go; do sleep 0.02; done; echo ready; sleep 60";
    let task = by_output(text, "^ready$").cwd(first.dir.path());
    let task = first.session.spawn(task).await.unwrap();
    until_output(&task, "begun").await;
    let no = task.no();
    drop(task);
    let next = first.reopened().await;
    let adopted = next.session.task(no).await.unwrap();
    assert_eq!(adopted.get().await.unwrap().readiness(), Readiness::Pending);
    std::fs::write(next.dir.path().join("go"), "").unwrap();
    let ready = adopted.wait_ready().await.unwrap().ready_at();
    assert!(ready.is_some());
    drop(adopted);
    let last = next.reopened().await;
    let row = last.session.get(no).await.unwrap().row;
    assert_eq!(row.ready_at(), ready, "it stays ready");
    last.session.stop(no, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_of_the_time_without_a_runtime_counts() {
    let first = kitchen().await;
    let text = "until test -e go; do sleep 0.02; done; echo ready; touch gone; sleep 60";
    let task = by_output(text, "^ready$").cwd(first.dir.path());
    let task = first.session.spawn(task).await.unwrap();
    let no = task.no();
    let dir = first.dir.path().to_owned();
    until("it runs", || !processes_with(&task_mark(&first)).is_empty()).await;
    drop(task);
    let next = first
        .reopened_after(move |_| {
            std::fs::write(dir.join("go"), "").unwrap();
            while !dir.join("gone").exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
        })
        .await;
    next.session.task(no).await.unwrap().wait_ready().await.unwrap();
    next.session.stop(no, None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_fails_the_task_before_it_starts() {
    let kitchen = kitchen().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let checks = [
        ReadinessCheck::Port(port),
        ReadinessCheck::Http(format!("http://localhost:{port}/").into()),
    ];
    for check in checks {
        let task = NewTask::shell("touch started").cwd(kitchen.dir.path()).ready(check);
        let task = kitchen.session.spawn(task).await.unwrap();
        let error = task.wait_ready().await.unwrap_err().to_string();
        assert!(error.contains(&format!("port {port} is already in use")), "{error}");
    }
    assert!(!kitchen.dir.path().join("started").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_pattern_is_refused_at_the_spawn() {
    let kitchen = kitchen().await;
    let refusal = kitchen.session.spawn(by_output("true", "(")).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Invalid);
    assert!(refusal.message.contains("the pattern is wrong"), "{refusal}");
    assert!(kitchen.session.list().is_empty());
}
