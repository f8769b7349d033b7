//! A task that ran more than once, and waits for each of its runs.

use brigade_model::call::WaitMode;
use brigade_model::refusal::RefusalKind;
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{JobContext, JobError, NewTask, Session};
use brigade_server::DaemonConnection;
use brigade_server::requests::{WaitReply, WaitRequest};

use crate::support::{House, SESSION, refused};

/// A task that failed, was resumed and succeeded. Nobody has heard of either.
async fn twice(house: &House) -> Session {
    let session = house.runtime.session_as(SESSION, "cook").await.unwrap();
    let task = session.spawn(NewTask::job("second time", ())).await.unwrap();
    let operator = house.runtime.operator_session(session.id()).await.unwrap();
    operator.wait_all([task.no().into()]).await.unwrap();
    operator.resume(task.no(), None).await.unwrap();
    operator.wait_all([task.no().into()]).await.unwrap();
    session
}

async fn house() -> House {
    House::open(|builder| {
        builder.job(
            "second time",
            RecoveryPolicy::resume(3),
            |ctx: JobContext, (): ()| async move {
                match ctx.run().0 {
                    1 => Err(JobError::new("not yet")),
                    _ => Ok("at last"),
                }
            },
        )
    })
    .await
}

fn wait(tasks: &[&str], mode: WaitMode) -> WaitRequest {
    let tasks = tasks.iter().map(|task| (*task).to_owned()).collect();
    WaitRequest { session: SESSION.to_owned(), tasks, mode, timeout_ms: None }
}

/// Address, run, state and whether it had been told.
fn ended(waited: &WaitReply) -> Vec<(&str, u32, &str, bool)> {
    let told = waited.ended.iter();
    told.map(|info| (&*info.address, info.run, &*info.state, info.collected_before)).collect()
}

async fn asked(client: &DaemonConnection, tasks: &[&str], mode: WaitMode) -> WaitReply {
    client.call(wait(tasks, mode)).await.unwrap()
}

const FIRST: (&str, u32, &str, bool) = ("job:1#1", 1, "failed", false);
const SECOND: (&str, u32, &str, bool) = ("job:1", 2, "succeeded", false);

#[tokio::test]
async fn an_earlier_run_is_answered_with_its_own_ending() {
    let house = house().await;
    twice(&house).await;
    let operator = house.operator().await;
    for mode in [WaitMode::All, WaitMode::Any] {
        assert_eq!(ended(&asked(&operator, &["1#1"], mode).await), [FIRST]);
        assert_eq!(ended(&asked(&operator, &["1#2"], mode).await), [SECOND]);
        assert_eq!(ended(&asked(&operator, &["1"], mode).await), [SECOND], "the latest is meant");
        assert_eq!(ended(&asked(&operator, &["1#1", "1#2"], mode).await), [FIRST, SECOND]);
    }
    refused(operator.call(wait(&["1#3"], WaitMode::All)).await, RefusalKind::NotFound);
}

#[tokio::test]
async fn who_takes_results_is_told_of_each_run_and_can_ask_again() {
    let house = house().await;
    twice(&house).await;
    let cook = house.client("cook").await;
    assert_eq!(ended(&asked(&cook, &["1"], WaitMode::All).await), [FIRST, SECOND]);
    let (first, second) = ((FIRST.0, 1, FIRST.2, true), (SECOND.0, 2, SECOND.2, true));
    for mode in [WaitMode::All, WaitMode::Any] {
        assert_eq!(ended(&asked(&cook, &["1#1"], mode).await), [first], "it is kept");
        assert_eq!(ended(&asked(&cook, &["1#1", "1"], mode).await), [first, second]);
    }
}
