//! Databases of earlier versions are migrated, and nodes of those versions go on.

use std::path::Path;
use std::sync::Arc;

use brigade_postgres::PostgresStore;
use brigade_store::Store;
use brigade_store::conformance::fixture::{
    check_fixture, check_fixture_authors, check_fixture_records,
};

use crate::support::SERVER;

/// Opens the fixture of version 1, which has a schema of that name.
async fn open_version_1() -> Arc<dyn Store> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    SERVER.execute_file(&fixtures.join("version_1.sql"));
    let options = SERVER.new_schema().schema("version_1").unwrap();
    Arc::new(PostgresStore::open(&options).await.unwrap())
}

#[tokio::test]
async fn a_database_of_version_1_is_migrated() {
    let store = open_version_1().await;
    let version = "SELECT value FROM version_1.meta WHERE name = 'version'";
    assert_eq!(SERVER.execute(version), "2");
    check_fixture(&store).await;
    check_fixture_records(&store).await;
    check_fixture_authors(&store).await;
    // A node of version 1 that still runs calls the function without answers.
    let arrays = vec!["'{}'"; 41].join(", ");
    let commit = format!("SELECT version_1.commit_batch(0, 0, {arrays})");
    assert_eq!(SERVER.execute(&commit), "159");
}
