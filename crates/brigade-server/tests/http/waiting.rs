//! Waits for tasks.

use brigade_protocol::http::TokenScope;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{TEST_TIMEOUT, TestResponse};
use crate::task_server::TaskServer;

impl TaskServer {
    async fn wait_as(&self, secret: &str, query: &str, secs: &str, body: Value) -> TestResponse {
        let path = format!("/v1/sessions/{}/wait{query}", self.session);
        let prefer = format!("wait={secs}");
        let headers = [("prefer", prefer.as_str())];
        self.send_with(secret, &path, &headers, Some(body)).await
    }

    /// Opens a wait of ten minutes, whose answer can be read from the socket.
    pub(crate) async fn open_wait(&self, secret: &str, task: &str) -> TcpStream {
        let body = json!({ "tasks": [task] }).to_string();
        let head = format!(
            "POST /v1/sessions/{}/wait HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n\
             Prefer: wait=600\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Expect: 100-continue\r\n\r\n",
            self.session,
            body.len()
        );
        let mut stream = TcpStream::connect(self.server.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server asks for the body when the route reads it.
        let mut answer = vec![0; 4096];
        let read = timeout(TEST_TIMEOUT, stream.read(&mut answer)).await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 100 "), "{answer}");
        stream.write_all(body.as_bytes()).await.unwrap();
        stream
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_any_or_all_tasks_or_with_its_time() {
    let server = TaskServer::start().await;
    let operator = server.server.operator.clone();
    let first = server.start_job("echo", json!(1)).await;
    let second = server.start_job("echo", json!(2)).await;
    let both = json!([first, second]);
    let any = json!({ "tasks": both, "mode": "any" });
    let all = json!({ "tasks": both, "mode": "all" });
    let waited = server.wait_as(&operator, "", "0", any.clone()).await.expect(200);
    assert_eq!(waited["done"], false);
    assert_eq!(waited["running"].as_array().unwrap().len(), 2);
    assert_eq!(waited["ended"], json!([]));
    server.post(&first, "messages", json!({ "body": "soup" })).await.expect(202);
    let waited = server.wait_as(&operator, "", "600", any).await.expect(200);
    assert_eq!(waited["done"], true);
    assert_eq!(waited["ended"][0]["id"], json!(first));
    assert_eq!(waited["ended"][0]["result"], "soup");
    assert_eq!(waited["running"][0]["id"], json!(second));
    let waited = server.wait_as(&operator, "", "0", all.clone()).await.expect(200);
    assert_eq!(waited["done"], false);
    server.post(&second, "messages", json!({ "body": null })).await.expect(202);
    let waited = server.wait_as(&operator, "", "600", all).await.expect(200);
    assert_eq!(waited["ended"].as_array().unwrap().len(), 2);
    assert_eq!(waited["ended"][1]["result"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_collects_for_clients_and_on_request() {
    let server = TaskServer::start().await;
    let operator = server.server.operator.clone();
    let reader = server.server.create_token("eve", TokenScope::ReadOnly, None).await;
    let client = server.client("bob").await;
    let job = json!({ "kind": "job", "job": "burn", "arguments": null });
    let task = server.start_as(&client, job.clone()).await;
    let body = json!({ "tasks": [task] });
    for secret in [&operator, &reader] {
        let waited = server.wait_as(secret, "", "30", body.clone()).await.expect(200);
        assert_eq!(waited["ended"][0]["outcome"]["type"], "failed");
        assert_eq!(waited["ended"][0]["collected"], false, "{waited}");
    }
    let refused = server.wait_as(&reader, "?collect=true", "30", body.clone()).await;
    refused.expect_problem(403, "forbidden");
    let waited = server.wait_as(&client, "", "30", body.clone()).await.expect(200);
    assert_eq!(waited["ended"][0]["collected_before"], false);
    assert_eq!(server.get(&task, "").await.expect(200)["collected"], true);
    let again = server.wait_as(&client, "", "30", body).await.expect(200);
    assert_eq!(again["ended"][0]["collected_before"], true);
    let task = server.start_as(&client, job).await;
    let body = json!({ "tasks": [task] });
    let waited = server.wait_as(&operator, "?collect=true", "30", body).await.expect(200);
    assert_eq!(waited["ended"][0]["collected_before"], false);
    assert_eq!(server.get(&task, "").await.expect(200)["collected"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_ends_a_wait_for_input() {
    let server = TaskServer::start().await;
    let task = server.start_job("ask", json!("How much salt?")).await;
    let waited = server.wait(&task).await;
    assert_eq!(waited["ended"], json!([]));
    assert_eq!(waited["running"][0]["questions"][0]["text"], "How much salt?");
    assert_eq!(waited["running"][0]["waits"][0]["type"], "question");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_waits_are_refused() {
    let server = TaskServer::start().await;
    let operator = server.server.operator.clone();
    let task = server.start_job("echo", json!(1)).await;
    let one = json!({ "tasks": [task] });
    for secs in ["601", "-1", "x", "", "1.5", "18446744073709551616"] {
        let refused = server.wait_as(&operator, "", secs, one.clone()).await;
        refused.expect_problem(400, "invalid");
        let headers = [("prefer", format!("wait={secs}"))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let path = format!("/v1/tasks/{task}");
        let shown = server.send_with(&operator, &path, &headers, None).await;
        shown.expect_problem(400, "invalid");
    }
    let other = server.server.runtime.session("other").await.unwrap().id();
    for wrong in [
        json!({ "tasks": [] }),
        json!({ "tasks": vec![&task; 1_001] }),
        json!({ "tasks": ["1"] }),
        json!({ "tasks": [7] }),
        json!({ "tasks": [format!("{other}.1")] }),
        json!({ "tasks": [task], "mode": "some" }),
        json!({ "tasks": [task], "until": "noon" }),
        json!({ "tasks": [task], "timeout": 3 }),
        json!({}),
    ] {
        server.wait_as(&operator, "", "0", wrong).await.expect_problem(400, "invalid");
    }
    let missing = json!({ "tasks": [format!("{}.99", server.session)] });
    server.wait_as(&operator, "", "0", missing).await.expect_problem(404, "not_found");
    server.wait_as(&operator, "?collect=7", "0", one).await.expect_problem(400, "invalid");
    let prefer = [("prefer", "wait=0")];
    let path = format!("/v1/tasks/{task}");
    let shown = server.send_with(&operator, &path, &prefer, None).await.expect(200);
    assert_eq!(shown["alive"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_a_wait() {
    let server = TaskServer::start().await;
    let task = server.start_job("echo", json!(1)).await;
    let mut stream = server.open_wait(&server.server.operator, &task).await;
    let TaskServer { server, dir: _dir, .. } = server;
    let mut answer = Vec::new();
    let finished = async {
        stream.read_to_end(&mut answer).await.unwrap();
    };
    let (_, restarted) = tokio::join!(timeout(TEST_TIMEOUT, finished), server.restart(|it| it));
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    drop(restarted);
}
