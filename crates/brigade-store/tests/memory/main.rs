//! The memory store passes the conformance checks and is bounded.

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

    /// Returns the same store: its data lives as long as the value.
    fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }
}

conformance_tests!(InMemory);
