//! Errors of `--server`, as a new user meets them. Each says what to do.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use crate::remote::RemoteStory;
use crate::story_env::{Ran, StoryEnv};

/// A server that answers each request with this text.
fn serve_text(text: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    // The thread ends with the test's process.
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap() == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            stream.write_all(text.as_bytes()).unwrap();
        }
    });
    url
}

/// A server that answers the handshake of TLS with text.
fn serve_without_tls() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            assert!(stream.read(&mut [0; 8192]).unwrap() > 0);
            stream.write_all(b"this is no TLS\r\n\r\n").unwrap();
            open.push(stream);
        }
    });
    url
}

fn response(status: &str, head: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{head}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Runs `brigade ps` with this server and a token.
fn run_at(story: &StoryEnv, url: &str) -> Ran {
    let mut command = story.command(["ps", "--server", url]);
    command.env("BRIGADE_TOKEN", "secret-token").output().unwrap().into()
}

#[track_caller]
fn expect(ran: &Ran, code: i32, parts: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    for part in parts {
        assert!(ran.err.contains(part), "{part:?} is not in {}", ran.err);
    }
    assert!(!ran.err.contains("secret-token"), "{}", ran.err);
}

#[test]
fn wrong_tokens_and_certificates_are_refused() {
    let remote = RemoteStory::start();
    let run = |change: &dyn Fn(&mut Command)| {
        let mut command = remote.command(["ps"]);
        change(&mut command);
        Ran::from(command.output().unwrap())
    };
    let ran = run(&|command| {
        command.env_remove("BRIGADE_TOKEN_FILE");
    });
    expect(&ran, 126, &["no token is set", "brigade token add NAME", "BRIGADE_TOKEN_FILE"]);
    let ran = run(&|command| {
        command.env("BRIGADE_TOKEN_FILE", "/none");
    });
    expect(&ran, 126, &["/none: No such file"]);
    let ran = run(&|command| {
        command.env("BRIGADE_TOKEN", "secret-token");
    });
    expect(&ran, 126, &[&remote.url, "expired or revoked", "brigade token add NAME"]);
    for kind in ["--read-only", "--client"] {
        let token = remote.story.ok(["token", "add", kind, "eve"]);
        let ran = run(&|command| {
            command.env("BRIGADE_TOKEN", token.trim());
        });
        expect(&ran, 126, &["only an operator's token may connect a command line"]);
    }
    let ran = run(&|command| {
        command.env_remove("SSL_CERT_FILE");
    });
    expect(&ran, 126, &["its certificate is refused", "SSL_CERT_FILE"]);
    let named = remote.url.replace("127.0.0.1", "localhost");
    let ran = run(&|command| {
        command.env("BRIGADE_SERVER", &named);
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    let plain = remote.url.replace("https", "http");
    let ran = run(&|command| {
        command.env("BRIGADE_SERVER", &plain);
    });
    assert_eq!(ran.code, 125, "{ran:?}");
    remote.end();
}

#[test]
fn other_servers_are_explained() {
    let story = StoryEnv::new();
    let problem = r#"{"type":"/docs#x","title":"x","status":404,"code":"not_found","detail":"there is no path"}"#;
    let older = response("404 Not Found", "Content-Type: application/problem+json\r\n", problem);
    expect(&run_at(&story, &serve_text(older)), 126, &["older version", "upgrade it"]);
    let other = response("200 OK", "Content-Type: text/html\r\n", "<h1>It works</h1>");
    expect(&run_at(&story, &serve_text(other)), 126, &["200 OK", "is no Brigade server"]);
    let missing = response("404 Not Found", "", "nothing here");
    expect(&run_at(&story, &serve_text(missing)), 126, &["404 Not Found", "is no Brigade server"]);
    let moved = response("301 Moved", "Location: https://new.example/\r\n", "");
    expect(&run_at(&story, &serve_text(moved)), 126, &["redirects to https://new.example/"]);
    let proxy = response("502 Bad Gateway", "", "");
    expect(&run_at(&story, &serve_text(proxy)), 125, &["502 Bad Gateway", "brigade serve"]);
    let socket = "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    expect(&run_at(&story, &serve_text(socket.to_owned())), 126, &["is no Brigade server"]);
    let hung_up =
        "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: brigade\r\n\r\n".to_owned();
    expect(&run_at(&story, &serve_text(hung_up)), 125, &["it hung up"]);
    let refusal = "HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: brigade\r\n\r\n\
                   {\"refused\":{\"kind\":\"limit\",\"message\":\"2048 connections are open\"},\
                   \"version\":\"9.0.0\",\"protocol\":9}\n";
    expect(&run_at(&story, &serve_text(refusal.to_owned())), 120, &["2048 connections are open"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    expect(&run_at(&story, &nobody), 125, &[&nobody, "refused", "brigade serve"]);
    let tls = nobody.replace("http:", "https:");
    expect(&run_at(&story, &format!("{nobody},{tls}")), 125, &[&nobody, &tls]);
    expect(&run_at(&story, &serve_without_tls()), 126, &["does not speak TLS"]);
    assert!(!story.state().exists(), "nothing local is touched");
}

#[test]
fn wrong_urls_are_refused_before_a_token_is_sent() {
    let story = StoryEnv::new();
    expect(&run_at(&story, "node.example"), 2, &["write https://HOST"]);
    expect(&run_at(&story, "http://node.example"), 2, &["without TLS", "ssh -L"]);
    expect(&run_at(&story, "https://eve:pass@node.example"), 2, &["has no user"]);
    let both = ["ps", "--server", "https://a.example", "--state", "/tmp/none"];
    expect(&story.run(both), 2, &["--server and --state"]);
    assert!(!story.state().exists(), "nothing local is touched");
}

#[test]
fn subcommands_of_this_machine_refuse_a_server() {
    let story = StoryEnv::new();
    let server = ["--server", "https://node.example"];
    for words in [&["serve"] as &[&str], &["daemon", "start"], &["demo"]] {
        let ran = Ran::from(story.command(words.iter().chain(&server)).output().unwrap());
        expect(&ran, 2, &["works on this machine", "https://node.example", "--server local"]);
    }
    assert!(!story.state().exists(), "nothing local is touched");
    let mut local = story.command(["exec", "--server", "local", "--", "true"]);
    let ran = Ran::from(local.env("BRIGADE_SERVER", server[1]).output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    // The variables of the state directory and of a task come before the configuration.
    story.configure("[server]\nurls = [\"https://node.example\"]\n");
    assert_eq!(story.run(["exec", "--", "true"]).code, 0);
    let mut elsewhere = story.command(["serve"]);
    let ran = Ran::from(elsewhere.env_remove("BRIGADE_STATE").output().unwrap());
    expect(&ran, 2, &["https://node.example"]);
}
