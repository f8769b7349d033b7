//! Work that outlives the process: reconciliation with its performer.

use std::sync::Arc;

use brigade_model::command::{AttemptReport, WorkResult};
use brigade_model::ids::{Attempt, MessageNo, TaskNo};
use brigade_model::message::Receipt;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::task::{QueueReason, TaskState};
use brigade_runtime::{NewTask, ReconcileResult, StopMode};
use brigade_store::MemoryStore;
use brigade_testkit::TestRuntime;

use crate::support::*;

/// Returns a store that an earlier process left with a running task, and the task.
async fn left_behind(stop: bool) -> (Arc<MemoryStore>, TaskNo) {
    let store = Arc::new(MemoryStore::new());
    let (puppet, mut oven_calls) = Puppet::new();
    let test = TestRuntime::on_store(store.clone(), |b| b.performer("oven", OVEN, puppet)).await;
    let task = test.session.spawn(oven("bread")).await.unwrap();
    oven_calls.started().await;
    task.send("on its way").await.unwrap();
    if stop {
        task.stop(Some("enough")).await.unwrap();
    }
    let no = task.no();
    drop(task);
    crash(test).await;
    (store, no)
}

#[tokio::test(start_paused = true)]
async fn adopted_work_continues_under_the_same_attempt() {
    let (store, no) = left_behind(false).await;
    let (puppet, mut oven_calls) = Puppet::finding(ReconcileResult::Adopted);
    let test = TestRuntime::on_store(store, |b| b.performer("oven", OVEN, puppet)).await;
    let reporter = oven_calls.reconciled().await;
    assert_eq!(reporter.attempt, Attempt(1));
    assert!(oven_calls.is_quiet(), "it is not started again");
    assert_eq!(state(&test.session, no).await, "running");
    let message = test.session.receipt(MessageNo(1)).await.unwrap().unwrap();
    assert_ne!(message.receipt, Receipt::Read);
    reporter.post(returned("\"brown\"")).await;
    let ended = eventually(test.session.wait_all([no])).await.unwrap();
    assert_eq!(*ended[0].outcome, succeeded("\"brown\""));
}

#[tokio::test(start_paused = true)]
async fn work_that_ended_meanwhile_has_its_real_outcome() {
    let (store, no) = left_behind(false).await;
    let found = ReconcileResult::Ended(WorkResult::Returned(json("\"brown\"")).into());
    let (puppet, _oven_is) = Puppet::finding(found);
    let test = TestRuntime::on_store(store, |b| b.performer("oven", OVEN, puppet)).await;
    let row = test.session.get(no).await.unwrap().row;
    let end = &row.ended().expect("reconciled before the first request").outcome;
    assert_eq!(**end, succeeded("\"brown\""));
}

#[tokio::test(start_paused = true)]
async fn work_that_is_not_found_is_lost_with_the_evidence() {
    let (store, no) = left_behind(false).await;
    let (puppet, _oven_is) =
        Puppet::finding(ReconcileResult::Lost { evidence: "a cold oven".into() });
    let test = TestRuntime::on_store(store, |b| b.performer("oven", OVEN, puppet)).await;
    let row = test.session.get(no).await.unwrap().row;
    let Outcome::Failed(failed) = &*row.ended().unwrap().outcome else { panic!("{row:?}") };
    let expect = Failure::Lost { by: "its performer".into(), evidence: "a cold oven".into() };
    assert_eq!(failed.failure, expect);
    let message = test.session.receipt(MessageNo(1)).await.unwrap().unwrap();
    assert_eq!(message.receipt, Receipt::DeliveryUnknown, "the delivery is unknown");
}

#[tokio::test(start_paused = true)]
async fn adopted_work_that_was_stopping_is_stopped_again() {
    let (store, no) = left_behind(true).await;
    let (puppet, mut oven_calls) = Puppet::finding(ReconcileResult::Adopted);
    let test = TestRuntime::on_store(store, |b| b.performer("oven", OVEN, puppet)).await;
    let reporter = oven_calls.reconciled().await;
    assert!(matches!(oven_calls.stopped().await, StopMode::Graceful { attempt: Attempt(1), .. }));
    reporter.post(AttemptReport::Ended(WorkResult::Aborted.into())).await;
    let ended = eventually(test.session.wait_all([no])).await.unwrap();
    let order = &cancelled(&ended[0].outcome).order;
    assert_eq!(order.reason.as_deref(), Some("enough"));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_stop_work_that_may_outlive_it() {
    let store = Arc::new(MemoryStore::new());
    let (puppet, mut oven_calls) = Puppet::new();
    let test = TestRuntime::on_store(store.clone(), |b| b.performer("oven", OVEN, puppet)).await;
    let no = test.session.spawn(oven("bread")).await.unwrap().no();
    oven_calls.started().await;
    test.runtime.clone().shutdown().await.unwrap();
    drop(test);
    assert!(oven_calls.is_quiet());
    let (puppet, mut oven_calls) = Puppet::finding(ReconcileResult::Adopted);
    let test = TestRuntime::on_store(store, |b| b.performer("oven", OVEN, puppet)).await;
    oven_calls.reconciled().await.post(returned("1")).await;
    let ended = eventually(test.session.wait_all([no])).await.unwrap();
    assert_eq!(*ended[0].outcome, succeeded("1"));
}

#[tokio::test(start_paused = true)]
async fn without_its_performer_adoptable_work_is_lost_and_new_work_queues() {
    let (store, no) = left_behind(false).await;
    let test = TestRuntime::on_store(store, |b| b).await;
    let row = test.session.get(no).await.unwrap().row;
    let Outcome::Failed(failed) = &*row.ended().unwrap().outcome else { panic!("{row:?}") };
    assert!(failed.failure.to_string().contains("no performer for oven"), "{}", failed.failure);
    refused(test.session.spawn(oven("cake")).await, INVALID, "no performer for oven is registered");
    let cake = NewTask::custom_with("oven", "cake", OVEN);
    let task = test.session.spawn(cake).await.unwrap();
    let row = until(&test.session, task.no(), "queued").await;
    let TaskState::Queued(queued) = &row.state else { panic!("{row:?}") };
    let why = QueueReason::NoPerformer { reason: "no performer for oven is registered".into() };
    assert_eq!(queued.reason, why);
    task.stop(None).await.unwrap();
    assert_eq!(outcome(&task).await.label(), "cancelled");
}
