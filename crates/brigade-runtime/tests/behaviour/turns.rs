//! A job gets one completion at a time, in the order of its journal, and loses none by awaiting
//! another first.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::limits::{Limits, Usage};
use brigade_model::message::Receipt;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
use brigade_store::MemoryStore;
use brigade_testkit::{SlowStore, TestRuntime};

use crate::support::*;

const RESUME: RecoveryPolicy = RecoveryPolicy::resume_max_crashes(3);

#[tokio::test(start_paused = true)]
async fn a_completion_that_arrives_before_its_replayed_call_is_kept() {
    let test = TestRuntime::new(|b| {
        b.job_named("two", RESUME, |ctx: JobContext, (): ()| async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let one = ctx.sleep(Duration::from_millis(50));
            let two = ctx.sleep(Duration::from_millis(120));
            tokio::try_join!(one, two)?;
            Ok::<_, JobError>("done")
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("two", ())).await.unwrap();
    let ended = task.wait_within(Duration::from_secs(3600)).await.unwrap();
    assert_eq!(*ended.expect("it does not hang").outcome, succeeded("\"done\""));
}

/// Messages race with sleeps on real time: the job saw each message that is marked as read.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_not_lost_to_a_receive_that_the_job_drops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("turns.db");
    let store = brigade_sqlite::SqliteStore::open(path).unwrap();
    let looks = |ctx: JobContext, (): ()| async move {
        let mut seen = 0;
        for _ in 0..60 {
            tokio::select! {
                slept = ctx.sleep(Duration::from_millis(3)) => slept?,
                message = ctx.receive() => {
                    message?;
                    seen += 1;
                }
            }
        }
        Ok::<_, JobError>(seen)
    };
    let runtime =
        Runtime::builder().store(store).job_named("looks", RESUME, looks).start().await.unwrap();
    let session = runtime.session("turns").await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push((session.spawn(NewTask::job("looks", ())).await.unwrap(), Vec::new()));
    }
    for n in 0..30_u64 {
        tokio::time::sleep(Duration::from_micros(2_500 + n * 37)).await;
        for (task, sent) in &mut tasks {
            sent.extend(task.send(n).await);
        }
    }
    for (task, sent) in &tasks {
        let outcome = soon(task.wait()).await.unwrap().outcome;
        let mut read = 0;
        for no in sent {
            let row = session.receipt(*no).await.unwrap().unwrap();
            read += usize::from(row.receipt == Receipt::Read);
        }
        assert_eq!(*outcome, succeeded(&read.to_string()), "of {} sent", sent.len());
        assert!(read > 0, "nothing was raced for");
    }
}

