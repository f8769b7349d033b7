//! Rows of newer versions, a full disk, a busy file, a damaged file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Session, batch, create_store, id, open};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Seq, TaskNo, Time};
use brigade_sqlite::{SqliteOptions, SqliteStore, SynchronousMode};
use brigade_store::{
    EventQuery, ExpectedVersion, NewRecord, RECORD_VALUE_BYTES_MAX, RecordKey, RecordKind,
    RecordStore, Store, StoreError, TaskQuery, codec,
};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// A stored row with any fields and variants.
type Fields = BTreeMap<String, serde_json::Value>;

/// Changes a stored task to a form that a newer version could write.
fn rewrite_task(path: &Path, no: u32, change: impl FnOnce(&mut Fields)) {
    let conn = Connection::open(path).unwrap();
    let sql = "SELECT body FROM tasks WHERE session = 1 AND no = ?1";
    let body: Vec<u8> = conn.query_row(sql, [no], |row| row.get(0)).unwrap();
    let mut fields: Fields = codec::decode("task", &body).unwrap();
    change(&mut fields);
    let sql = "UPDATE tasks SET body = ?2 WHERE session = 1 AND no = ?1";
    let changed = conn.execute(sql, (no, codec::encode(&fields).unwrap())).unwrap();
    assert_eq!(changed, 1);
}

#[tokio::test]
async fn an_unknown_state_refuses_only_its_session() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    create_store(&path).await;
    let store = open(&path).unwrap();
    store.commit(&batch(Session::open(2).1)).await.unwrap();
    drop(store);
    rewrite_task(&path, 2, |fields| {
        fields.insert("state".into(), "hibernating".into());
    });
    let store = open(&path).unwrap();
    let error = store.load(id(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("task 2") && text.contains("hibernating"), "{text}");
    assert!(store.load(id(2)).await.unwrap().is_some());
    let one = TaskNo::new(1).unwrap();
    assert!(
        store.task(id(1), one).await.unwrap().is_some(),
        "other rows of the session can be read"
    );
}

#[tokio::test]
async fn an_unreadable_session_does_not_hide_the_others() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    create_store(&path).await;
    let store = open(&path).unwrap();
    store.commit(&batch(Session::open(2).1)).await.unwrap();
    drop(store);
    let conn = Connection::open(&path).unwrap();
    let body: Vec<u8> =
        conn.query_row("SELECT body FROM sessions WHERE key = 1", [], |row| row.get(0)).unwrap();
    let at = body.windows(11).position(|part| part == b"\xa5state\xa4open").unwrap();
    let body = [&body[..at], b"\xa5state\xa4nova", &body[at + 11..]].concat();
    conn.execute("UPDATE sessions SET body = ?1 WHERE key = 1", [body]).unwrap();
    drop(conn);
    let store = open(&path).unwrap();
    let readable: Vec<_> = store.sessions().await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(readable, [id(2)]);
    let error = store.session(id(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { .. }), "{error:?}");
}

#[tokio::test]
async fn an_unknown_field_is_skipped() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let session = create_store(&path).await;
    rewrite_task(&path, 2, |fields| {
        fields.insert("mood".into(), "cheerful".into());
    });
    let store = open(&path).unwrap();
    let loaded = store.load(id(1)).await.unwrap().unwrap().into_tree();
    assert!(loaded == session.tree);
}

/// Replaces the author of an event, as a newer version or a damage could.
fn rewrite_author(path: &Path, seq: u32, author: &str) {
    let conn = Connection::open(path).unwrap();
    let sql = "UPDATE events SET author = ?2 WHERE session = 1 AND seq = ?1";
    assert_eq!(conn.execute(sql, (seq, author)).unwrap(), 1);
}

