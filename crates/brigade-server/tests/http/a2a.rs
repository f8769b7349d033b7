//! Published agents over A2A.

use brigade_protocol::http::TokenScope;
use brigade_server::http::{A2aOptions, ListenOptions};
use reqwest::Method;
use serde_json::{Value, json};

use crate::a2a_server::{A2aServer, message_to, new_message};
use crate::support::{TestResponse, TestServer};

const NOT_FOUND: i64 = -32001;
const NOT_CANCELABLE: i64 = -32002;
const NO_PUSH: i64 = -32003;
const UNSUPPORTED: i64 = -32004;
const WRONG_CONTENT: i64 = -32005;
const NO_EXTENDED_CARD: i64 = -32007;
const WRONG_VERSION: i64 = -32009;
const INVALID_REQUEST: i64 = -32600;
const UNKNOWN_METHOD: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const NO_JSON: i64 = -32700;

#[tokio::test(flavor = "multi_thread")]
async fn cards_are_public_and_name_only_published_agents() {
    let server = A2aServer::start().await;
    let get = async |path: &str| server.server.send_as("", Method::GET, path, None).await;
    let card = get("/.well-known/agent-card.json").await.expect(200);
    assert_eq!(card["name"], "baker");
    let url = server.server.url("/a2a/baker");
    assert_eq!(card["supportedInterfaces"][0]["url"], url.as_str());
    let text = card.to_string();
    assert!(text.contains("/a2a/painter/.well-known/agent-card.json"), "{text}");
    assert!(!text.contains("hidden"), "{text}");
    let card = get("/a2a/painter/.well-known/agent-card.json").await.expect(200);
    assert_eq!(card["name"], "painter");
    assert_eq!(card["skills"][0]["description"], "Works.");
    get("/a2a/hidden/.well-known/agent-card.json").await.expect_problem(404, "not_found");
    for path in ["/a2a/painter", "/a2a/painter/v1/tasks", "/a2a/painter/x"] {
        get(path).await.expect_problem(401, "unauthenticated");
    }
    let plain = TestServer::start(|builder| builder).await;
    let none = plain.send_as("", Method::GET, "/.well-known/agent-card.json", None).await;
    none.expect_problem(404, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_starts_a_task_once_and_returns_its_result() {
    let server = A2aServer::start().await;
    let params = json!({ "message": new_message("m-1", "Bake.") });
    let sent = server.result("baker", "SendMessage", params.clone()).await["task"].take();
    assert_eq!(sent["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    assert_eq!(sent["artifacts"][0]["parts"][0]["text"], "Baked.");
    let history = sent["history"].as_array().unwrap();
    let roles: Vec<&Value> = history.iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["ROLE_USER", "ROLE_AGENT"], "{sent}");
    assert_eq!(history[0]["parts"][0]["text"], "Bake.");
    let again = server.result("baker", "SendMessage", params).await;
    assert_eq!(again["task"], sent);
    let get = json!({ "id": sent["id"], "historyLength": 0 });
    let got = server.result("baker", "GetTask", get).await;
    assert_eq!(got["artifacts"], sent["artifacts"]);
    assert!(got.get("history").is_none(), "{got}");
    // The client has its result, so the task is in no list of open ones.
    let open = server.server.send_as(&server.secret, Method::GET, "/v1/tasks", None).await;
    assert_eq!(open.expect(200)["items"], json!([]));
    let other = json!({ "message": new_message("m-1", "Bake two.") });
    assert_eq!(server.error("baker", "SendMessage", other).await, INVALID_PARAMS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_groups_tasks_and_lists_have_pages() {
    let server = A2aServer::start().await;
    for number in 0..3 {
        let mut message = new_message(&format!("m-{number}"), "Bake.");
        message["contextId"] = json!("kitchen-1");
        let sent = server.result("baker", "SendMessage", json!({ "message": message })).await;
        assert_eq!(sent["task"]["contextId"], "kitchen-1");
    }
    let other = server.start_task("baker", "m-other").await;
    assert_ne!(other["contextId"], "kitchen-1");
    server.start_task("painter", "m-painter").await;
    let mut listed = Vec::new();
    let mut token = json!("");
    loop {
        let params = json!({ "contextId": "kitchen-1", "pageSize": 2, "pageToken": token });
        let page = server.result("baker", "ListTasks", params).await;
        assert_eq!(page["totalSize"], 3, "{page}");
        assert_eq!(page["pageSize"], 2);
        for task in page["tasks"].as_array().unwrap() {
            assert!(task.get("artifacts").is_none() && task.get("history").is_none(), "{task}");
            listed.push(task["id"].clone());
        }
        token = page["nextPageToken"].clone();
        if token == "" {
            break;
        }
    }
    listed.sort_by_key(Value::to_string);
    listed.dedup();
    assert_eq!(listed.len(), 3);
    let all = server.result("baker", "ListTasks", json!({ "includeArtifacts": true })).await;
    assert_eq!(all["totalSize"], 4, "{all}");
    let working = json!({ "status": "TASK_STATE_INPUT_REQUIRED" });
    assert_eq!(server.result("baker", "ListTasks", working).await["totalSize"], 0);
    for wrong in [
        json!({ "pageSize": 0 }),
        json!({ "pageSize": 101 }),
        json!({ "pageToken": "x" }),
        json!({ "status": "x" }),
        json!({ "historyLength": -1 }),
        json!([]),
    ] {
        assert_eq!(
            server.error("baker", "ListTasks", wrong.clone()).await,
            INVALID_PARAMS,
            "{wrong}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_requires_input_and_a_message_answers_it_once() {
    let server = A2aServer::start().await;
    let params = json!({ "message": new_message("m-1", "Paint.") });
    let asked = server.result("painter", "SendMessage", params).await["task"].take();
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    assert_eq!(asked["status"]["message"]["parts"][0]["text"], "Red or blue?");
    let mut answer = message_to(&asked, "m-2", json!({ "text": "blue" }));
    answer["message"]["contextId"] = json!("another");
    assert_eq!(server.error("painter", "SendMessage", answer.clone()).await, INVALID_PARAMS);
    answer["message"]["contextId"] = asked["contextId"].clone();
    let painted = server.result("painter", "SendMessage", answer.clone()).await["task"].take();
    assert_eq!(painted["status"]["state"], "TASK_STATE_COMPLETED", "{painted}");
    assert_eq!(painted["artifacts"][0]["parts"][0]["text"], "Painted blue.");
    // The client repeats a message whose answer was lost.
    let again = server.result("painter", "SendMessage", answer.clone()).await;
    assert_eq!(again["task"], painted);
    let late = message_to(&asked, "m-3", json!({ "text": "red" }));
    assert_eq!(server.error("painter", "SendMessage", late).await, UNSUPPORTED);
    answer["message"]["parts"] = json!([{ "text": "red" }]);
    assert_eq!(server.error("painter", "SendMessage", answer).await, INVALID_PARAMS);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_requires_input_and_is_decided_by_its_digest() {
    let server = A2aServer::start().await;
    let params = json!({ "message": new_message("m-1", "Bake.") });
    let asked = server.result("careful", "SendMessage", params).await["task"].take();
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let pending = &asked["status"]["message"]["parts"][1]["data"]["approvals"][0];
    let approval = &pending["approval"];
    assert_eq!(approval["tool"], "bake", "{asked}");
    let decide = |id: &str, call: &Value, digest: Option<&Value>| {
        let mut data = json!({ "task": pending["task"], "call": call, "verdict": "allow_once" });
        if let Some(digest) = digest {
            data["digest"] = digest.clone();
        }
        message_to(&asked, id, json!({ "data": data }))
    };
    let without_digest = decide("m-2", &approval["call"], None);
    assert_eq!(server.error("careful", "SendMessage", without_digest).await, INVALID_PARAMS);
    let unknown = decide("m-3", &json!(99), Some(&approval["digest"]));
    assert_eq!(server.error("careful", "SendMessage", unknown).await, INVALID_PARAMS);
    let allowed = decide("m-4", &approval["call"], Some(&approval["digest"]));
    let baked = server.result("careful", "SendMessage", allowed).await["task"].take();
    assert_eq!(baked["status"]["state"], "TASK_STATE_COMPLETED", "{baked}");
    assert_eq!(baked["artifacts"][0]["parts"][0]["text"], "Baked with care.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_task_is_never_completed() {
    let server = A2aServer::start().await;
    let task = server.start_task("sleeper", "m-1").await;
    let id = json!({ "id": task["id"] });
    let canceled = server.result("sleeper", "CancelTask", id.clone()).await;
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    assert_eq!(server.error("sleeper", "CancelTask", id.clone()).await, NOT_CANCELABLE);
    let got = server.result("sleeper", "GetTask", id.clone()).await;
    assert_eq!(got["status"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(server.error("sleeper", "SubscribeToTask", id).await, UNSUPPORTED);
    let params = json!({ "message": new_message("m-2", "Bake.") });
    let failed = server.result("clumsy", "SendMessage", params).await["task"].take();
    assert_eq!(failed["status"]["state"], "TASK_STATE_FAILED", "{failed}");
    let reason = failed["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(reason.starts_with("failed"), "{reason}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_to_a_working_task_is_delivered_once() {
    let server = A2aServer::start().await;
    let task = server.start_task("sleeper", "m-1").await;
    let mut message = message_to(&task, "m-2", json!({ "text": "Hurry." }));
    message["configuration"] = json!({ "returnImmediately": true });
    for _ in 0..2 {
        let sent = server.result("sleeper", "SendMessage", message.clone()).await;
        assert_eq!(sent["task"]["id"], task["id"]);
    }
    let path = format!("/v1/tasks/{}/messages", task["id"].as_str().unwrap());
    let messages = server.server.get(&path).await.expect(200);
    assert_eq!(messages["items"].as_array().unwrap().len(), 1, "{messages}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_the_task_or_with_a_question() {
    let server = A2aServer::start().await;
    let params = json!({ "message": new_message("m-1", "Bake.") });
    let response = server.open("baker", "SendStreamingMessage", params).await;
    let events = A2aServer::read_stream(response).await;
    let results: Vec<&Value> = events.iter().map(|event| &event["result"]).collect();
    assert!(results[0].get("task").is_some(), "{events:?}");
    let text = json!(events).to_string();
    assert!(text.contains("Baked.") && text.contains("TASK_STATE_COMPLETED"), "{text}");
    assert!(events.iter().all(|event| event["id"] == 7), "{text}");

    let path = "/a2a/painter/v1/message:stream";
    let body = json!({ "message": new_message("m-2", "Paint.") });
    let response = server.request(Method::POST, path, Some(body.to_string())).await;
    let events = A2aServer::read_stream(response).await;
    let text = json!(events).to_string();
    assert!(text.contains("TASK_STATE_INPUT_REQUIRED"), "{text}");
    let task = &events[0]["task"];

    // A subscription goes on over a question, until the end.
    let subscribed = server.open("painter", "SubscribeToTask", json!({ "id": task["id"] })).await;
    let answer = message_to(task, "m-3", json!({ "text": "blue" }));
    server.result("painter", "SendMessage", answer).await;
    let events = A2aServer::read_stream(subscribed).await;
    let last = &events.last().unwrap()["result"];
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED", "{events:?}");
    assert_eq!(last["statusUpdate"]["taskId"], task["id"]);
    let artifact = &events[events.len() - 2]["result"]["artifactUpdate"];
    assert_eq!(artifact["artifact"]["parts"][0]["text"], "Painted blue.");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_http_binding_has_the_same_operations() {
    let server = A2aServer::start().await;
    let body = json!({ "message": new_message("m-1", "Bake.") });
    let sent = server.http(Method::POST, "/a2a/baker/v1/message:send", Some(body)).await;
    assert_eq!(sent.headers["content-type"], "application/a2a+json");
    let task = sent.expect(200)["task"].take();
    let path = format!("/a2a/baker/v1/tasks/{}", task["id"].as_str().unwrap());
    let got = server.http(Method::GET, &format!("{path}?historyLength=1"), None).await.expect(200);
    assert_eq!(got["history"].as_array().unwrap().len(), 1);
    let listed = server.http(Method::GET, "/a2a/baker/v1/tasks?pageSize=5", None).await.expect(200);
    assert_eq!(listed["tasks"][0]["id"], task["id"]);
    let sleeping = server.start_task("sleeper", "m-2").await;
    let sleeper = format!("/a2a/sleeper/v1/tasks/{}", sleeping["id"].as_str().unwrap());
    let subscribed = server.request(Method::GET, &format!("{sleeper}:subscribe"), None).await;
    let canceled = server.http(Method::POST, &format!("{sleeper}:cancel"), Some(json!({}))).await;
    assert_eq!(canceled.expect(200)["status"]["state"], "TASK_STATE_CANCELED");
    let events = A2aServer::read_stream(subscribed).await;
    let last = events.last().unwrap();
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED", "{events:?}");

    let get = async |path: String| server.http(Method::GET, &path, None).await;
    expect_reason(get("/a2a/baker/v1/tasks/x".to_owned()).await, 404, "TASK_NOT_FOUND");
    expect_reason(get(format!("{path}?historyLength=x")).await, 400, "INVALID_PARAMS");
    expect_reason(get("/a2a/baker/v1/tasks?pageSize=x".to_owned()).await, 400, "INVALID_PARAMS");
    expect_reason(get(format!("{path}:subscribe")).await, 400, "UNSUPPORTED_OPERATION");
    let push = get(format!("{path}/pushNotificationConfigs")).await;
    expect_reason(push, 400, "PUSH_NOTIFICATION_NOT_SUPPORTED");
    let card = get("/a2a/baker/v1/extendedAgentCard".to_owned()).await;
    expect_reason(card, 400, "EXTENDED_AGENT_CARD_NOT_CONFIGURED");
    let wrong = server.request(Method::POST, "/a2a/baker/v1/message:send", Some("{".into())).await;
    expect_reason(TestResponse::of(wrong).await, 400, "INVALID_REQUEST");
}

#[track_caller]
fn expect_reason(response: TestResponse, status: u16, reason: &str) {
    let body = response.expect(status);
    assert_eq!(body["error"]["code"], status, "{body}");
    assert_eq!(body["error"]["details"][0]["reason"], reason, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests_get_errors_of_the_protocol() {
    let server = A2aServer::start().await;
    let send = async |body: &str| {
        let response = server.request(Method::POST, "/a2a/baker", Some(body.to_owned())).await;
        TestResponse::of(response).await.expect(200)["error"]["code"].as_i64().unwrap()
    };
    assert_eq!(send("{").await, NO_JSON);
    assert_eq!(send("").await, NO_JSON);
    assert_eq!(send(&"[".repeat(10_000)).await, NO_JSON);
    for wrong in [
        "[]",
        "1",
        r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#,
        r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"[{"jsonrpc":"2.0","id":1,"method":"ListTasks"}]"#,
    ] {
        assert_eq!(send(wrong).await, INVALID_REQUEST, "{wrong}");
    }
    assert_eq!(server.error("baker", "message/send", json!({})).await, UNKNOWN_METHOD);
    assert_eq!(server.error("baker", "GetTask", json!({})).await, INVALID_PARAMS);
    assert_eq!(server.error("baker", "GetTask", json!({ "id": "x" })).await, NOT_FOUND);
    assert_eq!(server.error("baker", "CancelTask", json!({ "id": "x" })).await, NOT_FOUND);
    let push = json!({ "taskId": "x" });
    assert_eq!(server.error("baker", "CreateTaskPushNotificationConfig", push).await, NO_PUSH);
    assert_eq!(server.error("baker", "GetExtendedAgentCard", json!({})).await, NO_EXTENDED_CARD);
    let mut message = json!({ "message": new_message("m-1", "Bake.") });
    message["configuration"] =
        json!({ "taskPushNotificationConfig": { "url": "https://x.example", "taskId": "" } });
    assert_eq!(server.error("baker", "SendMessage", message.clone()).await, NO_PUSH);
    message["configuration"] = json!({});
    message["message"]["parts"] = json!([{ "url": "https://x.example" }]);
    assert_eq!(server.error("baker", "SendMessage", message.clone()).await, WRONG_CONTENT);
    message["message"]["parts"] = json!([{ "text": "x" }]);
    message["message"]["messageId"] = json!("x".repeat(300));
    assert_eq!(server.error("baker", "SendMessage", message).await, INVALID_PARAMS);
    let large = format!("\"{}\"", "x".repeat(3 * 1024 * 1024));
    let response = server.request(Method::POST, "/a2a/baker", Some(large)).await;
    TestResponse::of(response).await.expect_problem(413, "limit");
    let all = server.result("baker", "ListTasks", json!({})).await;
    assert_eq!(all["totalSize"], 0, "nothing was started: {all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_versions_tokens_and_agents_are_refused() {
    let server = A2aServer::start().await;
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "ListTasks" });
    let send = async |secret: &str, version: Option<&str>| {
        let request = server.server.client().post(server.server.url("/a2a/baker"));
        let mut request = request.bearer_auth(secret).body(body.to_string());
        if let Some(version) = version {
            request = request.header("a2a-version", version);
        }
        TestResponse::of(request.send().await.unwrap()).await
    };
    for version in [None, Some("0.3"), Some("1.1"), Some("10"), Some("1.0.x")] {
        let error = send(&server.secret, version).await.expect(200);
        assert_eq!(error["error"]["code"], WRONG_VERSION, "{version:?}");
    }
    send(&server.secret, Some("1.0.2")).await.expect(200)["result"].take();
    send(&server.server.operator, Some("1.0")).await.expect_problem(403, "forbidden");
    let hidden = server.request(Method::POST, "/a2a/hidden", Some(body.to_string())).await;
    TestResponse::of(hidden).await.expect_problem(404, "not_found");

    let task = server.start_task("sleeper", "m-1").await;
    let id = json!({ "id": task["id"] });
    assert_eq!(server.error("baker", "GetTask", id.clone()).await, NOT_FOUND);
    let session = Some(server.workspace.as_str());
    let secret = server.server.create_token("other", TokenScope::Client, session).await;
    let other = A2aServer { secret, ..server };
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        assert_eq!(other.error("sleeper", method, id.clone()).await, NOT_FOUND, "{method}");
    }
    let message = message_to(&task, "m-2", json!({ "text": "x" }));
    assert_eq!(other.error("sleeper", "SendMessage", message).await, NOT_FOUND);
    assert_eq!(other.result("sleeper", "ListTasks", json!({})).await["totalSize"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_start_is_rejected_and_leaves_no_task() {
    let server = A2aServer::start().await;
    let secret = server.server.create_token("named", TokenScope::Client, Some("kitchen")).await;
    let named = A2aServer { secret, ..server };
    let params = json!({ "message": new_message("m-1", "Bake.") });
    let rejected = named.result("baker", "SendMessage", params.clone()).await["task"].take();
    assert_eq!(rejected["status"]["state"], "TASK_STATE_REJECTED", "{rejected}");
    let reason = rejected["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(reason.contains("not that of a directory"), "{reason}");
    let response = named.open("baker", "SendStreamingMessage", params).await;
    let events = A2aServer::read_stream(response).await;
    assert_eq!(events[0]["result"]["task"]["status"]["state"], "TASK_STATE_REJECTED");
    let id = json!({ "id": rejected["id"] });
    assert_eq!(named.error("baker", "GetTask", id).await, NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_are_published_again_after_a_restart() {
    let server = A2aServer::start().await;
    let params = json!({ "message": new_message("m-1", "Paint.") });
    let asked = server.result("painter", "SendMessage", params).await["task"].take();
    let server = server.restart().await;
    let got = server.result("painter", "GetTask", json!({ "id": asked["id"] })).await;
    assert_eq!(got["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{got}");
    let answer = message_to(&asked, "m-2", json!({ "text": "blue" }));
    let painted = server.result("painter", "SendMessage", answer).await;
    assert_eq!(painted["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{painted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_definition_is_not_published() {
    let directory = std::env::temp_dir();
    let a2a = Some(A2aOptions { agents: vec!["nobody".to_owned()], directory });
    let listen = ListenOptions { a2a, ..ListenOptions::dashboard() };
    assert!(TestServer::try_start(listen).await.is_err());
}
