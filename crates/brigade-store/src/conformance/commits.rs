//! Checks that a batch is written whole or not at all, in order, by one writer.

use std::sync::Arc;

use brigade_model::command::{Caller, CloseCommand, Command, SpawnCommand};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Epoch, Lane, Position, Seq};
use brigade_model::limits::Limits;
use tokio::task::JoinSet;

use super::StoreHarness;
use super::folding::CommitCheck;
use super::writer::{EPOCH, SessionWriter, all_events, job, position, session_id};
use crate::batch::{Batch, SessionBatch};
use crate::error::StoreError;
use crate::store::{AcquireResult, EventQuery, Store, TaskQuery};

/// Checks that the events of a batch get consecutive positions in its order, across sessions.
pub async fn a_batch_over_several_sessions_is_one_commit(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let (mut first, one) = SessionWriter::begin(&store, 1, Limits::default());
    let (mut second, two) = SessionWriter::begin(&store, 2, Limits::default());
    let opened = Batch { sessions: vec![one, two], ..Batch::default() };
    assert_eq!(commit(&store, &opened).await, position(1));
    let spawned = Batch {
        sessions: vec![spawn(&mut second).await, spawn(&mut first).await],
        ..Batch::default()
    };
    assert_eq!(commit(&store, &spawned).await, position(3));
    drop((first, second));
    for _ in 0..2 {
        let query = EventQuery { session: None, after: FeedCursor::START, limit: 100 };
        let page = store.events(&query).await.expect("events are read");
        let expected: Vec<_> = opened.events().chain(spawned.events()).cloned().collect();
        let positions: Vec<u64> = page.items.iter().map(|item| item.position.no).collect();
        assert_eq!(positions, (1..=expected.len() as u64).collect::<Vec<_>>());
        let records: Vec<_> = page.items.into_iter().map(|item| item.record).collect();
        assert_eq!(records, expected);
        let sessions = store.sessions().await.expect("sessions are read");
        let ids: Vec<_> = sessions.iter().map(|row| row.id).collect();
        assert_eq!(ids, [session_id(1), session_id(2)]);
        store = harness.reopen(store).await;
    }
}

/// Checks that an empty commit returns the next position and writes nothing.
pub async fn an_empty_batch_changes_nothing(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    assert_eq!(commit(&store, &Batch::default()).await, position(1));
    SessionWriter::open(&store, 1, Limits::default()).await;
    assert_eq!(commit(&store, &Batch::default()).await, position(2));
    assert_eq!(store.cursor().await.expect("a cursor"), position(1).into());
}

pub async fn a_wrong_base_is_refused_and_changes_nothing(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    let part = spawn(&mut writer).await;
    for base in [Seq(0), part.base.next(), Seq(u64::from(u32::MAX))] {
        assert_refused(&store, SessionBatch { base, ..part.clone() }).await;
    }
    let unknown =
        SessionBatch { row: SessionWriter::begin(&store, 2, Limits::default()).1.row, ..part };
    assert_refused(&store, unknown).await;
}

pub async fn a_wrong_epoch_is_refused_and_changes_nothing(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    let part = spawn(&mut writer).await;
    for epoch in [Epoch(EPOCH.0 - 1), EPOCH.next()] {
        let mut part = part.clone();
        part.row.epoch = epoch;
        assert_refused(&store, part).await;
    }
    commit(&store, &Batch { sessions: vec![part], ..Batch::default() }).await;
}

pub async fn one_refused_session_refuses_the_batch(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let mut first = SessionWriter::open(&store, 1, Limits::default()).await;
    let mut second = SessionWriter::open(&store, 2, Limits::default()).await;
    let good = spawn(&mut first).await;
    let mut bad = spawn(&mut second).await;
    bad.base = bad.base.next();
    let before = snapshot(&store).await;
    let result = store.commit(&Batch { sessions: vec![good, bad], ..Batch::default() }).await;
    assert!(matches!(result, Err(StoreError::Fenced(_))), "{result:?}");
    assert_eq!(snapshot(&store).await, before);
}

/// Commits from many writers that continue after the same event of one session.
pub async fn one_of_several_concurrent_writers_wins(harness: &dyn StoreHarness) {
    const WRITERS: usize = 8;
    let store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    for round in 1..=20 {
        let mut racing = JoinSet::new();
        for _ in 0..WRITERS {
            let store = store.clone();
            let mut rival = SessionWriter {
                store: store.clone(),
                tree: writer.tree.clone(),
                journals: Default::default(),
                ..writer
            };
            let batch = Batch { sessions: vec![spawn(&mut rival).await], ..Batch::default() };
            racing.spawn(async move { (store.commit(&batch).await, rival.tree) });
        }
        let mut won = 0;
        while let Some(done) = racing.join_next().await {
            match done.expect("a writer does not panic") {
                (Ok(_), tree) => {
                    won += 1;
                    writer.tree = tree;
                }
                (Err(StoreError::Fenced(_)), _) => {}
                (Err(error), _) => panic!("{error}"),
            }
        }
        assert_eq!(won, 1, "in round {round}");
    }
    let rows = store.tasks(session_id(1), &TaskQuery::default()).await.expect("tasks are read");
    assert_eq!(rows.len(), 20);
    assert_eq!(all_events(&*store, None).await.expect("events are read").len(), 21);
}

