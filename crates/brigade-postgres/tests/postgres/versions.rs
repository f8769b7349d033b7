//! Databases of earlier versions are migrated, and nodes of those versions go on.

use std::path::Path;
use std::sync::Arc;

use brigade_postgres::PostgresStore;
use brigade_store::conformance::fixture::{
    check_fixture, check_fixture_authors, check_fixture_records,
};
use brigade_store::{LimitAmounts, LimitReport, RateLevels, Store};

use crate::support::SERVER;

/// Opens the fixture of a version, which has a schema of that name, and checks its content.
async fn open_fixture(name: &str) -> Arc<dyn Store> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    SERVER.execute_file(&fixtures.join(format!("{name}.sql")));
    let options = SERVER.new_schema().schema(name).unwrap();
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&options).await.unwrap());
    let version = format!("SELECT value FROM {name}.meta WHERE name = 'version'");
    assert_eq!(SERVER.execute(&version), "3");
    check_fixture(&store).await;
    check_fixture_records(&store).await;
    check_fixture_authors(&store).await;
    store
}

#[tokio::test]
async fn a_database_of_version_1_is_migrated() {
    open_fixture("version_1").await;
    // A node of version 1 that still runs calls the function without answers.
    let arrays = vec!["'{}'"; 41].join(", ");
    let commit = format!("SELECT version_1.commit_batch(0, 0, {arrays})");
    assert_eq!(SERVER.execute(&commit), "159");
}

#[tokio::test]
async fn a_database_of_version_2_is_migrated() {
    let store = open_fixture("version_2").await;
    let fleet = store.fleet().unwrap();
    let nodes = fleet.nodes().await.unwrap();
    assert_eq!(nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["old"]);
    // It gets a part of a provider's limits.
    let node = nodes[0].id;
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
    // Its call is removed with it.
    fleet.close_node(nodes[0].id).await.unwrap();
    assert_eq!(SERVER.execute("SELECT count(*) FROM version_2.calls"), "0");
    // A node of version 2 that still runs calls the functions that it knows.
    let arrays = vec!["'{}'"; 44].join(", ");
    let commit = format!("SELECT version_2.commit_batch(0, 0, {arrays})");
    assert_eq!(SERVER.execute(&commit), "159");
    let claim = "SELECT count(*) FROM version_2.claim_sessions(1, 1, 0, 10)";
    assert_eq!(SERVER.execute(claim), "0", "its lane is closed");
}
