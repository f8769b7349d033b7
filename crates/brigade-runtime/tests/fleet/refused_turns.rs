//! Turns that the store refuses: what made it refuse is given up, and nobody else notices.

use std::time::Duration;

use brigade_runtime::Session;
use brigade_store::{AcquireResult, Fleet, OpenCallQuery, Store};
use tokio::time::Instant;

use crate::support::*;

/// Spawns without a pause for a moment, from several callers at once. Each spawn is accepted.
async fn spawn_steadily(session: &Session) {
    let until = Instant::now() + Duration::from_millis(20);
    let caller = async || {
        while Instant::now() < until {
            session.spawn(SLEEP.with(3600)).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::join!(caller(), caller(), caller());
}

#[tokio::test(start_paused = true)]
async fn a_removed_call_refuses_no_other_caller() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    one.connection.lose_hints();
    let here = one.session("kitchen").await;
    let other = one.session("cellar").await;
    let there = two.session("kitchen").await;
    let owner = one.runtime.nodes().await.unwrap().iter().find(|it| it.is_own).unwrap().row.id;
    let task = there.spawn(ECHO.with(())).await.unwrap();
    let echo = here.task(task.no()).await.unwrap();
    let waiting = tokio::time::timeout(60 * SECOND, task.wait());
    let removal = async {
        tokio::time::sleep(2 * SECOND).await;
        let query = OpenCallQuery { node: owner, after: None, limit: 10 };
        let open = fleet.store.open_calls(&query).await.unwrap();
        let calls: Vec<_> = open.iter().map(|call| call.id).collect();
        assert_eq!(calls.len(), 1, "the call of the wait");
        fleet.store.remove_calls(&calls).await.unwrap();
        // The task ends before the owner has noticed the removal.
        let (sent, (), ()) =
            tokio::join!(echo.send("done"), spawn_steadily(&here), spawn_steadily(&other));
        sent.unwrap();
    };
    let (result, ()) = tokio::join!(waiting, removal);
    let result = result.expect("a wait is asked again").unwrap();
    assert!(!result.collected_before, "the removed call has consumed nothing");
}

#[tokio::test(start_paused = true)]
async fn a_fenced_session_refuses_no_other_caller() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let fenced = one.session("kitchen").await;
    let other = one.session("cellar").await;
    other.spawn(SLEEP.with(3600)).await.unwrap();
    let lane = fleet.store.cursor().await.unwrap().positions()[0].lane;
    for _ in 0..3 {
        // A new epoch refuses the next commit with this session.
        let row = fleet.store.session(fenced.id()).await.unwrap().unwrap();
        let acquired = fleet.store.acquire(lane, &row).await.unwrap();
        assert!(matches!(acquired, AcquireResult::Acquired(_)));
        let before = other.list().len();
        let spawns = (0..20).map(|_| other.spawn(SLEEP.with(3600)));
        let (spawned, others) = tokio::join!(
            fenced.spawn(SLEEP.with(3600)),
            futures_util::future::try_join_all(spawns)
        );
        assert_eq!(others.unwrap().len(), 20, "they are decided again");
        spawned.expect("the session is acquired again, and its request decided");
        assert_eq!(other.list().len(), before + 20, "nothing was stored twice");
    }
}
