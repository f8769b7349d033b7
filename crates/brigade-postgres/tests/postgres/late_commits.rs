//! Commits that arrive after their writer has given up waiting.

use std::time::Duration;

use brigade_model::ids::{Epoch, Lane, SessionId, Time};
use brigade_model::limits::Limits;
use brigade_model::task_tree::ChangedRows;
use brigade_model::transition::{SessionOpening, open_session};
use brigade_postgres::PostgresStore;
use brigade_store::{Batch, SessionBatch, Store, StoreError};
use uuid::Uuid;

use crate::support::SERVER;

/// Returns a batch that opens a session.
pub(crate) fn opening(number: u128) -> SessionBatch {
    let (mut tree, record) = open_session(SessionOpening {
        id: SessionId::from_uuid(Uuid::from_u128(number)),
        name: format!("session {number}").parse().unwrap(),
        limits: Limits::default(),
        at: Time(1_000),
        epoch: Epoch::FIRST,
    });
    let ChangedRows { tasks, messages } = tree.take_dirty();
    let row = tree.row().clone();
    let events = vec![record];
    SessionBatch { row, base: Default::default(), events, tasks, journal: Vec::new(), messages }
}

fn one(lane: Lane, round: u128) -> Batch {
    Batch { lane, sessions: vec![opening(round)], ..Batch::default() }
}

#[tokio::test]
async fn a_commit_of_an_earlier_generation_is_refused() {
    let options = SERVER.new_schema().schema("earlier").unwrap();
    let store = PostgresStore::open(&options).await.unwrap();
    let lane = store.open_lane().await.unwrap();
    store.commit(&one(lane, 1)).await.unwrap();
    let cursor = store.cursor().await.unwrap();
    SERVER.execute("UPDATE earlier.lanes SET generation = 1");
    let refused = store.commit(&one(lane, 2)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced(_)), "{refused}");
    assert_eq!(store.cursor().await.unwrap(), cursor);
}

#[tokio::test]
async fn a_lost_commit_is_refused_later_and_the_writer_continues() {
    let options = SERVER.new_schema().schema("lost").unwrap();
    let store = PostgresStore::open(&options).await.unwrap();
    let lane = store.open_lane().await.unwrap();
    // Nothing is in doubt, so nothing is written.
    store.refuse_late_commits(lane).await.unwrap();
    assert_eq!(SERVER.execute("SELECT generation FROM lost.lanes"), "0");
    for round in 1..4 {
        // The first statement of the commit waits, and its server process is ended.
        let mut blocker = SERVER.hold_lock("SELECT FROM lost.lanes FOR UPDATE");
        let batch = one(lane, round);
        let (lost, ()) = tokio::join!(store.commit(&batch), async {
            let waiting = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                           WHERE wait_event_type = 'Lock' AND query LIKE '%\"lost\".commit_batch%'";
            while SERVER.execute(waiting) == "0" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let lost = lost.unwrap_err();
        assert!(matches!(lost, StoreError::Unavailable(_)), "{lost}");
        blocker.release();
        store.refuse_late_commits(lane).await.unwrap();
        assert_eq!(SERVER.execute("SELECT generation FROM lost.lanes"), round.to_string());
        assert_eq!(store.session(batch.sessions[0].row.id).await.unwrap(), None);
        store.commit(&batch).await.unwrap();
    }
}
