//! Waiting from outside: what a wait returns, takes, and leaves alone.

use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::ids::Time;
use brigade_runtime::{Runtime, WaitResult};
use brigade_store::MemoryStore;
use brigade_testkit::{PausedClock, TestRuntime};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_wait_returns_the_result_and_consumes_it() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(returns(7)).await.unwrap();
    assert!(!ending(&task).await.collected_before);
    let rest = eventually(test.session.wait_all([])).await.unwrap();
    assert_eq!(rest, [], "a wait for everything does not deliver it again");
    let again = ending(&task).await;
    assert!(again.collected_before, "asked for by name it is told again, marked so");
    assert_eq!(*again.outcome, succeeded("7"));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_any_returns_what_has_ended_and_takes_no_more() {
    let test = TestRuntime::new(|b| b).await;
    let gate = CancellationToken::new();
    let slow = test.session.spawn(behind(&gate)).await.unwrap();
    let quick = test.session.spawn(returns(1)).await.unwrap();
    let both = [(&slow).into(), (&quick).into()];
    let endings = eventually(test.session.wait_any(both)).await.unwrap();
    assert_eq!(endings.iter().map(|e| e.no).collect::<Vec<_>>(), [quick.no()]);
    gate.cancel();
    assert!(!ending(&slow).await.collected_before);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_all_returns_each_once_in_the_order_asked() {
    let test = TestRuntime::new(|b| b).await;
    let gate = CancellationToken::new();
    let slow = test.session.spawn(behind(&gate)).await.unwrap();
    let quick = test.session.spawn(returns(1)).await.unwrap();
    let asked = [(&slow).into(), (&quick).into(), (&slow).into()];
    let (endings, ()) = tokio::join!(eventually(test.session.wait_all(asked)), async {
        settle().await;
        gate.cancel();
    });
    let endings = endings.unwrap();
    assert_eq!(endings.iter().map(|e| e.no).collect::<Vec<_>>(), [slow.no(), quick.no()]);
    assert!(endings.iter().all(|ending| !ending.collected_before));
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_told_as_one_and_consumes_nothing() {
    let test = TestRuntime::new(|b| b).await;
    let gate = CancellationToken::new();
    let slow = test.session.spawn(behind(&gate)).await.unwrap();
    let quick = test.session.spawn(returns(1)).await.unwrap();
    let both = vec![(&slow).into(), (&quick).into()];
    let start = tokio::time::Instant::now();
    let waited = test.session.wait_within(both, WaitMode::All, 5 * SECOND).await.unwrap();
    assert_eq!(waited, WaitResult::TimedOut(vec![slow.no()]));
    assert_eq!(start.elapsed(), 5 * SECOND);
    assert!(!ending(&quick).await.collected_before, "left alone by the wait that timed out");
    assert_eq!(slow.wait_within(SECOND).await.unwrap(), None);
    assert_eq!(state(&test.session, slow.no()).await, "running", "patience is the waiter's own");
    gate.cancel();
    assert!(!ending(&slow).await.collected_before);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_names_what_was_asked_for_and_still_goes_on() {
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
async fn patience_of_none_still_sees_what_has_ended() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(returns(1)).await.unwrap();
    until(&test.session, task.no(), "succeeded").await;
    let ending = task.wait_within(Duration::ZERO).await.unwrap();
    assert!(!ending.expect("it had ended").collected_before);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_task_that_is_cancelled_succeeds_and_says_cancelled() {
    let test = TestRuntime::new(|b| b).await;
    let task = test.session.spawn(tidy()).await.unwrap();
    let (ending, stopped) = tokio::join!(eventually(task.wait()), task.stop(Some("enough")));
    stopped.unwrap();
    let ending = ending.unwrap();
    assert_eq!(ending.outcome.label(), "cancelled");
    assert_eq!(late_result(&ending.outcome), "\"tidied\"", "it came before the wait returned");
    let order = &cancelled(&ending.outcome).order;
    assert_eq!(order.reason.as_deref(), Some("enough"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_given_up_takes_nothing() {
    let test = TestRuntime::new(|b| b).await;
    let gate = CancellationToken::new();
    let task = test.session.spawn(behind(&gate)).await.unwrap();
    let given_up = tokio::time::timeout(SECOND, task.wait()).await;
    assert!(given_up.is_err());
    gate.cancel();
    until(&test.session, task.no(), "succeeded").await;
    settle().await;
    assert!(!ending(&task).await.collected_before);
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
    let endings = eventually(second.session.wait_all([])).await.unwrap();
    assert_eq!(endings.iter().map(|e| e.no.get()).collect::<Vec<_>>(), [2]);
    let named = eventually(second.session.wait_all([number(1).into()])).await.unwrap();
    assert!(!named[0].collected_before, "others must be named, then they can be had");
}

#[tokio::test(start_paused = true)]
async fn endings_come_in_the_order_of_time_and_carry_it() {
    let test = TestRuntime::new(|b| b).await;
    let (one, two) = (CancellationToken::new(), CancellationToken::new());
    let first = test.session.spawn(behind(&one)).await.unwrap();
    let second = test.session.spawn(behind(&two)).await.unwrap();
    two.cancel();
    until(&test.session, second.no(), "succeeded").await;
    tokio::time::sleep(SECOND).await;
    one.cancel();
    let ends: Vec<Time> =
        [ending(&first).await, ending(&second).await].map(|e| e.ended_at).to_vec();
    assert!(ends[1] < ends[0]);
}

#[tokio::test(start_paused = true)]
async fn waits_end_when_the_runtime_does() {
    let runtime = Runtime::builder()
        .clock(Arc::new(PausedClock::starting_at(TestRuntime::START)))
        .start()
        .await
        .unwrap();
    let session = runtime.session("test").await.unwrap();
    let task = session.spawn(forever()).await.unwrap();
    let (waited, left) = tokio::join!(eventually(task.wait()), async {
        settle().await;
        runtime.shutdown().await
    });
    left.unwrap();
    // The closure is lost with the runtime, and the wait may be told so or that all is over.
    assert!(waited.is_err() || waited.unwrap().outcome.label() == "failed");
    refused(eventually(task.wait()).await, UNAVAILABLE, "shut down");
}
