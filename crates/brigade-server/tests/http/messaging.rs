//! Messages, receipts and inboxes.

use reqwest::Method;
use serde_json::{Value, json};

use crate::task_server::TaskServer;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_has_a_key_a_name_and_a_receipt() {
    let server = TaskServer::start().await;
    let operator = server.server.operator.clone();
    let task = server.start_job("ask", json!("Salt?")).await;
    server.wait(&task).await;
    let path = format!("/v1/tasks/{task}/messages");
    let send = async |key: &str, body: Value| {
        let headers = [("idempotency-key", key)];
        server.send_with(&operator, &path, &headers, Some(body)).await
    };
    let note = json!({ "body": { "salt": 1 }, "name": "recipe" });
    let first = send("k", note.clone()).await.expect(202);
    assert_eq!(send("k", note).await.expect(202), first);
    send("k", json!({ "body": 2 })).await.expect_problem(409, "conflict");
    send(&"k".repeat(300), json!({ "body": 2 })).await.expect_problem(400, "invalid");
    let number = first["numbers"][0].as_u64().unwrap();
    let receipt = format!("/v1/sessions/{}/messages/{number}", server.session);
    let message = server.server.get(&receipt).await.expect(200);
    assert_eq!(message["body"], json!({ "salt": 1 }));
    assert_eq!(message["name"], "recipe");
    assert_eq!(message["to"], json!(task));
    assert_eq!(message["from"], json!({ "type": "operator" }));
    assert_eq!(message["receipt"], json!({ "state": "accepted" }));
    server.post(&task, "stop", json!({})).await.expect(200);
    server.wait(&task).await;
    let message = server.server.get(&receipt).await.expect(200);
    assert_eq!(message["receipt"]["state"], "dead_letter");
    assert!(message["receipt"]["reason"].is_string());
    send("late", json!({ "body": 3 })).await.expect_problem(409, "ended");
    for missing in ["0", "99", "x", "-1"] {
        let path = format!("/v1/sessions/{}/messages/{missing}", server.session);
        server.server.get(&path).await.expect_problem(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_task_are_listed_in_pages() {
    let server = TaskServer::start().await;
    let task = server.start_job("ask", json!("Salt?")).await;
    let other = server.start_job("ask", json!("Pepper?")).await;
    server.wait(&task).await;
    server.wait(&other).await;
    for number in 0..5 {
        server.post(&task, "messages", json!({ "body": number })).await.expect(202);
        server.post(&other, "messages", json!({ "body": number })).await.expect(202);
    }
    let mut bodies = Vec::new();
    let mut query = "?limit=2".to_owned();
    loop {
        let page = server.get(&task, &format!("/messages{query}")).await.expect(200);
        let items = page["items"].as_array().unwrap();
        let mut newer = std::mem::take(&mut bodies);
        bodies = items.iter().map(|item| item["body"].clone()).collect();
        bodies.append(&mut newer);
        let Some(next) = page["next_page"].as_str() else { break };
        query = format!("?limit=2&page={next}");
    }
    // The first message is the question of the task.
    assert_eq!(json!(bodies), json!(["Salt?", 0, 1, 2, 3, 4]));
    for wrong in ["limit=0", "limit=1001", "page=x", "page=-1", "colour=red"] {
        let response = server.get(&task, &format!("/messages?{wrong}")).await;
        response.expect_problem(400, "invalid");
    }
    let future = server.get(&task, "/messages?page=18446744073709551615").await.expect(200);
    assert_eq!(future["items"].as_array().unwrap().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_reads_messages_until_its_input_is_closed() {
    let server = TaskServer::start().await;
    let body = json!({ "kind": "process", "command": ["cat"], "stdin": true, "cwd": server.cwd() });
    let task = server.start_as(&server.server.operator, body).await;
    let sent = json!({ "body": "soup", "close_input": true });
    let path = format!("/v1/tasks/{task}/messages");
    let operator = server.server.operator.clone();
    let keyed = [("idempotency-key", "soup")];
    let send = async || {
        let sent = Some(sent.clone());
        server.send_with(&operator, &path, &keyed, sent).await.expect(202)
    };
    let first = send().await;
    assert_eq!(first["numbers"].as_array().unwrap().len(), 2);
    assert_eq!(send().await, first, "a repeat is accepted once");
    let waited = server.wait(&task).await;
    assert_eq!(waited["ended"][0]["state"], "succeeded");
    assert_eq!(server.get(&task, "/output").await.expect(200), "soup\n");
    let body = json!({ "kind": "process", "command": ["cat"], "stdin": true, "cwd": server.cwd() });
    let task = server.start_as(&operator, body).await;
    let path = format!("/v1/tasks/{task}/messages");
    // The key of the end of the input is longer.
    let long = "k".repeat(253);
    let keyed = [("idempotency-key", long.as_str())];
    let refused = server.send_with(&operator, &path, &keyed, Some(sent)).await;
    refused.expect_problem(400, "invalid");
    let messages = server.get(&task, "/messages").await.expect(200);
    assert_eq!(messages["items"], json!([]), "a refused request sends nothing");
    server.post(&task, "stop", json!({ "grace_ms": 0 })).await.expect(200);
    let silent = server.start_shell("true").await;
    let refused = server.post(&silent, "messages", json!({ "body": "x" })).await;
    assert!([400, 409].contains(&refused.status.as_u16()), "{}", refused.body);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_messages_are_refused() {
    let server = TaskServer::start().await;
    let task = server.start_job("echo", json!(1)).await;
    for wrong in [json!({}), json!({ "body": 1, "interrupt": 1 }), json!({ "text": 1 }), json!("x")]
    {
        server.post(&task, "messages", wrong).await.expect_problem(400, "invalid");
    }
    let path = format!("/v1/tasks/{task}/messages");
    server.post_bytes(&path, b"{\"body\": \"\xff\"}").await.expect_problem(400, "invalid");
    server.post_bytes(&path, b"{\"body\": 1, \"body\": 2}").await.expect_problem(400, "invalid");
    let body = json!({ "kind": "process", "command": ["cat"], "stdin": true, "cwd": server.cwd() });
    let process = server.start_as(&server.server.operator, body).await;
    let urgent = json!({ "body": "x", "interrupt": true });
    server.post(&process, "messages", urgent).await.expect_problem(400, "invalid");
    server.post(&process, "stop", json!({ "grace_ms": 0 })).await.expect(200);
    server.wait(&process).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inbox_has_the_messages_of_a_clients_tasks() {
    let server = TaskServer::start().await;
    let bob = server.client("bob").await;
    let eve = server.client("eve").await;
    let job = |text: &str| json!({ "kind": "job", "job": "notify", "arguments": text });
    let task = server.start_as(&bob, job("Soup is ready.")).await;
    let other = server.start_as(&eve, job("Cake is ready.")).await;
    server.wait(&task).await;
    server.wait(&other).await;
    let inbox = format!("/v1/sessions/{}/inbox", server.session);
    let get = async |secret: &str, query: &str| {
        let path = format!("{inbox}{query}");
        server.server.send_as(secret, Method::GET, &path, None).await.expect(200)["items"].clone()
    };
    let items = get(&bob, "").await;
    assert_eq!(items.as_array().unwrap().len(), 1);
    assert_eq!(items[0]["text"], "Soup is ready.");
    assert_eq!(items[0]["receipt"]["state"], "accepted");
    assert_eq!(get(&bob, &format!("?from={task}")).await, items);
    let number = items[0]["number"].as_u64().unwrap();
    assert_eq!(get(&bob, &format!("?after={number}")).await, json!([]));
    let foreign = get(&eve, "").await[0]["number"].as_u64().unwrap();
    let read = format!("{inbox}/read");
    let mark = async |secret: &str, numbers: Value| {
        let body = Some(json!({ "numbers": numbers }));
        server.server.send_as(secret, Method::POST, &read, body).await
    };
    let marked = mark(&bob, json!([number, foreign, 99])).await.expect(200);
    assert_eq!(marked["items"].as_array().unwrap().len(), 1, "not those of others: {marked}");
    assert_eq!(get(&bob, "").await, json!([]));
    assert_eq!(get(&bob, "?include_read=true").await[0]["receipt"]["state"], "read");
    assert_eq!(get(&eve, "").await.as_array().unwrap().len(), 1);
    assert_eq!(mark(&bob, json!([number])).await.expect(200)["items"], json!([]));
    for wrong in [json!([]), json!(["x"]), json!([-1]), json!(vec![1; 1_001]), json!(1)] {
        mark(&bob, wrong).await.expect_problem(400, "invalid");
    }
    let elsewhere = "00000000-0000-0000-0000-000000000000.1";
    for wrong in ["after=x", "from=1", "colour=red", &format!("from={elsewhere}")] {
        let response = server.server.get(&format!("{inbox}?{wrong}")).await;
        response.expect_problem(400, "invalid");
    }
}
