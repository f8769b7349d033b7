//! `serve`, `dashboard` and `token`: the HTTP server of the daemon.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::story_env::{StoryEnv, is_there, kill, poll};

/// A response: its status and its body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Sends a request to a URL without a path.
pub(crate) fn send(url: &str, request: &str, token: &str, body: &str) -> Answer {
    let host = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host).unwrap();
    let length = body.len();
    let authorization = match token {
        "" => String::new(),
        token => format!("Authorization: Bearer {token}\r\n"),
    };
    let head = format!(
        "{request} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{authorization}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, body: body.to_owned() }
}

/// A server in the foreground, and its URL.
pub(crate) struct ForegroundServer {
    child: Child,
    pub(crate) url: String,
    printed: String,
}

impl ForegroundServer {
    fn start(story: &StoryEnv) -> Self {
        Self::start_by(story.command(["serve", "--listen", "127.0.0.1:0"]))
    }

    /// Starts a server by a command line of its own.
    pub(crate) fn start_by(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = output.next().unwrap().unwrap();
        let address = first.strip_prefix("listening on ").expect(&first);
        let (url, public_url) = address.split_once(" as ").unwrap_or((address, address));
        let mut printed = String::new();
        while !printed.contains("--bearer-token-env-var") {
            printed.push_str(&output.next().unwrap().unwrap());
            printed.push('\n');
        }
        assert!(printed.contains(&format!("brigade {public_url}/mcp")), "{printed}");
        assert!(printed.contains(&format!("codex mcp add brigade --url {public_url}/mcp")));
        let url = url.to_owned();
        Self { child, url, printed: format!("{first}\n{printed}") }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stop(mut self) {
        kill(self.child.id(), Signal::TERM);
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn published_agents_are_printed_with_their_urls() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  say Soup.\n");
    for name in ["cook", "baker"] {
        story.define(name, &format!("---\nname: {name}\ndescription: Works.\n---\nWork.\n"));
    }
    let command = ["serve", "--listen", "127.0.0.1:0", "--a2a", "cook,baker"];
    let server = ForegroundServer::start_by(story.command(command));
    let url = &server.url;
    let expect = format!("A2A agents:   {url}/a2a/cook\n              {url}/a2a/baker\n");
    assert!(server.printed.contains(&expect), "{}", server.printed);
    let card = send(url, "GET /a2a/baker/.well-known/agent-card.json", "", "");
    assert_eq!(card.status, 200, "{card:?}");
    server.stop();
}

#[test]
fn a_token_is_made_used_and_revoked() {
    let story = StoryEnv::new();
    let url = story.json(["dashboard"])["url"].as_str().unwrap().to_owned();
    let (url, _) = url.split_once("/#code=").unwrap();
    let secret = story.ok(["token", "add", "laptop"]);
    let secret = secret.trim();
    let answer = send(url, "GET /v1/whoami", secret, "");
    assert_eq!(answer.status, 200, "{answer:?}");
    let listed = story.json(["token", "list"]);
    assert_eq!(listed[0]["name"], "laptop");
    assert_eq!(listed[0]["scope"], "operator");
    assert!(!listed.to_string().contains(secret));
    let id = listed[0]["id"].as_str().unwrap();
    assert!(story.ok(["token", "revoke", id]).starts_with("revoked "));
    assert_eq!(send(url, "GET /v1/whoami", secret, "").status, 401);
    let again = story.run(["token", "revoke", id]);
    assert_eq!(again.code, 127);
    assert!(again.err.contains("brigade token list"), "{again:?}");
    assert!(!again.err.contains("brigade ps"), "{again:?}");
    let unitless = story.run(["token", "add", "wall", "--expires", "30"]);
    assert_eq!(unitless.code, 2, "{unitless:?}");
    assert!(unitless.err.contains("30d"), "{unitless:?}");
    assert_eq!(story.run(["token", "add", ""]).code, 2);
    let reader = story.ok(["token", "add", "wall", "--read-only", "--expires", "1h"]);
    let answer = send(url, "POST /v1/tokens", reader.trim(), r#"{"name":"x","scope":"operator"}"#);
    assert_eq!(answer.status, 403, "{answer:?}");
    let client = story.ok(["token", "add", "--client", "claude"]);
    let sessions = send(url, "GET /v1/sessions", client.trim(), "");
    let sessions: Value = serde_json::from_str(&sessions.body).unwrap();
    assert_eq!(sessions["items"].as_array().unwrap().len(), 1, "{sessions}");
}

#[test]
fn tokens_are_listed_apart_from_logins() {
    let story = StoryEnv::new();
    let url = story.json(["dashboard"])["url"].as_str().unwrap().to_owned();
    let (url, code) = url.split_once("/#code=").unwrap();
    let login = send(url, "POST /v1/login", "", &format!(r#"{{"code":"{code}"}}"#));
    assert_eq!(login.status, 200, "{login:?}");
    let first = story.run(["token", "add", "laptop"]);
    assert_eq!(first.err, "");
    let id = story.json(["token", "list"]);
    let id = id.as_array().unwrap().iter().find(|token| token["name"] == "laptop").unwrap()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let second = story.run(["token", "add", "laptop", "--read-only", "--expires", "30d"]);
    assert!(second.err.contains(&format!("the token {id} has the name")), "{second:?}");
    assert_eq!(second.out.lines().count(), 1, "stdout has the secret alone: {second:?}");
    let listed = story.run(["token", "list"]);
    let lines: Vec<&str> = listed.out.lines().collect();
    assert!(lines[0].starts_with("TOKEN ") && lines[0].ends_with("EXPIRES"), "{listed:?}");
    assert!(lines[1].contains("operator") && lines[2].contains("read-only"), "{listed:?}");
    assert_eq!(lines.len(), 3, "{listed:?}");
    assert!(listed.err.contains("1 login of browsers"), "{listed:?}");
    let all = story.run(["token", "list", "--all"]);
    let last = all.out.lines().last().unwrap();
    assert!(last.contains("login") && last.contains("dashboard"), "{all:?}");
    assert_eq!(all.out.lines().count(), 4, "{all:?}");
}

#[test]
fn the_dashboard_url_logs_in_once() {
    let story = StoryEnv::new();
    let printed = story.ok(["dashboard", "--no-open"]);
    let (url, code) = printed.trim().split_once("/#code=").unwrap();
    let body = format!(r#"{{"code":"{code}"}}"#);
    let first = send(url, "POST /v1/login", "", &body);
    assert_eq!(first.status, 200, "{first:?}");
    let login: Value = serde_json::from_str(&first.body).unwrap();
    let secret = login["secret"].as_str().unwrap();
    assert_eq!(send(url, "GET /v1/tasks", secret, "").status, 200);
    assert_eq!(send(url, "POST /v1/login", "", &body).status, 401);
    // The next daemon listens on the same port, and knows the login.
    story.ok(["daemon", "stop"]);
    story.ok(["daemon", "start"]);
    assert_eq!(send(url, "GET /v1/tasks", secret, "").status, 200);
    let again = story.ok(["dashboard", "--no-open"]);
    assert!(again.starts_with(url), "{again}");
}

#[test]
fn a_server_takes_over_from_the_daemon_and_its_processes_go_on() {
    let story = StoryEnv::new();
    story.ok(["exec", "--detach", "--name", "Soup", "--", "sleep", "1000"]);
    let daemon = story.daemon_pid();
    let server = ForegroundServer::start(&story);
    poll("the daemon has ended", || (!is_there(daemon)).then_some(()));
    let token = story.ok(["token", "add", "laptop"]);
    let tasks = send(&server.url, "GET /v1/tasks", token.trim(), "");
    let tasks: Value = serde_json::from_str(&tasks.body).unwrap();
    assert_eq!(tasks["items"][0]["name"], "Soup");
    assert_eq!(tasks["items"][0]["state"], "running");
    let second = story.run(["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(second.code, 119, "{second:?}");
    assert!(second.err.contains(&server.url), "{second:?}");
    let url = server.url.clone();
    server.stop();
    // The address is stored: the daemon that a client starts listens there too.
    story.ok(["ps"]);
    assert_eq!(send(&url, "GET /v1/tasks", token.trim(), "").status, 200);
    story.ok(["stop", "Soup"]);
}

#[test]
fn a_client_names_no_file_as_a_model() {
    let story = StoryEnv::new();
    let url = story.json(["dashboard"])["url"].as_str().unwrap().to_owned();
    let (url, _) = url.split_once("/#code=").unwrap();
    let client = story.ok(["token", "add", "--client", "eve"]);
    let sessions = send(url, "GET /v1/sessions", client.trim(), "");
    let sessions: Value = serde_json::from_str(&sessions.body).unwrap();
    let session = sessions["items"][0]["id"].as_str().unwrap();
    let cwd = story.project();
    let key = story.operator_key();
    let key_path = story.state().join("operator.key");
    let key_path = key_path.display();
    let recording = cwd.join("recording");
    let recording = recording.display();
    for model in [format!("script:{key_path}"), format!("record:script:{key_path}={recording}")] {
        let body = serde_json::json!({
            "kind": "agent", "prompt": "Go.", "cwd": cwd, "sandbox": {}, "model": model,
        });
        let path = format!("POST /v1/sessions/{session}/tasks");
        let answer = send(url, &path, client.trim(), &body.to_string());
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(!answer.body.contains(&key), "{answer:?}");
    }
}

#[test]
fn an_address_for_other_machines_needs_tls_or_a_proxy() {
    let story = StoryEnv::new();
    let ran = story.run(["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("--tls-cert"), "{ran:?}");
    let ran = story.run(["serve", "--tls-cert", "none.pem", "--tls-key", "none.pem"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("none.pem"), "{ran:?}");
    for wrong in ["7778", "localhost", "127.0.0.1"] {
        let ran = story.run(["serve", "--listen", wrong]);
        assert_eq!(ran.code, 2, "{wrong}");
        assert!(ran.err.contains("give ADDRESS:PORT, such as 127.0.0.1:777"), "{ran:?}");
    }
    assert!(story.run(["serve", "--listen", "7778"]).err.contains("127.0.0.1:7778"));
    assert_eq!(story.run(["serve", "--behind-proxy"]).code, 2, "it needs the name of the proxy");
    assert_eq!(story.run(["serve", "--base-path", "/a"]).code, 2, "only a proxy has one");
    let ran = story.run(["serve", "--behind-proxy", "--host", "a.example", "--base-path", "/v1"]);
    assert!(ran.code == 2 && ran.err.contains("/v1 is a path of this server"), "{ran:?}");
}

#[test]
fn a_server_behind_a_proxy_prints_its_public_url() {
    let story = StoryEnv::new();
    let host = ["--behind-proxy", "--host", "brigade.example", "--base-path", "/tools"];
    let arguments = ["serve", "--listen", "127.0.0.1:0"].into_iter().chain(host);
    let server = ForegroundServer::start_by(story.command(arguments));
    let first = format!("listening on {} as https://brigade.example/tools\n", server.url);
    assert!(server.printed.starts_with(&first), "{}", server.printed);
    let ran = story.run(["dashboard", "--no-open"]);
    assert!(ran.err.contains("valid once, for 60 seconds"), "{ran:?}");
    let mut lines = ran.out.lines();
    let (url, code) = lines.next().unwrap().split_once("/#code=").unwrap();
    // Pages of the listener behind the proxy have the proxy's origin, so this machine has its own.
    assert_ne!(url, server.url);
    let public = lines.next().unwrap();
    assert_eq!(public, format!("from other machines: https://brigade.example/tools/#code={code}"));
    let json = story.json(["dashboard"]);
    assert!(
        json["public_url"].as_str().unwrap().starts_with("https://brigade.example/tools/#code=")
    );
    let url = url.to_owned();
    server.stop();
    // The next server says which of its addresses is that of the dashboard.
    let server = ForegroundServer::start(&story);
    let expect = format!("listening on {url}, the stored address of `brigade dashboard`");
    assert!(server.printed.contains(&expect), "{}", server.printed);
    server.stop();
}
