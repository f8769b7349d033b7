//! Steps and jobs that are retried, errors with details, and messages with keys and names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use brigade_model::call::CallCompletion;
use brigade_model::outcome::Failure;
use brigade_runtime::{
    Job, JobContext, JobError, NewTask, RetryPolicy, Runtime, RuntimeBuilder, TaskError, TaskHandle,
};
use brigade_store::{MemoryStore, Store};
use brigade_testkit::TestRuntime;

use crate::support::*;

const HOURLY: RetryPolicy = RetryPolicy::fixed(Duration::from_secs(3600));
const FLAKY: Job<u32, u32> = Job::new("flaky");

/// Fails the first `failures` times, then returns the number of the call.
async fn fail_first(calls: &AtomicU32, failures: u32) -> Result<u32, JobError> {
    match calls.fetch_add(1, Ordering::SeqCst) + 1 {
        call if call <= failures => Err(JobError::new(format!("try {call} failed"))),
        call => Ok(call),
    }
}

/// A runtime with a store whose journals can be read.
async fn with_store(
    build: impl Fn(RuntimeBuilder) -> RuntimeBuilder,
) -> (TestRuntime, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    (TestRuntime::on_store(store.clone(), build).await, store)
}

async fn step_completions<T>(store: &MemoryStore, task: &TaskHandle<T>) -> Vec<String> {
    let id = store.sessions().await.unwrap()[0].id;
    let journal = store.journal(id, task.no()).await.unwrap();
    let render = |completion: &CallCompletion| match completion {
        CallCompletion::Retried { attempt, error } => format!("retried {attempt}: {error}"),
        CallCompletion::Value(value) => value.to_string(),
        CallCompletion::Error(error) => format!("error: {error}"),
        other => format!("{other:?}"),
    };
    let lines =
        journal.iter().map(|entry| format!("{}: {}", entry.label, render(&entry.completion)));
    lines.collect()
}

#[tokio::test(start_paused = true)]
async fn a_retried_step_has_one_entry_per_failed_attempt_and_one_for_its_result() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let (test, store) = with_store(|b| {
        b.job(FLAKY, |ctx: JobContext, failures| async move {
            ctx.step("charge", || fail_first(&CALLS, failures)).retry(HOURLY).await
        })
    })
    .await;
    let task = test.session.spawn(FLAKY.with(2)).await.unwrap();
    let row = until(&test.session, task.no(), "waiting").await;
    assert_eq!(row.parked_calls.len(), 1, "it waits without a future");
    assert_eq!(eventually(task.result()).await, Ok(3));
    let expected = [
        "step charge: retried 1: try 1 failed",
        "step charge: retried 2: try 2 failed",
        "step charge: 3",
    ];
    assert_eq!(step_completions(&store, &task).await, expected);
}

#[tokio::test(start_paused = true)]
async fn retries_end_with_the_attempts_and_a_fatal_error_is_not_retried() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    static FATAL: AtomicU32 = AtomicU32::new(0);
    let test = TestRuntime::new(|b| {
        b.job(FLAKY, |ctx: JobContext, failures| async move {
            let policy = HOURLY.max_attempts(3);
            ctx.step("charge", || fail_first(&CALLS, failures)).retry(policy).await
        })
        .job(Job::new("fatal"), |ctx: JobContext, (): ()| async move {
            let declined = || async {
                FATAL.fetch_add(1, Ordering::SeqCst);
                let error = JobError::fatal("declined").with_kind("card_declined");
                Err::<(), _>(error.with_payload(402))
            };
            ctx.step("charge", declined).retry(HOURLY).await
        })
    })
    .await;
    let task = test.session.spawn(FLAKY.with(9)).await.unwrap();
    let error = eventually(task.result()).await.unwrap_err();
    assert_eq!(error.to_string(), "job:1 failed (error: try 3 failed)");
    assert_eq!(CALLS.load(Ordering::SeqCst), 3);
    let task = test.session.spawn(NewTask::job("fatal", ())).await.unwrap();
    let error = eventually(task.result()).await.unwrap_err();
    let Some(Failure::Error(details)) = error.failure() else { panic!("{error:?}") };
    assert_eq!(details.kind.as_deref(), Some("card_declined"));
    assert_eq!(details.payload.as_ref().unwrap().as_str(), "402");
    assert_eq!(FATAL.load(Ordering::SeqCst), 1);
    assert_eq!(JobError::from(error).payload::<u32>(), Some(402), "a parent gets it too");
}