#[tokio::test]
async fn an_author_of_an_unknown_kind_is_read() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    create_store(&path).await;
    rewrite_author(&path, 2, r#"{"kind":"robot","model":{"r":2},"origin":"orbit"}"#);
    let store = open(&path).unwrap();
    let query = EventQuery { session: Some(id(1)), after: FeedCursor::START, limit: 10 };
    let page = store.events(&query).await.unwrap();
    let author = page.items[1].record.by.as_ref().unwrap();
    assert_eq!(author.to_string(), "robot, orbit");
    assert!(store.load(id(1)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_damaged_author_is_an_error_that_names_its_event() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    create_store(&path).await;
    rewrite_author(&path, 2, "{");
    let store = open(&path).unwrap();
    let query = EventQuery { session: None, after: FeedCursor::START, limit: 10 };
    let error = store.events(&query).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
    assert!(error.to_string().contains("the author of the event at 2"), "{error}");
    assert!(store.load(id(1)).await.unwrap().is_some(), "the session itself can be read");
}

#[tokio::test]
async fn a_full_disk_refuses_the_batch_whole() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let mut session = create_store(&path).await;
    let store = open(&path).unwrap();
    let pages: u32 = Connection::open(&path)
        .unwrap()
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .unwrap();
    store.set_max_pages(pages + 2).unwrap();
    let before = session.tree.row().clone();
    let large = batch(session.spawn(1_000));
    for _ in 0..3 {
        let error = store.commit(&large).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        assert_eq!(store.session(id(1)).await.unwrap().unwrap(), before);
        assert_eq!(store.tasks(id(1), &TaskQuery::default()).await.unwrap().len(), 3);
        let last = store.cursor().await.unwrap();
        assert_eq!(last.number_in(Lane(0)), before.seq.0);
    }
    store.set_max_pages(u32::MAX - 2).unwrap();
    store.commit(&large).await.unwrap();
    assert_eq!(store.tasks(id(1), &TaskQuery::default()).await.unwrap().len(), 1_003);
    assert!(store.load(id(1)).await.unwrap().unwrap().into_tree() == session.tree);
    drop(store);
    assert_eq!(integrity(&path), "ok");
}

#[tokio::test]
async fn a_full_disk_refuses_a_record_whole() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    create_store(&path).await;
    let store = open(&path).unwrap();
    let pages: u32 = Connection::open(&path)
        .unwrap()
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .unwrap();
    let key = RecordKey::new(RecordKind::from_static("large"), "k").unwrap();
    let small = NewRecord::new(key.clone(), "small").unwrap();
    let large = NewRecord::new(key.clone(), vec![7; RECORD_VALUE_BYTES_MAX]).unwrap();
    store.put_record(&small, ExpectedVersion::Absent, Time(1)).await.unwrap();
    let before = store.record(&key, Time(1)).await.unwrap();
    store.set_max_pages(pages + 2).unwrap();
    let error = store.put_record(&large, ExpectedVersion::Any, Time(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert_eq!(store.record(&key, Time(1)).await.unwrap(), before);
    store.set_max_pages(u32::MAX - 2).unwrap();
    store.put_record(&large, ExpectedVersion::Any, Time(1)).await.unwrap();
    let found = store.record(&key, Time(1)).await.unwrap().unwrap();
    assert!(found.value == large.value());
}

#[tokio::test]
async fn a_reader_sees_the_records_of_the_owner() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let store = open(&path).unwrap();
    let reader = SqliteStore::open_read_only(&path).unwrap();
    let key = RecordKey::new(RecordKind::from_static("shared"), "k").unwrap();
    let record = NewRecord::new(key.clone(), "v").unwrap();
    assert_eq!(reader.record(&key, Time(1)).await.unwrap(), None);
    store.put_record(&record, ExpectedVersion::Absent, Time(1)).await.unwrap();
    let found = reader.record(&key, Time(1)).await.unwrap();
    assert_eq!(found, store.record(&key, Time(1)).await.unwrap());
    assert_eq!(found.map(|record| record.value), Some(b"v".to_vec()));
    let refused = reader.put_record(&record, ExpectedVersion::Any, Time(1)).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
    let refused = reader.remove_expired_records(Time(1), 1).await;
    assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
}

#[tokio::test]
async fn a_busy_file_is_unavailable() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let mut session = create_store(&path).await;
    let options = SqliteOptions { busy_timeout: Duration::ZERO, ..SqliteOptions::default() };
    let store = SqliteStore::open_with(&path, options).unwrap();
    let intruder = Connection::open(&path).unwrap();
    intruder.busy_timeout(Duration::ZERO).unwrap();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let part = batch(session.spawn(1));
    let error = store.commit(&part).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert_eq!(store.session(id(1)).await.unwrap().unwrap().seq, Seq(4), "reads do not wait");
    intruder.execute_batch("ROLLBACK").unwrap();
    store.commit(&part).await.unwrap();
}

/// The runtime has one thread. If the commit held it, the other program could not end its
/// transaction, and the test would hang.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn other_tasks_run_while_a_commit_waits_for_another_program() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let mut session = create_store(&path).await;
    let busy_timeout = Duration::from_secs(3_600);
    let options = SqliteOptions { busy_timeout, ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open_with(&path, options).unwrap());
    // After short commits, the next one is expected to be short.
    for _ in 0..3 {
        store.commit(&batch(session.spawn(1))).await.unwrap();
    }
    let intruder = Connection::open(&path).unwrap();
    intruder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let part = batch(session.spawn(1));
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { store.commit(&part).await.map(drop) });
    tasks.spawn(async move {
        intruder.execute_batch("ROLLBACK").unwrap();
        Ok(())
    });
    for done in tasks.join_all().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn a_long_log_is_moved_into_the_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let mut session = create_store(&path).await;
    let store = open(&path).unwrap();
    let file_bytes = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().len();
    let mut log_bytes_max = 0;
    for _ in 0..40 {
        store.commit(&batch(session.spawn_with_argument(1_000_000))).await.unwrap();
        log_bytes_max = log_bytes_max.max(file_bytes("store.db-wal"));
    }
    assert!(file_bytes("store.db") > 32_000_000, "{} bytes", file_bytes("store.db"));
    assert!(log_bytes_max < 40_000_000, "{log_bytes_max} bytes");
}

