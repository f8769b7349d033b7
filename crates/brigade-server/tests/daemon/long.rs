//! What is too long for a line is said to be so, and the conversation goes on.

use brigade_model::call::WaitMode;
use brigade_model::refusal::RefusalKind;
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{JobContext, JobError, NewTask};
use brigade_server::frames::{ClientRole, LINE_BYTES_MAX};
use brigade_server::requests::{ShowTaskRequest, StatusRequest, WaitRequest};
use brigade_server::{ClientError, DaemonConnection, StateDir};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;

use crate::support::{House, RawClient, SESSION, refused, target};

#[tokio::test]
async fn an_answer_that_is_too_long_is_refused() {
    let house = House::open(|builder| {
        let job = |_: JobContext, (): ()| async { Ok::<_, JobError>("x".repeat(1_000_000)) };
        builder.job("much", RecoveryPolicy::resume(3), job)
    })
    .await;
    let session = house.runtime.session(SESSION).await.unwrap();
    let spawned = session.spawn_all((0..20).map(|_| NewTask::job("much", ()))).await.unwrap();
    let tasks = spawned.iter().map(|task| task.as_ref().unwrap().address()).collect();
    let operator = house.operator().await;
    let wait =
        WaitRequest { session: SESSION.to_owned(), tasks, mode: WaitMode::All, timeout_ms: None };
    let refusal = refused(operator.call(wait.clone()).await, RefusalKind::Limit);
    assert!(refusal.message.ends_with("ask for less"), "{refusal}");
    let less = WaitRequest { tasks: wait.tasks[..5].to_vec(), ..wait };
    assert_eq!(operator.call(less).await.unwrap().ended.len(), 5, "over the same connection");
}

#[tokio::test]
async fn a_question_that_is_too_long_is_not_asked() {
    let house = House::open(|builder| builder).await;
    let operator = house.operator().await;
    let long = ShowTaskRequest { target: target(&"x".repeat(LINE_BYTES_MAX as usize)) };
    refused(operator.call(long).await, RefusalKind::Limit);
    assert!(operator.call(StatusRequest {}).await.is_ok(), "over the same connection");
}

#[tokio::test]
async fn a_refusal_that_repeats_a_long_question_is_cut_off() {
    let house = House::open(|builder| builder).await;
    let mut client = RawClient::connect(&house).await;
    let around = json!({ "id": 7, "ask": "" }).to_string().len() + 1;
    let nonsense = "x".repeat(LINE_BYTES_MAX as usize - around);
    client.say(&json!({ "id": 7, "ask": nonsense })).await;
    let answer = client.hear().await;
    assert_eq!((&answer["id"], &answer["refused"]["kind"]), (&json!(7), &json!("limit")));
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_not_taken_for_a_daemon_that_went_away() {
    let folder = tempfile::tempdir().unwrap();
    let places = StateDir::new(folder.path());
    places.create().unwrap();
    let listener = UnixListener::bind(places.socket_path()).unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with its one client")]
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        lines.next_line().await.unwrap();
        writer.write_all(b"{\"protocol\":1,\"version\":\"0.1.0\",\"pid\":1}\n").await.unwrap();
        lines.next_line().await.unwrap();
        let _ = writer.write_all(&vec![b'x'; LINE_BYTES_MAX as usize + 1]).await;
        lines.next_line().await
    });
    let client = DaemonConnection::connect(&places, ClientRole::Operator).await.unwrap();
    match client.call(StatusRequest {}).await {
        Err(ClientError::Malformed(problem)) => {
            assert!(problem.contains("longer than"), "{problem}")
        }
        other => panic!("{other:?}"),
    }
}
