//! Stops of work that does not stop by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use brigade_model::command::StopTarget;
use brigade_model::ids::Time;
use brigade_model::limits::Limits;
use brigade_model::outcome::{EndConfirmation, LateResult};
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{JobContext, JobError, JobTask, NewTask, Runtime, Session};
use brigade_testkit::{ManualClock, TestRuntime};
use tokio_util::sync::CancellationToken;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_future_that_ignores_its_token_is_dropped_at_the_deadline() {
    let test = TestRuntime::new(|b| b).await;
    let census = Census::default();
    let counted = census.clone();
    let deaf = NewTask::closure("deaf", move |_| async move {
        let _counted = counted.enter();
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    });
    let deaf = test.session.spawn(deaf.grace(3 * SECOND)).await.unwrap();
    until_idle().await;
    let stopped_at = tokio::time::Instant::now();
    deaf.stop(None).await.unwrap();
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(census.alive(), 1, "the stop is graceful until the deadline");
    let end = wait_result(&deaf).await;
    assert_eq!(stopped_at.elapsed(), 3 * SECOND);
    assert_eq!(census.alive(), 0);
    let end = cancelled(&end.outcome);
    assert_eq!((&end.late, &end.confirmation), (&None, &EndConfirmation::Confirmed));
}

#[tokio::test(start_paused = true)]
async fn a_step_that_hangs_can_be_stopped() {
    let test = TestRuntime::new(|b| {
        b.job_named(
            "hangs",
            RecoveryPolicy::resume_max_crashes(1),
            |ctx: JobContext, (): ()| async move {
                ctx.step("hangs", || async {
                    std::future::pending::<()>().await;
                    Ok::<_, JobError>(())
                })
                .await?;
                Ok::<_, JobError>(())
            },
        )
    })
    .await;
    let task = test.session.spawn(NewTask::job("hangs", ())).await.unwrap();
    until_idle().await;
    let stopped_at = tokio::time::Instant::now();
    let target = StopTarget::Task((&task).into());
    test.session.stop_with(target, None, Some(Duration::ZERO)).await.unwrap();
    assert_eq!(outcome(&task).await.label(), "cancelled");
    assert!(stopped_at.elapsed() < SECOND, "the grace of the stop itself counts, here none");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_stopped_during_replay_gets_refusals_from_its_calls() {
    let gate = CancellationToken::new();
    let open = gate.clone();
    let entered = Tally::default();
    let entries = entered.clone();
    let test = TestRuntime::new(|b| {
        b.job_named(
            "joins",
            RecoveryPolicy::resume_max_crashes(1),
            move |ctx: JobContext, (): ()| {
                let gate = open.clone();
                let entries = entries.clone();
                async move {
                    if entries.add() > 0 {
                        gate.cancelled().await;
                    }
                    let (short, long) = tokio::join!(ctx.sleep(SECOND), ctx.sleep(3600 * SECOND));
                    short?;
                    long?;
                    Ok::<_, JobError>(())
                }
            },
        )
    })
    .await;
    let task = test.session.spawn(NewTask::job("joins", ())).await.unwrap();
    tokio::time::sleep(2 * SECOND).await;
    assert_eq!(entered.get(), 2);
    task.stop(None).await.unwrap();
    until_idle().await;
    gate.cancel();
    let resumed_at = tokio::time::Instant::now();
    let end = outcome(&task).await;
    let Some(LateResult::Failure(failure)) = &cancelled(&end).late else { panic!("{end:?}") };
    assert!(failure.to_string().contains("the task is being stopped"), "{failure}");
    assert!(resumed_at.elapsed() < SECOND, "it did not have to be forced");
}

/// Returns a session on several threads with a clock that the test advances.
async fn by_hand(limits: Limits) -> (Session, ManualClock) {
    let clock = ManualClock::at(Time(1_800_000_000_000));
    let runtime = Runtime::builder().clock(Arc::new(clock.clone())).start().await.unwrap();
    (runtime.session_with("test", limits).await.unwrap(), clock)
}

/// A guard that releases the blocked thread, also if the test fails.
struct Release(Arc<AtomicBool>);

impl Drop for Release {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Returns a task that blocks its thread until it is released, and a token for its start.
fn blocks() -> (NewTask<JobTask<&'static str>>, CancellationToken, Release) {
    let release = Arc::new(AtomicBool::new(false));
    let released = release.clone();
    let begun = CancellationToken::new();
    let begins = begun.clone();
    let task = NewTask::closure("blocks", |_| async move {
        begins.cancel();
        while !released.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Ok::<_, JobError>("returned after all")
    });
    (task, begun, Release(release))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_future_that_never_yields_ends_unconfirmed_and_keeps_its_slot_until_it_returns() {
    let limits = Limits { running: Some(1), ..Limits::default() };
    let (session, clock) = by_hand(limits).await;
    let (task, begun, release) = blocks();
    let task = session.spawn(task.grace(SECOND)).await.unwrap();
    soon(begun.cancelled()).await;
    let next = session.spawn(returns("my turn")).await.unwrap();
    task.stop(None).await.unwrap();
    clock.advance(SECOND);
    // The deadline of the forced stop counts from its start, so wait for that event first.
    soon(async {
        let mut feed = session.subscribe(Default::default());
        while !matches!(next_event(&mut feed).await, brigade_model::event::Event::StopForced { .. })
        {
        }
    })
    .await;
    clock.advance(5 * SECOND);
    let end = soon(task.wait()).await.unwrap();
    assert_eq!(end.outcome.to_string(), "cancelled (unconfirmed)");
    assert_eq!(cancelled(&end.outcome).confirmation, EndConfirmation::Unconfirmed);
    assert_eq!(state(&session, next.no()).await, "queued", "the slot is still taken");
    let row = session.get(task.no()).await.unwrap().row;
    assert!(row.ended().unwrap().lingering);
    drop(release);
    let end = soon(next.wait()).await.unwrap();
    assert_eq!(*end.outcome, succeeded("\"my turn\""));
    let row = session.get(task.no()).await.unwrap().row;
    assert!(!row.ended().unwrap().lingering);
    assert_eq!(row.ended().unwrap().outcome.to_string(), "cancelled (unconfirmed)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_future_that_yields_between_deadline_and_bound_ends_confirmed() {
    let (session, clock) = by_hand(Limits::default()).await;
    let (task, begun, release) = blocks();
    let task = session.spawn(task.grace(SECOND)).await.unwrap();
    soon(begun.cancelled()).await;
    task.stop(None).await.unwrap();
    clock.advance(2 * SECOND);
    drop(release);
    let end = soon(task.wait()).await.unwrap();
    assert_eq!(cancelled(&end.outcome).confirmation, EndConfirmation::Confirmed);
}
