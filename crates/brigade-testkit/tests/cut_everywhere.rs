//! Crashes at every commit: a job that follows the rules passes, and one that does not is found.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brigade_runtime::{Job, JobContext, JobError};
use brigade_store::Store;
use brigade_testkit::{TestRuntime, cut_everywhere};

const WALK: Job<(), String> = Job::new("walk");

/// Runs a job to its end, which it reaches in one of several lives.
async fn run<F>(store: Arc<dyn Store>, walk: fn(JobContext, ()) -> F) -> String
where
    F: Future<Output = Result<String, JobError>> + Send + 'static,
{
    let test = TestRuntime::on_store(store, |builder| builder.job(WALK, walk)).await;
    let spawned = test.session.spawn(WALK.with(()).key("walk")).await;
    match spawned.expect("the key is the same").result().await {
        Ok(result) => result,
        Err(error) => error.to_string(),
    }
}

async fn walk(ctx: JobContext, (): ()) -> Result<String, JobError> {
    let first = ctx.step("first", || async { Ok::<_, JobError>(1) }).await?;
    ctx.sleep(Duration::from_secs(3600)).await?;
    let second = ctx.step("second", || async { Ok::<_, JobError>(2) }).await?;
    Ok(format!("{first}, {second}"))
}

async fn wander(ctx: JobContext, (): ()) -> Result<String, JobError> {
    static ODD: AtomicBool = AtomicBool::new(false);
    let name = if ODD.fetch_xor(true, Ordering::SeqCst) { "odd" } else { "even" };
    ctx.step(name, || async { Ok::<_, JobError>(()) }).await?;
    Ok("arrived".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_durable_job_has_the_same_result_after_every_crash() {
    let crashes = cut_everywhere(|store| run(store, walk)).await;
    assert!(crashes >= 12, "{crashes} crashes");
    assert_eq!(crashes % 2, 0, "each commit is cut before and after it is durable");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "the job took another path than before: call 0 was")]
async fn a_job_that_depends_on_the_outside_is_found() {
    cut_everywhere(|store| run(store, wander)).await;
}
