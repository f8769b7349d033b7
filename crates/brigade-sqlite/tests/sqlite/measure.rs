//! Measures commits, loads and reads. Run it by hand, in release mode:
//! `cargo test --release -p brigade-sqlite --test sqlite -- --ignored --nocapture --test-threads 1`

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Session, batch, id, open};
use brigade_model::task::StoredTask;
use brigade_store::{Batch, Store, codec};
use rusqlite::Connection;
use tempfile::TempDir;

const BATCHES: usize = 1_000;
const TASKS_PER_BATCH: usize = 100;

/// Compares commits with bare inserts: an event and a task for each spawn, the session for each
/// batch.
#[tokio::test]
#[ignore = "a measurement"]
async fn commits_beside_bare_inserts() {
    let dir = TempDir::new().unwrap();
    let (mut session, opened) = Session::open(1);
    let batches: Vec<Batch> = (0..BATCHES).map(|_| batch(session.spawn(TASKS_PER_BATCH))).collect();
    let mut best_store = Duration::MAX;
    let mut best_bare = Duration::MAX;
    for round in 0..3 {
        let store = open(&dir.path().join(format!("store {round}.db"))).unwrap();
        store.commit(&batch(opened.clone())).await.unwrap();
        let started_at = Instant::now();
        for batch in &batches {
            store.commit(batch).await.unwrap();
        }
        best_store = best_store.min(started_at.elapsed());
        best_bare =
            best_bare.min(insert_bare(&dir.path().join(format!("bare {round}.db")), &batches));
    }
    let rows = BATCHES * TASKS_PER_BATCH * 2;
    println!("{rows} rows in {BATCHES} commits: store {best_store:?}, bare {best_bare:?}");
    println!("ratio {:.2}", best_store.as_secs_f64() / best_bare.as_secs_f64());
}

fn insert_bare(path: &Path, batches: &[Batch]) -> Duration {
    let mut conn = Connection::open(path).unwrap();
    conn.pragma_update(None, "journal_mode", "wal").unwrap();
    conn.pragma_update(None, "synchronous", "normal").unwrap();
    conn.execute_batch(
        "CREATE TABLE sessions(key INTEGER PRIMARY KEY, body);
         CREATE TABLE events(position INTEGER PRIMARY KEY, body);
         CREATE TABLE tasks(session, no, body, PRIMARY KEY(session, no)) WITHOUT ROWID;",
    )
    .unwrap();
    let encoded: Vec<_> = batches
        .iter()
        .map(|batch| {
            let part = &batch.sessions[0];
            let tasks = part
                .tasks
                .iter()
                .map(|StoredTask { no, row }| (no.get(), codec::encode(row).unwrap()));
            let events = part.events.iter().map(|record| codec::encode(record).unwrap());
            let session = codec::encode(&part.row).unwrap();
            (session, tasks.collect::<Vec<_>>(), events.collect::<Vec<_>>())
        })
        .collect();
    let started_at = Instant::now();
    for (session, tasks, events) in &encoded {
        let tx = conn.transaction().unwrap();
        let sql = "INSERT OR REPLACE INTO sessions VALUES(1, ?1)";
        tx.prepare_cached(sql).unwrap().execute([session]).unwrap();
        let mut task = tx.prepare_cached("INSERT INTO tasks VALUES(1, ?1, ?2)").unwrap();
        for (no, body) in tasks {
            task.execute((no, body)).unwrap();
        }
        let mut event = tx.prepare_cached("INSERT INTO events(body) VALUES(?1)").unwrap();
        for body in events {
            event.execute([body]).unwrap();
        }
        drop((task, event));
        tx.commit().unwrap();
    }
    started_at.elapsed()
}

#[tokio::test]
#[ignore = "a measurement"]
async fn loading_a_million_waiting_tasks() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let store = open(&path).unwrap();
    let (mut session, opened) = Session::open(1);
    store.commit(&batch(opened)).await.unwrap();
    let started_at = Instant::now();
    for _ in 0..1_000 {
        store.commit(&batch(session.spawn_waiting(1_000))).await.unwrap();
    }
    let megabytes = std::fs::metadata(&path).unwrap().len() / 1_000_000;
    println!("written in {:?}, {megabytes} MB", started_at.elapsed());
    drop(store);
    for _ in 0..2 {
        let store = open(&path).unwrap();
        let started_at = Instant::now();
        let loaded = store.load(id(1)).await.unwrap().unwrap();
        let read = started_at.elapsed();
        let tree = loaded.into_tree();
        println!("read in {read:?}, in memory after {:?}", started_at.elapsed());
        assert_eq!(tree.alive_count(), 1_000_000);
    }
}

#[tokio::test]
#[ignore = "a measurement"]
async fn small_commits_and_reads() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir.path().join("store.db")).unwrap();
    let (mut session, opened) = Session::open(1);
    store.commit(&batch(opened)).await.unwrap();
    let batches: Vec<Batch> = (0..20_000).map(|_| batch(session.spawn(1))).collect();
    let started_at = Instant::now();
    for batch in &batches {
        store.commit(batch).await.unwrap();
    }
    println!("a commit of one spawn: {:?}", started_at.elapsed() / 20_000);
    let started_at = Instant::now();
    for no in 1..=20_000 {
        let no = brigade_model::ids::TaskNo::new(no).unwrap();
        assert!(store.task(id(1), no).await.unwrap().is_some());
    }
    println!("a task by its number: {:?}", started_at.elapsed() / 20_000);
}
