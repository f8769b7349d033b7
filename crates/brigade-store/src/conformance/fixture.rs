//! A stored session that used every feature of the model: the content of databases that are kept to
//! test migrations.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::folding::{CommitCheck, check_folded, fold};
use super::scenario::{limits, play_scenario};
use super::writer::{SessionWriter, all_events, session_id};
use crate::store::{Store, TaskQuery};

const FIXTURE_SESSION: u128 = 1;

/// Writes the session into an empty store.
pub async fn write_fixture(store: &Arc<dyn Store>) {
    let writer = SessionWriter::open(store, FIXTURE_SESSION, limits()).await;
    play_scenario(writer, None).await;
}

/// Reads everything that [`write_fixture`] of an earlier version stored. Checks that its rows equal
/// its events, applied by this version.
pub async fn check_fixture(store: &Arc<dyn Store>) {
    let id = session_id(FIXTURE_SESSION);
    let events = all_events(&**store, Some(id)).await.expect("events are read");
    let tree = fold(&events);
    let now = tree.row().now;
    let writer = SessionWriter {
        store: store.clone(),
        tree,
        now,
        journals: BTreeMap::new(),
        check: CommitCheck::Nothing,
    };
    check_folded(&writer).await;
    let tasks = store.tasks(id, &TaskQuery::default()).await.expect("tasks are read");
    assert!(tasks.len() > 10, "the scenario has many tasks");
    for (no, row) in tasks {
        let journal = store.journal(id, no).await.expect("a journal is read");
        assert_eq!(journal.len(), row.journal_len as usize, "the journal of {no}");
    }
}
