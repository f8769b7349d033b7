//! Databases of earlier versions are migrated, and nodes of those versions go on.

use std::path::Path;
use std::sync::Arc;

use brigade_postgres::PostgresStore;
use brigade_store::conformance::fixture::{
    check_fixture, check_fixture_authors, check_fixture_records,
};
use brigade_store::{CallId, LimitAmounts, LimitReport, RateLevels, Store};
use uuid::Uuid;

use crate::support::SERVER;

/// Opens the fixture of a version, which has a schema of that name.
async fn open_version(name: &str) -> Arc<dyn Store> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    SERVER.execute_file(&fixtures.join(format!("{name}.sql")));
    let options = SERVER.new_schema().schema(name).unwrap();
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&options).await.unwrap());
    let version = format!("SELECT value FROM {name}.meta WHERE name = 'version'");
    assert_eq!(SERVER.execute(&version), "3");
    store
}

#[tokio::test]
async fn a_database_of_version_1_is_migrated() {
    let store = open_version("version_1").await;
    check_fixture(&store).await;
    check_fixture_records(&store).await;
    check_fixture_authors(&store).await;
    // A node of version 1 that still runs calls the function without answers.
    let arrays = vec!["'{}'"; 41].join(", ");
    let commit = format!("SELECT version_1.commit_batch(0, 0, {arrays})");
    assert_eq!(SERVER.execute(&commit), "159");
}

#[tokio::test]
async fn a_database_of_version_2_is_migrated() {
    let store = open_version("version_2").await;
    check_fixture(&store).await;
    check_fixture_records(&store).await;
    check_fixture_authors(&store).await;
    // The nodes of version 2 are there, and get a part of a provider's limits.
    let fleet = store.fleet().unwrap();
    let nodes = fleet.nodes().await.unwrap();
    let open: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.open)).collect();
    assert!(open.contains(&("kitchen-2", true)), "{open:?}");
    let node = nodes.iter().find(|node| node.open).unwrap().id;
    assert_eq!(fleet.replies(&[CallId(Uuid::from_u128(1))]).await.unwrap(), []);
    let limits = LimitAmounts { running: 4, requests: 0, tokens: 0 };
    let report = LimitReport {
        node,
        provider: "anthropic".to_owned(),
        number: 1,
        limits,
        held: LimitAmounts::default(),
        wanted: limits,
        demand: limits,
        returned: RateLevels::default(),
        closed_for: None,
    };
    assert_eq!(fleet.exchange_limits(&report).await.unwrap().unwrap().held, limits);
}