/// Checks that the acquisition of a session ends the writing of earlier writers, and that it is
/// stored. It fails if the session has changed meanwhile.
pub async fn an_acquired_session_has_one_writer(harness: &dyn StoreHarness) {
    let mut store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    writer.spawn(Caller::Operator, job()).await;
    for _ in 0..2 {
        let loaded = store.load(session_id(1)).await.expect("a load").expect("the session");
        writer.spawn(Caller::Operator, job()).await;
        let stale = store.acquire(Lane::default(), &loaded.row).await.expect("it is asked");
        assert_eq!(stale, AcquireResult::Changed);
        let mut loaded = store.load(session_id(1)).await.expect("a load").expect("the session");
        let acquired = store.acquire(Lane::default(), &loaded.row).await.expect("it is acquired");
        let AcquireResult::Acquired(acquired) = acquired else { panic!("it is {acquired:?}") };
        assert_eq!(acquired.epoch, writer.tree.row().epoch.next());
        let again = store.acquire(Lane::default(), &loaded.row).await.expect("it is asked");
        assert_eq!(again, AcquireResult::Changed);
        loaded.row.epoch = loaded.row.epoch.next();
        assert_refused(&store, spawn(&mut writer).await).await;
        let now = writer.now;
        drop(writer);
        store = harness.reopen(store).await;
        writer = SessionWriter {
            store: store.clone(),
            lane: Lane::default(),
            tree: loaded.into_tree(),
            now,
            journals: Default::default(),
            check: CommitCheck::Nothing,
        };
        writer.spawn(Caller::Operator, job()).await;
    }
}

/// Checks that two sessions that are not closed have different names, and that the name of a closed
/// one is free.
pub async fn a_name_belongs_to_one_session(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let limits = Limits::default;
    let (mut first, opened) = SessionWriter::begin_named(&store, 1, "kitchen", limits());
    commit(&store, &Batch { sessions: vec![opened], ..Batch::default() }).await;
    let (_, second) = SessionWriter::begin_named(&store, 2, "kitchen", limits());
    let batch = Batch { sessions: vec![second], ..Batch::default() };
    let before = snapshot(&store).await;
    let result = store.commit(&batch).await;
    assert!(matches!(result, Err(StoreError::NameTaken(_))), "{result:?}");
    assert_eq!(snapshot(&store).await, before);
    let close = CloseCommand { caller: Caller::Operator, reason: None };
    first.submit(Command::Close(close)).await;
    commit(&store, &batch).await;
}

/// Checks that a session's row and tasks are of the same commit while a writer is at work.
pub async fn readers_see_whole_commits(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    let mut readers = JoinSet::new();
    for _ in 0..2 {
        let store = store.clone();
        readers.spawn(async move {
            loop {
                let loaded = store.load(session_id(1)).await.expect("a load");
                let loaded = loaded.expect("the session is there");
                assert_eq!(loaded.row.seq.0, loaded.tasks.len() as u64 + 1);
                if loaded.tasks.len() == 100 {
                    return;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    for _ in 0..100 {
        writer.spawn(Caller::Operator, job()).await;
    }
    while let Some(done) = readers.join_next().await {
        done.expect("a reader saw whole commits only");
    }
}

async fn spawn(writer: &mut SessionWriter) -> SessionBatch {
    let spawn = SpawnCommand { caller: Caller::Operator, spec: Arc::new(job()), call: None };
    writer.decide(&Command::Spawn(spawn)).await.1
}

async fn commit(store: &Arc<dyn Store>, batch: &Batch) -> Position {
    store.commit(batch).await.expect("the batch is committed")
}

async fn assert_refused(store: &Arc<dyn Store>, part: SessionBatch) {
    let before = snapshot(store).await;
    let result = store.commit(&Batch { sessions: vec![part], ..Batch::default() }).await;
    assert!(matches!(result, Err(StoreError::Fenced(_))), "{result:?}");
    assert_eq!(snapshot(store).await, before);
}

async fn snapshot(store: &Arc<dyn Store>) -> String {
    let mut text = String::new();
    for row in store.sessions().await.expect("sessions are read") {
        let tasks = store.tasks(row.id, &TaskQuery::default()).await.expect("tasks are read");
        text.push_str(&format!("{row:?} {tasks:?}\n"));
    }
    let events = all_events(&**store, None).await.expect("events are read");
    format!("{text}{events:?}")
}
