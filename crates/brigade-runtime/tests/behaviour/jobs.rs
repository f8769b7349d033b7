//! What a job can do, and what becomes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade_model::json::Json;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::work::Recovery;
use brigade_runtime::{JobContext, JobError, NewTask};
use brigade_testkit::TestRuntime;

fn succeeded(result: &str) -> Outcome {
    Outcome::Succeeded { result: Json::parse(result).unwrap() }
}

#[tokio::test(start_paused = true)]
async fn a_job_returns_its_result_to_whoever_waits() {
    let test = TestRuntime::new(|b| {
        b.job("double", Recovery::resume(3), |_: JobContext, n: u32| async move {
            Ok::<_, JobError>(n * 2)
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("double", 21).name("Doubler")).await.unwrap();
    assert_eq!(task.address(), "job:1");
    let ending = task.wait().await.unwrap();
    assert_eq!(*ending.outcome, succeeded("42"));
    assert!(!ending.collected_before);
    assert!(task.wait().await.unwrap().collected_before);
}

#[tokio::test(start_paused = true)]
async fn a_named_job_sleeps_without_a_future_and_does_each_step_once() {
    let entered = Arc::new(AtomicUsize::new(0));
    let stepped = Arc::new(AtomicUsize::new(0));
    let (entries, steps) = (entered.clone(), stepped.clone());
    let test = TestRuntime::new(|b| {
        b.job("nap", Recovery::resume(3), move |ctx: JobContext, (): ()| {
            let (entries, steps) = (entries.clone(), steps.clone());
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
    let ending = task.wait().await.unwrap();
    assert_eq!(*ending.outcome, succeeded("3"));
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
    let ending = task.wait().await.unwrap();
    let expect = Outcome::failed(Failure::Panic("the kitchen is on fire".into()));
    assert_eq!(*ending.outcome, expect);
    let again = NewTask::closure("fine", |_| async { Ok::<_, JobError>(()) }).name("boom");
    assert!(test.session.spawn(again).await.is_ok(), "the name is free again");
}
