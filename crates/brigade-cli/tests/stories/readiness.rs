//! `brigade exec --ready` and `brigade wait --ready`.

use std::fs;
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::http::send;
use crate::story_env::{Ran, StoryEnv, poll};

/// A process that becomes ready when the file `go` exists.
const SERVER: &str = "echo starting; until [ -e go ]; do sleep 0.02; done; \
    printf '\\033[32mlistening on 80\\033[0m\\n' >&2; sleep 60";

fn let_go(story: &StoryEnv) {
    fs::write(story.project().join("go"), "").unwrap();
}

fn count_events(story: &StoryEnv, kind: &str) -> usize {
    let events = story.ok(["events", "--json"]);
    let items = events.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    items.filter(|item| item["event"]["event"].get(kind).is_some()).count()
}

#[test]
fn a_wait_for_readiness_survives_the_daemon() {
    let story = StoryEnv::new();
    let pattern = "^listening on [0-9]+$";
    story.ok(["exec", "-d", "--name", "Server", "--ready", pattern, "--shell", SERVER]);
    story.until_state("Server", "running");
    let waiting = story.start(["wait", "--ready", "Server"]);
    story.kill_daemon();
    assert!(story.json(["show", "Server"]).get("ready_at").is_none());
    let shown = story.ok(["show", "Server"]);
    assert!(shown.contains("not yet (when a line of output matches"), "{shown}");
    let_go(&story);
    let ran: Ran = waiting.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "process:1 (Server) running (ready)\n"), "{}", ran.err);
    assert!(story.ok(["ps"]).contains("running (ready)"));
    let ready_at = story.json(["show", "Server"])["ready_at"].clone();
    assert!(ready_at.is_u64(), "{ready_at}");
    // A daemon that adopts a ready process does not search its output again.
    story.kill_daemon();
    assert_eq!(story.ok(["wait", "--ready", "1"]), "process:1 (Server) running (ready)\n");
    assert_eq!(story.json(["show", "Server"])["ready_at"], ready_at);
    assert_eq!(count_events(&story, "ready"), 1);
    story.ok(["stop", "Server"]);
    assert!(story.ok(["ps", "--ended"]).contains("cancelled"));
}

#[test]
fn a_task_that_ends_before_it_is_ready_fails_the_wait() {
    let story = StoryEnv::new();
    let exec = |script: &str| {
        story.ok(["exec", "-d", "--ready", "listening", "--shell", script]).trim().to_owned()
    };
    let failed = exec("echo first; echo 'no such file' >&2; exit 7");
    let ran = story.run(["wait", "--ready", &failed]);
    assert_eq!((ran.code, &*ran.out), (7, "process:1 failed (7)\n"), "{}", ran.err);
    assert!(ran.err.contains("process:1 ended before it was ready"), "{}", ran.err);
    assert!(ran.err.contains("  no such file"), "{}", ran.err);
    let succeeded = exec("true");
    assert_eq!(story.run(["wait", "--ready", &succeeded]).code, 120, "it was never ready");
    let both = story.run(["wait", "--ready", "--json", &failed, &succeeded]);
    let reply: Value = serde_json::from_str(&both.out).unwrap();
    assert_eq!(reply["ended"].as_array().unwrap().len(), 2, "{reply}");
    // The wait for readiness has not collected anything.
    assert_eq!(story.json(["show", &failed])["collected"], false);
    // The last output of a process counts, however soon it ends.
    let quick = exec("printf listening");
    assert_eq!(story.run(["wait", "--ready", &quick]).code, 0);
}

#[test]
fn a_wait_that_times_out_changes_nothing() {
    let story = StoryEnv::new();
    story.ok(["exec", "-d", "--ready", "never", "--shell", "echo never mind >log; sleep 60"]);
    let ran = story.run(["wait", "--ready", "--timeout", "300ms", "1"]);
    assert_eq!((ran.code, &*ran.out), (124, ""), "{}", ran.err);
    assert!(ran.err.contains("process:1 is still running"), "{}", ran.err);
    let other = story.ok(["exec", "-d", "--", "sleep", "60"]);
    let ran = story.run(["wait", "--ready", other.trim()]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert!(ran.err.contains("started without a readiness check"), "{}", ran.err);
}

#[test]
fn a_wrong_check_is_refused_before_anything_starts() {
    let story = StoryEnv::new();
    let table = [
        (["--ready", "("], "the pattern is wrong"),
        (["--ready", "(?:a{1000}){1000}"], "too large"),
        (["--ready", ""], "is empty"),
        (["--ready-port", "0"], "0 is not in"),
        (["--ready-port", "70000"], "70000 is not in"),
        (["--ready-http", "http://example.com/"], "loopback"),
        (["--ready-http", "https://localhost/"], "does not begin with http://"),
    ];
    for ([option, value], message) in table {
        let ran = story.run(["exec", "-d", option, value, "--", "true"]);
        assert_eq!(ran.code, 2, "{option} {value}: {}", ran.err);
        assert!(ran.err.contains(message), "{option} {value}: {}", ran.err);
    }
    let both = story.run(["exec", "-d", "--ready", "a", "--ready-port", "1", "--", "true"]);
    assert_eq!(both.code, 2, "{}", both.err);
    assert_eq!(story.json(["ps", "--ended"]), Value::Array(Vec::new()), "nothing was started");
}

#[test]
fn a_port_of_another_process_is_not_the_tasks_own() {
    let story = StoryEnv::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let ran = story.run(["exec", "--ready-port", &port, "--shell", "echo started >started"]);
    assert_eq!(ran.code, 120, "{}", ran.err);
    let problem = format!("port {port} is already in use by another process");
    assert!(ran.err.contains(&problem), "{}", ran.err);
    assert!(!story.project().join("started").exists(), "nothing was started");
    drop(listener);
    // A process that begins to listen after the start is found to be another one.
    story.ok(["exec", "-d", "--ready-port", &port, "--shell", "echo started; sleep 60"]);
    story.until_state("2", "running");
    poll("the process runs", || story.ok(["logs", "2"]).contains("started").then_some(()));
    let _listener = TcpListener::bind(format!("127.0.0.1:{port}")).unwrap();
    let ran = story.run(["wait", "--ready", "--timeout", "1500ms", "2"]);
    assert_eq!(ran.code, if cfg!(target_os = "linux") { 124 } else { 0 }, "{}", ran.err);
    story.ok(["stop", "2"]);
}

/// A server that listens when the file `go` exists, and answers 503 until the file `warm` exists.
const HTTP_SERVER: &str = r#"
import http.server, os, sys, time
while not os.path.exists("go"): time.sleep(0.02)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists("warm") else 503)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

