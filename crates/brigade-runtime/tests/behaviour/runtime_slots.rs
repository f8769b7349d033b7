//! The running limit of the whole runtime, with several sessions.

use std::sync::Arc;

use brigade_model::ids::TaskNo;
use brigade_model::task::{QueueReason, StoredTask, TaskState};
use brigade_runtime::{Job, JobContext, JobError, NewTask, Runtime, RuntimeBuilder, Session};
use brigade_store::{MemoryStore, Store};
use brigade_testkit::{CrashStore, CutMode, CutPoint, PausedClock, TestRuntime, with_test_loops};
use tokio_util::sync::CancellationToken;

use crate::support::*;

async fn runtime(store: Arc<dyn Store>, max: Option<u32>, gate: &CancellationToken) -> Runtime {
    let clock = Arc::new(PausedClock::starting_at(TestRuntime::START));
    let builder = with_test_loops(Runtime::builder(), &*store).await;
    let builder = builder.shared_store(store).clock(clock);
    let builder = match max {
        Some(max) => builder.max_running(max),
        None => builder,
    };
    with_jobs(builder, gate).start().await.unwrap()
}

/// Registers a job that waits for the gate without suspending, and a parent that awaits a child.
fn with_jobs(builder: RuntimeBuilder, gate: &CancellationToken) -> RuntimeBuilder {
    let gate = gate.clone();
    let cook = move |_: JobContext, dish: u32| {
        let gate = gate.clone();
        async move {
            gate.cancelled().await;
            Ok::<_, JobError>(dish)
        }
    };
    let parent = |ctx: JobContext, depth: u32| async move {
        let child = match depth {
            0 => NewTask::job("cook", 7),
            _ => NewTask::job("parent", depth - 1),
        };
        let child = ctx.spawn(child).await?;
        let end = ctx.wait_all([&child]).await?;
        Ok::<_, JobError>(end[0].outcome.to_string())
    };
    builder.job(Job::new("cook"), cook).job(Job::new("parent"), parent)
}

async fn queue_reason(session: &Session, no: TaskNo) -> QueueReason {
    let row = session.get(no).await.unwrap().row;
    match &row.state {
        TaskState::Queued(queued) => queued.reason.clone(),
        other => panic!("{no} is {}", other.label()),
    }
}

fn running(session: &Session) -> usize {
    session.list().iter().filter(|task| task.row.state.label() == "running").count()
}

#[tokio::test(start_paused = true)]
async fn tasks_of_all_sessions_share_the_slots_and_queue_with_the_reason() {
    let gate = CancellationToken::new();
    let runtime = runtime(Arc::new(MemoryStore::new()), Some(2), &gate).await;
    let [one, two] = [runtime.session("one").await.unwrap(), runtime.session("two").await.unwrap()];
    let a = one.spawn(NewTask::job("cook", 1)).await.unwrap();
    let b = two.spawn(NewTask::job("cook", 2)).await.unwrap();
    let c = two.spawn(NewTask::job("cook", 3)).await.unwrap();
    assert_eq!(state(&one, a.no()).await, "running");
    assert_eq!(state(&two, b.no()).await, "running");
    assert_eq!(queue_reason(&two, c.no()).await, QueueReason::RuntimeLimit);
    // A slot that becomes free in one session starts a task of the other.
    a.stop(None).await.unwrap();
    until(&two, c.no(), "running").await;
    gate.cancel();
    assert_eq!(*outcome(&c).await, succeeded("3"));
}