#[tokio::test(start_paused = true)]
async fn a_policy_of_no_attempts_or_for_ever_is_a_clear_error() {
    let test = TestRuntime::new(|b| {
        b.job(FLAKY, |ctx: JobContext, attempts| async move {
            let policy = HOURLY.max_attempts(attempts);
            ctx.step("charge", || async { Ok::<_, JobError>(1) }).retry(policy).await
        })
    })
    .await;
    for (attempts, part) in [(0, "of no attempts does nothing"), (u32::MAX, "at most 1000")] {
        let task = test.session.spawn(FLAKY.with(attempts)).await.unwrap();
        let error = eventually(task.result()).await.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let never = Job::<(), ()>::new("never").retry(HOURLY.max_attempts(0));
    let builder =
        Runtime::builder().job(never, |_: JobContext, ()| async { Ok::<_, JobError>(()) });
    refused(builder.start().await, INVALID, "of no attempts");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_retried_keeps_its_results_and_tries_its_failures_again() {
    static MIXED: AtomicU32 = AtomicU32::new(0);
    static BAKED: AtomicU32 = AtomicU32::new(0);
    let bake = Job::<(), u32>::new("bake").retry(HOURLY.max_attempts(4));
    let test = TestRuntime::new(|b| {
        b.job(bake, |ctx: JobContext, ()| async move {
            let mixed: u32 = ctx.step("mix", || fail_first(&MIXED, 0)).await?;
            ctx.sleep(SECOND).await?;
            let baked: u32 = ctx.step("bake", || fail_first(&BAKED, 2)).await?;
            Ok::<_, JobError>(10 * mixed + baked)
        })
    })
    .await;
    let task = test.session.spawn(bake.with(())).await.unwrap();
    assert_eq!(eventually(task.result()).await, Ok(13), "mixed once, baked three times");
    assert_eq!(MIXED.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_job_without_a_pause_is_retried_and_its_error_is_the_last() {
    let none = RetryPolicy::fixed(Duration::ZERO).max_attempts(3);
    let job = Job::<(), ()>::new("hopeless").retry(none);
    let (test, store) = with_store(|b| {
        b.job(job, |ctx: JobContext, ()| async move {
            ctx.step("try", || async { Err::<(), _>(JobError::new("hopeless")) }).await
        })
    })
    .await;
    let task = test.session.spawn(job.with(())).await.unwrap();
    let error = eventually(task.result()).await.unwrap_err();
    assert_eq!(error.to_string(), "job:1 failed (error: hopeless)");
    let tries = step_completions(&store, &task).await;
    assert_eq!(tries.iter().filter(|line| line.starts_with("step try: error")).count(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_a_pause() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let test = TestRuntime::new(|b| {
        b.job(FLAKY, |ctx: JobContext, failures| async move {
            ctx.step("charge", || fail_first(&CALLS, failures)).retry(HOURLY).await
        })
    })
    .await;
    let task = test.session.spawn(FLAKY.with(9)).await.unwrap();
    until(&test.session, task.no(), "waiting").await;
    task.stop(None).await.unwrap();
    assert!(eventually(task.result()).await.unwrap_err().is_cancelled());
    assert_eq!(CALLS.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_with_a_key_is_accepted_once_and_another_under_its_key_is_refused() {
    let test = TestRuntime::new(|b| {
        b.job(Job::new("counts"), |ctx: JobContext, count: u32| async move {
            let mut sum = 0;
            for _ in 0..count {
                sum += ctx.receive_as::<u32>("amount").await?;
            }
            let rest = ctx.receive().await?;
            Ok::<_, JobError>((sum, rest.body.to_string()))
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("counts", 2)).await.unwrap();
    task.send("another message").await.unwrap();
    let first = task.send(7).named("amount").key("one").await.unwrap();
    assert_eq!(task.send(7).named("amount").key("one").await.unwrap(), first);
    let other = task.send(8).named("amount").key("one").await;
    refused(other, CONFLICT, "one");
    task.send(5).named("amount").key("two").await.unwrap();
    let result = eventually(task.typed::<(u32, String)>().result()).await;
    assert_eq!(result, Ok((12, "\"another message\"".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_message_of_another_type_is_an_error_of_the_job_that_receives_it() {
    let test = TestRuntime::new(|b| {
        b.job(Job::new("waits"), |ctx: JobContext, (): ()| async move {
            let none = ctx.receive_as_within::<u32>("amount", SECOND).await?;
            assert_eq!(none, None);
            Ok::<_, JobError>(ctx.receive_as::<u32>("amount").await?)
        })
    })
    .await;
    let task = test.session.spawn(NewTask::job("waits", ())).await.unwrap();
    until_idle().await;
    tokio::time::sleep(2 * SECOND).await;
    task.send("many").named("amount").await.unwrap();
    let error = eventually(task.result()).await.unwrap_err();
    assert!(matches!(&error, TaskError::Ended { .. }), "{error:?}");
    assert!(error.to_string().contains("expected u32"), "{error}");
}

#[test]
fn job_errors_convert_into_boxed_errors_and_back() {
    fn fails() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Err(JobError::new("no flour"))?
    }
    let back = JobError::from_boxed(fails().unwrap_err());
    assert_eq!(back.to_string(), "no flour");
    let big = JobError::new("big").with_payload("x".repeat(2 << 20));
    assert!(big.to_string().contains("without its data"), "{big}");
}
