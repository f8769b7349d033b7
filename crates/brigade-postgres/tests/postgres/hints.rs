//! Hints by NOTIFY and LISTEN.

use std::time::Duration;

use brigade_postgres::{PostgresOptions, PostgresStore};
use brigade_store::Fleet;

use crate::support::SERVER;

async fn open(schema: &str, settings: &str) -> PostgresStore {
    let url = format!("{}?application_name={schema}&{settings}", SERVER.url());
    let options = PostgresOptions::from_url(&url).unwrap().schema(schema).unwrap();
    PostgresStore::open(&options).await.unwrap()
}

/// Returns the statement that counts the connections of a schema that listen.
fn listening(schema: &str) -> String {
    format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}' \
         AND query LIKE 'LISTEN%' AND state = 'idle'"
    )
}

/// Waits until a connection of a schema listens.
async fn wait_for_listener(schema: &str) {
    while SERVER.execute(&listening(schema)) == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends hints until the future is done.
async fn notify_until(sender: &PostgresStore, done: impl Future<Output = ()>) {
    let notifying = async {
        loop {
            sender.notify().await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = done => {}
        () = notifying => {}
    }
}

#[tokio::test]
async fn a_store_ignores_its_own_hints() {
    let store = open("own_hints", "").await;
    let other = open("own_hints", "").await;
    let waiting = store.next_hint();
    let order = async {
        wait_for_listener("own_hints").await;
        for _ in 0..20 {
            store.notify().await.unwrap();
        }
        std::future::pending::<()>().await;
    };
    let both = async {
        tokio::select! {
            () = waiting => {}
            () = order => {}
        }
    };
    let early = tokio::time::timeout(Duration::from_millis(300), both).await;
    assert!(early.is_err(), "a store woke itself");
    notify_until(&other, store.next_hint()).await;
}

#[tokio::test]
async fn all_waiting_nodes_of_a_store_wake() {
    let store = open("all_wake", "").await;
    let other = open("all_wake", "").await;
    let all = async {
        tokio::join!(store.next_hint(), store.next_hint(), store.next_hint());
    };
    notify_until(&other, all).await;
    assert_eq!(SERVER.execute(&listening("all_wake")), "1");
    // Another schema has another channel.
    let elsewhere = open("all_wake_2", "").await;
    elsewhere.notify().await.unwrap();
}

#[tokio::test]
async fn a_lost_listener_connects_again_and_wakes() {
    let store = open("lost_listener", "").await;
    let waiting = store.next_hint();
    let ended = async {
        wait_for_listener("lost_listener").await;
        SERVER.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = 'lost_listener' AND query LIKE 'LISTEN%'",
        );
        std::future::pending::<()>().await;
    };
    // Hints may have been lost, so it wakes without one.
    tokio::select! {
        () = waiting => {}
        () = ended => {}
    }
    wait_for_listener("lost_listener").await;
    let other = open("lost_listener", "").await;
    notify_until(&other, store.next_hint()).await;
    // The listener ends with the store.
    drop(store);
    while SERVER.execute(&listening("lost_listener")) != "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_store_that_cannot_listen_works() {
    let nowhere = "listen_url=postgres%3A%2F%2Fada%40127.0.0.1%3A1%2Fkitchen";
    for (schema, settings) in [("listen_off", "listen=off"), ("listen_nowhere", nowhere)] {
        let store = open(schema, settings).await;
        let other = open(schema, "").await;
        let waiting = tokio::time::timeout(Duration::from_millis(300), async {
            notify_until(&other, store.next_hint()).await;
        });
        assert!(waiting.await.is_err(), "{schema}");
        assert!(store.nodes().await.unwrap().is_empty());
        store.notify().await.unwrap();
    }
    // Another URL of the same database is used for LISTEN alone.
    let mut url = format!("{}?application_name=listen_alone", SERVER.url());
    for (plain, encoded) in [("%", "%25"), ("@", "%40"), ("/", "%2F"), (":", "%3A"), ("?", "%3F")] {
        url = url.replace(plain, encoded);
    }
    let store = open("listen_other", &format!("listen_url={url}")).await;
    let other = open("listen_other", "").await;
    notify_until(&other, store.next_hint()).await;
    assert_eq!(SERVER.execute(&listening("listen_alone")), "1");
}

#[tokio::test]
async fn hints_that_are_sent_at_once_are_shared() {
    let store = open("shared_hints", "").await;
    let other = open("shared_hints", "").await;
    let send = || store.notify();
    let waiting = other.next_hint();
    let sent = async {
        wait_for_listener("shared_hints").await;
        let all = tokio::join!(send(), send(), send(), send(), send(), send(), send(), send());
        all.0.unwrap();
        all.7.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = waiting => {}
        () = sent => {}
    }
    let sent = "SELECT count(DISTINCT pid) FROM pg_stat_activity \
                WHERE application_name = 'shared_hints' AND query LIKE '%pg_notify%'";
    assert_eq!(SERVER.execute(sent), "1");
}
