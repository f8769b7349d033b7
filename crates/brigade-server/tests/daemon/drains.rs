//! The drain of a daemon that is asked to shut down.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::refusal::RefusalKind;
use brigade_protocol::requests::{ListTasksRequest, ShutdownRequest};
use brigade_runtime::{Job, JobContext, JobError, NewTask, TaskHandle};
use brigade_server::DaemonOptions;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::support::{SESSION, TEST_TIMEOUT, TestDaemon};

struct BusyDaemon {
    daemon: TestDaemon,
    bread: TaskHandle,
    release: Arc<Notify>,
}

/// Starts a daemon with this drain and a task that runs until it is released.
async fn start_busy(drain: Option<Duration>) -> BusyDaemon {
    let release = Arc::new(Notify::new());
    let released = release.clone();
    let daemon = TestDaemon::start_with_options(
        |options| DaemonOptions { drain_timeout: drain, ..options },
        |builder| {
            let bake = move |_: JobContext, (): ()| {
                let released = released.clone();
                async move {
                    released.notified().await;
                    Ok::<_, JobError>("bread")
                }
            };
            let noop = |_: JobContext, (): ()| async { Ok::<_, JobError>(()) };
            builder.job(Job::new("bake"), bake).job(Job::new("noop"), noop)
        },
    )
    .await;
    let session = daemon.runtime.session_as(SESSION, "cook").await.unwrap();
    let bread = session.spawn(NewTask::job("bake", ())).await.unwrap();
    BusyDaemon { daemon, bread, release }
}

async fn request_shutdown(daemon: &TestDaemon) {
    daemon.operator().await.call(ShutdownRequest {}).await.unwrap();
}

/// Waits until new tasks are refused.
async fn wait_until_draining(daemon: &TestDaemon) {
    let session = daemon.runtime.session_as(SESSION, "cook").await.unwrap();
    let refusal = loop {
        match session.spawn(NewTask::job("noop", ())).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal.kind, RefusalKind::Unavailable, "{refusal}");
    assert!(refusal.message.contains("drains"), "{refusal}");
}

#[tokio::test]
async fn a_drain_ends_with_the_last_running_task_and_serves_clients_until_then() {
    let BusyDaemon { daemon, bread, release } = start_busy(Some(Duration::from_secs(3600))).await;
    request_shutdown(&daemon).await;
    wait_until_draining(&daemon).await;
    let tasks = daemon.client("cook").await.call(ListTasksRequest::default()).await.unwrap();
    assert!(tasks.iter().any(|task| task.address == "job:1" && task.alive), "{tasks:?}");
    release.notify_one();
    assert!(bread.wait().await.unwrap().outcome.is_success(), "it was not interrupted");
    timeout(TEST_TIMEOUT, daemon.wait_stopped()).await.expect("the daemon shuts down");
}

#[tokio::test]
async fn a_second_request_ends_the_drain() {
    let BusyDaemon { daemon, .. } = start_busy(Some(Duration::from_secs(3600))).await;
    request_shutdown(&daemon).await;
    wait_until_draining(&daemon).await;
    request_shutdown(&daemon).await;
    timeout(TEST_TIMEOUT, daemon.wait_stopped()).await.expect("the daemon shuts down");
}

#[tokio::test]
async fn a_daemon_without_a_drain_or_at_its_timeout_shuts_down() {
    for drain in [None, Some(Duration::from_millis(20))] {
        let BusyDaemon { daemon, .. } = start_busy(drain).await;
        request_shutdown(&daemon).await;
        timeout(TEST_TIMEOUT, daemon.wait_stopped()).await.expect("the daemon shuts down");
    }
}
