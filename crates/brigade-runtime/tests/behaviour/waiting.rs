//! Waits of clients: their results and what they consume.

use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::ids::Time;
use brigade_runtime::{Runtime, WaitResult};
use brigade_store::MemoryStore;
use brigade_testkit::{CrashStore, PausedClock, TestRuntime};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use crate::faulty_store::FaultyStore;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_wait_returns_the_result_and_consumes_it() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(returns(7)).await.unwrap();
    assert!(!wait_result(&task).await.collected_before);
    let uncollected = eventually(test.session.wait_uncollected(WaitMode::All)).await.unwrap();
    assert_eq!(uncollected, [], "a wait for everything does not deliver it again");
    let again = wait_result(&task).await;
    assert!(again.collected_before, "a wait by name delivers it again, marked so");
    assert_eq!(*again.outcome, succeeded("7"));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_any_returns_ended_tasks_only() {
    let test = TestRuntime::new(|b| b).await;
    let gate = CancellationToken::new();
    let slow = test.session.spawn(behind(&gate)).await.unwrap();
    let quick = test.session.spawn(returns(1)).await.unwrap();
    let both = [&slow, &quick];
    let run_results = eventually(test.session.wait_any(both)).await.unwrap();
    assert_eq!(run_results.iter().map(|e| e.no).collect::<Vec<_>>(), [quick.no()]);
    gate.cancel();
    assert!(!wait_result(&slow).await.collected_before);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_all_returns_each_once_in_the_requested_order() {
    let test = TestRuntime::new(|b| b).await;
    let gate = CancellationToken::new();
    let slow = test.session.spawn(behind(&gate)).await.unwrap();
    let quick = test.session.spawn(returns(1)).await.unwrap();
    let asked = [&slow, &quick, &slow];
    let (run_results, ()) = tokio::join!(eventually(test.session.wait_all(asked)), async {
        until_idle().await;
        gate.cancel();
    });
    let run_results = run_results.unwrap();
    assert_eq!(run_results.iter().map(|e| e.no).collect::<Vec<_>>(), [slow.no(), quick.no()]);
    assert!(run_results.iter().all(|run_result| !run_result.collected_before));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_reported_and_consumes_nothing() {
    let test = TestRuntime::new(|b| b).await;
    let gate = CancellationToken::new();
    let slow = test.session.spawn(behind(&gate)).await.unwrap();
    let quick = test.session.spawn(returns(1)).await.unwrap();
    let both = vec![(&slow).into(), (&quick).into()];
    let start = tokio::time::Instant::now();
    let waited = test.session.wait_within(both, WaitMode::All, 5 * SECOND).await.unwrap();
    assert_eq!(waited, WaitResult::TimedOut(vec![slow.no()]));
    assert_eq!(start.elapsed(), 5 * SECOND);
    assert!(!wait_result(&quick).await.collected_before, "the wait that timed out took nothing");
    assert_eq!(slow.wait_within(SECOND).await.unwrap(), None);
    assert_eq!(state(&test.session, slow.no()).await, "running", "a timeout ends only the wait");
    gate.cancel();
    assert!(!wait_result(&slow).await.collected_before);
}

/// The wait is not polled while it is cancelled and its task ends, so that only the loop can know.
#[tokio::test(start_paused = true)]
async fn a_cancelled_wait_consumes_nothing() {
    let test = TestRuntime::new(|b| b).await;
    let gate = CancellationToken::new();
    let cancellation = CancellationToken::new();
    let task = test.session.spawn(behind(&gate)).await.unwrap();
    let session = test.session.clone().with_cancellation(cancellation.clone());
    let mut wait = Box::pin(session.wait_all([&task]));
    tokio::select! {
        biased;
        waited = &mut wait => panic!("{waited:?}"),
        () = until_idle() => {}
    }
    cancellation.cancel();
    gate.cancel();
    until_idle().await;
    assert_eq!(state(&test.session, task.no()).await, "succeeded");
    refused(wait.await, FORBIDDEN, "the wait was cancelled");
    assert!(!wait_result(&task).await.collected_before, "the cancelled wait took nothing");
    refused(session.wait_all([&task]).await, FORBIDDEN, "the wait was cancelled");
}

/// Nobody else can receive a result once it is consumed.
#[tokio::test(start_paused = true)]
async fn a_wait_that_is_cancelled_while_it_consumes_returns_the_result() {
    let store = CrashStore::new(Arc::new(MemoryStore::new()), None);
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let cancellation = CancellationToken::new();
    let task = test.session.spawn(returns(1)).await.unwrap();
    until(&test.session, task.no(), "succeeded").await;
    let session = test.session.clone().with_cancellation(cancellation.clone());
    let held = store.hold_commits();
    let mut wait = Box::pin(session.wait_all([&task]));
    tokio::select! {
        biased;
        waited = &mut wait => panic!("{waited:?}"),
        () = held.wait_held() => {}
    }
    cancellation.cancel();
    let (waited, ()) = tokio::join!(wait, async {
        until_idle().await;
        drop(held);
    });
    assert!(!waited.unwrap()[0].collected_before);
    assert!(wait_result(&task).await.collected_before);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_names_the_requested_tasks_that_are_running() {
    let test = TestRuntime::new(|b| b).await;
    let asked = test.session.spawn(forever()).await.unwrap();
    test.session.spawn(forever()).await.unwrap();
    let tasks = vec![(&asked).into()];
    let waited = test.session.wait_within(tasks, WaitMode::Any, SECOND).await.unwrap();
    assert_eq!(waited, WaitResult::TimedOut(vec![asked.no()]));
    let waited = test.session.wait_within(Vec::new(), WaitMode::Any, SECOND).await.unwrap();
    assert_eq!(waited, WaitResult::TimedOut(vec![number(1), number(2)]));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_zero_still_returns_an_ended_task() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(returns(1)).await.unwrap();
    until(&test.session, task.no(), "succeeded").await;
    let run_result = task.wait_within(Duration::ZERO).await.unwrap();
    assert!(!run_result.expect("it had ended").collected_before);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_cancelled_task_succeeds() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(tidy()).await.unwrap();
    let (run_result, stopped) = tokio::join!(eventually(task.wait()), task.stop(Some("enough")));
    stopped.unwrap();
    let run_result = run_result.unwrap();
    assert_eq!(run_result.outcome.label(), "cancelled");
    assert_eq!(late_result(&run_result.outcome), "\"tidied\"", "it came before the wait returned");
    let order = &cancelled(&run_result.outcome).order;
    assert_eq!(order.reason.as_deref(), Some("enough"));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_consumes_nothing() {
    let test = TestRuntime::new(|b| b).await;
    let gate = CancellationToken::new();
    let task = test.session.spawn(behind(&gate)).await.unwrap();
    let given_up = tokio::time::timeout(SECOND, task.wait()).await;
    assert!(given_up.is_err());
    gate.cancel();
    until(&test.session, task.no(), "succeeded").await;
    until_idle().await;
    assert!(!wait_result(&task).await.collected_before);
}

#[tokio::test(start_paused = true)]
async fn a_bare_wait_covers_this_clients_runs_only() {
    let store = Arc::new(MemoryStore::new());
    let first = TestRuntime::on_store(store.clone(), |b| b.client("first")).await;
    let task = first.session.spawn(returns(1)).await.unwrap();
    until(&first.session, task.no(), "succeeded").await;
    first.runtime.clone().shutdown().await.unwrap();
    let second = TestRuntime::on_store(store.clone(), |b| b.client("second")).await;
    second.session.spawn(returns(2)).await.unwrap();
    let run_results = eventually(second.session.wait_uncollected(WaitMode::All)).await.unwrap();
    assert_eq!(run_results.iter().map(|e| e.no.get()).collect::<Vec<_>>(), [2]);
    let named = eventually(second.session.wait_all([number(1)])).await.unwrap();
    assert!(!named[0].collected_before, "runs of other clients must be named");
}

#[tokio::test(start_paused = true)]
async fn results_have_the_time_of_their_end() {
    let test = TestRuntime::new(|b| b).await;
    let one = CancellationToken::new();
    let two = CancellationToken::new();
    let first = test.session.spawn(behind(&one)).await.unwrap();
    let second = test.session.spawn(behind(&two)).await.unwrap();
    two.cancel();
    until(&test.session, second.no(), "succeeded").await;
    tokio::time::sleep(SECOND).await;
    one.cancel();
    let ends: Vec<Time> =
        [wait_result(&first).await, wait_result(&second).await].map(|e| e.ended_at).to_vec();
    assert!(ends[1] < ends[0]);
}

#[tokio::test(start_paused = true)]
async fn waits_end_with_the_runtime() {
    let runtime = Runtime::builder()
        .clock(Arc::new(PausedClock::starting_at(TestRuntime::START)))
        .start()
        .await
        .unwrap();
    let session = runtime.session("test").await.unwrap();
    let task = session.spawn(forever()).await.unwrap();
    let (waited, shut_down) = tokio::join!(eventually(task.wait()), async {
        until_idle().await;
        runtime.shutdown().await
    });
    shut_down.unwrap();
    // The closure is lost with the runtime. The wait may return that, or a refusal.
    assert!(waited.is_err() || waited.unwrap().outcome.label() == "failed");
    refused(eventually(task.wait()).await, UNAVAILABLE, "shut down");
}

#[tokio::test(start_paused = true)]
async fn an_end_and_its_collection_are_one_commit() {
    let store = CrashStore::new(Arc::new(MemoryStore::new()), None);
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let gate = CancellationToken::new();
    let task = test.session.spawn(behind(&gate)).await.unwrap();
    let (run, before) = tokio::join!(wait_result(&task), async {
        until_idle().await;
        gate.cancel();
        store.commits()
    });
    assert_eq!(*run.outcome, succeeded("\"through\""));
    assert_eq!(store.commits(), before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_survives_a_failed_commit_of_the_end() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| b).await;
    let gate = CancellationToken::new();
    let task = test.session.spawn(behind(&gate)).await.unwrap();
    let (run, refused) = tokio::join!(wait_result(&task), async {
        until_idle().await;
        store.set_full(true);
        gate.cancel();
        tokio::time::sleep(SECOND).await;
        store.set_full(false);
        store.refused()
    });
    assert_eq!(*run.outcome, succeeded("\"through\""));
    assert!(refused > 0);
}

#[tokio::test(start_paused = true)]
async fn a_wait_with_a_timeout_returns_while_the_store_is_full() {
    let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| b.max_batch(100)).await;
    let gate = CancellationToken::new();
    let task = test.session.spawn(behind(&gate)).await.unwrap();
    let ended = test.session.spawn(returns(1)).await.unwrap();
    until(&test.session, ended.no(), "succeeded").await;
    store.set_full(true);
    gate.cancel();
    assert!(eventually(task.wait_within(SECOND)).await.unwrap().is_none(), "its end is not stored");
    refused(eventually(ended.wait_within(SECOND)).await, UNAVAILABLE, "full");
    store.set_full(false);
    assert_eq!(*outcome(&task).await, succeeded("\"through\""));
    assert_eq!(*outcome(&ended).await, succeeded("1"));
}
