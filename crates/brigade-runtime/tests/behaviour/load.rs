//! Properties under load that need no clock: every request is answered, each task ends once, order is
//! kept, queues are bounded. The benchmark `load` of the crate `brigade` measures the times.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::TaskNo;
use brigade_model::refusal::RefusalKind;
use brigade_runtime::{NewTask, Session, TaskHandle};
use brigade_store::{EventQuery, MemoryStore, Store};
use brigade_testkit::{CrashStore, SlowStore, TestRuntime};
use futures_util::future::join_all;
use futures_util::poll;

use crate::support::*;

/// The largest number of inputs of one turn.
const TURN: usize = 1024;
/// The number of inputs that wait for the loop. Further callers wait themselves.
const QUEUE: usize = 16 * 1024;

/// Checks that each of these tasks has ended exactly once.
async fn check_ends(test: &TestRuntime, tasks: &[TaskHandle<impl Sized>]) {
    let mut ends: HashMap<TaskNo, usize> = HashMap::new();
    for record in test.events_after(FeedCursor::START).await {
        if let Event::Ended { no, .. } = record.event {
            *ends.entry(no).or_default() += 1;
        }
    }
    for task in tasks {
        assert_eq!(ends.remove(&task.no()), Some(1), "ends of task {}", task.no());
    }
    assert!(ends.is_empty(), "ends of other tasks: {ends:?}");
}

#[tokio::test(start_paused = true)]
async fn on_a_slow_store_all_requests_are_answered_in_order() {
    let store = SlowStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| b.max_batch(TURN)).await;
    store.slow_after(0, Duration::from_millis(20));
    let requests = (0..3 * TURN).map(|n| test.session.spawn(returns(n)));
    // Without a budget, so that the requests begin in this order.
    let tasks = tokio::task::unconstrained(eventually(join_all(requests))).await;
    let tasks: Vec<_> = tasks.into_iter().map(Result::unwrap).collect();
    let numbers: Vec<u32> = tasks.iter().map(|task| task.no().get()).collect();
    assert!(numbers.is_sorted_by(|one, next| one + 1 == *next), "{numbers:?}");
    for (n, task) in tasks.iter().enumerate() {
        assert_eq!(*outcome(task).await, succeeded(&n.to_string()));
    }
    check_ends(&test, &tasks).await;
}

/// Repeats a request until the store accepts it.
async fn spawn_repeatedly(session: &Session, n: usize) -> (TaskHandle<()>, usize) {
    let mut refusals = 0;
    loop {
        let task =
            NewTask::closure("nothing", |_| async { Ok::<_, brigade_runtime::JobError>(()) });
        match session.spawn(task.key(&n.to_string())).await {
            Ok(task) => return (task, refusals),
            Err(refusal) => assert_eq!(refusal.kind, RefusalKind::Unavailable, "{refusal}"),
        }
        refusals += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_repeated_through_an_outage_make_one_task_each() {
    const CLIENTS: usize = 200;
    let store = SlowStore::new(Arc::new(MemoryStore::new()));
    let test = TestRuntime::on_store(store.clone(), |b| b.max_batch(TURN)).await;
    store.set_away(true);
    let session = &test.session;
    let clients = join_all((0..CLIENTS).map(|n| async move {
        // Half of them begin after the outage.
        tokio::time::sleep(Duration::from_millis(20 * n as u64)).await;
        let (task, refusals) = spawn_repeatedly(session, n).await;
        assert!(task.wait().await.unwrap().outcome.is_success());
        (task, refusals)
    }));
    let (answered, ()) = tokio::join!(eventually(clients), async {
        tokio::time::sleep(2 * SECOND).await;
        store.set_away(false);
    });
    let (tasks, refusals): (Vec<_>, Vec<usize>) = answered.into_iter().unzip();
    assert!(refusals.iter().sum::<usize>() > 0, "nobody met the outage");
    check_ends(&test, &tasks).await;
}

#[tokio::test(start_paused = true)]
async fn requests_beyond_the_queue_wait_with_their_callers() {
    let store = CrashStore::new(Arc::new(MemoryStore::new()), None);
    let test = TestRuntime::on_store(store.clone(), |b| b.max_batch(TURN)).await;
    let held = store.hold_commits();
    let mut requests: Vec<_> =
        (0..QUEUE + 3 * TURN).map(|n| Box::pin(test.session.spawn(returns(n)))).collect();
    // Without a budget, since all of them are polled in one go.
    let begun = tokio::task::unconstrained(async {
        for request in &mut requests {
            assert!(poll!(request).is_pending());
        }
    });
    begun.await;
    held.wait_held().await;
    // Their callers give up while a commit is in progress.
    drop(requests);
    drop(held);
    until_idle().await;
    let tasks = test.session.spawn(returns("the next")).await.unwrap();
    assert_eq!(tasks.no().get() as usize, QUEUE + 1, "the queue has taken no more");
}

/// The order of the events tells the order of the decisions.
#[tokio::test(start_paused = true)]
async fn a_session_waits_only_for_inputs_that_came_before_its_own() {
    let store = Arc::new(MemoryStore::new());
    let test = TestRuntime::on_store(store.clone(), |b| b.max_batch(TURN)).await;
    let small = test.runtime.session("small").await.unwrap();
    let large = join_all((0..5 * TURN).map(|n| test.session.spawn(returns(n))));
    let spawned = small.spawn(returns("small"));
    tokio::task::unconstrained(async { tokio::join!(large, spawned) }).await.1.unwrap();
    let query = EventQuery { session: None, after: FeedCursor::START, limit: usize::MAX };
    let page = store.events(&query).await.unwrap();
    let before = page.items.iter().take_while(|item| match item.record.event {
        Event::Spawned(_) => item.record.session != small.id(),
        _ => true,
    });
    let ends = before.filter(|item| matches!(item.record.event, Event::Ended { .. })).count();
    assert_eq!(ends, 0, "the ends of the first tasks are inputs too, and came later");
}
