//! Several listeners of one server, and one at a path of a proxy.

use std::net::{Ipv4Addr, SocketAddr};

use brigade_protocol::http::TokenScope;
use brigade_protocol::requests::ListenHttpRequest;
use brigade_server::http::ListenOptions;

use brigade_model::refusal::Refusal;
use brigade_runtime::{Job, JobContext};
use reqwest::Method;
use serde_json::json;

use crate::sse_client::SseClient;
use crate::support::TestServer;

#[tokio::test(flavor = "multi_thread")]
async fn another_listener_does_not_double_the_requests_of_a_token() {
    let listen = ListenOptions {
        behind_proxy: true,
        ..ListenOptions::serve(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    };
    let mut server = TestServer::start_with(listen, |builder| builder).await;
    let url = server.connect().await.call(ListenHttpRequest {}).await.unwrap().url;
    let other: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
    assert_ne!(other.port(), server.address.port());
    let secret = server.create_token("eve", TokenScope::ReadOnly, None).await;
    let mut streams = Vec::new();
    for count in 0..128 {
        if count == 64 {
            server.address = other;
        }
        let stream = SseClient::open_as(&server, &secret, "/v1/events", None).await;
        streams.push(stream.unwrap());
    }
    let refused = SseClient::open_as(&server, &secret, "/v1/events", None).await;
    refused.err().unwrap().expect_problem(429, "limit");
}

const REST: Job<u32, ()> = Job::new("rest");

async fn rest(_: JobContext, _: u32) -> Result<(), Refusal> {
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_serves_all_routes_at_a_path() {
    let mut options = ListenOptions::serve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    options.behind_proxy = true;
    options.base_path = "/tools/brigade".parse().unwrap();
    let server = TestServer::start_with(options, |builder| builder.job(REST, rest)).await;
    let redirected = server.get("/tools/brigade").await;
    // The client follows: the page is found, and its URLs are relative.
    assert_eq!(redirected.status, 200);
    let document = server.get("/tools/brigade/openapi.json").await.expect(200);
    assert_eq!(document["servers"][0]["url"], "/tools/brigade");
    let session = server.runtime.session("today").await.unwrap().id();
    for number in 0..3 {
        let job = json!({ "kind": "job", "job": "rest", "arguments": number });
        let path = format!("/tools/brigade/v1/sessions/{session}/tasks");
        let started = server.post(&path, job).await;
        let location = started.headers["location"].to_str().unwrap().to_owned();
        let id = started.expect(201)["id"].as_str().unwrap().to_owned();
        assert_eq!(location, format!("/tools/brigade/v1/tasks/{id}"));
    }
    // The proxy may pass the path on or remove it. Links have it in both cases.
    for path in ["/tools/brigade/v1/tasks", "/v1/tasks"] {
        let page = server.get(&format!("{path}?ended=true&limit=2")).await;
        let link = page.headers["link"].to_str().unwrap().to_owned();
        assert_eq!(page.expect(200)["items"].as_array().unwrap().len(), 2);
        assert!(link.starts_with("</tools/brigade/v1/tasks?"), "{link}");
        let next = link.trim_start_matches('<').split('>').next().unwrap();
        let page = server.get(next).await.expect(200);
        assert_eq!(page["items"].as_array().unwrap().len(), 1);
    }
    for wrong in ["/tools/v1/tasks", "/tools/brigadev1/tasks", "/tools/brigade/tools/brigade/docs"]
    {
        server.get(wrong).await.expect_problem(404, "not_found");
    }
    let unknown = server.send_as("", Method::GET, "/tools/brigade/v1/tasks", None).await;
    unknown.expect_problem(401, "unauthenticated");
}
