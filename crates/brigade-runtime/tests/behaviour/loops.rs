//! Several loops in one runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Seq, SessionId};
use brigade_runtime::{
    FeedUpdate, JobContext, JobError, NewTask, Runtime, RuntimeBuilder, Session,
};
use brigade_sqlite::SqliteStore;
use brigade_store::{MemoryStore, Store};
use brigade_testkit::{PausedClock, SlowStore, TestRuntime};
use futures_util::future::join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::support::*;

const LOOPS: usize = 3;

fn builder(store: Arc<dyn Store>) -> RuntimeBuilder {
    let clock = Arc::new(PausedClock::starting_at(TestRuntime::START));
    Runtime::builder().shared_store(store).clock(clock).loops(LOOPS)
}

async fn runtime() -> Runtime {
    builder(Arc::new(MemoryStore::new())).start().await.unwrap()
}

/// Opens sessions, enough for every loop to have some.
async fn sessions(runtime: &Runtime) -> Vec<Session> {
    let opened = (0..12).map(|at| async move { runtime.session(&format!("session {at}")).await });
    join_all(opened).await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test(start_paused = true)]
async fn a_slow_commit_delays_only_the_sessions_of_its_loop() {
    let store = SlowStore::new(Arc::new(MemoryStore::new()));
    let runtime = builder(store.clone()).start().await.unwrap();
    let sessions = sessions(&runtime).await;
    store.slow_after(0, SECOND);
    let begun = Instant::now();
    let spawned = sessions.iter().enumerate().map(|(at, session)| async move {
        tokio::time::sleep(Duration::from_millis(if at == 0 { 0 } else { 500 })).await;
        session.spawn(forever()).await.unwrap();
        begun.elapsed().as_millis()
    });
    let times = join_all(spawned).await;
    assert_eq!(times[0], 1_000);
    let count = |time| times.iter().filter(|it| **it == time).count();
    // The others begin their commits at once, or after that of the first session.
    assert!(count(1_500) > 0 && count(2_000) > 0, "{times:?}");
    assert_eq!(count(1_000) + count(1_500) + count(2_000), times.len(), "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn requests_for_one_name_find_one_session() {
    let runtime = runtime().await;
    let opened = join_all((0..20).map(|_| runtime.session("kitchen"))).await;
    let ids: Vec<SessionId> = opened.into_iter().map(|session| session.unwrap().id()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[tokio::test(start_paused = true)]
async fn sessions_continue_with_another_number_of_loops() {
    let store = Arc::new(MemoryStore::new());
    let mut ids = Vec::new();
    for loops in [1, 5, 2] {
        let runtime = builder(store.clone()).loops(loops).start().await.unwrap();
        let sessions = sessions(&runtime).await;
        let found: Vec<SessionId> = sessions.iter().map(Session::id).collect();
        assert!(ids.is_empty() || ids == found);
        ids = found;
        for session in &sessions {
            let task = session.spawn(returns(loops)).await.unwrap();
            assert_eq!(*outcome(&task).await, succeeded(&loops.to_string()));
            // A request by id reaches the loop as well as one by name.
            let operator = runtime.operator_session(session.id()).await.unwrap();
            operator.spawn(forever()).await.unwrap();
        }
        runtime.shutdown().await.unwrap();
    }
    // All that ran was ended by the shutdowns of all loops.
    let runtime = builder(store).start().await.unwrap();
    for session in sessions(&runtime).await {
        assert!(session.list().iter().all(|task| !task.row.is_alive()));
    }
}

/// Counts the bodies that run at once.
#[derive(Default)]
struct RunningCount {
    now: AtomicUsize,
    most: AtomicUsize,
    total: AtomicUsize,
}

fn counted(count: &Arc<RunningCount>) -> NewTask {
    let count = count.clone();
    NewTask::closure("counted", move |_: JobContext| async move {
        let now = count.now.fetch_add(1, Ordering::SeqCst) + 1;
        count.most.fetch_max(now, Ordering::SeqCst);
        count.total.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(10)).await;
        count.now.fetch_sub(1, Ordering::SeqCst);
        Ok::<_, JobError>(())
    })
    .erase()
}

async fn run_counted(runtime: Runtime, max: usize) {
    let count = Arc::new(RunningCount::default());
    let sessions = sessions(&runtime).await;
    let work = sessions.iter().map(|session| async {
        let tasks = (0..10).map(|_| async { session.spawn(counted(&count)).await.unwrap() });
        let tasks = join_all(tasks).await;
        session.wait_all(tasks.iter().map(|task| task.no())).await.unwrap();
    });
    join_all(work).await;
    assert_eq!(count.total.load(Ordering::SeqCst), 10 * sessions.len());
    assert_eq!(count.most.load(Ordering::SeqCst), max);
}

#[tokio::test(start_paused = true)]
async fn all_loops_share_the_running_limit() {
    let store = Arc::new(MemoryStore::new());
    run_counted(builder(store).max_running(2).start().await.unwrap(), 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn loops_on_several_threads_never_start_more_than_the_limit() {
    for max in [1, 3] {
        let builder = Runtime::builder().loops(LOOPS).max_running(u32::try_from(max).unwrap());
        soon(run_counted(builder.start().await.unwrap(), max)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_of_different_loops_take_turns() {
    let store = Arc::new(MemoryStore::new());
    let runtime = builder(store).max_running(1).start().await.unwrap();
    let sessions = sessions(&runtime).await;
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (at, session) in sessions.iter().enumerate() {
        for _ in 0..3 {
            let order = order.clone();
            let task = NewTask::closure("turn", move |_: JobContext| async move {
                order.lock().unwrap().push(at);
                tokio::time::sleep(SECOND).await;
                Ok::<_, JobError>(())
            });
            tasks.push(session.spawn(task).await.unwrap());
        }
    }
    join_all(tasks.iter().map(outcome)).await;
    let order = order.lock().unwrap().clone();
    assert_eq!(order.len(), 3 * sessions.len());
    // The first task starts at once, so its session has one turn more in the first round.
    for round in order[1..].chunks_exact(sessions.len()) {
        let mut seen = round.to_vec();
        seen.sort_unstable();
        assert_eq!(seen, (0..sessions.len()).collect::<Vec<_>>(), "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_tasks_that_queue_behind_those_of_another_loop() {
    let store = Arc::new(MemoryStore::new());
    let runtime = builder(store).max_running(1).start().await.unwrap();
    let sessions = sessions(&runtime).await;
    let gate = CancellationToken::new();
    let first = sessions[0].spawn(behind(&gate)).await.unwrap();
    let queued = join_all(sessions[1..].iter().map(|session| session.spawn(behind(&gate)))).await;
    let open = async {
        tokio::time::sleep(SECOND).await;
        gate.cancel();
    };
    let (drained, ()) = tokio::join!(runtime.drain(60 * SECOND), open);
    assert!(drained.unwrap().alive.is_empty());
    assert_eq!(*outcome(&first).await, succeeded("\"through\""));
    assert_eq!(queued.len(), sessions.len() - 1);
    let refusal = sessions[5].spawn(forever()).await;
    refused(refusal, UNAVAILABLE, "drains");
}

#[tokio::test(start_paused = true)]
async fn the_feed_has_the_events_of_all_loops_in_the_order_of_each_session() {
    let store = Arc::new(MemoryStore::new());
    let runtime = builder(store).start().await.unwrap();
    let mut live = runtime.subscribe(runtime.cursor());
    let sessions = sessions(&runtime).await;
    let mut middle = FeedCursor::START;
    for round in 0..3 {
        let spawned = sessions.iter().map(|session| async move {
            let task = session.spawn(returns(round)).await.unwrap();
            outcome(&task).await
        });
        join_all(spawned).await;
        if round == 1 {
            middle = runtime.cursor();
        }
    }
    let end = runtime.cursor();
    let all = read_to(&mut live, &end).await;
    assert_eq!(all.len(), sessions.len());
    for (session, seqs) in &all {
        assert!(
            seqs.iter().enumerate().all(|(at, seq)| seq.0 == at as u64 + 1),
            "{session} {seqs:?}"
        );
    }
    let mut reader = runtime.subscribe(FeedCursor::START);
    let early = read_to(&mut reader, &middle).await;
    let late = read_to(&mut runtime.subscribe(reader.cursor()), &end).await;
    for (session, seqs) in &all {
        let late = late.get(session).map_or(&[][..], Vec::as_slice);
        assert_eq!([&early[session], late].concat(), *seqs);
    }
    runtime.shutdown().await.unwrap();
    // The events of the shutdown, and then the end after the last loop.
    while let Some(update) = live.next().await {
        let FeedUpdate::Event(item) = update.unwrap() else { panic!("a gap") };
        assert!(!matches!(item.record.event, Event::Spawned(_)));
    }
}

/// Reads up to a place. Returns the numbers of each session's events.
async fn read_to(
    feed: &mut brigade_runtime::FeedSubscription,
    end: &FeedCursor,
) -> BTreeMap<SessionId, Vec<Seq>> {
    let mut read = BTreeMap::<SessionId, Vec<Seq>>::new();
    while let Some(update) = feed.next_until(end).await.unwrap() {
        let FeedUpdate::Event(item) = update else { panic!("a gap") };
        read.entry(item.record.session).or_default().push(item.record.seq);
    }
    read
}

#[tokio::test]
async fn a_wrong_number_of_loops_is_refused() {
    for loops in [0, 17] {
        refused(Runtime::builder().loops(loops).start().await, INVALID, "1 to 16 loops");
    }
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("store.db")).unwrap();
    refused(Runtime::builder().store(store).loops(2).start().await, INVALID, "one writer");
}
