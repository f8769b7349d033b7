//! Messages with keys and names, of clients of this protocol and of older ones.

use brigade_model::call::WaitMode;
use brigade_model::json::Json;
use brigade_model::refusal::RefusalKind;
use brigade_protocol::frames::{ClientRole, OLDEST_PROTOCOL_VERSION};
use brigade_protocol::requests::{AnyRequest, InboxRequest, SendRequest, WaitRequest, WaitUntil};
use brigade_protocol::{ClientError, DaemonConnection, StateDir};
use brigade_runtime::{Job, JobContext, JobError, NewTask};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

use crate::support::{RawClient, SESSION, TestDaemon, expect_refusal, target};

/// Starts a daemon with a job that waits for an approval and then returns the other message.
async fn start_order() -> TestDaemon {
    let daemon = TestDaemon::start(|builder| {
        builder.job(Job::new("order"), |ctx: JobContext, (): ()| async move {
            let approval: String = ctx.receive_as("approval").await?;
            let other: Json = ctx.receive().await?.body.clone();
            ctx.send_parent(&approval).named("approved").await?;
            Ok::<_, JobError>(vec![approval, other.decode::<String>()?])
        })
    })
    .await;
    let session = daemon.runtime.session_as(SESSION, "cook").await.unwrap();
    session.spawn(NewTask::job("order", ())).await.unwrap();
    daemon
}

fn approval(text: &str) -> SendRequest {
    SendRequest {
        key: Some("approval 17".to_owned()),
        name: Some("approval".to_owned()),
        ..SendRequest::new(target("1"), Json::of(text).unwrap())
    }
}

#[tokio::test]
async fn a_repeated_request_with_a_key_returns_the_same_number() {
    let daemon = start_order().await;
    let cook = daemon.client("cook").await;
    let other = SendRequest::new(target("1"), Json::of("no nuts").unwrap());
    assert_eq!(cook.call(other).await.unwrap(), [1]);
    for _ in 0..2 {
        assert_eq!(cook.call(approval("yes")).await.unwrap(), [2]);
    }
    let refusal = expect_refusal(cook.call(approval("no")).await, RefusalKind::Conflict);
    assert!(refusal.message.contains("which differs in: body"), "{refusal}");
    let unnamed = SendRequest { name: None, ..approval("yes") };
    expect_refusal(cook.call(unnamed).await, RefusalKind::Conflict);

    let wait = WaitRequest {
        session: SESSION.to_owned(),
        tasks: vec!["1".to_owned()],
        mode: WaitMode::All,
        timeout_ms: None,
        until: WaitUntil::Ended,
    };
    let waited = cook.call(wait).await.unwrap();
    let result = waited.ended[0].result.as_ref().expect("a result");
    let result: Vec<String> = result.decode().unwrap();
    assert_eq!(result, ["yes", "no nuts"], "the name selects the message");
    assert_eq!(cook.call(approval("yes")).await.unwrap(), [2], "also after its end");
    let inbox = InboxRequest { session: SESSION.to_owned(), ..InboxRequest::default() };
    let items = cook.call(inbox).await.unwrap();
    assert_eq!(items[0].message_name.as_deref(), Some("approved"));
}

#[tokio::test]
async fn invalid_keys_and_names_are_refused_and_send_nothing() {
    let daemon = start_order().await;
    let cook = daemon.client("cook").await;
    let long_key = "k".repeat(257);
    let long_name = "n".repeat(65);
    for (key, name, problem) in [
        (Some(""), None, "is empty"),
        (Some(&*long_key), None, "257 bytes long; the maximum is 256"),
        (Some("a\nb"), None, "control character"),
        (None, Some(""), "is empty"),
        (None, Some(&*long_name), "65 characters long; the maximum is 64"),
        (None, Some(" approval"), "starts or ends with a space"),
        (None, Some("a\u{200b}b"), "invisible"),
    ] {
        let request = SendRequest {
            key: key.map(str::to_owned),
            name: name.map(str::to_owned),
            ..approval("yes")
        };
        let refusal = expect_refusal(cook.call(request).await, RefusalKind::Invalid);
        assert!(refusal.message.contains(problem), "{refusal}");
    }
    let both = SendRequest { closes_input: true, ..approval("yes") };
    let refusal = expect_refusal(cook.call(both).await, RefusalKind::Invalid);
    assert!(refusal.message.contains("a key stands for one message"), "{refusal}");
    let named_close =
        SendRequest { message: None, closes_input: true, key: None, ..approval("yes") };
    expect_refusal(cook.call(named_close).await, RefusalKind::Invalid);
    assert_eq!(cook.call(approval("yes")).await.unwrap(), [1], "nothing was sent before");
}

#[tokio::test]
async fn a_client_of_the_older_protocol_sends_without_key_and_name() {
    let daemon = start_order().await;
    let (mut client, welcome) =
        RawClient::connect_with_protocol(&daemon, OLDEST_PROTOCOL_VERSION).await;
    assert_eq!(welcome["protocol"], OLDEST_PROTOCOL_VERSION);
    let target = json!({ "session": SESSION, "task": "1" });
    let send = json!({ "target": target, "message": "hello", "closes_input": false });
    client.send(&json!({ "id": 1, "request": { "send": send } })).await;
    assert_eq!(client.receive().await, json!({ "id": 1, "reply": [1] }));
}

#[test]
fn a_request_without_key_and_name_has_the_bytes_of_the_older_protocol() {
    let send = SendRequest::new(target("1"), Json::of("hello").unwrap());
    let expected =
        r#"{"target":{"session":"kitchen","task":"1"},"message":"hello","closes_input":false}"#;
    assert_eq!(serde_json::to_string(&send).unwrap(), expected);
    assert!(!AnyRequest::from(send).is_repeatable());
    assert!(AnyRequest::from(approval("yes")).is_repeatable());
}

/// Serves one client as a daemon of the older protocol. Returns the requests that it got.
async fn serve_older_protocol(listener: UnixListener) -> Vec<Value> {
    let (stream, _) = listener.accept().await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    lines.next_line().await.unwrap();
    let welcome = json!({ "protocol": OLDEST_PROTOCOL_VERSION, "version": "0.0.1", "pid": 1 });
    writer.write_all(format!("{welcome}\n").as_bytes()).await.unwrap();
    let mut requests = Vec::new();
    while let Ok(Some(line)) = lines.next_line().await {
        let line: Value = serde_json::from_str(&line).unwrap();
        let reply = json!({ "id": line["id"], "reply": [1] });
        requests.push(line["request"]["send"]["message"].clone());
        writer.write_all(format!("{reply}\n").as_bytes()).await.unwrap();
    }
    requests
}

/// An older daemon would ignore both and accept the message twice.
#[tokio::test]
async fn a_key_or_a_name_is_not_sent_to_an_older_daemon() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = StateDir::new(dir.path());
    state_dir.create().unwrap();
    let listener = UnixListener::bind(state_dir.socket_path()).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the task ends with its one client")]
    let requests = tokio::spawn(serve_older_protocol(listener));
    let client = DaemonConnection::connect(&state_dir, ClientRole::Operator).await.unwrap();
    for request in [
        approval("both"),
        SendRequest { key: None, ..approval("name") },
        SendRequest { name: None, ..approval("key") },
    ] {
        let refused = client.call(request).await;
        assert!(matches!(refused, Err(ClientError::VersionMismatch { .. })), "{refused:?}");
    }
    let plain = SendRequest { key: None, name: None, ..approval("plain") };
    assert_eq!(client.call(plain).await.unwrap(), [1]);
    drop(client);
    assert_eq!(requests.await.unwrap(), ["plain"]);
}