#[tokio::test]
async fn damaged_pages_are_reported_as_corrupt() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    create_store(&path).await;
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4096..].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let error = match open(&path) {
        Err(error) => error,
        Ok(store) => store.load(id(1)).await.unwrap_err(),
    };
    assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
}

#[tokio::test]
async fn pruning_continues_over_many_slices() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let store = open(&path).unwrap();
    let (mut session, part) = Session::open(1);
    store.commit(&batch(part)).await.unwrap();
    store.commit(&batch(session.spawn(1_700))).await.unwrap();
    for no in 1..=1_600 {
        store.commit(&batch(session.finish(TaskNo::new(no).unwrap()))).await.unwrap();
    }
    let now = session.tree.row().now;
    let nothing = brigade_model::ids::Millis(0);
    let retention = brigade_store::Retention { ended: nothing, events: nothing };
    let pruned = store.prune(&retention, now).await.unwrap();
    assert_eq!((pruned.sessions, pruned.tasks, pruned.events), (0, 1_600, 3_301));
    assert_eq!(store.tasks(id(1), &TaskQuery::default()).await.unwrap().len(), 100);
    let query = EventQuery { session: Some(id(1)), after: Default::default(), limit: 10 };
    let page = store.events(&query).await.unwrap();
    assert_eq!((page.items.len(), page.gap_to.unwrap().number_in(Lane(0))), (0, 3_301));
    assert!(store.load(id(1)).await.unwrap().is_some());
    assert_eq!(span_count(&path), 0);
}

fn span_count(path: &Path) -> i64 {
    let conn = Connection::open(path).unwrap();
    conn.query_row("SELECT count(*) FROM event_spans", [], |row| row.get(0)).unwrap()
}

/// A slice of a prune ends within the events of one commit.
#[tokio::test]
async fn the_rest_of_a_commit_is_read_after_a_prune() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let store = open(&path).unwrap();
    let (mut session, part) = Session::open(1);
    store.commit(&batch(part)).await.unwrap();
    store.commit(&batch(session.spawn(100))).await.unwrap();
    // Each spawn is a millisecond after the one before.
    let until = session.tree.row().now;
    let events = brigade_model::ids::Millis(40);
    let retention =
        brigade_store::Retention { ended: brigade_model::ids::Millis(1_000_000), events };
    let pruned = store.prune(&retention, until).await.unwrap();
    assert_eq!(pruned.events, 61);
    assert_eq!(span_count(&path), 1);
    let query = EventQuery { session: Some(id(1)), after: FeedCursor::START, limit: usize::MAX };
    let page = store.events(&query).await.unwrap();
    let positions: Vec<u64> = page.items.iter().map(|item| item.position.no).collect();
    assert_eq!(positions, (62..=101).collect::<Vec<_>>());
}

#[test]
fn a_store_works_without_a_runtime_and_within_any() {
    let dir = TempDir::new().unwrap();
    let store = open(&dir.path().join("store.db")).unwrap();
    let multi = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let single = tokio::runtime::Builder::new_current_thread().build().unwrap();
    multi.block_on(store.commit(&batch(Session::open(1).1))).unwrap();
    single.block_on(store.commit(&batch(Session::open(2).1))).unwrap();
    let part = batch(Session::open(3).1);
    let mut commit = store.commit(&part);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(result) = commit.as_mut().poll(&mut context) else {
        panic!("the work is done in the first poll")
    };
    assert_eq!(result.unwrap().no, 3);
}

/// Checks only that commits work in this mode: a test cannot cut the power.
#[tokio::test]
async fn commits_can_wait_for_the_disk() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let mut session = create_store(&path).await;
    let options = SqliteOptions { synchronous: SynchronousMode::Full, ..SqliteOptions::default() };
    let store = SqliteStore::open_with(&path, options).unwrap();
    store.commit(&batch(session.spawn(1))).await.unwrap();
}

fn integrity(path: &Path) -> String {
    let conn = Connection::open(path).unwrap();
    conn.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap()
}
