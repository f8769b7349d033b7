//! Two listeners of one server share its limits.

use std::net::{Ipv4Addr, SocketAddr};

use brigade_protocol::http::TokenScope;
use brigade_protocol::requests::ListenHttpRequest;
use brigade_server::http::ListenOptions;

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
