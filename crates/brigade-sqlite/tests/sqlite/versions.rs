//! Files of every supported version are opened with their content.
//!
//! A program of version N wrote `tests/fixtures/version_N.db`. To add the fixture of a new version,
//! run `cargo test -p brigade-sqlite --test sqlite -- --ignored write_fixture`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Owner, RunNo, Time};
use brigade_model::message::MessageKeyScope;
use brigade_sqlite::SqliteStore;
use brigade_store::conformance::fixture::{
    check_fixture, check_fixture_authors, check_fixture_records, write_fixture,
};
use brigade_store::{
    EventQuery, ExpectedVersion, NewRecord, PutRecordResult, RecordKey, RecordKind, RecordQuery,
    Store, StoreError,
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{Session, batch, id, open};

/// The versions with a fixture. The last one is the current version.
const VERSIONS: [i64; 6] = [3, 4, 5, 6, 7, 8];

/// The first version with records.
const FIRST_WITH_RECORDS: i64 = 5;

/// The first version with authors of events.
const FIRST_WITH_AUTHORS: i64 = 6;

fn fixture(version: i64) -> PathBuf {
    let file = format!("tests/fixtures/version_{version}.db");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

#[tokio::test]
#[ignore = "writes the fixture of the present version"]
async fn write_fixture_of_this_version() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let store: Arc<dyn Store> = Arc::new(open(&path).unwrap());
    write_fixture(&store).await;
    drop(store);
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE;").unwrap();
    drop(conn);
    let version = user_version(&path);
    assert_eq!(Some(&version), VERSIONS.last(), "add the new version to VERSIONS");
    std::fs::copy(&path, fixture(version)).unwrap();
}

#[tokio::test]
async fn every_version_is_opened_and_written_on() {
    for version in VERSIONS {
        let dir = TempDir::new().unwrap();
        let store: Arc<dyn Store> = Arc::new(open(&copy_of(&dir, version)).unwrap());
        check_fixture(&store).await;
        let (mut session, opened) = Session::open(2);
        store.commit(&batch(opened)).await.unwrap();
        store.commit(&batch(session.spawn(3))).await.unwrap();
        let loaded = store.load(id(2)).await.unwrap().expect("the new session");
        assert!(loaded.into_tree() == session.tree, "{version}");
        check_events_by_session(&store).await;
        if version >= FIRST_WITH_RECORDS {
            check_fixture_records(&store).await;
        }
        check_authors(&store, version).await;
        let key = RecordKey::new(RecordKind::from_static("fixture"), "new").unwrap();
        let record = NewRecord::new(key.clone(), "new").unwrap();
        let put = store.put_record(&record, ExpectedVersion::Absent, Time(1)).await.unwrap();
        assert!(matches!(put, PutRecordResult::Stored(_)), "{version}: {put:?}");
        let found = store.record(&key, Time(1)).await.unwrap().unwrap();
        assert_eq!(found.value, b"new", "{version}");
    }
}

/// A reader does not migrate, so it must read the tables of each version as they are.
#[tokio::test]
async fn every_version_is_read_without_a_change() {
    for version in VERSIONS {
        let dir = TempDir::new().unwrap();
        let path = copy_of(&dir, version);
        let before = std::fs::read(&path).unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open_immutable(&path).unwrap());
        check_fixture(&store).await;
        check_events_by_session(&store).await;
        assert!(store.load(id(1)).await.unwrap().is_some(), "{version}");
        let scope = MessageKeyScope { to: Owner::Session, from: None, run: RunNo::FIRST };
        let key = "unknown".parse().unwrap();
        assert_eq!(store.message_key(id(1), scope, &key).await.unwrap(), None, "{version}");
        if version >= FIRST_WITH_RECORDS {
            check_fixture_records(&store).await;
        }
        check_authors(&store, version).await;
        let key = RecordKey::new(RecordKind::from_static("other"), "unknown").unwrap();
        assert_eq!(store.record(&key, Time(1)).await.unwrap(), None, "{version}");
        let query = RecordQuery::new(RecordKind::from_static("other"));
        assert!(store.records(&query, Time(1)).await.unwrap().items.is_empty(), "{version}");
        let refused = store.remove_record(&key, None, Time(1)).await;
        assert!(matches!(refused, Err(StoreError::ReadOnly)), "{version}: {refused:?}");
        drop(store);
        assert!(std::fs::read(&path).unwrap() == before, "the file has changed");
    }
}

/// Reads the events of each session in small pages. They are those of all events.
async fn check_events_by_session(store: &Arc<dyn Store>) {
    let all = EventQuery { session: None, after: FeedCursor::START, limit: usize::MAX };
    let all = store.events(&all).await.unwrap().items;
    for row in store.sessions().await.unwrap() {
        let session = Some(row.id);
        let mut query = EventQuery { session, after: FeedCursor::START, limit: 2 };
        let mut found = Vec::new();
        loop {
            let page = store.events(&query).await.unwrap();
            query.after = page.read_to;
            let is_last = page.items.len() < query.limit;
            found.extend(page.items.into_iter().map(|item| item.position));
            if is_last {
                break;
            }
        }
        let of_session = all.iter().filter(|item| item.record.session == row.id);
        assert_eq!(found, of_session.map(|item| item.position).collect::<Vec<_>>());
        assert!(!found.is_empty());
    }
}

async fn check_authors(store: &Arc<dyn Store>, version: i64) {
    if version >= FIRST_WITH_AUTHORS {
        return check_fixture_authors(store).await;
    }
    let query = EventQuery { session: Some(id(1)), after: FeedCursor::START, limit: usize::MAX };
    let page = store.events(&query).await.unwrap();
    assert!(page.items.iter().all(|item| item.record.by.is_none()), "{version}");
}

#[test]
fn a_migrated_file_has_the_tables_of_a_new_one() {
    let dir = TempDir::new().unwrap();
    let new = dir.path().join("new.db");
    open(&new).unwrap();
    for version in VERSIONS {
        let old = copy_of(&dir, version);
        open(&old).unwrap();
        assert_eq!(tables(&old), tables(&new), "{version}");
        assert_eq!(user_version(&old), user_version(&new), "{version}");
    }
    assert_eq!(Some(&user_version(&new)), VERSIONS.last(), "a fixture of this version is missing");
}

#[test]
fn unsupported_earlier_versions_are_refused_and_not_changed() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    for version in [1, 2] {
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS trees(key INTEGER PRIMARY KEY);
             PRAGMA application_id = 0x62726764;
             PRAGMA user_version = {version};"
        ))
        .unwrap();
        drop(conn);
        let before = std::fs::read(&path).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Older { .. }), "{error:?}");
        assert!(error.to_string().contains("move it away or delete it"), "{error}");
        assert!(std::fs::read(&path).unwrap() == before, "the file has changed");
    }
}

fn copy_of(dir: &TempDir, version: i64) -> PathBuf {
    let path = dir.path().join(format!("version_{version}.db"));
    std::fs::copy(fixture(version), &path).unwrap();
    path
}

fn user_version(path: &Path) -> i64 {
    let conn = Connection::open(path).unwrap();
    conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

fn tables(path: &Path) -> Vec<String> {
    let conn = Connection::open(path).unwrap();
    let sql = "SELECT type || ' ' || name || ' ' || ifnull(sql, '') FROM sqlite_schema ORDER BY 1";
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let plain = |text: String| text.split_whitespace().collect::<String>();
    rows.map(|row| plain(row.unwrap())).collect()
}
