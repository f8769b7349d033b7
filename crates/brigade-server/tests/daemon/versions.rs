//! Daemons and clients with different protocol versions.

use brigade_protocol::frames::{ClientRole, PROTOCOL_VERSION};
use brigade_protocol::operator_key::OperatorKey;
use brigade_protocol::requests::{ListTasksRequest, ShutdownRequest, StatusRequest};
use brigade_protocol::{ClientError, DaemonConnection, StateDir};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::time::timeout;

use crate::support::{RawClient, TEST_TIMEOUT, TestDaemon};

#[tokio::test]
async fn a_client_of_any_protocol_gets_a_status_and_can_shut_the_daemon_down() {
    for protocol in [0, PROTOCOL_VERSION + 2, 1_000] {
        let daemon = TestDaemon::start(|builder| builder).await;
        let (mut client, welcome) = RawClient::connect_with_protocol(&daemon, protocol).await;
        assert_eq!(welcome["protocol"], PROTOCOL_VERSION, "{welcome}");
        assert_eq!(welcome["pid"], std::process::id(), "{welcome}");
        client.send(&json!({ "id": 1, "request": { "list_tasks": {} } })).await;
        assert_eq!(client.receive().await["refused"]["kind"], "unavailable");
        client.send(&json!({ "id": 2, "request": { "status": {} } })).await;
        assert_eq!(client.receive().await["reply"]["protocol"], PROTOCOL_VERSION);
        client.send(&json!({ "id": 3, "request": { "shutdown": {} } })).await;
        assert_eq!(client.receive().await, json!({ "id": 3, "reply": null }));
        timeout(TEST_TIMEOUT, daemon.wait_stopped()).await.expect("the daemon shuts down");
    }
}

#[tokio::test]
async fn a_newer_client_that_knows_the_older_protocol_is_served() {
    let daemon = TestDaemon::start(|builder| builder).await;
    let hello = json!({
        "protocol": PROTOCOL_VERSION + 1, "oldest_protocol": PROTOCOL_VERSION, "version": "9.9.9",
        "role": "operator", "operator_key": OperatorKey::read(&daemon.state_dir),
    });
    let (mut client, welcome) = RawClient::connect_with_hello(&daemon, &hello).await;
    assert_eq!(welcome["protocol"], PROTOCOL_VERSION);
    client.send(&json!({ "id": 1, "request": { "list_tasks": {} } })).await;
    assert_eq!(client.receive().await["reply"], json!([]));
}

/// Serves one client as a daemon of an unknown protocol. Returns the requests that it got.
async fn serve_unknown_protocol(listener: UnixListener) -> Vec<Value> {
    let (stream, _) = listener.accept().await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    lines.next_line().await.unwrap();
    let welcome = json!({ "protocol": PROTOCOL_VERSION + 7, "version": "0.0.1", "pid": 1 });
    writer.write_all(format!("{welcome}\n").as_bytes()).await.unwrap();
    let mut requests = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let line: Value = serde_json::from_str(&line).unwrap();
        let reply = json!({ "id": line["id"], "reply": null });
        requests.push(line["request"].clone());
        writer.write_all(format!("{reply}\n").as_bytes()).await.unwrap();
    }
    requests
}

#[tokio::test]
async fn a_daemon_of_another_protocol_gets_only_version_independent_requests() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = StateDir::new(dir.path());
    state_dir.create().unwrap();
    let listener = UnixListener::bind(state_dir.socket_path()).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the task ends with its one client")]
    let requests = tokio::spawn(serve_unknown_protocol(listener));
    let client = DaemonConnection::connect(&state_dir, ClientRole::Operator).await.unwrap();
    for checked in
        [client.check_protocol(), client.call(ListTasksRequest::default()).await.map(|_| ())]
    {
        assert!(matches!(checked, Err(ClientError::VersionMismatch { .. })), "{checked:?}");
    }
    assert!(matches!(client.call(StatusRequest {}).await, Err(ClientError::Malformed(_))));
    client.call(ShutdownRequest {}).await.unwrap();
    drop(client);
    assert_eq!(requests.await.unwrap(), [json!({ "status": {} }), json!({ "shutdown": {} })]);
}
