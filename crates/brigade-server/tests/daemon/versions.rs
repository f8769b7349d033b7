//! Daemons and clients of versions that are far apart.

use brigade_server::frames::{ClientRole, PROTOCOL_VERSION};
use brigade_server::operator_key::OperatorKey;
use brigade_server::requests::{ListTasksRequest, ShutdownRequest, StatusRequest};
use brigade_server::{ClientError, DaemonConnection, StateDir};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::time::timeout;

use crate::support::{House, RawClient, TOO_LONG};

#[tokio::test]
async fn a_client_of_any_protocol_learns_who_serves_and_can_make_it_leave() {
    for protocol in [0, PROTOCOL_VERSION + 2, 1_000] {
        let house = House::open(|builder| builder).await;
        let (mut client, welcome) = RawClient::greet(&house, protocol).await;
        assert_eq!(welcome["protocol"], PROTOCOL_VERSION, "{welcome}");
        assert_eq!(welcome["pid"], std::process::id(), "{welcome}");
        client.say(&json!({ "id": 1, "ask": { "list": {} } })).await;
        assert_eq!(client.hear().await["refused"]["kind"], "unavailable");
        client.say(&json!({ "id": 2, "ask": { "status": {} } })).await;
        assert_eq!(client.hear().await["done"]["protocol"], PROTOCOL_VERSION);
        client.say(&json!({ "id": 3, "ask": { "leave": {} } })).await;
        assert_eq!(client.hear().await, json!({ "id": 3, "done": null }));
        timeout(TOO_LONG, house.left()).await.expect("it leaves");
    }
}

#[tokio::test]
async fn a_newer_client_that_knows_the_older_protocol_is_served() {
    let house = House::open(|builder| builder).await;
    let hello = json!({
        "protocol": PROTOCOL_VERSION + 1, "oldest": PROTOCOL_VERSION, "version": "9.9.9", "who": "operator",
        "operator_key": OperatorKey::read(&house.places),
    });
    let (mut client, welcome) = RawClient::say_hello(&house, &hello).await;
    assert_eq!(welcome["protocol"], PROTOCOL_VERSION);
    client.say(&json!({ "id": 1, "ask": { "list": {} } })).await;
    assert_eq!(client.hear().await["done"], json!([]));
}

/// What a daemon that speaks nothing we know is asked by this client.
async fn heard_by_a_stranger(listener: UnixListener) -> Vec<Value> {
    let (stream, _) = listener.accept().await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    lines.next_line().await.unwrap();
    let welcome = json!({ "protocol": PROTOCOL_VERSION + 7, "version": "0.0.1", "pid": 1 });
    writer.write_all(format!("{welcome}\n").as_bytes()).await.unwrap();
    let mut heard = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let line: Value = serde_json::from_str(&line).unwrap();
        let answer = json!({ "id": line["id"], "done": null });
        heard.push(line["ask"].clone());
        writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
    }
    heard
}

#[tokio::test]
async fn a_daemon_of_another_protocol_is_only_asked_what_all_understand() {
    let folder = tempfile::tempdir().unwrap();
    let places = StateDir::new(folder.path());
    places.create().unwrap();
    let listener = UnixListener::bind(places.socket_path()).unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with its one client")]
    let heard = tokio::spawn(heard_by_a_stranger(listener));
    let client = DaemonConnection::connect(&places, ClientRole::Operator).await.unwrap();
    for understood in
        [client.check_protocol(), client.call(ListTasksRequest::default()).await.map(|_| ())]
    {
        assert!(matches!(understood, Err(ClientError::VersionMismatch { .. })), "{understood:?}");
    }
    assert!(matches!(client.call(StatusRequest {}).await, Err(ClientError::Malformed(_))));
    client.call(ShutdownRequest {}).await.unwrap();
    drop(client);
    assert_eq!(heard.await.unwrap(), [json!({ "status": {} }), json!({ "leave": {} })]);
}
