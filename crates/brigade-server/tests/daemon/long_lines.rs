//! Lines over the maximum length are refused, and the connection stays usable.

use brigade_model::call::WaitMode;
use brigade_model::refusal::RefusalKind;
use brigade_protocol::frames::{ClientRole, LINE_BYTES_MAX, PROTOCOL_VERSION};
use brigade_protocol::requests::{ShowTaskRequest, StatusRequest, WaitRequest, WaitUntil};
use brigade_protocol::{ClientError, DaemonConnection, StateDir};
use brigade_runtime::{Job, JobContext, JobError, NewTask};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

use crate::support::{RawClient, SESSION, TestDaemon, expect_refusal, target};

#[tokio::test]
async fn a_reply_that_is_too_long_is_refused() {
    let daemon = TestDaemon::start(|builder| {
        let job = |_: JobContext, (): ()| async { Ok::<_, JobError>("x".repeat(1_000_000)) };
        builder.job(Job::new("much"), job)
    })
    .await;
    let session = daemon.runtime.session(SESSION).await.unwrap();
    let spawned = session.spawn_all((0..20).map(|_| NewTask::job("much", ()))).await.unwrap();
    let tasks = spawned.iter().map(|task| task.as_ref().unwrap().address()).collect();
    let operator = daemon.operator().await;
    let wait = WaitRequest {
        session: SESSION.to_owned(),
        tasks,
        mode: WaitMode::All,
        timeout_ms: None,
        until: WaitUntil::Ended,
    };
    let refusal = expect_refusal(operator.call(wait.clone()).await, RefusalKind::Limit);
    assert!(refusal.message.ends_with("ask for less"), "{refusal}");
    let less = WaitRequest { tasks: wait.tasks[..5].to_vec(), ..wait };
    assert_eq!(operator.call(less).await.unwrap().ended.len(), 5, "over the same connection");
}

#[tokio::test]
async fn a_request_that_is_too_long_is_not_sent() {
    let daemon = TestDaemon::start(|builder| builder).await;
    let operator = daemon.operator().await;
    let long = ShowTaskRequest { target: target(&"x".repeat(LINE_BYTES_MAX as usize)) };
    expect_refusal(operator.call(long).await, RefusalKind::Limit);
    assert!(operator.call(StatusRequest {}).await.is_ok(), "over the same connection");
}

#[tokio::test]
async fn a_refusal_that_quotes_a_long_request_is_truncated() {
    let daemon = TestDaemon::start(|builder| builder).await;
    let mut client = RawClient::connect(&daemon).await;
    let overhead = json!({ "id": 7, "request": "" }).to_string().len() + 1;
    let nonsense = "x".repeat(LINE_BYTES_MAX as usize - overhead);
    client.send(&json!({ "id": 7, "request": nonsense })).await;
    let reply = client.receive().await;
    assert_eq!((&reply["id"], &reply["refused"]["kind"]), (&json!(7), &json!("limit")));
}

#[tokio::test]
async fn an_unreadable_reply_is_not_reported_as_a_disconnect() {
    let dir = tempfile::tempdir().unwrap();
    let state_dir = StateDir::new(dir.path());
    state_dir.create().unwrap();
    let listener = UnixListener::bind(state_dir.socket_path()).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the task ends with its one client")]
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        lines.next_line().await.unwrap();
        let welcome = json!({ "protocol": PROTOCOL_VERSION, "version": "0.1.0", "pid": 1 });
        writer.write_all(format!("{welcome}\n").as_bytes()).await.unwrap();
        lines.next_line().await.unwrap();
        let _ = writer.write_all(&vec![b'x'; LINE_BYTES_MAX as usize + 1]).await;
        lines.next_line().await
    });
    let client = DaemonConnection::connect(&state_dir, ClientRole::Operator).await.unwrap();
    match client.call(StatusRequest {}).await {
        Err(ClientError::Malformed(problem)) => {
            assert!(problem.contains("longer than"), "{problem}")
        }
        other => panic!("{other:?}"),
    }
}
