//! The memory store passes the checks for all stores, and is bounded.

#[cfg(test)]
mod bounded;

use std::sync::Arc;

use brigade_store::conformance::StoreHarness;
use brigade_store::{MemoryStore, Store, conformance_tests};

struct InMemory;

impl StoreHarness for InMemory {
    fn empty(&self) -> Arc<dyn Store> {
        Arc::new(MemoryStore::new())
    }

    /// What is in memory is there for as long as it is not let go of.
    fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }
}

conformance_tests!(InMemory);
