//! The store passes the conformance checks.

use std::sync::{Arc, Mutex};

use brigade_model::ids::Lane;
use brigade_postgres::{PostgresOptions, PostgresStore};
use brigade_store::conformance::StoreHarness;
use brigade_store::{BoxFuture, Store, conformance_tests};

use crate::support::SERVER;

/// A harness whose stores have a schema each.
#[derive(Default)]
struct InSchemas {
    /// The options of the first store.
    first: Mutex<Option<PostgresOptions>>,
}

async fn open(options: &PostgresOptions) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(options).await.unwrap())
}

impl StoreHarness for InSchemas {
    /// Opens the first lane, in which the checks write.
    fn empty(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async {
            let options = SERVER.new_schema();
            let store = open(&options).await;
            self.first.lock().unwrap().get_or_insert(options);
            assert_eq!(store.open_lane().await.unwrap(), Lane::default());
            store
        })
    }

    /// Reopens the first store of the check. No check reopens another one.
    fn reopen(&self, store: Arc<dyn Store>) -> BoxFuture<'_, Arc<dyn Store>> {
        drop(store);
        let options = self.first.lock().unwrap().clone().unwrap();
        Box::pin(async move { open(&options).await })
    }
}

conformance_tests!(InSchemas::default());
