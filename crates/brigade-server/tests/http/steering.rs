//! Stops, answers, further runs, limits, and the end of a session.

use reqwest::Method;
use serde_json::{Value, json};

use crate::task_server::TaskServer;

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_reaches_descendants() {
    let server = TaskServer::start().await;
    let parent = server.start_job("cook", Value::Null).await;
    let child = format!("{}.2", server.session);
    // The child exists when its parent waits for it.
    while server.get(&parent, "").await.expect(200)["waits"][0]["tasks"] != json!([child]) {
        tokio::task::yield_now().await;
    }
    let stopped = server.post(&parent, "stop", json!({ "reason": "Enough." })).await.expect(200);
    assert_eq!(stopped["already"], false);
    server.wait(&parent).await;
    let tree = server.get(&parent, "/subtree").await.expect(200);
    let states: Vec<&Value> =
        tree["items"].as_array().unwrap().iter().map(|task| &task["state"]).collect();
    assert_eq!(states, ["cancelled", "cancelled"]);
    assert_eq!(tree["items"][1]["parent"], json!(parent));
    assert_eq!(tree["truncated"], false);
    let shown = server.get(&parent, "").await.expect(200);
    assert_eq!(shown["outcome"]["code"], "operator");
    assert_eq!(shown["outcome"]["reason"], "Enough.");
    let again = server.post(&parent, "stop", json!({})).await.expect(200);
    assert_eq!(again["already"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_needs_no_body_and_refuses_a_wrong_one() {
    let server = TaskServer::start().await;
    let task = server.start_job("echo", json!(1)).await;
    for wrong in [json!({ "reason": 7 }), json!({ "grace_ms": -1 }), json!({ "x": 1 }), json!([])] {
        server.post(&task, "stop", wrong).await.expect_problem(400, "invalid");
    }
    let path = format!("/v1/tasks/{task}/stop");
    let stopped = server.server.send(Method::POST, &path, None).await.expect(200);
    assert_eq!(stopped["task"]["id"], json!(task));
    assert_eq!(stopped["task_count"], 1);
    server.post(&task, "stop", Value::Null).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_continues_a_task() {
    let server = TaskServer::start().await;
    let task = server.start_job("ask", json!("How much salt?")).await;
    server.wait(&task).await;
    let pending = server.server.get("/v1/pending").await.expect(200);
    let question = &pending["questions"][0];
    assert_eq!(question["task"], json!(task));
    assert_eq!(question["question"]["text"], "How much salt?");
    let call = question["question"]["call"].as_u64().unwrap();
    for wrong in [json!({}), json!({ "answer": 1, "call": "x" }), json!({ "answer": 1, "y": 1 })] {
        server.post(&task, "answer", wrong).await.expect_problem(400, "invalid");
    }
    let other = json!({ "answer": "x", "call": call + 1 });
    let other = server.post(&task, "answer", other).await;
    assert!([404, 409].contains(&other.status.as_u16()), "{}", other.body);
    server.post(&task, "answer", json!({ "call": call, "answer": "A pinch." })).await.expect(204);
    let waited = server.wait(&task).await;
    assert_eq!(waited["ended"][0]["result"], "A pinch.");
    let late = server.post(&task, "answer", json!({ "answer": "More." })).await;
    assert_eq!(late.status.as_u16(), 409, "{}", late.body);
    assert_eq!(server.server.get("/v1/pending").await.expect(200)["questions"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_and_limits_are_shown_with_what_remains() {
    let server = TaskServer::start().await;
    let limits = format!("/v1/sessions/{}/limits", server.session);
    let set = json!({ "tokens": 1_000, "money": "2.5" });
    let session = server.server.send(Method::PUT, &limits, Some(set)).await.expect(200);
    assert_eq!(session["limits"], json!({ "tokens": 1_000, "money": "2.500000" }));
    let task = server.start_job("ask", json!("Salt?")).await;
    server.wait(&task).await;
    let usage = server.get(&task, "/usage").await.expect(200);
    assert_eq!(usage["own"], json!({ "tokens": 7, "money": "0.500000" }));
    assert_eq!(usage["subtree"], usage["own"]);
    let path = format!("/v1/tasks/{task}/limits");
    let own = json!({ "tokens": 100, "time_ms": 600_000 });
    let set = server.server.send(Method::PUT, &path, Some(own.clone())).await.expect(200);
    assert_eq!(set["limits"], own);
    assert_eq!(set["remaining"]["tokens"], 93);
    assert!(set["remaining"]["time_ms"].as_u64().unwrap() <= 600_000);
    let inherited = &set["inherited"][0];
    assert!(inherited.get("holder").is_none(), "the session: {inherited}");
    assert_eq!(inherited["remaining"], json!({ "tokens": 993, "money": "2.000000" }));
    assert_eq!(server.server.get(&path).await.expect(200)["limits"], own);
    let shown = server.get(&task, "").await.expect(200);
    assert_eq!(shown["inherited_limits"][0]["usage"]["tokens"], 7);
    for wrong in [json!({ "tokens": -1 }), json!({ "tokens": 1.5 }), json!({ "x": 1 }), json!([])] {
        let refused = server.server.send(Method::PUT, &path, Some(wrong.clone())).await;
        refused.expect_problem(400, "invalid");
        let refused = server.server.send(Method::PUT, &limits, Some(wrong)).await;
        refused.expect_problem(400, "invalid");
    }
    let client = server.client("bob").await;
    let body = Some(json!({ "tokens": 1 }));
    for path in [&path, &limits] {
        let refused = server.server.send_as(&client, Method::PUT, path, body.clone()).await;
        refused.expect_problem(403, "forbidden");
    }
    server.post(&task, "stop", json!({})).await.expect(200);
    server.wait(&task).await;
    let ended = server.server.send(Method::PUT, &path, body).await;
    ended.expect_problem(409, "ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_task_is_resumed_and_its_runs_are_kept() {
    let server = TaskServer::start().await;
    let task = server.start_baker().await;
    server.wait(&task).await;
    server.post(&task, "resume", json!({})).await.expect_problem(409, "conflict");
    server.post(&task, "stop", json!({})).await.expect(200);
    server.wait(&task).await;
    let resume = json!({ "limits": { "tokens": 50_000 } });
    let resumed = server.post(&task, "resume", resume).await.expect(200);
    assert_eq!(resumed["run"], 2);
    server.post(&task, "stop", json!({})).await.expect(200);
    server.wait(&task).await;
    let shown = server.get(&task, "").await.expect(200);
    assert_eq!(shown["limits"]["tokens"], 50_000);
    assert_eq!(shown["earlier_runs"][0]["run"], 1);
    assert_eq!(shown["earlier_runs"][0]["outcome"]["type"], "cancelled");
    let first = server.get(&task, "/runs/1").await.expect(200);
    assert_eq!(first["run"], 1);
    assert_eq!(first["state"], "cancelled");
    assert_eq!(server.get(&task, "/runs/2").await.expect(200)["run"], 2);
    for missing in ["0", "3", "x", "-1", "4294967296"] {
        let response = server.get(&task, &format!("/runs/{missing}")).await;
        response.expect_problem(404, "not_found");
    }
    let wrong = json!({ "limits": { "tokens": "many" } });
    server.post(&task, "resume", wrong).await.expect_problem(400, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_resumes_only_with_tighter_limits() {
    let server = TaskServer::start().await;
    let client = server.client("bob").await;
    let job = json!({
        "kind": "job", "job": "burn", "arguments": null, "limits": { "tokens": 100, "width": 3 },
    });
    let task = server.start_as(&client, job).await;
    server.wait(&task).await;
    let path = format!("/v1/tasks/{task}/resume");
    let resume = async |secret: &str, limits: Value| {
        let body = Some(json!({ "limits": limits }));
        server.server.send_as(secret, Method::POST, &path, body).await
    };
    for looser in [json!({ "tokens": 101 }), json!({ "tokens": 9, "width": 4 })] {
        resume(&client, looser).await.expect_problem(403, "forbidden");
    }
    let tighter = resume(&client, json!({ "tokens": 50, "depth": 1 })).await;
    assert_eq!(tighter.expect(200)["run"], 2);
    server.wait(&task).await;
    let limits = server.get(&task, "").await.expect(200)["limits"].clone();
    assert_eq!(limits, json!({ "tokens": 50, "width": 3, "depth": 1 }));
    resume(&client, json!({ "tokens": 100 })).await.expect_problem(403, "forbidden");
    resume(&server.server.operator, json!({ "tokens": 1_000 })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_session_starts_nothing() {
    let server = TaskServer::start().await;
    server.start_job("echo", json!(1)).await;
    let path = format!("/v1/sessions/{}/close", server.session);
    let client = server.client("bob").await;
    let refused = server.server.send_as(&client, Method::POST, &path, None).await;
    refused.expect_problem(403, "forbidden");
    server.server.post(&path, json!({ "why": 1 })).await.expect_problem(400, "invalid");
    let closed = server.server.post(&path, json!({ "reason": "Home time." })).await.expect(200);
    assert_ne!(closed["state"], "open");
    let tasks = format!("/v1/sessions/{}/tasks", server.session);
    let job = json!({ "kind": "job", "job": "echo" });
    let refused = server.server.post(&tasks, job).await;
    assert_eq!(refused.status.as_u16(), 409, "{}", refused.body);
}
