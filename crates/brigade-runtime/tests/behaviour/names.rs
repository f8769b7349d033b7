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
    assert_eq!(test.session.get(called("ANN")).await.unwrap().no, number(2));
    let alive = test.session.spawn(forever().name("ann")).await.unwrap();
    assert_eq!(test.session.get(called("Ann")).await.unwrap().no, alive.no());
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
        assert_eq!(test.session.get(called(address)).await.unwrap().no, number(1));
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
    assert_eq!(test.session.get(called("Ann")).await.unwrap().no, number(1));
    assert_eq!(test.session.get(number(3)).await.unwrap().row.name, None);
    assert_eq!(test.session.get(called("Bob")).await.unwrap().no, number(4));
}

#[tokio::test(start_paused = true)]
async fn a_handle_of_an_existing_task_is_found_by_name_number_and_address() {
    let test = TestRuntime::new(|b| b).await;
    let spawned = test.session.spawn(returns(7).name("Ann")).await.unwrap();
    assert!(!spawned.existed());
    for found in [
        test.session.task("ann").await.unwrap(),
        test.session.task("1").await.unwrap(),
        test.session.task("job:1#1").await.unwrap(),
        test.session.task(spawned.no()).await.unwrap(),
        test.session.task(called("Ann")).await.unwrap(),
        test.session.task(&spawned).await.unwrap(),
    ] {
        assert_eq!((found.no(), found.run()), (spawned.no(), spawned.run()));
        assert_eq!(found.address(), "job:1");
        assert!(found.existed());
        assert_eq!(eventually(found.typed::<u32>().result()).await.unwrap(), 7);
    }
    let evicted = test.session.task("Ann").await.unwrap();
    assert!(wait_result(&evicted).await.collected_before);
}

#[tokio::test(start_paused = true)]
async fn a_handle_is_refused_for_a_task_that_is_missing_foreign_or_misspelled() {
    let test = TestRuntime::new(|b| b).await;
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        ctx.spawn(forever().name("Ann")).await?;
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    });
    test.session.spawn(parent).await.unwrap();
    until_idle().await;
    refused(test.session.task("Bob").await, NOT_FOUND, "\"Bob\"");
    refused(test.session.task(number(9)).await, NOT_FOUND, "no task 9");
    refused(test.session.task("agent:1").await, NOT_FOUND, "1 is job:1");
    refused(test.session.task("job:1#2").await, NOT_FOUND, "no run 2");
    refused(test.session.task("job:2").await, FORBIDDEN, "job:2 is not yours");
    refused(test.session.task("Ann").await, NOT_FOUND, "\"Ann\"");
    refused(test.session.task("job:x").await, INVALID, "\"job:x\"");
    let operator = test.runtime.operator_session(test.session.id()).await.unwrap();
    assert_eq!(operator.task("Ann").await.unwrap().address(), "job:2");
}