/// The message and the end of the step are stored in one commit, with the message first.
#[tokio::test(start_paused = true)]
async fn a_step_and_a_message_are_delivered_in_the_order_of_the_journal() {
    let store = SlowStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| {
        b.max_batch(1024).job_named("both", RESUME, |ctx: JobContext, (): ()| async move {
            let work = ctx.step("work", || async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok::<_, JobError>(())
            });
            tokio::select! {
                biased;
                done = work => {
                    done?;
                    ctx.sleep(SECOND).await?;
                }
                message = ctx.receive() => {
                    message?;
                    ctx.step("handle message", || async { Ok::<_, JobError>(()) }).await?;
                }
            };
            ctx.sleep(SECOND).await?;
            Ok::<_, JobError>(())
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("both", ())).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    store.slow_after(0, Duration::from_millis(500));
    let message = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        task.send("hello").await.unwrap();
    };
    let (other, ()) = tokio::join!(test.session.spawn(returns(1)), message);
    other.unwrap();
    assert_eq!(*wait_result(&task).await.outcome, succeeded("null"));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_the_job_dropped_is_not_started_again() {
    let runs = Tally::default();
    let counted = runs.clone();
    let test = TestRuntime::new(|b| {
        b.job_named("drops", RESUME, move |ctx: JobContext, (): ()| {
            let counted = counted.clone();
            async move {
                let slow = ctx.step("slow", || async {
                    counted.add();
                    tokio::time::sleep(10 * SECOND).await;
                    Ok::<_, JobError>(())
                });
                tokio::select! {
                    biased;
                    done = slow => done?,
                    slept = ctx.sleep(SECOND) => slept?,
                };
                for _ in 0..3 {
                    ctx.sleep(SECOND).await?;
                }
                Ok::<_, JobError>(())
            }
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("drops", ())).await.unwrap();
    assert_eq!(*wait_result(&task).await.outcome, succeeded("null"));
    assert_eq!(runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_step_whose_result_is_too_large_fails_once() {
    let runs = Tally::default();
    let counted = runs.clone();
    let test = TestRuntime::new(|b| {
        b.job_named("large", RESUME, move |ctx: JobContext, (): ()| {
            let counted = counted.clone();
            async move {
                let step = ctx.step("large", || async {
                    counted.add();
                    Ok::<_, JobError>("x".repeat(2 << 20))
                });
                let failed = step.await.is_err();
                ctx.sleep(SECOND).await?;
                Ok::<_, JobError>(failed)
            }
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("large", ())).await.unwrap();
    assert_eq!(*wait_result(&task).await.outcome, succeeded("true"));
    assert_eq!(runs.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ended_by_its_budget_resumes_with_more() {
    let test = TestRuntime::new(|b| {
        b.job_named("spends", RESUME, |ctx: JobContext, (): ()| async move {
            for n in 0..3 {
                let paying = ctx.clone();
                ctx.step(&format!("call {n}"), || async move {
                    let cost = Usage { tokens: 10, ..Usage::NONE };
                    paying.reserve(cost, cost).await?;
                    paying.charge(cost).await?;
                    Ok::<_, JobError>(n)
                })
                .await?;
            }
            Ok::<_, JobError>("done")
        })
    })
    .await;
    let little = Limits { tokens: Some(20), ..Limits::default() };
    let task = test.session.spawn(NewTask::job("spends", ()).limits(little)).await.unwrap();
    let Outcome::Failed(failed) = (*wait_result(&task).await.outcome).clone() else {
        panic!("a budget")
    };
    assert!(matches!(failed.failure, Failure::Budget { .. }), "{:?}", failed.failure);
    let more = Limits { tokens: Some(1_000), ..Limits::default() };
    let task = test.session.resume(&task, Some(more)).await.unwrap();
    assert_eq!(*wait_result(&task).await.outcome, succeeded("\"done\""));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_failed_by_a_refusal_retries_it_when_resumed() {
    let runs = Tally::default();
    let counted = runs.clone();
    let test = TestRuntime::new(|b| {
        b.job_named("child", RESUME, |_: JobContext, (): ()| async move { Ok::<_, JobError>(1) })
            .job_named("parent", RESUME, move |ctx: JobContext, (): ()| {
                let counted = counted.clone();
                async move {
                    let one = ctx.spawn(NewTask::job("child", ())).await?;
                    let two = ctx.spawn(NewTask::job("child", ())).await?;
                    ctx.step("both are there", || async {
                        counted.add();
                        Ok::<_, JobError>(())
                    })
                    .await?;
                    ctx.wait_all([&one, &two]).await?;
                    ctx.sleep(SECOND).await?;
                    Ok::<_, JobError>("done")
                }
            })
    })
    .await;
    let one = Limits { total: Some(1), ..Limits::default() };
    let task = test.session.spawn(NewTask::job("parent", ()).limits(one)).await.unwrap();
    assert_eq!(wait_result(&task).await.outcome.label(), "failed");
    let more = Limits { total: Some(10), ..Limits::default() };
    let task = test.session.resume(&task, Some(more)).await.unwrap();
    assert_eq!(*wait_result(&task).await.outcome, succeeded("\"done\""));
    assert_eq!(runs.get(), 1);
}

/// Arguments that panic when they are decoded.
#[derive(Debug)]
struct Trap;

impl<'de> serde::Deserialize<'de> for Trap {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("the arguments are a trap")
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_arguments_are_decoded_is_an_outcome() {
    let test = TestRuntime::new(|b| {
        b.job_named("trap", RESUME, |_: JobContext, _: Trap| async move { Ok::<_, JobError>(1) })
    })
    .await;
    let task = test.session.spawn(NewTask::job("trap", ())).await.unwrap();
    let expect = Outcome::failed(Failure::Panic("the arguments are a trap".into()));
    assert_eq!(*wait_result(&task).await.outcome, expect);
}
