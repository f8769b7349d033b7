//! Performers of custom kinds with few lines: presets, payloads and reports.

use std::sync::Arc;

use brigade_model::action::StartAction;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::work::{KindPolicy, RecoveryPolicy, Work};
use brigade_runtime::{NewTask, Performer, Reporter, StopMode, TaskId};
use brigade_store::MemoryStore;
use brigade_testkit::TestRuntime;
use serde::Deserialize;

use crate::support::*;

#[derive(Deserialize)]
struct Dish {
    name: String,
    spoiled: bool,
}

/// A performer with the two methods that every performer needs.
struct Cook(tokio_util::task::TaskTracker);

impl Performer for Cook {
    fn start(&self, start: StartAction, reporter: Reporter) {
        self.0.spawn(async move {
            let dish = match start.payload::<Dish>() {
                Ok(dish) => dish,
                Err(refusal) => return reporter.fail(refusal.message).await,
            };
            reporter.progress("chopping").await.unwrap();
            match dish.spoiled {
                false => reporter.succeed(&dish.name).await,
                true => reporter.fail("spoiled").await,
            }
        });
    }

    fn stop(&self, _task: TaskId, _mode: StopMode) {}
}

fn cook() -> Cook {
    Cook(tokio_util::task::TaskTracker::new())
}

fn dish(name: &str, spoiled: bool) -> NewTask {
    let dish = serde_json::json!({ "name": name, "spoiled": spoiled });
    NewTask::custom("dish", dish).erase()
}

#[tokio::test(start_paused = true)]
async fn a_performer_decodes_its_payload_and_reports_in_one_call() {
    let test = TestRuntime::new(|b| b.performer("dish", KindPolicy::restarted(), cook())).await;
    let soup = test.session.spawn(dish("soup", false)).await.unwrap();
    assert_eq!(*outcome(&soup).await, succeeded("\"soup\""));
    let row = soup.get().await.unwrap();
    assert_eq!(row.extras.as_ref().unwrap().progress, Some(json("\"chopping\"")));
    let fish = test.session.spawn(dish("fish", true)).await.unwrap();
    assert_eq!(*outcome(&fish).await, failed("spoiled"));
    let wrong = test.session.spawn(NewTask::custom("dish", 5)).await.unwrap();
    let ended = outcome(&wrong).await;
    let Outcome::Failed(outcome) = &*ended else { panic!("{ended:?}") };
    let Failure::Error(message) = &outcome.failure else { panic!("{ended:?}") };
    assert!(message.message.starts_with("the payload of dish:3 is wrong: "), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_task_has_the_policy_of_its_registration_and_keeps_it() {
    let store = Arc::new(MemoryStore::new());
    let [first, second] = [KindPolicy::lost_with_runtime(), KindPolicy::restarted()];
    let build = |b: brigade_runtime::RuntimeBuilder| b.performer("dish", first, cook());
    let test = TestRuntime::on_store(store.clone(), build).await;
    let task = test.session.spawn(dish("soup", false).key("one")).await.unwrap();
    assert_eq!(task.get().await.unwrap().spec.work.policy(), first);
    let own = KindPolicy::adopted();
    let other = NewTask::custom_with("dish", dish_json("stew"), own);
    let other = test.session.spawn(other).await.unwrap();
    assert_eq!(other.get().await.unwrap().spec.work.policy(), own);
    outcome(&task).await;
    let no = task.no();
    drop([task, other]);
    crash(test).await;
    let build = |b: brigade_runtime::RuntimeBuilder| b.performer("dish", second, cook());
    let test = TestRuntime::on_store(store, build).await;
    let again = test.session.spawn(dish("soup", false).key("one")).await.unwrap();
    assert_eq!(again.no(), no, "another policy is no other request");
    let conflict = test.session.spawn(dish("stew", false).key("one")).await;
    refused(conflict, CONFLICT, "another request");
}

fn dish_json(name: &str) -> serde_json::Value {
    serde_json::json!({ "name": name, "spoiled": false })
}

#[tokio::test(start_paused = true)]
async fn restarted_work_starts_again_with_its_saved_state() {
    let store = Arc::new(MemoryStore::new());
    let (puppet, mut oven_calls) = Puppet::new();
    let policy = KindPolicy::restarted();
    let build = |b: brigade_runtime::RuntimeBuilder| b.performer("oven", policy, puppet);
    let test = TestRuntime::on_store(store.clone(), build).await;
    test.session.spawn(oven("bread")).await.unwrap();
    let (start, reporter) = oven_calls.started().await;
    assert_eq!(start.saved_state::<u32>().unwrap(), None);
    reporter.save_state(&220).await.unwrap();
    crash(test).await;
    let (puppet, mut oven_calls) = Puppet::new();
    let build = |b: brigade_runtime::RuntimeBuilder| b.performer("oven", policy, puppet);
    let test = TestRuntime::on_store(store, build).await;
    let (start, reporter) = oven_calls.started().await;
    assert_eq!(start.attempt.0, 2);
    assert_eq!(start.saved_state::<u32>().unwrap(), Some(220));
    assert!(start.saved_state::<String>().is_err());
    assert_eq!(start.payload::<String>().unwrap(), "bread");
    reporter.succeed("brown").await;
    let ended = eventually(test.session.wait_all([number(1)])).await.unwrap();
    assert_eq!(*ended[0].outcome, succeeded("\"brown\""));
}

#[tokio::test(start_paused = true)]
async fn a_stopped_report_confirms_the_stop_and_a_huge_result_fails_the_task() {
    let (puppet, mut oven_calls) = Puppet::new();
    let policy = KindPolicy::lost_with_runtime();
    let test = TestRuntime::new(|b| b.performer("oven", policy, puppet)).await;
    let task = test.session.spawn(oven("bread")).await.unwrap();
    let (_, reporter) = oven_calls.started().await;
    task.stop(None).await.unwrap();
    oven_calls.stopped().await;
    reporter.stopped().await;
    cancelled(&*outcome(&task).await);
    while !matches!(oven_calls.next().await, Called::Stop(StopMode::Release)) {}
    let task = test.session.spawn(oven("cake")).await.unwrap();
    let (start, reporter) = oven_calls.started().await;
    reporter.succeed(&"x".repeat(2 * 1024 * 1024)).await;
    let ended = outcome(&task).await;
    assert!(format!("{ended:?}").contains("the result cannot be stored"), "{ended:?}");
    let Work::Custom(custom) = &start.spec.work else { panic!("{start:?}") };
    assert_eq!(custom.policy.unwrap().recovery, RecoveryPolicy::Lost);
}
