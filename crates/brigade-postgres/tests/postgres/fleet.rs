//! The store passes the checks of nodes that share a store.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_postgres::{PostgresOptions, PostgresStore};
use brigade_store::conformance::FleetHarness;
use brigade_store::{BoxFuture, Store, fleet_conformance_tests};

use crate::support::SERVER;

/// A harness whose store has a schema of its own. Time passes by itself.
struct InSchema(Mutex<Option<PostgresOptions>>);

impl InSchema {
    async fn open(&self) -> Arc<dyn Store> {
        let options = self.0.lock().unwrap().clone().unwrap();
        Arc::new(PostgresStore::open(&options).await.unwrap())
    }
}

impl FleetHarness for InSchema {
    fn empty(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        *self.0.lock().unwrap() = Some(SERVER.new_schema());
        Box::pin(self.open())
    }

    fn another_handle<'a>(&'a self, _store: &'a Arc<dyn Store>) -> BoxFuture<'a, Arc<dyn Store>> {
        Box::pin(self.open())
    }

    fn wait(&self, duration: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(duration))
    }

    fn age_closed_nodes(&self, duration: Duration) -> BoxFuture<'_, ()> {
        let options = self.0.lock().unwrap().clone().unwrap();
        let seconds = duration.as_secs();
        SERVER.execute(&format!(
            "UPDATE {}.nodes SET closed_at = closed_at - interval '{seconds} s' WHERE NOT open",
            options.schema_name()
        ));
        Box::pin(std::future::ready(()))
    }
}

fleet_conformance_tests!(InSchema(Mutex::default()));