#[tokio::test(start_paused = true)]
async fn sessions_take_turns_so_that_none_starves() {
    let runtime = runtime(Arc::new(MemoryStore::new()), Some(1), &CancellationToken::new()).await;
    let [many, few] =
        [runtime.session("many").await.unwrap(), runtime.session("few").await.unwrap()];
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let first = CancellationToken::new();
    let blocker = many.spawn(behind(&first)).await.unwrap();
    let logs = |name: &'static str| {
        let order = order.clone();
        NewTask::closure(name, move |_| async move {
            order.lock().unwrap().push(name);
            Ok::<_, JobError>(())
        })
        .erase()
    };
    let mut last = blocker;
    for _ in 0..4 {
        last = many.spawn(logs("many")).await.unwrap();
    }
    few.spawn(logs("few")).await.unwrap();
    few.spawn(logs("few")).await.unwrap();
    first.cancel();
    outcome(&last).await;
    assert_eq!(*order.lock().unwrap(), ["many", "few", "many", "few", "many", "many"]);
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_parents_needs_only_one_slot() {
    let gate = CancellationToken::new();
    gate.cancel();
    let runtime = runtime(Arc::new(MemoryStore::new()), Some(1), &gate).await;
    let session = runtime.session("test").await.unwrap();
    let top = session.spawn(NewTask::job("parent", 3)).await.unwrap();
    assert_eq!(*outcome(&top).await, succeeded("\"succeeded\""));
}

#[tokio::test(start_paused = true)]
async fn tasks_that_queue_for_the_runtime_survive_a_restart_with_any_limit() {
    for next_max in [Some(1), Some(3), None] {
        let store = Arc::new(MemoryStore::new());
        let gate = CancellationToken::new();
        let first = runtime(store.clone(), Some(1), &gate).await;
        let [one, two] = [first.session("one").await.unwrap(), first.session("two").await.unwrap()];
        one.spawn(NewTask::job("cook", 1)).await.unwrap();
        for dish in [2, 3] {
            two.spawn(NewTask::job("cook", dish)).await.unwrap();
        }
        drop((first, one, two));
        until_idle().await;
        let next = runtime(store, next_max, &gate).await;
        let [one, two] = [next.session("one").await.unwrap(), next.session("two").await.unwrap()];
        until_idle().await;
        let most = next_max.map_or(3, |max| max as usize);
        assert_eq!(running(&one) + running(&two), most, "{next_max:?}");
        for StoredTask { row, .. } in two.list() {
            assert_eq!(row.crashes, 0, "a queued task has not crashed");
        }
        gate.cancel();
        for (session, no) in [(&one, 1), (&two, 1), (&two, 2)] {
            let ended = eventually(session.wait_all([number(no)])).await.unwrap();
            assert!(ended[0].outcome.is_success());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_starts_nothing_that_queues_for_the_runtime() {
    let store = Arc::new(MemoryStore::new());
    let gate = CancellationToken::new();
    let runtime = runtime(store.clone(), Some(1), &gate).await;
    let session = runtime.session("test").await.unwrap();
    session.spawn(NewTask::job("cook", 1)).await.unwrap();
    let queued = session.spawn(NewTask::job("cook", 2)).await.unwrap();
    runtime.shutdown().await.unwrap();
    let row = store.task(session.id(), queued.no()).await.unwrap().unwrap();
    assert_eq!(row.state.label(), "queued");
    assert_eq!(row.attempt.0, 0, "it never started");
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_loses_no_slot() {
    for commit in 0..12 {
        for durable in [false, true] {
            let cut = CutPoint { commit, durable, mode: CutMode::Fail };
            let store = CrashStore::new(Arc::new(MemoryStore::new()), Some(cut));
            let gate = CancellationToken::new();
            let runtime = runtime(store, Some(1), &gate).await;
            let mut tasks = Vec::new();
            for name in ["one", "two", "one", "two"] {
                let session = retry(async || runtime.session(name).await).await;
                let dish = NewTask::job("cook", 1);
                let task = retry(async || {
                    session.spawn(dish.clone().key(&format!("{name} {}", tasks.len()))).await
                })
                .await;
                tasks.push(task);
            }
            gate.cancel();
            for task in tasks {
                let result = retry(async || eventually(task.wait()).await).await;
                assert_eq!(*result.outcome, succeeded("1"), "cut {commit}, {durable}");
            }
        }
    }
}

/// Repeats a request that the store failed to take.
async fn retry<T>(
    mut request: impl AsyncFnMut() -> Result<T, brigade_model::refusal::Refusal>,
) -> T {
    loop {
        match request().await {
            Ok(done) => return done,
            Err(refusal) => assert_eq!(refusal.kind, UNAVAILABLE, "{refusal}"),
        }
    }
}