/// Returns a port that nobody uses now.
fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

#[test]
fn a_server_is_ready_when_it_answers() {
    let story = StoryEnv::new();
    fs::write(story.project().join("server.py"), HTTP_SERVER).unwrap();
    let port = free_port();
    let server = ["python3", "server.py", &port];
    story.ok(["exec", "-d", "--ready-port", &port, "--", server[0], server[1], server[2]]);
    let waiting = story.start(["wait", "--ready", "1"]);
    let_go(&story);
    let ran: Ran = waiting.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "process:1 running (ready)\n"), "{}", ran.err);
    story.ok(["stop", "--wait", "1"]);
    let url = format!("http://localhost:{port}/health");
    story.ok(["exec", "-d", "--ready-http", &url, "--", server[0], server[1], server[2]]);
    let ran = story.run(["wait", "--ready", "--timeout", "300ms", "2"]);
    assert_eq!(ran.code, 124, "{}", ran.err);
    // A daemon that adopts it goes on asking.
    story.kill_daemon();
    let waiting = story.start(["wait", "--ready", "2"]);
    fs::write(story.project().join("warm"), "").unwrap();
    let ran: Ran = waiting.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "process:2 running (ready)\n"), "{}", ran.err);
}

#[test]
fn readiness_is_awaited_over_http() {
    let story = StoryEnv::new();
    let url = story.json(["dashboard"])["url"].as_str().unwrap().to_owned();
    let (url, _) = url.split_once("/#code=").unwrap();
    let secret = story.ok(["token", "add", "laptop"]);
    let post = |path: &str, body: Value| {
        let answer = send(url, &format!("POST {path}"), secret.trim(), &body.to_string());
        let body: Value = serde_json::from_str(&answer.body).unwrap();
        (answer.status, body)
    };
    let workspace = story.project();
    let (_, session) = post("/v1/sessions", json!({ "workspace": workspace }));
    let session = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    let tasks = format!("{session}/tasks");
    let server = |ready: Value| json!({ "kind": "process", "shell": SERVER, "cwd": workspace, "ready": ready });
    let (status, problem) = post(&tasks, server(json!({ "output": "a", "port": 1 })));
    assert_eq!(status, 400, "{problem}");
    let (status, task) = post(&tasks, server(json!({ "output": "listening" })));
    assert_eq!(status, 201, "{task}");
    assert_eq!(task["readiness"], json!({ "output": "listening" }));
    assert!(task.get("ready_at").is_none());
    let_go(&story);
    let wait = json!({ "tasks": [task["id"]], "until": "ready" });
    let (status, waited) = post(&format!("{session}/wait"), wait);
    assert_eq!((status, &waited["done"]), (200, &json!(true)), "{waited}");
    assert_eq!(waited["ready"][0]["id"], task["id"]);
    assert!(waited["ready"][0]["ready_at"].is_string(), "{waited}");
    story.ok(["stop", "1"]);
}

/// An agent that starts a server, waits until it is ready, and stops it. The result of the server is
/// not taken by the wait, so it comes later, perhaps after the first text.
const AGENT: &str = r#"agent *
turn
  call run_process {"command": "until [ -e go ]; do sleep 0.02; done; echo listening; sleep 60", "background": true, "name": "Server", "ready": {"output": "^listening$"}}
turn
  call wait_tasks {"tasks": ["Server"], "until": "ready"}
turn
  call stop_task {"task": "Server"}
turn
  say Served.
turn
  say Served.
"#;

#[test]
fn an_agent_is_woken_when_its_server_is_ready() {
    let story = StoryEnv::new();
    story.script(AGENT);
    let run = story.start(["run", "--name", "Boss", "--allow", "run_process", "Serve"]);
    poll("it waits", || {
        let ran = story.run(["show", "Boss", "--json"]);
        let shown: Value = serde_json::from_str(&ran.out).ok()?;
        (shown["state"] == "waiting").then_some(())
    });
    story.kill_daemon();
    let_go(&story);
    let ran: Ran = run.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "Served.\n"), "{}", ran.err);
    let transcript = story.ok(["logs", "Boss"]);
    assert!(transcript.contains("Task 2 is ready."), "{transcript}");
    assert!(transcript.contains("<result task=\"process:2\""), "{transcript}");
}
