//! The output of processes: bytes, ranges, pages and searches.

use serde_json::{Value, json};

use crate::support::TestResponse;
use crate::task_server::TaskServer;

impl TaskServer {
    async fn read_range(&self, task: &str, range: &str) -> TestResponse {
        let path = format!("/v1/tasks/{task}/output");
        let headers = [("range", range)];
        let operator = self.server.operator.clone();
        self.send_with(&operator, &path, &headers, None).await
    }

    async fn read_page(&self, task: &str, query: &str) -> TestResponse {
        let path = format!("/v1/tasks/{task}/output{query}");
        let headers = [("accept", "text/html, application/json;q=0.9")];
        let operator = self.server.operator.clone();
        self.send_with(&operator, &path, &headers, None).await
    }

    /// Runs a shell command to its end.
    async fn run_shell(&self, line: &str) -> String {
        let task = self.start_shell(line).await;
        self.wait(&task).await;
        task
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_read_by_byte_ranges() {
    let server = TaskServer::start().await;
    let task = server.run_shell("printf 'zero one two'; printf 'bad' >&2").await;
    let stdout = server.get(&task, "/output?stream=stdout").await;
    assert_eq!(stdout.headers["content-type"], "application/octet-stream");
    assert_eq!(stdout.headers["brigade-output-total"], "12");
    assert_eq!(stdout.headers["brigade-output-ended"], "true");
    assert_eq!(stdout.expect(200), "zero one two");
    assert_eq!(server.get(&task, "/output?stream=stderr").await.expect(200), "bad");
    assert_eq!(server.get(&task, "/output").await.headers["brigade-output-total"], "15");
    let only = |range: &str| format!("bytes {range}/12");
    for (range, content, body) in [
        ("bytes=0-3", "0-3", json!("zero")),
        ("bytes=5-", "5-11", json!("one two")),
        ("bytes=-3", "9-11", json!("two")),
        ("bytes=9-99999999999", "9-11", json!("two")),
        ("bytes=9-18446744073709551615", "9-11", json!("two")),
        ("bytes=-999", "0-11", json!("zero one two")),
    ] {
        let path = format!("/v1/tasks/{task}/output?stream=stdout");
        let operator = &server.server.operator;
        let part = server.send_with(operator, &path, &[("range", range)], None).await;
        let shown = part.headers["content-range"].to_str().unwrap().to_owned();
        // The length is unknown until the output has been read to its end.
        let expected = [only(content), format!("bytes {content}/*")];
        assert!(expected.contains(&shown), "{range}: {shown}");
        assert_eq!(part.headers["brigade-output-dropped"], "0");
        assert_eq!(part.expect(206), body, "{range}");
    }
    let end = server.read_range(&task, "bytes=15-").await;
    assert_eq!(end.headers["content-range"], "bytes */15");
    end.expect_problem(416, "invalid");
    server.read_range(&task, "bytes=18446744073709551615-").await.expect_problem(416, "invalid");
    for ignored in ["lines=1-2", "bytes=1-2,4-5", "bytes=9-3", "bytes=x-", "bytes"] {
        assert_eq!(server.read_range(&task, ignored).await.status.as_u16(), 200, "{ignored}");
    }
    let tail = server.get(&task, "/output?stream=stdout&tail=3").await;
    assert_eq!(tail.headers["brigade-output-start"], "9");
    assert_eq!(tail.expect(200), "two");
    for wrong in ["stream=stdin", "tail=-1", "tail=99999999", "run=x", "from=3", "colour=red"] {
        let response = server.get(&task, &format!("/output?{wrong}")).await;
        response.expect_problem(400, "invalid");
    }
    server.get(&task, "/output?run=7").await.expect_problem(404, "not_found");
    assert_eq!(server.get(&task, "/output?run=1&stream=stderr").await.expect(200), "bad");
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_read_in_pages_of_json() {
    let server = TaskServer::start().await;
    let task = server.run_shell("printf 'äöü'; printf '\\377' >&2").await;
    let page = server.read_page(&task, "?stream=stdout").await.expect(200);
    assert_eq!(page["pieces"], json!([{ "stream": "stdout", "text": "äöü" }]));
    assert_eq!(page["next"], 6);
    assert_eq!(page["ended"], true);
    let bytes = server.read_page(&task, "?stream=stderr").await.expect(200);
    assert_eq!(bytes["pieces"], json!([{ "stream": "stderr", "base64": "/w==" }]));
    let tail = server.read_page(&task, "?stream=stdout&tail=2").await.expect(200);
    assert_eq!(tail["pieces"][0]["text"], "ü");
    let past = server.read_page(&task, "?stream=stdout&from=99").await.expect(200);
    assert_eq!(past["pieces"], json!([]));
    for wrong in ["limit=15", "limit=99999999", "from=1&tail=1", "from=-1"] {
        let response = server.read_page(&task, &format!("?{wrong}")).await;
        response.expect_problem(400, "invalid");
    }
    let long =
        server.run_shell("i=0; while [ $i -lt 40 ]; do printf 'äöü'; i=$((i+1)); done").await;
    let mut text = String::new();
    let mut from = 0;
    loop {
        let query = format!("?stream=stdout&limit=17&from={from}");
        let page = server.read_page(&long, &query).await.expect(200);
        for piece in page["pieces"].as_array().unwrap() {
            text.push_str(piece["text"].as_str().unwrap());
        }
        from = page["next"].as_u64().unwrap();
        if page["ended"] == true {
            break;
        }
    }
    assert_eq!(text, "äöü".repeat(40));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_output_is_sent_whole() {
    let server = TaskServer::start().await;
    let task = server.run_shell("head -c 1000000 /dev/zero | tr '\\0' x").await;
    let output = server.get(&task, "/output").await;
    assert_eq!(output.headers["brigade-output-next"], "1000000");
    assert_eq!(output.expect(200), Value::String("x".repeat(1_000_000)));
    let part = server.read_range(&task, "bytes=300000-900000").await;
    assert_eq!(part.expect(206).as_str().unwrap().len(), 600_001);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_bytes_are_counted() {
    let server = TaskServer::start().await;
    let session = server.server.runtime.session(&server.cwd()).await.unwrap();
    let line = "head -c 3000000 /dev/zero | tr '\\0' x";
    let process = brigade_runtime::NewTask::shell(line).output_cap(65_536);
    let process = session.spawn(process).await.unwrap();
    let task = format!("{}.{}", server.session, process.no());
    server.wait(&task).await;
    let page = server.read_page(&task, "").await.expect(200);
    let dropped = page["pieces"].as_array().unwrap().iter().find_map(|it| it["dropped"].as_u64());
    let dropped = dropped.unwrap();
    let head = page["pieces"][0]["text"].as_str().unwrap().len() as u64;
    let whole = server.get(&task, "/output").await;
    assert_eq!(whole.headers["brigade-output-total"], "3000000");
    assert_eq!(whole.expect(200).as_str().unwrap().len() as u64, 3_000_000 - dropped);
    let part = server.read_range(&task, "bytes=0-").await;
    assert_eq!(part.headers["brigade-output-next"], head.to_string());
    assert_eq!(part.expect(206).as_str().unwrap().len() as u64, head, "up to the gap");
    let part = server.read_range(&task, &format!("bytes={head}-")).await;
    assert_eq!(part.headers["brigade-output-dropped"], dropped.to_string());
    assert_eq!(part.headers["brigade-output-start"], (head + dropped).to_string());
    assert_eq!(part.expect(206).as_str().unwrap().len() as u64, 3_000_000 - dropped - head);
    let inside = server.read_range(&task, &format!("bytes={head}-{}", head + 1)).await;
    inside.expect_problem(416, "invalid");
    let tail = server.get(&task, "/output?tail=3000000").await;
    assert_eq!(tail.headers["brigade-output-dropped"], dropped.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_searched_by_lines() {
    let server = TaskServer::start().await;
    let task = server.run_shell("echo one; echo Two; echo three >&2; echo two").await;
    let search = async |query: &str| server.get(&task, &format!("/output/search?{query}")).await;
    let found = search("pattern=%5Etwo&ignore_case=true&stream=stdout").await.expect(200);
    let texts: Vec<&Value> =
        found["lines"].as_array().unwrap().iter().map(|it| &it["text"]).collect();
    assert_eq!(texts, ["Two", "two"]);
    assert_eq!(found["lines"][0]["offset"], 4);
    assert_eq!(found["has_more"], false);
    assert_eq!(found["dropped_bytes"], 0);
    let stderr = search("pattern=e&stream=stderr").await.expect(200);
    assert_eq!(stderr["lines"][0]["stream"], "stderr");
    assert_eq!(search("pattern=e&limit=1").await.expect(200)["has_more"], true);
    let whole = search("pattern=e").await.expect(200);
    assert!(whole.get("next_page").is_none(), "{whole}");
    let mut paged = Vec::new();
    let mut page = String::new();
    loop {
        let found = search(&format!("pattern=e&limit=1{page}")).await.expect(200);
        paged.extend(found["lines"].as_array().unwrap().iter().cloned());
        let Some(next) = found["next_page"].as_str() else { break };
        page = format!("&page={next}");
    }
    assert_eq!(json!(paged), whole["lines"]);
    let large = format!("pattern={}", "(x{1000}){1000}".replace('{', "%7B").replace('}', "%7D"));
    for wrong in
        ["pattern=(", &large, "", "pattern=a&limit=0", "pattern=a&limit=10001", "pattern=a&page=7"]
    {
        search(wrong).await.expect_problem(400, "invalid");
    }
    let job = server.start_job("echo", json!(1)).await;
    server.get(&job, "/output").await.expect_problem(400, "invalid");
    server.get(&job, "/output/search?pattern=a").await.expect_problem(400, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_never_started_has_no_output() {
    let dir = tempfile::tempdir().unwrap();
    let server = TaskServer::start_with(dir, |builder, _| builder.max_running(0)).await;
    let task = server.start_shell("echo soup").await;
    server.post(&task, "stop", json!({})).await.expect(200);
    for part in ["/output", "/output/search?pattern=a", "/output/stream"] {
        let detail = server.get(&task, part).await.expect_problem(404, "not_found");
        assert!(!detail.contains(&server.cwd()), "no path of the server is told: {detail}");
    }
}
