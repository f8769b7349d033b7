//! Timeouts of a role, which the server applies to its statements.

use std::time::Duration;

use brigade_postgres::test_server::TestServer;
use brigade_postgres::{PostgresOptions, PostgresStore};
use brigade_store::{Batch, Store, StoreError};

use crate::late_commits::opening;

/// The timeout of each role.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Opens a store as a role with a timeout.
async fn open_as(server: &TestServer, role: &str, timeout: &str) -> PostgresStore {
    let millis = TIMEOUT.as_millis();
    server.execute(&format!(
        "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET {timeout} = {millis}"
    ));
    let options = PostgresOptions::from_url(&server.url_of(role)).unwrap();
    PostgresStore::open(&options.schema(role).unwrap()).await.unwrap()
}

/// Waits until a statement waits for longer than the timeout.
async fn wait_for_late(server: &TestServer, event: &str) {
    let late = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE {event} AND query LIKE '%commit_batch%' \
         AND clock_timestamp() - query_start > 5 * interval '{} ms'",
        TIMEOUT.as_millis()
    );
    while server.execute(&late) == "0" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_commit_waits_for_locks_longer_than_the_lock_timeout() {
    let server = TestServer::start();
    let store = open_as(&server, "patient", "lock_timeout").await;
    let lane = store.open_lane().await.unwrap();
    let batch = Batch { lane, sessions: vec![opening(1)], ..Batch::default() };
    let mut held = server.hold_lock("SELECT FROM patient.lanes FOR UPDATE");
    let (committed, ()) = tokio::join!(store.commit(&batch), async {
        wait_for_late(&server, "wait_event_type = 'Lock'").await;
        held.release();
    });
    committed.unwrap();
}

#[tokio::test]
async fn a_statement_timeout_refuses_a_commit_that_has_not_begun_to_be_stored() {
    let server = TestServer::start();
    let store = open_as(&server, "hasty", "statement_timeout").await;
    let lane = store.open_lane().await.unwrap();
    let batch = Batch { lane, sessions: vec![opening(1)], ..Batch::default() };
    let mut held = server.hold_lock("SELECT FROM hasty.lanes FOR UPDATE");
    let refused = store.commit(&batch).await.unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
    held.release();
    // Nothing is in doubt: the writer goes on in its generation.
    store.refuse_late_commits(lane).await.unwrap();
    assert_eq!(server.execute("SELECT generation FROM hasty.lanes"), "0");
    assert_eq!(server.execute("SELECT count(*) FROM hasty.sessions"), "0");
    store.commit(&batch).await.unwrap();
}

#[tokio::test]
async fn a_statement_timeout_does_not_end_the_wait_for_a_standby() {
    let server = TestServer::start();
    let store = open_as(&server, "hasty", "statement_timeout").await;
    let lane = store.open_lane().await.unwrap();
    let batch = Batch { lane, sessions: vec![opening(1)], ..Batch::default() };
    let set_standbys = |names: &str| {
        server.execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        server.execute("SELECT pg_reload_conf()");
    };
    set_standbys("FIRST 1 (other)");
    while server.execute("SHOW synchronous_standby_names").is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let committing = store.commit(&batch);
    let released = async {
        wait_for_late(&server, "wait_event = 'SyncRep'").await;
        // ALTER SYSTEM does not wait for a standby.
        set_standbys("");
    };
    let (committed, ()) = tokio::join!(committing, released);
    committed.unwrap();
}
