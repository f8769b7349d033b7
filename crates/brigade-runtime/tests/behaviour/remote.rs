//! Work at a remote service: started once, polled, re-attached after a crash, cancelled on a stop.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_model::outcome::{EndConfirmation, Outcome};
use brigade_model::refusal::Refusal;
use brigade_model::work::KindPolicy;
use brigade_runtime::{
    NewTask, RemoteError, RemotePerformer, RemoteService, RemoteStatus, Runtime, TaskHandle,
};
use brigade_store::{MemoryStore, Store};
use brigade_testkit::{CrashStore, CutMode, CutPoint, PausedClock, TestRuntime};
use tokio::sync::watch;

use crate::support::*;

/// A service that outlives the runtimes of a test.
#[derive(Clone, Default)]
struct Bakery(Arc<BakeryState>);

#[derive(Default)]
struct BakeryState {
    orders: Mutex<BTreeMap<String, Order>>,
    calls: Mutex<Vec<&'static str>>,
    /// The number of calls that are still to fail as unavailable.
    failures: Mutex<u32>,
    /// The handles that were polled.
    polled: Mutex<Vec<usize>>,
    changes: watch::Sender<()>,
}

struct Order {
    handle: usize,
    loaves: u32,
    polls: u32,
    state: OrderState,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OrderState {
    Baking,
    Done,
    Cancelled,
}

/// More loaves than this are never done.
const ENDLESS: u32 = 1_000;

impl Bakery {
    fn call(&self, name: &'static str) -> Result<(), RemoteError> {
        self.0.calls.lock().unwrap().push(name);
        let mut failures = self.0.failures.lock().unwrap();
        if *failures > 0 {
            *failures -= 1;
            return Err(RemoteError::unavailable("the line is busy"));
        }
        Ok(())
    }

    fn fail_next(&self, calls: u32) {
        *self.0.failures.lock().unwrap() = calls;
    }

    fn calls(&self, name: &str) -> usize {
        self.0.calls.lock().unwrap().iter().filter(|call| **call == name).count()
    }

    fn states(&self) -> Vec<OrderState> {
        self.0.orders.lock().unwrap().values().map(|order| order.state).collect()
    }

    async fn until_polled(&self) {
        let mut changes = self.0.changes.subscribe();
        while self.calls("poll") == 0 {
            eventually(changes.changed()).await.unwrap();
        }
    }
}

impl RemoteService for Bakery {
    type Payload = u32;
    type Handle = usize;
    type Output = String;

    async fn start(&self, loaves: u32, key: &str) -> Result<usize, RemoteError> {
        self.call("start")?;
        if loaves == 0 {
            return Err(RemoteError::rejected("nothing to bake"));
        }
        let mut orders = self.0.orders.lock().unwrap();
        let handle = orders.len();
        let new = || Order { handle, loaves, polls: 0, state: OrderState::Baking };
        Ok(orders.entry(key.to_owned()).or_insert_with(new).handle)
    }

    async fn poll(&self, handle: &usize) -> Result<RemoteStatus<String>, RemoteError> {
        let called = self.call("poll");
        self.0.changes.send_replace(());
        called?;
        self.0.polled.lock().unwrap().push(*handle);
        let mut orders = self.0.orders.lock().unwrap();
        let order = orders.values_mut().find(|order| order.handle == *handle);
        let order = order.ok_or_else(|| RemoteError::rejected("no such order"))?;
        order.polls += 1;
        if order.loaves == 13 {
            return Ok(RemoteStatus::Failed("burnt".into()));
        }
        if order.loaves >= ENDLESS || order.polls < 3 {
            return Ok(RemoteStatus::Running);
        }
        order.state = OrderState::Done;
        Ok(RemoteStatus::Done(format!("{} loaves", order.loaves)))
    }

