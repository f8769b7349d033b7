//! Names of tasks: uniqueness and lookup.

use brigade_model::address::TaskRef;
use brigade_runtime::{JobContext, JobError, NewTask};
use brigade_testkit::TestRuntime;

use crate::support::*;

fn called(name: &str) -> TaskRef {
    name.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_reserved_name_is_refused() {
    let test = TestRuntime::new(|b| b).await;
    for name in ["parent", "Self", "ALL", "broadcast"] {
        refused(test.session.spawn(forever().name(name)).await, INVALID, "is reserved");
    }
    assert!(test.session.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_name_is_taken_while_a_sibling_that_has_it_is_alive() {
    let test = TestRuntime::new(|b| b).await;
    let bearer = test.session.spawn(forever().name("Test Runner")).await.unwrap();
    let second = test.session.spawn(forever().name("test runner")).await;
    refused(second, CONFLICT, "\"test runner\" is taken by job:1, which is running");
    bearer.stop(None).await.unwrap();
    let third = test.session.spawn(forever().name("Test Runner")).await;
    refused(third, CONFLICT, "which is stopping");
    assert_eq!(listed(&test.session), [1], "a refused spawn leaves nothing behind");
    until(&test.session, bearer.no(), "cancelled").await;
    test.session.spawn(forever().name("Test Runner")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_same_name_in_another_session_or_under_another_parent_is_free() {
    let test = TestRuntime::new(|b| b).await;
    let other = test.runtime.session("other").await.unwrap();
    test.session.spawn(forever().name("Ann")).await.unwrap();
    other.spawn(forever().name("Ann")).await.unwrap();
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        ctx.spawn(forever().name("Ann")).await?;
        let twin = ctx.spawn(forever().name("ANN")).await;
        Ok::<_, JobError>(twin.is_err())
    });
    let parent = test.session.spawn(parent).await.unwrap();
    assert_eq!(*outcome(&parent).await, succeeded("true"));
}

#[tokio::test(start_paused = true)]
async fn a_name_finds_the_alive_task_then_the_newest_ended_one() {
    let test = TestRuntime::new(|b| b).await;
    for _ in 0..2 {
        let task = test.session.spawn(returns(()).name("Ann")).await.unwrap();
        wait_result(&task).await;
    }
    assert_eq!(test.session.get(called("ANN")).await.unwrap().0, number(2));
    let alive = test.session.spawn(forever().name("ann")).await.unwrap();
    assert_eq!(test.session.get(called("Ann")).await.unwrap().0, alive.no());
    let stopped = test.session.stop(called("Ann"), None).await.unwrap();
    assert_eq!((stopped.tasks, stopped.already_stopped), (1, false));
    until(&test.session, alive.no(), "cancelled").await;
    let stopped = test.session.stop(called("Ann"), None).await.unwrap();
    assert_eq!((stopped.tasks, stopped.already_stopped), (0, true));
}

#[tokio::test(start_paused = true)]
async fn a_task_without_a_name_is_addressed_by_number_only() {
    let test = TestRuntime::new(|b| b).await;
    test.session.spawn(forever()).await.unwrap();
    for address in ["1", "job:1"] {
        assert_eq!(test.session.get(called(address)).await.unwrap().0, number(1));
    }
    refused(test.session.get(called("forever")).await, NOT_FOUND, "\"forever\"");
    refused(test.session.get(called("agent:1")).await, NOT_FOUND, "1 is job:1");
    refused(test.session.stop(called("agent:1"), None).await, NOT_FOUND, "1 is job:1");
    refused(test.session.send(called("agent:1"), 1).await, NOT_FOUND, "1 is job:1");
}

#[tokio::test(start_paused = true)]
async fn a_kept_child_passes_to_the_session_without_a_name_that_is_taken_there() {
    let test = TestRuntime::new(|b| b).await;
    test.session.spawn(forever().name("Ann")).await.unwrap();
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        ctx.spawn(forever().name("Ann").keep()).await?;
        ctx.spawn(forever().name("Bob").keep()).await?;
        Ok::<_, JobError>(())
    });
    let parent = test.session.spawn(parent).await.unwrap();
    wait_result(&parent).await;
    assert_eq!(test.session.get(called("Ann")).await.unwrap().0, number(1));
    assert_eq!(test.session.get(number(3)).await.unwrap().1.name, None);
    assert_eq!(test.session.get(called("Bob")).await.unwrap().0, number(4));
}
