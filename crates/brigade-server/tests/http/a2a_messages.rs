//! Messages to tasks over A2A: their effect, their history, and the bounds of answers.

use brigade_protocol::requests::RevokeTokenRequest;
use brigade_store::{ExpectedVersion, NewRecord, RecordKey, RecordKind};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::a2a_server::{A2aServer, IDLE, message_to, new_message};

const UNSUPPORTED: i64 = -32004;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the id of a token: the first digits of the digest of its secret.
fn token_id(secret: &str) -> String {
    hex(&Sha256::digest(secret))[..16].to_owned()
}

impl A2aServer {
    /// Stores the effect of a message, as a server that was killed before it took place.
    async fn store_effect(&self, task: &Value, message: &str, text: &str, effect: Value) {
        let content = format!("{}\n{text}", task["id"].as_str().unwrap());
        let digest = hex(&Sha256::digest(content));
        let value = json!({ "digest": digest, "effect": effect }).to_string();
        let kind = RecordKind::from_static("a2a-message");
        let key = format!("{}.{}", token_id(&self.secret), hex(&Sha256::digest(message)));
        let key = RecordKey::new(kind, key).unwrap();
        let record = NewRecord::new(key, value.into_bytes()).unwrap();
        self.server.runtime.records().put(&record, ExpectedVersion::Absent).await.unwrap();
    }

    async fn send_text(&self, agent: &str, task: &Value, id: &str, text: &str) -> Value {
        let mut message = message_to(task, id, json!({ "text": text }));
        message["configuration"] = json!({ "returnImmediately": true });
        self.call(agent, "SendMessage", message).await
    }
}

