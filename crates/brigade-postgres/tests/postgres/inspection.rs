//! Reports about databases. A report changes nothing.

use std::time::Duration;

use brigade_model::ids::Lane;
use brigade_postgres::test_server::TestServer;
use brigade_postgres::{
    DatabaseReport, DatabaseTimeout, PostgresOptions, PostgresStore, TableState,
};
use brigade_store::{Store, StoreError};

use crate::pooler::TransactionPooler;
use crate::support::SERVER;

async fn inspect(options: &PostgresOptions) -> DatabaseReport {
    DatabaseReport::inspect(options).await.unwrap()
}

fn options_of(login: &str, schema: &str) -> PostgresOptions {
    PostgresOptions::from_url(&SERVER.url_of(login)).unwrap().schema(schema).unwrap()
}

#[tokio::test]
async fn the_tables_are_absent_and_then_current() {
    let options = SERVER.new_schema().schema("inspected").unwrap();
    let report = inspect(&options).await;
    assert_eq!(report.tables, TableState::Absent);
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'inspected'";
    assert_eq!(SERVER.execute(schemas), "0", "a report changes nothing");
    drop(PostgresStore::open(&options).await.unwrap());
    let report = inspect(&options).await;
    assert!(matches!(report.tables, TableState::Current { version: 1.. }), "{report:?}");
    assert_eq!(report.missing_rights, Vec::<String>::new());
    assert_eq!(report.timeouts, []);
    assert_eq!(report.synchronous_commit, "on");
    assert!(!report.has_synchronous_standby && !report.is_transaction_pooled, "{report:?}");
    assert!(report.server_version.starts_with(|c: char| c.is_ascii_digit()), "{report:?}");
    // Both clocks are the same.
    let skew = report.clock_skew;
    assert!(skew.millis.abs() <= skew.error_millis + 2, "{skew:?}");
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let options = SERVER.new_schema().schema("inspected_older").unwrap();
    SERVER.execute(
        "CREATE SCHEMA inspected_older; \
         CREATE TABLE inspected_older.meta(name text PRIMARY KEY, value bigint NOT NULL); \
         INSERT INTO inspected_older.meta VALUES ('version', 0)",
    );
    // Version 0 has no tables yet.
    assert_eq!(inspect(&options).await.tables, TableState::Absent);
    SERVER.execute("UPDATE inspected_older.meta SET value = 99");
    let error = DatabaseReport::inspect(&options).await.unwrap_err();
    assert!(matches!(error, StoreError::Newer { .. }), "{error:?}");
}

#[tokio::test]
async fn missing_rights_are_listed() {
    SERVER.execute("CREATE ROLE reader LOGIN");
    let report = inspect(&options_of("reader", "not_there")).await;
    assert_eq!(report.missing_rights, ["CREATE on database postgres"]);
    let options = SERVER.new_schema().schema("inspected_rights").unwrap();
    drop(PostgresStore::open(&options).await.unwrap());
    SERVER.execute(
        "GRANT USAGE ON SCHEMA inspected_rights TO reader; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA inspected_rights TO reader; \
         REVOKE UPDATE, DELETE ON inspected_rights.tasks FROM reader",
    );
    let report = inspect(&options_of("reader", "inspected_rights")).await;
    let expect = [
        "CREATE on schema inspected_rights",
        "UPDATE on tasks",
        "DELETE on tasks",
        "ownership of event_spans (to create partitions)",
        "ownership of events (to create partitions)",
    ];
    assert_eq!(report.missing_rights, expect);
}

#[tokio::test]
async fn settings_of_a_role_are_reported() {
    SERVER.execute(
        "CREATE ROLE hasty LOGIN; ALTER ROLE hasty SET statement_timeout = '1500ms'; \
         ALTER ROLE hasty SET idle_in_transaction_session_timeout = '1min'; \
         ALTER ROLE hasty SET synchronous_commit = off",
    );
    let report = inspect(&options_of("hasty", "not_there")).await;
    let timeout = |name: &str, millis| DatabaseTimeout {
        name: name.to_owned(),
        timeout: Duration::from_millis(millis),
    };
    let expect = [
        timeout("idle_in_transaction_session_timeout", 60_000),
        timeout("statement_timeout", 1_500),
    ];
    assert_eq!(report.timeouts, expect);
    assert_eq!(report.synchronous_commit, "off");
}

#[tokio::test]
async fn a_synchronous_standby_is_seen_unless_the_role_does_not_wait_for_it() {
    let server = TestServer::start();
    server.execute(
        "CREATE ROLE local_only LOGIN; ALTER ROLE local_only SET synchronous_commit = local",
    );
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (other)'");
    server.execute("SELECT pg_reload_conf()");
    let inspect_as = async |login: &str| {
        inspect(&PostgresOptions::from_url(&server.url_of(login)).unwrap()).await
    };
    // The server reads its settings a moment later.
    while !inspect_as("brigade").await.has_synchronous_standby {}
    assert!(!inspect_as("local_only").await.has_synchronous_standby);
}

#[tokio::test]
async fn a_replica_is_named_by_store_and_report() {
    let replica = TestServer::start_replica();
    let options = PostgresOptions::from_url(&replica.url()).unwrap();
    let opened = PostgresStore::open(&options).await.unwrap_err();
    let inspected = DatabaseReport::inspect(&options).await.unwrap_err();
    for error in [opened, inspected] {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
        assert!(error.to_string().contains("replica; connect to the primary"), "{error}");
    }
}

#[tokio::test]
async fn a_pooler_of_transactions_is_seen_and_carries_a_store() {
    let pooler = TransactionPooler::start(&SERVER.socket_path(), 3);
    let options = PostgresOptions::from_url(&pooler.url()).unwrap().schema("pooled").unwrap();
    let store = PostgresStore::open(&options).await.unwrap();
    assert_eq!(store.open_lane().await.unwrap(), Lane(0));
    let report = inspect(&options).await;
    assert!(report.is_transaction_pooled, "{report:?}");
    assert!(matches!(report.tables, TableState::Current { .. }), "{report:?}");
}
