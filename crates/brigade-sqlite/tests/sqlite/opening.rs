//! Files that are opened or refused. A refusal changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::{Session, batch, create_store, id, open};
use brigade_sqlite::SqliteStore;
use brigade_store::{Store, StoreError, TaskQuery};
use rusqlite::Connection;
use tempfile::TempDir;

/// Reads all files of a directory.
fn read_files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

#[track_caller]
fn assert_refused(dir: &TempDir, path: &Path, is_expected: fn(&StoreError) -> bool) {
    let before = read_files(dir.path());
    for error in [open(path).unwrap_err(), SqliteStore::open_read_only(path).unwrap_err()] {
        assert!(is_expected(&error), "{error:?}");
        let name = path.file_name().unwrap().to_str().unwrap();
        let text = error.to_string();
        assert!(text.contains(name) || matches!(error, StoreError::Newer { .. }), "{text}");
    }
    assert!(read_files(dir.path()) == before, "the directory has changed");
}

fn is_corrupt(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt(_))
}

fn is_unavailable(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_))
}

#[tokio::test]
async fn a_missing_file_is_created() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("new.db");
    create_store(&path).await;
    let store = open(&path).unwrap();
    assert_eq!(store.tasks(id(1), &TaskQuery::default()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn an_empty_file_is_filled() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("empty.db");
    fs::write(&path, b"").unwrap();
    create_store(&path).await;
}

#[tokio::test]
async fn a_partly_created_file_is_filled() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("partial.db");
    let conn = Connection::open(&path).unwrap();
    conn.pragma_update(None, "journal_mode", "wal").unwrap();
    drop(conn);
    assert_ne!(fs::metadata(&path).unwrap().len(), 0);
    create_store(&path).await;
}

#[test]
fn a_reader_creates_no_file() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("none.db");
    let error = SqliteStore::open_read_only(&path).unwrap_err();
    assert!(is_unavailable(&error), "{error}");
    assert!(read_files(dir.path()).is_empty());
}

#[tokio::test]
async fn a_newer_version_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("newer.db");
    create_store(&path).await;
    let conn = Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    drop(conn);
    assert_refused(&dir, &path, |error| matches!(error, StoreError::Newer { .. }));
}

#[test]
fn a_file_that_is_not_a_database_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("notes.txt");
    for text in [&b"dear diary"[..], &[0; 8192], b"SQLite format 3", &[b'S'; 100_000]] {
        fs::write(&path, text).unwrap();
        assert_refused(&dir, &path, is_corrupt);
    }
}

#[test]
fn a_database_of_another_program_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("foreign.db");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE mine(x); INSERT INTO mine VALUES(1);").unwrap();
    drop(conn);
    assert_refused(&dir, &path, is_corrupt);
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("DROP TABLE mine; PRAGMA application_id = 77;").unwrap();
    drop(conn);
    assert_refused(&dir, &path, is_corrupt);
}

#[tokio::test]
async fn a_truncated_database_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("cut.db");
    create_store(&path).await;
    let whole = fs::read(&path).unwrap();
    for length in [16, 50, 100, 512, 4096, 5000, whole.len() - 4096, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let before = read_files(dir.path());
        let error = open(&path).unwrap_err();
        assert!(is_corrupt(&error), "truncated to {length}: {error:?}");
        assert!(
            read_files(dir.path()) == before,
            "truncated to {length}: the directory has changed"
        );
    }
    fs::write(&path, &whole).unwrap();
    open(&path).unwrap();
}

#[test]
fn a_directory_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("folder");
    fs::create_dir(&path).unwrap();
    assert_refused(&dir, &path, is_corrupt);
}

#[test]
fn a_missing_parent_is_refused() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("missing").join("store.db");
    assert_refused(&dir, &path, is_unavailable);
    assert!(!path.parent().unwrap().exists());
}

#[test]
fn a_path_through_a_file_is_refused() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("file"), "text").unwrap();
    assert_refused(&dir, &dir.path().join("file").join("store.db"), is_unavailable);
}

#[cfg(unix)]
#[tokio::test]
async fn an_unreadable_file_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("secret.db");
    create_store(&path).await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_ok() {
        // The superuser can read every file.
        open(&path).unwrap();
        return;
    }
    let error = open(&path).unwrap_err();
    assert!(is_unavailable(&error), "{error:?}");
}

#[tokio::test]
async fn the_error_of_a_second_owner_names_the_first() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("owned.db");
    fs::write(dir.path().join("owned.db.lock"), "pid 1\nleft behind by a crash").unwrap();
    let first = open(&path).unwrap();
    let error = open(&path).unwrap_err();
    let StoreError::Locked { holder } = &error else { panic!("{error:?}") };
    assert!(holder.contains(&format!("pid {}", std::process::id())), "{holder}");
    drop(first);
    open(&path).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_to_the_file_leads_to_the_same_lock() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("owned.db");
    create_store(&path).await;
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let first = open(&path).unwrap();
    let error = open(&link).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    drop(first);
}

#[tokio::test]
async fn a_reader_sees_commits_of_the_owner_and_writes_nothing() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("shared.db");
    let owner = open(&path).unwrap();
    let reader = SqliteStore::open_read_only(&path).unwrap();
    let (mut session, part) = Session::open(1);
    owner.commit(&batch(part)).await.unwrap();
    for spawned in 1..=3 {
        let part = session.spawn(1);
        let refused = reader.commit(&batch(part.clone())).await;
        assert!(matches!(refused, Err(StoreError::ReadOnly)), "{refused:?}");
        owner.commit(&batch(part)).await.unwrap();
        let seen = reader.tasks(id(1), &TaskQuery::default()).await.unwrap();
        assert_eq!(seen.len(), spawned);
    }
    drop(owner);
    let seen = reader.tasks(id(1), &TaskQuery::default()).await.unwrap();
    assert_eq!(seen.len(), 3, "the reader works after the owner has closed the store");
    drop(reader);
    let alone = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(alone.session(id(1)).await.unwrap().unwrap().seq.0, 4);
    open(&path).expect("a reader does not lock");
}

#[test]
fn a_store_works_within_a_local_set_of_a_multi_threaded_runtime() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("local.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let used = async {
        create_store(&path).await;
        let store = open(&path).unwrap();
        store.tasks(id(1), &TaskQuery::default()).await.unwrap().len()
    };
    assert_eq!(tokio::task::LocalSet::new().block_on(&runtime, used), 3);
    let used = async { open(&path).unwrap().sessions().await.unwrap().len() };
    assert_eq!(runtime.block_on(used), 1, "the store works without a local set on the same thread");
}