    async fn cancel(&self, handle: &usize) -> Result<(), RemoteError> {
        self.call("cancel")?;
        let mut orders = self.0.orders.lock().unwrap();
        let order = orders.values_mut().find(|order| order.handle == *handle);
        if let Some(order) = order.filter(|order| order.state == OrderState::Baking) {
            order.state = OrderState::Cancelled;
        }
        Ok(())
    }
}

async fn bakery_runtime(store: Arc<dyn Store>, bakery: &Bakery) -> Result<Runtime, Refusal> {
    let clock = PausedClock::starting_at(TestRuntime::START);
    Runtime::builder()
        .shared_store(store)
        .clock(Arc::new(clock))
        .max_batch(1)
        .performer("bakery", KindPolicy::adopted(), RemotePerformer::new(bakery.clone()))
        .start()
        .await
}

async fn order(runtime: &Runtime, loaves: u32) -> Result<TaskHandle, Refusal> {
    let session = runtime.session("test").await?;
    session.spawn(NewTask::custom("bakery", loaves).key("one")).await
}

async fn new_runtime(bakery: &Bakery) -> Runtime {
    bakery_runtime(Arc::new(MemoryStore::new()), bakery).await.unwrap()
}

/// Runs one life of a program, which ends like a killed process: nothing of it runs any more.
fn life<T>(future: impl Future<Output = T>) -> T {
    let builder = &mut tokio::runtime::Builder::new_current_thread();
    let tokio = builder.enable_all().start_paused(true).build().unwrap();
    tokio.block_on(future)
}

/// Plays a story with a crash at one commit, and a second life after it. Returns whether it
/// crashed.
fn play(
    cut: CutPoint,
    bakery: &Bakery,
    story: impl AsyncFn(Runtime) -> Result<Arc<Outcome>, Refusal>,
) -> (bool, Arc<Outcome>) {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let crashing = CrashStore::new(store.clone(), Some(cut));
    let first = life(async {
        let all = async { story(bakery_runtime(crashing.clone(), bakery).await?).await };
        tokio::select! {
            () = crashing.wait_crashed() => None,
            outcome = all => Some(outcome.unwrap()),
        }
    });
    match first {
        Some(outcome) => (false, outcome),
        None => {
            let second = async { story(bakery_runtime(store, bakery).await?).await };
            (true, life(async { eventually(second).await.unwrap() }))
        }
    }
}

/// Plays a story once for each commit at which it can crash, before and after it is durable.
fn play_all(
    story: impl AsyncFn(Runtime) -> Result<Arc<Outcome>, Refusal>,
    check: impl Fn(&Bakery, &Outcome),
) {
    for durable in [false, true] {
        let mut crashes = 0;
        loop {
            let bakery = Bakery::default();
            let cut = CutPoint { commit: crashes, durable, mode: CutMode::Crash };
            let (crashed, outcome) = play(cut, &bakery, &story);
            check(&bakery, &outcome);
            if !crashed {
                break;
            }
            crashes += 1;
        }
        assert!(crashes >= 4, "open, spawn, handle and end are commits: {crashes}");
    }
}

#[test]
fn a_crash_at_any_commit_starts_remote_work_once_and_loses_no_result() {
    let story = async |runtime: Runtime| {
        let task = order(&runtime, 7).await?;
        Ok(task.wait().await?.outcome)
    };
    play_all(story, |bakery, outcome| {
        assert_eq!(*outcome, succeeded("\"7 loaves\""));
        assert_eq!(bakery.states(), [OrderState::Done], "one order, in both lives");
    });
}

#[test]
fn a_crash_at_any_commit_of_a_stop_leaves_no_remote_work_running() {
    let story = async |runtime: Runtime| {
        let task = order(&runtime, ENDLESS).await?;
        until_idle().await;
        task.stop(Some("enough")).await?;
        Ok(task.wait().await?.outcome)
    };
    play_all(story, |bakery, outcome| {
        assert_eq!(cancelled(outcome).order.reason.as_deref(), Some("enough"));
        assert_eq!(bakery.states(), [OrderState::Cancelled]);
    });
}

#[test]
fn a_stored_handle_is_polled_again_without_a_start() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let bakery = Bakery::default();
    life(async {
        let runtime = bakery_runtime(store.clone(), &bakery).await.unwrap();
        order(&runtime, 7).await.unwrap();
        bakery.until_polled().await;
    });
    let ended = life(async {
        let runtime = bakery_runtime(store, &bakery).await.unwrap();
        let task = order(&runtime, 7).await.unwrap();
        assert_eq!(task.get().await.unwrap().attempt.0, 1, "the attempt continues");
        outcome(&task).await
    });
    assert_eq!(*ended, succeeded("\"7 loaves\""));
    assert_eq!(bakery.calls("start"), 1);
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_up_to_the_longest_one() {
    let bakery = Bakery::default();
    let runtime = new_runtime(&bakery).await;
    order(&runtime, ENDLESS).await.unwrap();
    // Polls at 0, 1, 3, 7, 15, 31, and then every 30 seconds.
    tokio::time::sleep(Duration::from_millis(31_500)).await;
    assert_eq!(bakery.calls("poll"), 6);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bakery.calls("poll"), 8);
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_service_is_tried_again_and_a_refusal_fails_the_task() {
    let bakery = Bakery::default();
    bakery.fail_next(4);
    let runtime = new_runtime(&bakery).await;
    let task = order(&runtime, 7).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("\"7 loaves\""));
    assert_eq!(bakery.calls("start"), 5);
    let session = runtime.session("test").await.unwrap();
    for (payload, error) in [
        (NewTask::custom("bakery", 0), "the remote service refuses: nothing to bake"),
        (NewTask::custom("bakery", 13), "burnt"),
    ] {
        let task = session.spawn(payload).await.unwrap();
        assert_eq!(*outcome(&task).await, failed(error));
    }
    let task = session.spawn(NewTask::custom("bakery", "seven")).await.unwrap();
    let ended = outcome(&task).await;
    assert!(ended.to_string().starts_with("failed"), "{ended}");
    assert_eq!(bakery.calls("start"), 7, "a wrong payload reaches no service");
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_nobody_confirms_names_the_survivor() {
    let bakery = Bakery::default();
    let runtime = new_runtime(&bakery).await;
    let task = order(&runtime, ENDLESS).await.unwrap();
    bakery.until_polled().await;
    bakery.fail_next(u32::MAX);
    task.stop(None).await.unwrap();
    let ended = outcome(&task).await;
    let EndConfirmation::Survivors(survivors) = &cancelled(&ended).confirmation else {
        panic!("{ended:?}");
    };
    assert!(survivors[0].starts_with("remote work with the key"), "{survivors:?}");
}

#[tokio::test(start_paused = true)]
async fn a_further_run_is_other_remote_work() {
    let bakery = Bakery::default();
    let runtime = new_runtime(&bakery).await;
    let task = order(&runtime, 7).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("\"7 loaves\""));
    let session = runtime.session("test").await.unwrap();
    let operator = runtime.operator_session(session.id()).await.unwrap();
    operator.resume(task.no(), None).await.unwrap();
    let row = until(&operator, task.no(), "succeeded").await;
    assert_eq!(row.run.0, 2);
    assert_eq!(bakery.states(), [OrderState::Done, OrderState::Done]);
}
