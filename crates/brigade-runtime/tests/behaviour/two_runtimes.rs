//! Two runtimes on one store: a session has one writer, and each event one position.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::Lane;
use brigade_model::refusal::RefusalKind;
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{FeedUpdate, JobContext, JobError, NewTask, Runtime, RuntimeBuilder};
use brigade_store::{BoxFuture, EventQuery, MemoryStore, Store, TaskQuery};
use brigade_testkit::TestRuntime;
use tokio::task::JoinSet;

use crate::faulty_store::FaultyStore;
use crate::support::*;

/// Returns the number of events in a lane.
async fn event_count(store: &dyn Store, lane: Lane) -> u64 {
    store.cursor().await.unwrap().number_in(lane)
}

/// Returns a job that never ends, and counts how many of it are running.
fn endless(running: Arc<AtomicUsize>) -> impl Fn(JobContext, ()) -> BoxFuture<'static, Ended> {
    move |_, ()| {
        let guard = RunningGuard::new(running.clone());
        Box::pin(async move {
            let _guard = guard;
            std::future::pending().await
        })
    }
}

type Ended = Result<(), JobError>;

struct RunningGuard(Arc<AtomicUsize>);

impl RunningGuard {
    fn new(running: Arc<AtomicUsize>) -> Self {
        running.fetch_add(1, Ordering::SeqCst);
        Self(running)
    }
}

impl Drop for RunningGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_gives_up_a_session_that_another_one_has_acquired() {
    let store = Arc::new(MemoryStore::new());
    let here: Arc<AtomicUsize> = Arc::default();
    let there: Arc<AtomicUsize> = Arc::default();
    let with = |running: &Arc<AtomicUsize>| {
        let job = endless(running.clone());
        |b: RuntimeBuilder| b.job_named("endless", RecoveryPolicy::DEFAULT_RESUME, job)
    };
    let first = TestRuntime::on_store(store.clone(), with(&here)).await;
    let running = first.session.spawn(NewTask::job("endless", ())).await.unwrap();
    let no = running.no();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { running.wait().await });
    until_idle().await;
    assert_eq!(here.load(Ordering::SeqCst), 1);
    let second = TestRuntime::on_store(store.clone(), with(&there)).await;
    assert_eq!(second.session.id(), first.session.id());
    let of_first = event_count(&*store, Lane(0)).await;
    let refused_spawn = || async { first.session.spawn(returns(1)).await };
    // This would succeed if the first runtime took the epoch of the second one.
    let part = "another runtime has taken this session";
    refused(refused_spawn().await, RefusalKind::Conflict, part);
    refused(refused_spawn().await, RefusalKind::Conflict, part);
    let waited = eventually(waiting.join_next()).await.unwrap().unwrap();
    refused(waited, RefusalKind::Conflict, part);
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!((here.load(Ordering::SeqCst), there.load(Ordering::SeqCst)), (0, 1));
    assert_eq!(event_count(&*store, Lane(0)).await, of_first, "it has written nothing");
    second.session.stop(no, None).await.unwrap();
    eventually(second.session.wait_all([no])).await.unwrap();
    assert!(!first.session.get(no).await.unwrap().row.is_alive(), "it reads the store");
    let task = second.session.spawn(returns(2)).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("2"));
    first.runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lost_session_does_not_disturb_the_others() {
    let store = Arc::new(MemoryStore::new());
    let first = TestRuntime::with_one_loop(store.clone(), |b| b.max_batch(100)).await;
    let other = first.runtime.session("other").await.unwrap();
    let row = store.session(first.session.id()).await.unwrap().unwrap();
    store.acquire(Lane::default(), &row).await.unwrap();
    // Both are decided in one turn, and one of them fails their commit.
    let (lost, task) = tokio::join!(first.session.spawn(returns(1)), other.spawn(returns(2)));
    refused(lost, RefusalKind::Conflict, "another runtime has taken this session");
    assert_eq!(*outcome(&task.unwrap()).await, succeeded("2"));
    first.runtime.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_in_doubt_is_found_although_another_runtime_writes() {
    let memory = Arc::new(MemoryStore::new());
    let faulty = FaultyStore::new(memory.clone());
    let second = Runtime::builder().shared_store(memory.clone()).start().await.unwrap();
    let first = TestRuntime::with_one_loop(faulty.clone(), |b| b).await;
    let kitchen = second.session("kitchen").await.unwrap();
    let before = first.runtime.cursor();
    faulty.doubt_next_commit(async move {
        for _ in 0..3 {
            kitchen.spawn(returns(1)).await.unwrap();
        }
    });
    let task = first.session.spawn(returns(2)).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("2"));
    let mut feed = first.session.subscribe(before.clone());
    let FeedUpdate::Event(spawned) = eventually(feed.next()).await.unwrap().unwrap() else {
        panic!("a gap");
    };
    assert_eq!(spawned.position.no, before.number_in(Lane(1)) + 1);
    let query = EventQuery { session: Some(first.session.id()), after: before, limit: 1 };
    assert_eq!(memory.events(&query).await.unwrap().items, [spawned]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_commit_is_not_stored_later() {
    let memory = Arc::new(MemoryStore::new());
    let faulty = FaultyStore::new(memory.clone());
    let test = TestRuntime::on_store(faulty.clone(), |b| b).await;
    faulty.delay_next_commit();
    test.session.spawn(returns(1)).await.unwrap_err();
    let tasks = memory.tasks(test.session.id(), &TaskQuery::default()).await.unwrap();
    assert_eq!(tasks.len(), 0, "the refused task is stored");
    let task = test.session.spawn(returns(2)).await.unwrap();
    assert_eq!(*outcome(&task).await, succeeded("2"));
}

#[tokio::test(start_paused = true)]
async fn two_runtimes_that_open_a_name_get_one_session() {
    let memory = Arc::new(MemoryStore::new());
    let faulty = FaultyStore::new(memory.clone());
    let start = || Runtime::builder().shared_store(faulty.clone()).start();
    let first = start().await.unwrap();
    let second = start().await.unwrap();
    // Each looks the name up before the other one has committed.
    faulty.meet_before_commits(2);
    let (one, two) = tokio::join!(first.session("kitchen"), second.session("kitchen"));
    assert_eq!(one.unwrap().id(), two.unwrap().id());
    let names = memory.sessions().await.unwrap();
    assert_eq!(names.len(), 1, "{names:?}");
    let query = EventQuery { session: None, after: FeedCursor::START, limit: 10 };
    assert_eq!(memory.events(&query).await.unwrap().items.len(), 1);
}
