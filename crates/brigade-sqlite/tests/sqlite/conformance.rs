//! The SQLite store passes the conformance checks.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brigade_sqlite::SqliteStore;
use brigade_store::conformance::StoreHarness;
use brigade_store::{BoxFuture, Store, conformance_tests};
use tempfile::TempDir;

/// A harness whose stores have a file each, named by their number.
struct OnDisk {
    dir: TempDir,
    created_count: AtomicUsize,
}

impl OnDisk {
    fn new() -> Self {
        Self { dir: TempDir::new().unwrap(), created_count: AtomicUsize::new(0) }
    }

    fn open(&self, number: usize) -> Arc<dyn Store> {
        let path = self.dir.path().join(format!("{number}.db"));
        Arc::new(SqliteStore::open(path).unwrap())
    }
}

impl StoreHarness for OnDisk {
    fn empty(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(ready(self.open(self.created_count.fetch_add(1, Ordering::Relaxed))))
    }

    /// Reopens the first store of the check. No check reopens another one.
    fn reopen(&self, store: Arc<dyn Store>) -> BoxFuture<'_, Arc<dyn Store>> {
        assert_eq!(Arc::strong_count(&store), 1, "another handle would keep the file locked");
        drop(store);
        Box::pin(ready(self.open(0)))
    }
}

conformance_tests!(OnDisk::new());
