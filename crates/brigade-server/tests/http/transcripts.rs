//! Transcripts and definitions of agents.

use serde_json::{Value, json};

use crate::task_server::TaskServer;

#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_has_items_and_a_text() {
    let server = TaskServer::start().await;
    let task = server.start_baker().await;
    let approval = server.wait(&task).await["pending_approvals"][0]["approval"].clone();
    let verdict = json!({ "verdict": "allow_once", "digest": approval["digest"] });
    server.post(&task, &format!("approvals/{}", approval["call"]), verdict).await.expect(204);
    server.wait(&task).await;
    let transcript = server.get(&task, "/transcript").await.expect(200);
    let items = transcript["items"].as_array().unwrap();
    let roles: Vec<&Value> = items.iter().map(|item| &item["role"]).collect();
    assert_eq!(roles, ["task", "assistant", "approval", "tool", "assistant"], "{transcript}");
    assert_eq!(items[0]["text"], "Bake.");
    assert_eq!(items[1]["text"], "I will bake.");
    assert_eq!(items[1]["tool_calls"][0]["name"], "bake");
    assert_eq!(items[1]["tool_calls"][0]["arguments"], json!({ "value": "bread" }));
    let result = json!({ "number": 1, "name": "bake", "text": "bread is baked", "failed": false });
    assert_eq!(items[3]["tool_result"], result);
    assert_eq!(items[4]["index"], 4);
    let mut paged = Vec::new();
    let mut query = "?limit=2".to_owned();
    loop {
        let page = server.get(&task, &format!("/transcript{query}")).await.expect(200);
        paged.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next_page"].as_str() else { break };
        query = format!("?limit=2&page={next}");
    }
    assert_eq!(&paged, items);
    let text = server.get(&task, "/transcript?format=text").await;
    assert_eq!(text.headers["content-type"], "text/plain; charset=utf-8");
    let total: u64 = text.headers["brigade-output-total"].to_str().unwrap().parse().unwrap();
    let text = text.expect(200);
    let text = text.as_str().unwrap();
    assert!(text.starts_with("[task]\n  Bake.\n"), "{text}");
    assert_eq!(text.len() as u64, total);
    let rest = server.get(&task, &format!("/transcript?format=text&from={}", total - 4)).await;
    assert_eq!(rest.expect(200).as_str().unwrap(), &text[text.len() - 4..]);
    let found = server.get(&task, "/output/search?pattern=baked").await.expect(200);
    assert!(!found["lines"].as_array().unwrap().is_empty());
    for wrong in
        ["format=xml", "limit=0", "limit=1001", "page=x", "page=-1", "page=99", "colour=red"]
    {
        let response = server.get(&task, &format!("/transcript?{wrong}")).await;
        response.expect_problem(400, "invalid");
    }
    let past = server.get(&task, "/transcript?page=9999-99-0").await.expect(200);
    assert_eq!(past, json!({ "items": [] }));
    let job = server.start_job("echo", json!(1)).await;
    for query in ["", "?format=text"] {
        let response = server.get(&job, &format!("/transcript{query}")).await;
        response.expect_problem(400, "invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_are_listed_for_a_directory() {
    let server = TaskServer::start().await;
    let listed = server.server.get(&format!("/v1/definitions?cwd={}", server.cwd())).await;
    let listed = listed.expect(200);
    assert!(listed["items"].is_array() && listed["problems"].is_array(), "{listed}");
    for wrong in ["", "?cwd=src", "?cwd=", "?cwd=/&lang=%00", "?cwd=/&colour=red"] {
        let response = server.server.get(&format!("/v1/definitions{wrong}")).await;
        response.expect_problem(400, "invalid");
    }
}
