//! Nodes over HTTP.

use std::sync::Arc;

use brigade_protocol::http::TokenScope;
use brigade_runtime::{Clock, NodeOptions, SystemClock};
use brigade_store::{MemoryStore, Store};
use reqwest::Method;
use serde_json::json;

use crate::support::{SESSION, TestServer};

pub(crate) fn new_fleet_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::shared_by_nodes(|| SystemClock.now()))
}

async fn start_node(store: &Arc<dyn Store>, name: &str) -> TestServer {
    let store = store.clone();
    TestServer::start(|builder| builder.shared_store(store).node(NodeOptions::new(name))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_listed_and_drained() {
    let store = new_fleet_store();
    let one = start_node(&store, "one").await;
    let _two = start_node(&store, "rack/two").await;
    let listed = one.get("/v1/nodes").await.expect(200);
    assert_eq!(listed["fleet"], true);
    assert_eq!(listed["items"][0]["name"], "one");
    assert_eq!(
        (&listed["items"][0]["own"], &listed["items"][1]["own"]),
        (&json!(true), &json!(false))
    );
    let path = "/v1/nodes/rack%2Ftwo/drain";
    let drained = one.send(Method::POST, path, None).await.expect(200);
    assert_eq!((&drained["name"], &drained["state"]), (&json!("rack/two"), &json!("draining")));
    let undone = one.post(path, json!({ "draining": false })).await.expect(200);
    assert_eq!(undone["state"], "running");
    one.post("/v1/nodes/three/drain", json!({})).await.expect_problem(404, "not_found");
    one.post(path, json!({ "drain": true })).await.expect_problem(400, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_its_node() {
    let store = new_fleet_store();
    let server = start_node(&store, "one").await;
    let _two = start_node(&store, "two").await;
    let opened = server.post("/v1/sessions", json!({ "name": SESSION })).await.expect(201);
    assert_eq!(opened["node"], "one");
    let path = format!("/v1/sessions/{}", opened["id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.expect(200)["node"], "one");
    assert_eq!(server.get("/v1/sessions").await.expect(200)["items"][0]["node"], "one");
    let path = format!("{path}/move");
    server.post(&path, json!({ "node": "three" })).await.expect_problem(404, "not_found");
    server.post(&path, json!({})).await.expect_problem(400, "invalid");
    let absent = "/v1/sessions/00000000-0000-0000-0000-000000000000/move";
    server.post(absent, json!({ "node": "two" })).await.expect_problem(404, "not_found");
    let moved = server.post(&path, json!({ "node": "two" })).await.expect(200);
    assert_eq!(moved["id"], opened["id"]);
    while server.get("/v1/sessions").await.expect(200)["items"][0]["node"] != "two" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_operator_changes_nodes_and_a_client_sees_none() {
    let store = new_fleet_store();
    let server = start_node(&store, "one").await;
    let opened = server.post("/v1/sessions", json!({ "name": SESSION })).await.expect(201);
    let session = format!("/v1/sessions/{}", opened["id"].as_str().unwrap());
    let reader = server.create_token("eve", TokenScope::ReadOnly, None).await;
    let client = server.create_token("bob", TokenScope::Client, Some(SESSION)).await;
    let listed = server.send_as(&reader, Method::GET, "/v1/nodes", None).await.expect(200);
    assert_eq!(listed["items"][0]["name"], "one");
    server.send_as(&client, Method::GET, "/v1/nodes", None).await.expect_problem(403, "forbidden");
    let seen = server.send_as(&client, Method::GET, &session, None).await.expect(200);
    assert_eq!((&seen["id"], seen.get("node")), (&opened["id"], None));
    for token in [&reader, &client] {
        for (path, body) in [
            ("/v1/nodes/one/drain".to_owned(), json!({})),
            (format!("{session}/move"), json!({ "node": "one" })),
        ] {
            let response = server.send_as(token, Method::POST, &path, Some(body)).await;
            response.expect_problem(403, "forbidden");
        }
    }
    assert_eq!(server.get("/v1/nodes").await.expect(200)["items"][0]["state"], "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_fleet_lists_no_nodes() {
    let server = TestServer::start(|builder| builder).await;
    let listed = server.get("/v1/nodes").await.expect(200);
    assert_eq!(listed, json!({ "fleet": false, "items": [] }));
    let detail = server.post("/v1/nodes/one/drain", json!({})).await.expect_problem(400, "invalid");
    assert!(detail.contains("no node of a fleet"), "{detail}");
}
