//! A store that is copied to PostgreSQL and back is the same store: it passes the conformance checks if
//! each reopening is such a copy.

use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brigade_postgres::{PostgresCopySource, PostgresCopyTarget};
use brigade_sqlite::{SqliteCopySource, SqliteCopyTarget, SqliteStore};
use brigade_store::conformance::StoreHarness;
use brigade_store::store_copy::copy_store;
use brigade_store::{BoxFuture, Store, conformance_tests};
use tempfile::TempDir;

use crate::support::SERVER;

/// A harness whose stores are files. The first one is copied when it is reopened.
struct Copied {
    dir: TempDir,
    created_count: AtomicUsize,
    copied_count: AtomicUsize,
}

impl Copied {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        Self { dir, created_count: AtomicUsize::new(0), copied_count: AtomicUsize::new(0) }
    }

    fn path(&self, number: usize, copy: usize) -> PathBuf {
        self.dir.path().join(format!("{number}-{copy}.db"))
    }
}

impl StoreHarness for Copied {
    fn empty(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let number = self.created_count.fetch_add(1, Ordering::Relaxed);
        let store = SqliteStore::open(self.path(number, 0)).unwrap();
        Box::pin(ready(Arc::new(store) as Arc<dyn Store>))
    }

    /// Copies the first store of the check. No check reopens another one.
    fn reopen(&self, store: Arc<dyn Store>) -> BoxFuture<'_, Arc<dyn Store>> {
        assert_eq!(Arc::strong_count(&store), 1, "another handle would keep the file locked");
        drop(store);
        let copy = self.copied_count.fetch_add(1, Ordering::Relaxed);
        let (from, to) = (self.path(0, copy), self.path(0, copy + 1));
        Box::pin(async move {
            let options = SERVER.new_schema();
            let source = SqliteCopySource::open(&from).unwrap();
            let target = PostgresCopyTarget::create(&options, false).await.unwrap();
            let there = copy_store(&source, &target, |_, _| {}).await.unwrap();
            let source = PostgresCopySource::open(&options).await.unwrap();
            let target = SqliteCopyTarget::create(&to, false).unwrap();
            let back = copy_store(&source, &target, |_, _| {}).await.unwrap();
            assert_eq!(there, back);
            drop(target);
            Arc::new(SqliteStore::open(&to).unwrap()) as Arc<dyn Store>
        })
    }
}

conformance_tests!(Copied::new());
