//! Typed jobs, typed results, and joins of many tasks.

use std::sync::atomic::{AtomicUsize, Ordering};

use brigade_model::call::WaitMode;
use brigade_model::outcome::Failure;
use brigade_model::refusal::RefusalKind::Invalid as INVALID;
use brigade_runtime::{Job, JobContext, JobError, NewTask, RuntimeBuilder, TaskError};
use brigade_testkit::TestRuntime;

use crate::support::*;

const DOUBLE: Job<u32, u32> = Job::new("double");
const PICKY: Job<u32, u32> = Job::new("picky");
const PATIENT: Job<u64, u64> = Job::new("patient");

fn build(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .job(DOUBLE, |_: JobContext, n| async move { Ok::<_, JobError>(2 * n) })
        .job(PICKY, |ctx: JobContext, n| async move {
            if n == 2 {
                return Err(JobError::new("no twos"));
            }
            ctx.sleep(60 * SECOND).await?;
            Ok(n)
        })
        .job(PATIENT, |ctx: JobContext, hours| async move {
            ctx.sleep(u32::try_from(hours)? * 3600 * SECOND).await?;
            Ok::<_, JobError>(hours)
        })
}

#[tokio::test(start_paused = true)]
async fn a_typed_job_returns_its_type_and_a_failure_its_outcome() {
    let test = TestRuntime::new(build).await;
    let task = test.session.spawn(DOUBLE.with(21)).await.unwrap();
    assert_eq!(eventually(task.result()).await, Ok(42));
    let task = test.session.spawn(PICKY.with(2)).await.unwrap();
    let error = eventually(task.result()).await.unwrap_err();
    assert_eq!(error.to_string(), "job:2 failed (error: no twos)");
    assert!(matches!(error.failure(), Some(Failure::Error(_))));
    let task = test.session.spawn(PICKY.with(3)).await.unwrap();
    task.stop(None).await.unwrap();
    assert!(eventually(task.result()).await.unwrap_err().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn a_result_of_another_type_is_an_error_that_keeps_the_result() {
    let test = TestRuntime::new(build).await;
    let task = test.session.spawn(NewTask::job("double", 21)).await.unwrap();
    let error = eventually(task.typed::<Vec<String>>().result()).await.unwrap_err();
    let TaskError::OtherType { result, address, .. } = &error else { panic!("{error:?}") };
    assert_eq!((result.as_str(), &**address), ("42", "job:1"));
}

#[tokio::test(start_paused = true)]
async fn arguments_of_another_type_fail_the_job_and_name_the_problem() {
    const WRONG: Job<&str, u32> = Job::new("double");
    let test = TestRuntime::new(build).await;
    let task = test.session.spawn(WRONG.with("many")).await.unwrap();
    let error = eventually(task.result()).await.unwrap_err().to_string();
    assert!(error.contains("invalid type: string \"many\", expected u32"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn joined_results_are_in_order_with_a_bounded_number_at_once() {
    static ALIVE: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let test = TestRuntime::new(build).await;
    let tasks = (0..20_u64).map(|n| {
        NewTask::closure("counted", move |_| async move {
            let alive = ALIVE.fetch_add(1, Ordering::SeqCst) + 1;
            MOST.fetch_max(alive, Ordering::SeqCst);
            tokio::time::sleep(SECOND * u32::try_from(20 - n)?).await;
            ALIVE.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, JobError>(n)
        })
    });
    let joined = eventually(test.session.join_all(tasks).at_once(4)).await.unwrap();
    let values: Vec<u64> = joined.into_iter().map(Result::unwrap).collect();
    assert_eq!(values, (0..20).collect::<Vec<_>>());
    assert_eq!(MOST.load(Ordering::SeqCst), 4);
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_stops_the_others_and_starts_no_more() {
    let test = TestRuntime::new(build).await;
    let join = test.session.join_all((1..=5).map(|n| PICKY.with(n))).at_once(3);
    let joined = eventually(join.first_failure_stops()).await.unwrap();
    let texts: Vec<String> = joined
        .iter()
        .map(|result| match result {
            Ok(value) => value.to_string(),
            Err(TaskError::Ended { outcome, .. }) => outcome.label().to_owned(),
            Err(other) => other.to_string(),
        })
        .collect();
    let not_started = "the task was not started";
    assert_eq!(texts, ["cancelled", "failed", "cancelled", not_started, not_started]);
}

#[tokio::test(start_paused = true)]
async fn a_join_that_times_out_leaves_its_tasks_running() {
    let test = TestRuntime::new(build).await;
    let join = test.session.join_all([1, 9, 9, 9].map(|hours| PATIENT.with(hours))).at_once(3);
    let joined = eventually(join.within(2 * 3600 * SECOND)).await.unwrap();
    assert_eq!(joined[0], Ok(1));
    let timed_out = |address: &str| Err(TaskError::TimedOut { address: address.to_owned() });
    assert_eq!(joined[1..3], [timed_out("job:2"), timed_out("job:3")]);
    // The fourth took the place of the first.
    assert_eq!(joined[3], timed_out("job:4"));
    let all = eventually(test.session.wait_uncollected(WaitMode::All)).await.unwrap();
    assert_eq!(all.len(), 3, "they went on");
}

#[tokio::test(start_paused = true)]
async fn a_join_of_nothing_returns_at_once_and_one_of_nothing_at_once_is_refused() {
    let test = TestRuntime::new(build).await;
    assert_eq!(test.session.join_all(Vec::<NewTask>::new()).await.unwrap(), []);
    let never = test.session.join_all([DOUBLE.with(1)]).at_once(0).await;
    refused(never, INVALID, "never ends");
    assert!(test.session.list().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_no_tasks_returns_at_once_and_takes_nothing() {
    let test = TestRuntime::new(build).await;
    let task = test.session.spawn(DOUBLE.with(1)).await.unwrap();
    until_idle().await;
    let none: [&brigade_runtime::TaskHandle; 0] = [];
    assert_eq!(test.session.wait_any(none).await.unwrap(), []);
    assert_eq!(test.session.wait_all(none).await.unwrap(), []);
    assert!(!wait_result(&task).await.collected_before);
    let job = NewTask::closure("waits", |ctx: JobContext| async move {
        let child = ctx.spawn(DOUBLE.with(1)).await?;
        let none: [&brigade_runtime::ChildTask; 0] = [];
        let waited = ctx.wait_any(none).await?.len() + ctx.wait_all(none).await?.len();
        Ok::<_, JobError>((waited, ctx.result(&child).await?))
    });
    let job = test.session.spawn(job).await.unwrap();
    assert_eq!(eventually(job.result()).await, Ok((0, 2)));
}
