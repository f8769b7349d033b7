//! Files as sources and targets of copies. `brigade-postgres` tests copies to a database and back.

use std::sync::Arc;

use brigade_sqlite::{SqliteCopySource, SqliteCopyTarget, SqliteStore};
use brigade_store::conformance::fixture::{
    check_fixture, check_fixture_authors, check_fixture_records, write_fixture,
};
use brigade_store::store_copy::{CopyError, CopySource, CopyTable, CopyTarget, copy_store};
use brigade_store::{Store, StoreError};
use tempfile::TempDir;

use crate::support::open;

#[tokio::test]
async fn a_file_is_copied_whole() {
    let dir = TempDir::new().unwrap();
    let [from, to] = ["from.db", "to.db"].map(|name| dir.path().join(name));
    let store: Arc<dyn Store> = Arc::new(open(&from).unwrap());
    write_fixture(&store).await;
    let cursor = store.cursor().await.unwrap();
    drop(store);
    let source = SqliteCopySource::open(&from).unwrap();
    let target = SqliteCopyTarget::create(&to, false).unwrap();
    let digests = copy_store(&source, &target, |_, _| {}).await.unwrap();
    assert!(digests.iter().map(|digest| digest.table).eq(CopyTable::ALL));
    drop(target);
    let store: Arc<dyn Store> = Arc::new(open(&to).unwrap());
    check_fixture(&store).await;
    check_fixture_records(&store).await;
    check_fixture_authors(&store).await;
    assert_eq!(store.cursor().await.unwrap(), cursor);
}

#[tokio::test]
async fn an_empty_store_is_copied() {
    let dir = TempDir::new().unwrap();
    let [from, to] = ["from.db", "to.db"].map(|name| dir.path().join(name));
    drop(open(&from).unwrap());
    let source = SqliteCopySource::open(&from).unwrap();
    let target = SqliteCopyTarget::create(&to, false).unwrap();
    copy_store(&source, &target, |_, _| {}).await.unwrap();
    drop(target);
    assert!(open(&to).unwrap().sessions().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_incomplete_copy_is_refused_until_it_is_repeated() {
    let dir = TempDir::new().unwrap();
    let [from, to] = ["from.db", "to.db"].map(|name| dir.path().join(name));
    let store: Arc<dyn Store> = Arc::new(open(&from).unwrap());
    write_fixture(&store).await;
    drop(store);
    let source = SqliteCopySource::open(&from).unwrap();
    let target = SqliteCopyTarget::create(&to, false).unwrap();
    let busy = SqliteCopyTarget::create(&to, true).unwrap_err();
    assert!(matches!(busy, CopyError::Store(StoreError::Locked { .. })), "{busy}");
    let rows = source.rows(CopyTable::Sessions, None).await.unwrap();
    target.write(CopyTable::Sessions, rows).await.unwrap();
    drop(target);
    for opened in [SqliteStore::open(&to), SqliteStore::open_immutable(&to)] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
        assert!(error.to_string().contains("incomplete copy; remove it"), "{error}");
    }
    let refused = SqliteCopyTarget::create(&to, false).unwrap_err();
    assert!(matches!(refused, CopyError::TargetIncomplete(_)), "{refused}");
    let target = SqliteCopyTarget::create(&to, true).unwrap();
    copy_store(&source, &target, |_, _| {}).await.unwrap();
    drop(target);
    check_fixture(&(Arc::new(open(&to).unwrap()) as Arc<dyn Store>)).await;
    let refused = SqliteCopyTarget::create(&to, true).unwrap_err();
    assert!(matches!(refused, CopyError::TargetNotEmpty(_)), "{refused}");
}
