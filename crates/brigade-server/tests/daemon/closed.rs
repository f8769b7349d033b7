//! A session that is closed is still there to be looked at, by those who could before.

use brigade_model::refusal::RefusalKind;
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{JobContext, JobError, NewTask};
use brigade_server::requests::{ListTasksRequest, ShowTaskRequest, StopRequest};

use crate::support::{House, SESSION, refused, target};

#[tokio::test]
async fn a_client_is_not_the_operator_of_a_closed_session() {
    let house = House::open(|builder| {
        let child = |_: JobContext, (): ()| async { Ok::<_, JobError>(()) };
        let parent = |ctx: JobContext, (): ()| async move {
            let child = ctx.spawn(NewTask::job("child", ())).await?;
            ctx.wait_all([&child]).await?;
            Ok::<_, JobError>(())
        };
        builder.job("child", RecoveryPolicy::resume(3), child).job(
            "parent",
            RecoveryPolicy::resume(3),
            parent,
        )
    })
    .await;
    let session = house.runtime.session_as(SESSION, "cook").await.unwrap();
    session.spawn(NewTask::job("parent", ())).await.unwrap().wait().await.unwrap();
    let cook = house.client("cook").await;
    refused(cook.call(ShowTaskRequest { target: target("2") }).await, RefusalKind::Forbidden);
    session.close(None).await.unwrap();

    assert_eq!(
        cook.call(ShowTaskRequest { target: target("1") }).await.unwrap().state,
        "succeeded"
    );
    refused(cook.call(ShowTaskRequest { target: target("2") }).await, RefusalKind::Forbidden);
    let stop = StopRequest { target: target("2"), reason: None, grace_ms: None };
    refused(cook.call(stop).await, RefusalKind::Forbidden);
    let list =
        ListTasksRequest { session: Some(SESSION.to_owned()), include_ended: true, limit: None };
    let listed = cook.call(list).await.unwrap();
    assert_eq!(listed.iter().map(|task| task.address.as_str()).collect::<Vec<_>>(), ["job:1"]);
    assert_eq!(house.runtime.sessions().await.unwrap().len(), 1, "looking opens nothing");

    let operator = house.operator().await;
    assert!(
        operator.call(ShowTaskRequest { target: target("2") }).await.is_ok(),
        "he sees all of it"
    );
}
