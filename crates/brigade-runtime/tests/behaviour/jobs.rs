//! Jobs and their outcomes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade_model::outcome::{Failure, Outcome};
use brigade_runtime::{Job, JobContext, JobError, NewTask};
use brigade_testkit::TestRuntime;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_job_returns_its_result_to_its_waiter() {
    let test = TestRuntime::new(|b| {
        b.job(Job::new("double"), |_: JobContext, n: u32| async move { Ok::<_, JobError>(n * 2) })
    })
    .await;
    let task = test.session.spawn(NewTask::job("double", 21).name("Doubler")).await.unwrap();
    assert_eq!(task.address(), "job:1");
    let run_result = task.wait().await.unwrap();
    assert_eq!(*run_result.outcome, succeeded("42"));
    assert!(!run_result.collected_before);
    assert!(task.wait().await.unwrap().collected_before);
}

#[tokio::test(start_paused = true)]
async fn a_named_job_sleeps_without_a_future_and_does_each_step_once() {
    let entered = Arc::new(AtomicUsize::new(0));
    let stepped = Arc::new(AtomicUsize::new(0));
    let entries = entered.clone();
    let steps = stepped.clone();
    let test = TestRuntime::new(|b| {
        b.job(Job::new("nap"), move |ctx: JobContext, (): ()| {
            let entries = entries.clone();
            let steps = steps.clone();
            async move {
                entries.fetch_add(1, Ordering::SeqCst);
                let one: u32 = ctx
                    .step("one", || async {
                        steps.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, JobError>(1)
                    })
                    .await?;
                ctx.sleep(Duration::from_secs(3600)).await?;
                let two: u32 = ctx
                    .step("two", || async {
                        steps.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, JobError>(2)
                    })
                    .await?;
                Ok::<_, JobError>(one + two)
            }
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("nap", ())).await.unwrap();
    let run_result = task.wait().await.unwrap();
    assert_eq!(*run_result.outcome, succeeded("3"));
    assert_eq!(entered.load(Ordering::SeqCst), 2, "entered again after the sleep");
    assert_eq!(stepped.load(Ordering::SeqCst), 2, "each step ran once");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_outcome() {
    let test = TestRuntime::new(|b| b).await;
    let panics = NewTask::closure("boom", |_| async {
        panic!("the kitchen is on fire");
        #[expect(unreachable_code, reason = "gives the closure its type")]
        Ok::<(), JobError>(())
    });
    let task = test.session.spawn(panics.name("Boom")).await.unwrap();
    let run_result = task.wait().await.unwrap();
    let expect = Outcome::failed(Failure::Panic("the kitchen is on fire".into()));
    assert_eq!(*run_result.outcome, expect);
    let again = NewTask::closure("fine", |_| async { Ok::<_, JobError>(()) }).name("boom");
    assert!(test.session.spawn(again).await.is_ok(), "the name is free again");
}

#[tokio::test(start_paused = true)]
async fn a_panic_anywhere_in_a_job_ends_it_and_wakes_its_waiter() {
    let test = TestRuntime::new(|b| {
        b.job(Job::new("steps"), |ctx: JobContext, (): ()| async move {
            ctx.sleep(SECOND).await?;
            ctx.step("boom", || async {
                assert!(ctx.is_stopping(), "in a step");
                Ok::<_, JobError>(())
            })
            .await?;
            Ok::<_, JobError>(())
        })
        .job(Job::new("at once"), |_: JobContext, fine: bool| {
            assert!(fine, "before its first await");
            async { Ok::<_, JobError>(()) }
        })
    })
    .await;
    test.session
        .set_limits(brigade_model::limits::Limits { running: Some(1), ..Default::default() })
        .await
        .unwrap();
    let parent = NewTask::closure("parent", |ctx: JobContext| async move {
        let a = ctx.spawn(NewTask::job("steps", ()).name("Boom")).await?;
        let b = ctx.spawn(NewTask::job("at once", false)).await?;
        let ended = ctx.wait_all([&a, &b]).await?;
        ctx.spawn(returns(()).name("Boom")).await?;
        Ok::<_, JobError>(ended.iter().map(|e| e.outcome.to_string()).collect::<Vec<_>>())
    });
    let parent = test.session.spawn(parent).await.unwrap();
    let expect = r#"["failed (panic: in a step)","failed (panic: before its first await)"]"#;
    assert_eq!(*outcome(&parent).await, succeeded(expect));
}

#[tokio::test(start_paused = true)]
async fn a_failure_has_the_whole_chain_of_causes() {
    #[derive(Debug, thiserror::Error)]
    #[error("the soup is cold")]
    struct Cold(#[source] std::num::ParseIntError);
    let test = TestRuntime::new(|b| b).await;
    let task = NewTask::closure("cook", |_| async {
        let degrees: Result<u32, _> = "warm".parse::<u32>();
        degrees.map_err(Cold)
    });
    let task = test.session.spawn(task).await.unwrap();
    let expect = failed("the soup is cold: invalid digit found in string");
    assert_eq!(*outcome(&task).await, expect);
}
