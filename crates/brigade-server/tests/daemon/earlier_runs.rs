//! Waits for each run of a task that ran more than once.

use brigade_model::call::WaitMode;
use brigade_model::refusal::RefusalKind;
use brigade_protocol::DaemonConnection;
use brigade_protocol::requests::{WaitReply, WaitRequest, WaitUntil};
use brigade_runtime::{Job, JobContext, JobError, NewTask, Session};

use crate::support::{SESSION, TestDaemon, expect_refusal};

/// Spawns a task that fails, is resumed and succeeds. Neither result has been collected.
async fn spawn_two_run_task(daemon: &TestDaemon) -> Session {
    let session = daemon.runtime.session_as(SESSION, "cook").await.unwrap();
    let task = session.spawn(NewTask::job("second time", ())).await.unwrap();
    let operator = daemon.runtime.operator_session(session.id()).await.unwrap();
    operator.wait_all([task.no()]).await.unwrap();
    operator.resume(task.no(), None).await.unwrap();
    operator.wait_all([task.no()]).await.unwrap();
    session
}

async fn start_daemon() -> TestDaemon {
    TestDaemon::start(|builder| {
        builder.job(Job::new("second time"), |ctx: JobContext, (): ()| async move {
            match ctx.run().0 {
                1 => Err(JobError::new("not yet")),
                _ => Ok("at last"),
            }
        })
    })
    .await
}

fn wait(tasks: &[&str], mode: WaitMode) -> WaitRequest {
    let tasks = tasks.iter().map(|task| (*task).to_owned()).collect();
    WaitRequest {
        session: SESSION.to_owned(),
        tasks,
        mode,
        timeout_ms: None,
        until: WaitUntil::Ended,
    }
}

/// Returns the address, run, state and `collected_before` of each result.
fn results(waited: &WaitReply) -> Vec<(&str, u32, &str, bool)> {
    let ended = waited.ended.iter();
    ended.map(|info| (&*info.address, info.run, &*info.state, info.collected_before)).collect()
}

async fn call_wait(client: &DaemonConnection, tasks: &[&str], mode: WaitMode) -> WaitReply {
    client.call(wait(tasks, mode)).await.unwrap()
}

const FIRST: (&str, u32, &str, bool) = ("job:1#1", 1, "failed", false);
const SECOND: (&str, u32, &str, bool) = ("job:1", 2, "succeeded", false);

#[tokio::test]
async fn an_earlier_run_returns_its_own_outcome() {
    let daemon = start_daemon().await;
    spawn_two_run_task(&daemon).await;
    let operator = daemon.operator().await;
    for mode in [WaitMode::All, WaitMode::Any] {
        assert_eq!(results(&call_wait(&operator, &["1#1"], mode).await), [FIRST]);
        assert_eq!(results(&call_wait(&operator, &["1#2"], mode).await), [SECOND]);
        assert_eq!(
            results(&call_wait(&operator, &["1"], mode).await),
            [SECOND],
            "a task without a run number is its latest run"
        );
        assert_eq!(results(&call_wait(&operator, &["1#1", "1#2"], mode).await), [FIRST, SECOND]);
    }
    expect_refusal(operator.call(wait(&["1#3"], WaitMode::All)).await, RefusalKind::NotFound);
}

#[tokio::test]
async fn a_client_gets_the_result_of_each_run_and_can_read_it_again() {
    let daemon = start_daemon().await;
    spawn_two_run_task(&daemon).await;
    let cook = daemon.client("cook").await;
    assert_eq!(results(&call_wait(&cook, &["1"], WaitMode::All).await), [FIRST, SECOND]);
    let first = (FIRST.0, 1, FIRST.2, true);
    let second = (SECOND.0, 2, SECOND.2, true);
    for mode in [WaitMode::All, WaitMode::Any] {
        assert_eq!(
            results(&call_wait(&cook, &["1#1"], mode).await),
            [first],
            "the result is still stored"
        );
        assert_eq!(results(&call_wait(&cook, &["1#1", "1"], mode).await), [first, second]);
    }
}