/// Returns the roles and texts of a history.
fn history_of(task: &Value) -> Vec<String> {
    let messages = task["history"].as_array().unwrap().iter();
    let render = |message: &Value| {
        let role = message["role"].as_str().unwrap().trim_start_matches("ROLE_").to_lowercase();
        format!("{role}: {}", message["parts"][0]["text"].as_str().unwrap())
    };
    messages.map(render).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_without_effect_is_not_acknowledged() {
    let server = A2aServer::start().await;
    let params = json!({ "message": new_message("m-1", "Paint.") });
    let asked = server.result("painter", "SendMessage", params).await["task"].take();
    let call = &asked["status"]["message"]["parts"][1]["data"]["questions"][0]["call"];
    let answer = json!({ "answer": { "call": call } });
    server.store_effect(&asked, "m-late", "red", answer).await;
    server.store_effect(&asked, "m-note", "Hurry.", json!("inbox")).await;
    let answered = message_to(&asked, "m-2", json!({ "text": "blue" }));
    let painted = server.result("painter", "SendMessage", answered).await["task"].take();
    assert_eq!(painted["status"]["state"], "TASK_STATE_COMPLETED", "{painted}");
    let late = server.send_text("painter", &asked, "m-late", "red").await;
    assert_eq!(late["error"]["code"], UNSUPPORTED, "{late}");
    // The task has ended, and a message begins no other run of it.
    let note = server.send_text("painter", &asked, "m-note", "Hurry.").await;
    assert_eq!(note["error"]["code"], UNSUPPORTED, "{note}");
    let path = format!("/v1/tasks/{}", asked["id"].as_str().unwrap());
    let shown = server.server.get(&path).await.expect(200);
    assert_eq!(shown["run"], 1, "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_answers_at_once_is_an_answer_and_no_other_is_dropped() {
    let server = A2aServer::start().await;
    let params = json!({ "message": new_message("m-1", "Paint.") });
    let asked = server.result("painter", "SendMessage", params).await["task"].take();
    let (one, other) = tokio::join!(
        server.send_text("painter", &asked, "m-2", "blue"),
        server.send_text("painter", &asked, "m-3", "blue"),
    );
    let is_accepted = |reply: &Value| reply.get("result").is_some();
    assert!(is_accepted(&one) || is_accepted(&other), "{one} {other}");
    for (id, reply) in [("m-2", &one), ("m-3", &other)] {
        if !is_accepted(reply) {
            assert_eq!(reply["error"]["code"], UNSUPPORTED, "{id}: {reply}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_message_leaves_no_record() {
    let server = A2aServer::start().await;
    let params = json!({ "message": new_message("m-1", "Bake.") });
    let asked = server.result("careful", "SendMessage", params).await["task"].take();
    let pending = &asked["status"]["message"]["parts"][1]["data"]["approvals"][0];
    let call = &pending["approval"]["call"];
    let mut data = json!({ "task": pending["task"], "call": call, "verdict": "allow_once" });
    let refused = message_to(&asked, "m-2", json!({ "data": data }));
    server.error("careful", "SendMessage", refused).await;
    data["digest"] = pending["approval"]["digest"].clone();
    let allowed = message_to(&asked, "m-2", json!({ "data": data }));
    let baked = server.result("careful", "SendMessage", allowed).await;
    assert_eq!(baked["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{baked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_has_questions_answers_and_follow_up_messages_in_order() {
    let server = A2aServer::start().await;
    let params = json!({ "message": new_message("m-1", "Paint.") });
    let asked = server.result("painter", "SendMessage", params).await["task"].take();
    assert_eq!(history_of(&asked), ["user: Paint.", "agent: Red or blue?"]);
    let answer = message_to(&asked, "m-2", json!({ "text": "blue" }));
    let painted = server.result("painter", "SendMessage", answer).await["task"].take();
    let expect = ["user: Paint.", "agent: Red or blue?", "user: blue", "agent: Painted blue."];
    assert_eq!(history_of(&painted), expect);

    // A message that was not read yet comes last, with the id of the client.
    let task = server.start_task("sleeper", "m-3").await;
    let sent = server.send_text("sleeper", &task, "m-4", "Hurry.").await["result"]["task"].take();
    assert_eq!(history_of(&sent), ["user: Go.", "user: Hurry."]);
    assert_eq!(sent["history"][1]["messageId"], "m-4", "{sent}");

    // A message that the agent read stands before the reply to it.
    let params = json!({ "message": new_message("m-5", "Bake.") });
    let asked = server.result("careful", "SendMessage", params).await["task"].take();
    server.send_text("careful", &asked, "m-6", "Use rye.").await;
    let pending = &asked["status"]["message"]["parts"][1]["data"]["approvals"][0];
    let data = json!({
        "task": pending["task"], "call": pending["approval"]["call"], "verdict": "allow_once",
        "digest": pending["approval"]["digest"],
    });
    let allow = message_to(&asked, "m-7", json!({ "data": data }));
    let baked = server.result("careful", "SendMessage", allow).await["task"].take();
    let expect = ["user: Bake.", "user: Use rye.", "agent: Baked with care."];
    assert_eq!(history_of(&baked), expect, "{baked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_bounded_in_bytes() {
    let server = A2aServer::start().await;
    let long = "x".repeat(200_000);
    for number in 0..70 {
        let message = new_message(&format!("m-{number}"), &long);
        let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
        server.result("baker", "SendMessage", params).await;
    }
    let mut listed = 0;
    let mut pages = 0;
    let mut token = json!("");
    loop {
        let params = json!({ "pageSize": 100, "pageToken": token, "historyLength": 5 });
        let page = server.result("baker", "ListTasks", params).await;
        assert!(page.to_string().len() < 6 * 1024 * 1024);
        assert_eq!(page["totalSize"], 70);
        let first = &page["tasks"][0]["history"][0];
        assert_eq!(first["metadata"]["truncated"], true, "{}", page["tasks"][0]["id"]);
        let text = first["parts"][0]["text"].as_str().unwrap();
        assert!(text.ends_with("[truncated: the whole text has 200000 bytes]"));
        listed += page["tasks"].as_array().unwrap().len();
        pages += 1;
        token = page["nextPageToken"].clone();
        if token == "" {
            break;
        }
    }
    // A task that ended between two pages is on neither or on both.
    assert!(pages > 1 && listed > 0, "{pages} pages with {listed} tasks");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_reaches_tasks_behind_thousands_of_others() {
    let server = A2aServer::start().await;
    let params = json!({ "message": new_message("m-1", "Bake.") });
    let baked = server.result("baker", "SendMessage", params).await["task"].take();
    let session = server.server.runtime.session(&server.workspace).await.unwrap();
    let idle = (0..5_100).map(|_| IDLE.with(()));
    for spawned in session.spawn_all(idle).await.unwrap() {
        spawned.unwrap();
    }
    let listed = server.result("baker", "ListTasks", json!({})).await;
    assert_eq!(listed["totalSize"], 1, "{listed}");
    assert_eq!(listed["tasks"][0]["id"], baked["id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_gets_no_task_from_its_wait() {
    let server = A2aServer::start().await;
    let task = server.start_task("sleeper", "m-1").await;
    let subscribed = server.open("sleeper", "SubscribeToTask", json!({ "id": task["id"] })).await;
    let params = json!({ "message": new_message("m-2", "Go.") });
    let revoke = async {
        loop {
            let open = server.server.get("/v1/tasks").await.expect(200);
            if open["items"].as_array().unwrap().len() == 2 {
                break;
            }
            tokio::task::yield_now().await;
        }
        let id = token_id(&server.secret);
        server.server.connect().await.call(RevokeTokenRequest { id }).await.unwrap();
    };
    let (reply, ()) = tokio::join!(server.call("sleeper", "SendMessage", params), revoke);
    assert!(reply.get("result").is_none(), "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("revoked"), "{reply}");
    // The stream is cut off, without the end of the task.
    let path = format!("/v1/tasks/{}/stop", task["id"].as_str().unwrap());
    server.server.post(&path, json!({})).await;
    let text = tokio::time::timeout(crate::support::TEST_TIMEOUT, subscribed.text()).await.unwrap();
    assert!(!text.unwrap_or_default().contains("CANCELED"));
}
