//! The SQLite store passes the checks for all stores.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use brigade_sqlite::{SqliteOptions, SqliteStore};
use brigade_store::conformance::StoreHarness;
use brigade_store::{Store, conformance_tests};
use tempfile::TempDir;

/// Each store has a file of its own, named by its number.
struct OnDisk {
    folder: TempDir,
    made: AtomicUsize,
}

impl OnDisk {
    fn new() -> Self {
        Self { folder: TempDir::new().unwrap(), made: AtomicUsize::new(0) }
    }

    fn open(&self, number: usize) -> Arc<dyn Store> {
        let path = self.folder.path().join(format!("{number}.db"));
        Arc::new(SqliteStore::open(path, SqliteOptions::default()).unwrap())
    }
}

impl StoreHarness for OnDisk {
    fn empty(&self) -> Arc<dyn Store> {
        self.open(self.made.fetch_add(1, Ordering::Relaxed))
    }

    /// Of the stores of one check only the first is reopened.
    fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        assert_eq!(Arc::strong_count(&store), 1, "another handle would keep the file locked");
        drop(store);
        self.open(0)
    }
}

conformance_tests!(OnDisk::new());
