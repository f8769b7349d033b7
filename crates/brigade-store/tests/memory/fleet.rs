//! The memory store passes the checks of nodes that share a store.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brigade_model::ids::Time;
use brigade_store::conformance::FleetHarness;
use brigade_store::{BoxFuture, MemoryStore, Store, fleet_conformance_tests};

/// A harness with a clock that stands still unless a check waits.
#[derive(Default)]
struct SharedMemory {
    now: Arc<AtomicU64>,
}

impl FleetHarness for SharedMemory {
    fn empty(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        let now = self.now.clone();
        let clock = move || Time(now.load(Ordering::Relaxed));
        let store: Arc<dyn Store> = Arc::new(MemoryStore::shared_by_nodes(clock));
        Box::pin(ready(store))
    }

    /// Returns the same store: its data lives in this process only.
    fn another_handle<'a>(&'a self, store: &'a Arc<dyn Store>) -> BoxFuture<'a, Arc<dyn Store>> {
        Box::pin(ready(store.clone()))
    }

    fn wait(&self, duration: Duration) -> BoxFuture<'_, ()> {
        let millis = u64::try_from(duration.as_millis()).unwrap();
        self.now.fetch_add(millis, Ordering::Relaxed);
        Box::pin(ready(()))
    }
}

fleet_conformance_tests!(SharedMemory::default());
