//! Output while it is produced: of processes and of agents.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use brigade_llm::scripted::{Script, ScriptedModel};
use brigade_protocol::http::TokenScope;
use brigade_runtime::{
    AgentOptions, JobContext, JobError, NewTask, OneModel, ProcessOptions, RuntimeBuilder, Session,
};
use serde_json::{Value, json};

use crate::sse_client::{SseClient, SseEvent};
use crate::support::{SESSION, TestServer};

struct TestCase {
    server: TestServer,
    session: Session,
    _dir: tempfile::TempDir,
}

impl TestCase {
    async fn start(build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let processes = ProcessOptions::new(dir.path());
        let server = TestServer::start(|builder| build(builder.processes(processes))).await;
        let session = server.runtime.session(SESSION).await.unwrap();
        Self { server, session, _dir: dir }
    }

    async fn open(&self, number: u32, path: &str) -> SseClient {
        SseClient::open(&self.server, &self.path(number, path)).await
    }

    fn path(&self, number: u32, path: &str) -> String {
        format!("/v1/tasks/{}.{number}/{path}", self.session.id())
    }
}

/// Returns all events of a stream that ends.
async fn read_all(mut stream: SseClient) -> Vec<SseEvent> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        events.push(event);
    }
    assert_eq!(events.pop().unwrap().event, "end");
    events
}

/// Returns the text of all pieces, and checks that each starts where the one before ends.
fn join_text(events: &[SseEvent], mut next: u64) -> String {
    let mut text = String::new();
    for SseEvent { event, id, data } in events {
        assert_eq!(event, "output", "{data}");
        assert_eq!(data["from"], next, "{data}");
        next = data["next"].as_u64().unwrap();
        assert_eq!(id.as_deref(), Some(next.to_string().as_str()));
        text.push_str(data["text"].as_str().unwrap());
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_followed_to_its_end() {
    let test = TestCase::start(|builder| builder).await;
    let command = "echo soup; read line; echo \"$line\" >&2";
    let process = test.session.spawn(NewTask::shell(command).reads_messages()).await.unwrap();
    let mut stream = test.open(1, "output/stream").await;
    let first = stream.expect("output").await;
    let soup = json!({ "stream": "stdout", "from": 0, "next": 5, "text": "soup\n" });
    assert_eq!(first.data, soup);
    process.send("bread").await.unwrap();
    let second = stream.expect("output").await;
    assert_eq!(second.data["stream"], "stderr");
    assert_eq!(second.data["from"], 5);
    assert_eq!(second.data["text"], "bread\n");
    stream.expect("end").await;
    assert!(stream.next().await.is_none());
    let rest = read_all(SseClient::resume(&test.server, &test.path(1, "output/stream"), "5").await);
    assert_eq!(join_text(&rest.await, 5), "bread\n");
    let tail = read_all(test.open(1, "output/stream?tail=3").await).await;
    assert_eq!(join_text(&tail, 8), "ad\n");
    let stderr = read_all(test.open(1, "output/stream?stream=stderr&from=2").await).await;
    assert_eq!(join_text(&stderr, 2), "ead\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn characters_are_whole_and_other_bytes_are_base64() {
    let test = TestCase::start(|builder| builder).await;
    // Pages are read while a character is incomplete.
    let command = "printf 'ab\\303'; sleep 0.2; printf '\\251c\\n'; printf '\\377\\376'; \
                   sleep 0.2; printf 'd\\303' >&2";
    test.session.spawn(NewTask::shell(command)).await.unwrap();
    let events = read_all(test.open(1, "output/stream").await).await;
    let mut bytes = Vec::new();
    for SseEvent { data, .. } in &events {
        assert_eq!(data["from"], bytes.len(), "{events:?}");
        match data.get("text") {
            Some(text) => bytes.extend(text.as_str().unwrap().bytes()),
            None => bytes.extend(STANDARD.decode(data["base64"].as_str().unwrap()).unwrap()),
        }
    }
    assert_eq!(bytes, b"ab\xc3\xa9c\n\xff\xfed\xc3");
    let tail = read_all(test.open(1, "output/stream?stream=stdout&tail=5").await).await;
    assert_eq!(tail[0].data["base64"], STANDARD.encode(b"\xa9"), "{tail:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests_for_output_are_refused() {
    let test = TestCase::start(|builder| builder).await;
    test.session.spawn(NewTask::shell("echo soup")).await.unwrap().wait().await.unwrap();
    let job = NewTask::closure("parent", |context: JobContext| async move {
        let child = context.spawn(NewTask::shell("echo bread")).await?;
        context.wait_all([&child]).await?;
        Ok::<_, JobError>(())
    });
    test.session.spawn(job).await.unwrap().wait().await.unwrap();
    let server = &test.server;
    for wrong in ["from=x", "from=-1", "from=1&tail=1", "stream=all", "tail=", "lines=3"] {
        let path = test.path(1, &format!("output/stream?{wrong}"));
        server.get(&path).await.expect_problem(400, "invalid");
    }
    for wrong in ["x", "-1", "+1", ""] {
        let path = test.path(1, "output/stream");
        let stream = SseClient::open_as(server, &server.operator, &path, Some(wrong)).await;
        stream.err().unwrap().expect_problem(400, "invalid");
    }
    server.get(&test.path(2, "output/stream")).await.expect_problem(400, "invalid");
    server.get(&test.path(1, "text/stream")).await.expect_problem(400, "invalid");
    server.get(&test.path(9, "output/stream")).await.expect_problem(404, "not_found");
    server.get(&test.path(9, "text/stream")).await.expect_problem(404, "not_found");
    let client = server.create_token("bob", TokenScope::Client, Some(SESSION)).await;
    let path = test.path(3, "output/stream");
    let hidden = SseClient::open_as(server, &client, &path, None).await;
    hidden.err().unwrap().expect_problem(403, "forbidden");
    let visible = SseClient::open_as(server, &client, &test.path(1, "output/stream"), None).await;
    assert_eq!(join_text(&read_all(visible.unwrap()).await, 0), "soup\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_an_agent_is_followed_to_its_end() {
    let text = "agent *
turn
  call run_process {\"command\": \"echo leeks\"}
turn
  say Leek soup.
";
    let model = ScriptedModel::new(Script::parse("test", text).unwrap());
    let agents = AgentOptions::new(OneModel(Arc::new(model))).model("scripted");
    let test = TestCase::start(|builder| builder.agents(agents)).await;
    test.session.spawn(NewTask::agent("Cook.").name("A")).await.unwrap();
    let events = read_all(test.open(1, "text/stream").await).await;
    let of = |name: &str| -> Vec<Value> {
        let named = events.iter().filter(|event| event.event == name);
        named.map(|event| event.data.clone()).collect()
    };
    assert_eq!(of("step"), [json!({ "step": 1 }), json!({ "step": 2 })]);
    let call = of("tool_call").remove(0);
    assert_eq!(call["tool"], "run_process");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments["command"], "echo leeks");
    let result = of("tool_result").remove(0);
    assert_eq!(result["id"], call["id"]);
    assert!(result["text"].as_str().unwrap().contains("leeks"), "{result}");
    assert_eq!(result["is_error"], false);
    let said: String = of("text").iter().map(|data| data["text"].as_str().unwrap()).collect();
    assert_eq!(said, "Leek soup.");
    let again = read_all(test.open(1, "text/stream").await).await;
    assert_eq!(again.last().unwrap().data["text"], "Leek soup.", "an ended agent is replayed");
}
