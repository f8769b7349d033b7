//! The bytes of the frames that are the same in every version of the protocol.
//!
//! Every daemon understands them and every client sends them, whatever the version of the other
//! side. A change of this file breaks installed daemons and clients.

use brigade_protocol::frames::{ClientRole, HelloFrame, PROTOCOL_VERSION, WelcomeFrame};
use brigade_protocol::operator_key::OperatorKey;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::support::{RawClient, TEST_TIMEOUT, TestDaemon};

#[test]
fn a_hello_has_these_bytes() {
    let hello = |role: &str| {
        format!(r#"{{"protocol":2,"oldest_protocol":1,"version":"0.1.0","role":{role}}}"#)
    };
    for (role, expected) in [
        (ClientRole::Operator, hello(r#""operator""#)),
        (ClientRole::Client("ide".to_owned()), hello(r#"{"client":"ide"}"#)),
        (ClientRole::SharedClient("ide".to_owned()), hello(r#"{"shared_client":"ide"}"#)),
    ] {
        let frame = HelloFrame {
            protocol: 2,
            oldest_protocol: Some(1),
            version: "0.1.0".to_owned(),
            role,
            operator_key: None,
            conversation: None,
        };
        assert_eq!(serde_json::to_string(&frame).unwrap(), expected);
        assert_eq!(serde_json::from_str::<HelloFrame>(&expected).unwrap(), frame);
    }
}

#[test]
fn a_welcome_has_these_bytes() {
    for expected in [
        r#"{"protocol":2,"version":"0.1.0","pid":4242}"#,
        r#"{"refused":{"kind":"forbidden","message":"no"},"version":"0.1.0","protocol":2}"#,
    ] {
        let frame: WelcomeFrame = serde_json::from_str(expected).unwrap();
        assert_eq!(serde_json::to_string(&frame).unwrap(), expected);
    }
}

/// A client of another version that knows nothing but the frozen frames.
#[tokio::test]
async fn a_daemon_replies_to_these_bytes() {
    let daemon = TestDaemon::start(|builder| builder).await;
    let key = serde_json::to_value(OperatorKey::read(&daemon.state_dir)).unwrap();
    let key = key.as_str().expect("the key is a string").to_owned();
    let stream = UnixStream::connect(daemon.state_dir.socket_path()).await.unwrap();
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let hello = format!(
        r#"{{"protocol":900,"oldest_protocol":900,"version":"90.0.0","role":"operator","operator_key":"{key}","conversation":"c1"}}"#
    );
    writer.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    let welcome = lines.next_line().await.unwrap().expect("a welcome");
    let expected = format!(
        r#"{{"protocol":{PROTOCOL_VERSION},"version":"{}","pid":{}}}"#,
        env!("CARGO_PKG_VERSION"),
        std::process::id()
    );
    assert_eq!(welcome, expected);

    writer.write_all(b"{\"id\":1,\"request\":{\"status\":{}}}\n").await.unwrap();
    let status = lines.next_line().await.unwrap().expect("the status");
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["id"], 1);
    for (field, is_right) in [
        ("version", Value::is_string as fn(&Value) -> bool),
        ("protocol", Value::is_u64),
        ("pid", Value::is_u64),
        ("state_dir", Value::is_string),
        ("uptime_ms", Value::is_u64),
        ("clients", Value::is_u64),
        ("sessions", Value::is_u64),
        ("alive_tasks", Value::is_u64),
    ] {
        assert!(is_right(&status["reply"][field]), "{field}: {status}");
    }

    writer.write_all(b"{\"id\":2,\"request\":{\"list_tasks\":{}}}\n").await.unwrap();
    let refused: Value =
        serde_json::from_str(&lines.next_line().await.unwrap().expect("a refusal")).unwrap();
    assert_eq!(refused["id"], 2);
    assert_eq!(refused["refused"]["kind"], json!("unavailable"), "{refused}");

    writer.write_all(b"{\"id\":3,\"request\":{\"shutdown\":{}}}\n").await.unwrap();
    let reply = lines.next_line().await.unwrap().expect("the reply");
    assert_eq!(reply, r#"{"id":3,"reply":null}"#);
    timeout(TEST_TIMEOUT, daemon.wait_stopped()).await.expect("the daemon shuts down");
}

/// A client that the daemon refuses must not take it for an obsolete one, which is stopped.
#[tokio::test]
async fn a_refusal_names_the_protocol() {
    let daemon = TestDaemon::start(|builder| builder).await;
    let key = OperatorKey::read(&daemon.state_dir);
    for hello in [
        json!("not a hello"),
        json!({ "protocol": 2, "version": "0.1.0", "role": "operator" }),
        json!({
            "protocol": 2, "version": "0.1.0", "role": { "client": "ide" }, "operator_key": key,
            "conversation": "not an id \u{7}",
        }),
    ] {
        let (_, refused) = RawClient::connect_with_hello(&daemon, &hello).await;
        assert_eq!(refused["protocol"], PROTOCOL_VERSION, "{hello}: {refused}");
        assert!(refused["refused"].is_object(), "{hello}: {refused}");
    }
}
