//! Approvals and grants.

use reqwest::Method;
use serde_json::{Value, json};

use crate::task_server::TaskServer;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_allowed_by_its_digest() {
    let server = TaskServer::start().await;
    let task = server.start_baker().await;
    let waited = server.wait(&task).await;
    let waiting = &waited["pending_approvals"][0];
    let pending = server.server.get("/v1/pending").await.expect(200);
    let approval = &pending["approvals"][0];
    assert_eq!(waiting["approval"], approval["approval"]);
    assert_eq!(approval["task"], json!(task));
    assert_eq!(approval["top_task"], json!(task));
    assert_eq!(approval["name"], "Baker");
    let approval = &approval["approval"];
    assert_eq!(approval["tool"], "bake");
    assert_eq!(approval["arguments"], "{\"value\":\"bread\"}");
    let digest = approval["digest"].as_str().unwrap();
    let action = format!("approvals/{}", approval["call"]);
    for wrong in [
        json!({ "verdict": "allow_once" }),
        json!({ "verdict": "allow_always", "rule": "bake" }),
        json!({ "verdict": "allow_once", "digest": "x" }),
        json!({ "verdict": "allow_once", "digest": digest, "rule": "bake" }),
        json!({ "verdict": "allow_always", "digest": digest, "rule": "" }),
        json!({ "verdict": "allow_always", "digest": digest, "rule": "boil" }),
        json!({ "verdict": "allow_once", "digest": digest, "reason": "x" }),
        json!({ "verdict": "deny", "reason": "x".repeat(3_000) }),
        json!({ "verdict": "maybe" }),
        json!({}),
    ] {
        let response = server.post(&task, &action, wrong.clone()).await;
        assert_eq!(response.status.as_u16(), 400, "{wrong}: {}", response.body);
    }
    let other = "0".repeat(digest.len());
    let other = json!({ "verdict": "allow_once", "digest": other });
    server.post(&task, &action, other).await.expect_problem(409, "conflict");
    let verdict = json!({ "verdict": "allow_once", "digest": digest });
    for missing in ["approvals/9999", "approvals/x"] {
        let response = server.post(&task, missing, verdict.clone()).await;
        assert!([404, 409].contains(&response.status.as_u16()), "{}", response.body);
    }
    server.post(&task, &action, verdict).await.expect(204);
    assert_eq!(server.wait(&task).await["ended"][0]["result"], "Baked.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_is_denied_without_a_digest() {
    let server = TaskServer::start().await;
    let task = server.start_baker().await;
    let waited = server.wait(&task).await;
    let call = &waited["pending_approvals"][0]["approval"]["call"];
    let deny = json!({ "verdict": "deny", "reason": "No flour." });
    server.post(&task, &format!("approvals/{call}"), deny).await.expect(204);
    assert_eq!(server.wait(&task).await["ended"][0]["result"], "Not baked.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_allows_further_calls_until_it_is_revoked() {
    let server = TaskServer::start().await;
    let task = server.start_baker().await;
    let approval = server.wait(&task).await["pending_approvals"][0]["approval"].clone();
    let verdict =
        json!({ "verdict": "allow_always", "digest": approval["digest"], "rule": "bake" });
    let action = format!("approvals/{}", approval["call"]);
    server.post(&task, &action, verdict).await.expect(204);
    server.wait(&task).await;
    let second = server.start_baker().await;
    assert_eq!(server.wait(&second).await["ended"][0]["result"], "Baked.");
    let grants = server.server.get("/v1/grants").await.expect(200);
    let grant = &grants["items"][0];
    assert_eq!(grant["rule"], "bake");
    assert_eq!(grant["session"], json!(server.session));
    let client = server.client("bob").await;
    let own = server.server.send_as(&client, Method::GET, "/v1/grants", None).await.expect(200);
    assert_eq!(own["items"], json!([]), "the grant is the operator's");
    let path = format!("/v1/sessions/{}/grants/{}", server.session, grant["number"]);
    let refused = server.server.send_as(&client, Method::DELETE, &path, None).await;
    assert!([403, 404].contains(&refused.status.as_u16()), "{}", refused.body);
    server.server.send(Method::DELETE, &path, None).await.expect(204);
    server.server.send(Method::DELETE, &path, None).await.expect_problem(404, "not_found");
    let wrong = format!("/v1/sessions/{}/grants/x", server.session);
    server.server.send(Method::DELETE, &wrong, None).await.expect_problem(404, "not_found");
    let third = server.start_baker().await;
    assert_eq!(server.wait(&third).await["ended"], json!([]), "it asks again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_decides_for_its_own_agents_only() {
    let server = TaskServer::start().await;
    let bob = server.client("bob").await;
    let eve = server.client("eve").await;
    let body = json!({
        "kind": "agent", "prompt": "Bake.", "name": "Baker", "cwd": server.cwd(),
        "permissions": { "ask": ["bake"] }, "sandbox": {},
    });
    let task = server.start_as(&bob, body).await;
    let approval = server.wait(&task).await["pending_approvals"][0]["approval"].clone();
    let pending = async |secret: &str| -> Value {
        let pending = server.server.send_as(secret, Method::GET, "/v1/pending", None).await;
        pending.expect(200)["approvals"].clone()
    };
    assert_eq!(pending(&eve).await, json!([]));
    assert_eq!(pending(&bob).await[0]["task"], json!(task));
    let path = format!("/v1/tasks/{task}/approvals/{}", approval["call"]);
    let verdict = json!({ "verdict": "allow_once", "digest": approval["digest"] });
    let decide = async |secret: &str| {
        server.server.send_as(secret, Method::POST, &path, Some(verdict.clone())).await
    };
    decide(&eve).await.expect_problem(403, "forbidden");
    decide(&bob).await.expect(204);
    assert_eq!(server.wait(&task).await["ended"][0]["result"], "Baked.");
}
