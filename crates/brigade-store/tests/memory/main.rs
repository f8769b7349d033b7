//! The memory store passes the conformance checks and is bounded.

#[cfg(test)]
mod bounded;
#[cfg(test)]
mod fleet;

use std::future::ready;
use std::sync::Arc;

use brigade_store::conformance::StoreHarness;
use brigade_store::{BoxFuture, MemoryStore, Store, conformance_tests};

struct InMemory;

impl StoreHarness for InMemory {
    fn empty(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        Box::pin(ready(store))
    }

    /// Returns the same store: its data lives as long as the value.
    fn reopen(&self, store: Arc<dyn Store>) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(ready(store))
    }
}

conformance_tests!(InMemory);
