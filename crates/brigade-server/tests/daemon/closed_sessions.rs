//! A closed session can still be read by the clients that could read it before.

use brigade_model::refusal::RefusalKind;
use brigade_protocol::requests::{ListTasksRequest, ShowTaskRequest, StopRequest};
use brigade_runtime::{Job, JobContext, JobError, NewTask};

use crate::support::{SESSION, TestDaemon, expect_refusal, target};

#[tokio::test]
async fn a_client_is_not_the_operator_of_a_closed_session() {
    let daemon = TestDaemon::start(|builder| {
        let child = |_: JobContext, (): ()| async { Ok::<_, JobError>(()) };
        let parent = |ctx: JobContext, (): ()| async move {
            let child = ctx.spawn(NewTask::job("child", ())).await?;
            ctx.wait_all([&child]).await?;
            Ok::<_, JobError>(())
        };
        builder.job(Job::new("child"), child).job(Job::new("parent"), parent)
    })
    .await;
    let session = daemon.runtime.session_as(SESSION, "cook").await.unwrap();
    session.spawn(NewTask::job("parent", ())).await.unwrap().wait().await.unwrap();
    let cook = daemon.client("cook").await;
    expect_refusal(
        cook.call(ShowTaskRequest { target: target("2") }).await,
        RefusalKind::Forbidden,
    );
    session.close(None).await.unwrap();

    assert_eq!(
        cook.call(ShowTaskRequest { target: target("1") }).await.unwrap().state,
        "succeeded"
    );
    expect_refusal(
        cook.call(ShowTaskRequest { target: target("2") }).await,
        RefusalKind::Forbidden,
    );
    let stop = StopRequest { target: target("2"), reason: None, grace_ms: None };
    expect_refusal(cook.call(stop).await, RefusalKind::Forbidden);
    let list =
        ListTasksRequest { session: Some(SESSION.to_owned()), include_ended: true, limit: None };
    let listed = cook.call(list).await.unwrap();
    assert_eq!(listed.iter().map(|task| task.address.as_str()).collect::<Vec<_>>(), ["job:1"]);
    assert_eq!(daemon.runtime.sessions().await.unwrap().len(), 1, "a read opens no session");

    let operator = daemon.operator().await;
    assert!(
        operator.call(ShowTaskRequest { target: target("2") }).await.is_ok(),
        "the operator sees all tasks"
    );
}
