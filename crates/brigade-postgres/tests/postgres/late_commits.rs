//! Commits that arrive after their writer has given up waiting.

use std::sync::Arc;

use brigade_model::ids::{Epoch, SessionId, Time};
use brigade_model::limits::Limits;
use brigade_model::task_tree::ChangedRows;
use brigade_model::transition::{SessionOpening, open_session};
use brigade_postgres::PostgresStore;
use brigade_store::{Batch, SessionBatch, Store, StoreError};
use uuid::Uuid;

use crate::support::SERVER;

/// Returns a batch that opens a session.
fn opening(number: u128) -> SessionBatch {
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

#[tokio::test]
async fn a_commit_of_an_earlier_generation_is_refused() {
    let options = SERVER.new_schema();
    let writer = Arc::new(PostgresStore::open(&options).await.unwrap());
    let lane = writer.open_lane().await.unwrap();
    let first = Batch { lane, sessions: vec![opening(1)] };
    writer.commit(&first).await.unwrap();
    let cursor = writer.cursor().await.unwrap();
    // For the database, another connection is the same writer after a loss.
    let after_loss = PostgresStore::open(&options).await.unwrap();
    after_loss.refuse_late_commits(lane).await.unwrap();
    let late = Batch { lane, sessions: vec![opening(2)] };
    let refused = writer.commit(&late).await.unwrap_err();
    assert!(matches!(refused, StoreError::Fenced(_)), "{refused}");
    assert_eq!(writer.cursor().await.unwrap(), cursor);
    // The writer itself continues in the new generation.
    writer.refuse_late_commits(lane).await.unwrap();
    writer.commit(&late).await.unwrap();
    assert_eq!(writer.sessions().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_commit_that_has_begun_is_stored_or_refused() {
    let options = SERVER.new_schema();
    let store = PostgresStore::open(&options).await.unwrap();
    let lane = store.open_lane().await.unwrap();
    let batch = Batch { lane, sessions: vec![opening(1)] };
    // Whichever begins first, the commit is stored if and only if it has returned a position.
    for number in 2..40 {
        let racing = Batch { lane, sessions: vec![opening(number)] };
        let (committed, refused) =
            tokio::join!(store.commit(&racing), store.refuse_late_commits(lane));
        refused.unwrap();
        let is_stored = store.session(racing.sessions[0].row.id).await.unwrap().is_some();
        assert_eq!(committed.is_ok(), is_stored, "{committed:?}");
    }
    store.commit(&batch).await.unwrap();
}
