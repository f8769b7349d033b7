//! What is opened, what is refused, and that a refusal changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::support::{Session, batch, id, make, open};
use brigade_sqlite::SqliteStore;
use brigade_store::{Store, StoreError, TaskQuery};
use rusqlite::Connection;
use tempfile::TempDir;

/// Everything in a folder, byte for byte.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

#[track_caller]
fn refused(folder: &TempDir, path: &Path, expect: fn(&StoreError) -> bool) {
    let before = contents(folder.path());
    for error in [open(path).unwrap_err(), SqliteStore::open_read_only(path).unwrap_err()] {
        assert!(expect(&error), "{error:?}");
        let name = path.file_name().unwrap().to_str().unwrap();
        let says = error.to_string();
        assert!(says.contains(name) || matches!(error, StoreError::Newer { .. }), "{says}");
    }
    assert!(contents(folder.path()) == before, "the folder has changed");
}

fn is_corrupt(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt(_))
}

fn is_unavailable(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_))
}

#[tokio::test]
async fn a_missing_file_is_made() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("new.db");
    make(&path).await;
    let store = open(&path).unwrap();
    assert_eq!(store.tasks(id(1), &TaskQuery::default()).await.unwrap().len(), 3);
}

#[tokio::test]
async fn an_empty_file_is_filled() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("empty.db");
    fs::write(&path, b"").unwrap();
    make(&path).await;
}

#[tokio::test]
async fn a_file_whose_making_was_cut_off_is_filled() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("begun.db");
    let conn = Connection::open(&path).unwrap();
    conn.pragma_update(None, "journal_mode", "wal").unwrap();
    drop(conn);
    assert_ne!(fs::metadata(&path).unwrap().len(), 0);
    make(&path).await;
}

#[test]
fn a_reader_does_not_make_a_file() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("none.db");
    let error = SqliteStore::open_read_only(&path).unwrap_err();
    assert!(is_unavailable(&error), "{error}");
    assert!(contents(folder.path()).is_empty());
}

#[tokio::test]
async fn a_newer_version_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("newer.db");
    make(&path).await;
    let conn = Connection::open(&path).unwrap();
    conn.pragma_update(None, "user_version", 99).unwrap();
    drop(conn);
    refused(&folder, &path, |error| matches!(error, StoreError::Newer { .. }));
}

#[test]
fn a_file_that_is_not_a_database_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("notes.txt");
    for text in [&b"dear diary"[..], &[0; 8192], b"SQLite format 3", &[b'S'; 100_000]] {
        fs::write(&path, text).unwrap();
        refused(&folder, &path, is_corrupt);
    }
}

#[test]
fn a_database_of_another_program_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("foreign.db");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE mine(x); INSERT INTO mine VALUES(1);").unwrap();
    drop(conn);
    refused(&folder, &path, is_corrupt);
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("DROP TABLE mine; PRAGMA application_id = 77;").unwrap();
    drop(conn);
    refused(&folder, &path, is_corrupt);
}

#[tokio::test]
async fn a_truncated_database_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cut.db");
    make(&path).await;
    let whole = fs::read(&path).unwrap();
    for length in [16, 50, 100, 512, 4096, 5000, whole.len() - 4096, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let before = contents(folder.path());
        let error = open(&path).unwrap_err();
        assert!(is_corrupt(&error), "cut to {length}: {error:?}");
        assert!(contents(folder.path()) == before, "cut to {length}: the folder has changed");
    }
    fs::write(&path, &whole).unwrap();
    open(&path).unwrap();
}

#[test]
fn a_directory_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("folder");
    fs::create_dir(&path).unwrap();
    refused(&folder, &path, is_corrupt);
}

#[test]
fn a_missing_parent_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("missing").join("store.db");
    refused(&folder, &path, is_unavailable);
    assert!(!path.parent().unwrap().exists());
}

#[test]
fn a_path_through_a_file_is_refused() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("file"), "text").unwrap();
    refused(&folder, &folder.path().join("file").join("store.db"), is_unavailable);
}

#[cfg(unix)]
#[tokio::test]
async fn an_unreadable_file_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("secret.db");
    make(&path).await;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_ok() {
        // The superuser reads everything: here there is no such thing as an unreadable file.
        open(&path).unwrap();
        return;
    }
    let error = open(&path).unwrap_err();
    assert!(is_unavailable(&error), "{error:?}");
}

#[tokio::test]
async fn a_second_owner_is_told_who_the_first_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("owned.db");
    fs::write(folder.path().join("owned.db.lock"), "pid 1\nleft behind by a crash").unwrap();
    let first = open(&path).unwrap();
    let error = open(&path).unwrap_err();
    let StoreError::Locked { holder } = &error else { panic!("{error:?}") };
    assert!(holder.contains(&format!("pid {}", std::process::id())), "{holder}");
    drop(first);
    open(&path).unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn another_name_of_the_file_does_not_get_around_the_lock() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("owned.db");
    make(&path).await;
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let first = open(&path).unwrap();
    let error = open(&link).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error:?}");
    drop(first);
}

#[tokio::test]
async fn a_reader_sees_what_the_owner_commits_and_writes_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("shared.db");
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
    assert_eq!(seen.len(), 3, "the reader goes on when the owner has left");
    drop(reader);
    let alone = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(alone.session(id(1)).await.unwrap().unwrap().seq.0, 4);
    open(&path).expect("a reader does not lock");
}

#[test]
fn it_is_used_within_a_local_set_of_a_multi_threaded_runtime() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("local.db");
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let used = async {
        make(&path).await;
        let store = open(&path).unwrap();
        store.tasks(id(1), &TaskQuery::default()).await.unwrap().len()
    };
    assert_eq!(tokio::task::LocalSet::new().block_on(&runtime, used), 3);
    let used = async { open(&path).unwrap().sessions().await.unwrap().len() };
    assert_eq!(runtime.block_on(used), 1, "and without one on the same thread");
}
