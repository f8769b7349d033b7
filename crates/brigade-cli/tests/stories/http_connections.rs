//! Ten thousand idle connections to the HTTP server, and connections over its bound.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::http::{ForegroundServer, send};
use crate::story_env::{BRIGADE, StoryEnv, TOO_LONG, poll};

/// The files of a server with 10,000 connections, which are a quarter of them.
const FILES: u64 = 40_000;
/// A generous bound of the server's memory for a connection that has sent nothing.
const BYTES_PER_CONNECTION: u64 = 4 * 1024;
/// The bound of a server with few files.
const SMALL_BOUND: usize = 100;
/// The connections of a flood.
const FLOOD: usize = 10 * SMALL_BOUND;

/// Raises the limit of this process, and returns how many files a server may have.
fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(FILES).max(FILES);
    let wanted = Rlimit { current: Some(FILES), maximum: Some(maximum) };
    if setrlimit(Resource::Nofile, wanted).is_err() {
        // Only a privileged user raises the maximum.
        let current = limit.maximum;
        setrlimit(Resource::Nofile, Rlimit { current, maximum: current }).unwrap();
    }
    getrlimit(Resource::Nofile).current.unwrap_or(FILES).min(FILES)
}

/// Returns the resident memory of a process in bytes.
fn resident_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn connect(url: &str) -> TcpStream {
    let stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(TOO_LONG)).unwrap();
    stream
}

/// Sends a request, and returns the whole answer.
fn probe(url: &str) -> String {
    let mut stream = connect(url);
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Starts a server that may open this many files.
fn start_server(story: &StoryEnv, files: u64) -> ForegroundServer {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n \"$0\" && exec \"$@\"", &files.to_string()]);
    command.args([BRIGADE, "serve", "--listen", "127.0.0.1:0"]);
    story.hermetic(&mut command);
    ForegroundServer::start_by(command)
}

#[test]
fn idle_connections_cost_little_and_make_way() {
    let files = raise_file_limit();
    let count = usize::try_from(files / 4).unwrap() - 10;
    let story = StoryEnv::new();
    let server = start_server(&story, files);
    let url = &server.url;
    let token = story.ok(["token", "add", "laptop"]);
    let expect_answers = || {
        assert_eq!(send(url, "GET /healthz", "", "").status, 200);
        assert_eq!(send(url, "GET /v1/tasks", token.trim(), "").status, 200);
    };
    expect_answers();
    let before = resident_memory(server.pid());
    let mut idle = Vec::new();
    while idle.len() < count {
        idle.push(connect(url));
        // The queue of the listener is short, and a full one delays clients by a second.
        if idle.len() % 250 == 0 {
            expect_answers();
        }
    }
    expect_answers();
    let grown = resident_memory(server.pid()).saturating_sub(before);
    let each = grown / count as u64;
    println!("{count} connections with {files} files: {grown} bytes more, {each} for each");
    assert!(each < BYTES_PER_CONNECTION, "{each} bytes for each connection");
    // Nothing was sent, so the server closes all of them when the time for headers is over.
    for mut stream in idle {
        let mut rest = Vec::new();
        match stream.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(rest, b""),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    expect_answers();
    server.stop();
}

/// Sends a request of the operator on a connection that stays open.
fn write_request(stream: &mut TcpStream, path: &str, accept: &str, token: &str) {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
}

fn ask_name(stream: &mut TcpStream, token: &str) {
    write_request(stream, "/v1/whoami", "application/json", token);
    read_until(stream, "laptop");
}

/// Reads until the server has sent this text.
fn read_until(stream: &mut TcpStream, text: &str) {
    let mut bytes = Vec::new();
    while !String::from_utf8_lossy(&bytes).contains(text) {
        let mut part = [0; 4096];
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "the connection was closed: {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&part[..read]);
    }
}

fn open_stream(url: &str, token: &str) -> TcpStream {
    let mut stream = connect(url);
    write_request(&mut stream, "/v1/events", "text/event-stream", token);
    read_until(&mut stream, "content-type: text/event-stream");
    stream
}

#[test]
fn a_connection_over_the_bound_is_told_to_come_again() {
    let story = StoryEnv::new();
    let server = start_server(&story, 4 * SMALL_BOUND as u64);
    let token = story.ok(["token", "add", "laptop"]);
    let url = &server.url;
    let streams: Vec<_> = (0..SMALL_BOUND).map(|_| open_stream(url, token.trim())).collect();
    let refusal = probe(url);
    assert!(refusal.starts_with("HTTP/1.1 503 "), "{refusal}");
    assert!(refusal.contains("\r\nRetry-After: 1\r\n"), "{refusal}");
    assert!(refusal.contains(r#""code":"unavailable""#), "{refusal}");
    drop(streams);
    poll("there is a free slot", || probe(url).starts_with("HTTP/1.1 200 ").then_some(()));
    server.stop();
}

/// Opens ten times as many connections as the server takes. Each sends the text, and none is closed
/// by its client. The operator is served throughout.
fn flood(text: &str) {
    raise_file_limit();
    let story = StoryEnv::new();
    let server = start_server(&story, 4 * SMALL_BOUND as u64);
    let url = &server.url;
    let token = story.ok(["token", "add", "laptop"]);
    let token = token.trim();
    let mut events = open_stream(url, token);
    let mut kept = connect(url);
    let mut strangers = Vec::new();
    while strangers.len() < FLOOD {
        if strangers.len() % (SMALL_BOUND / 4) == 0 {
            ask_name(&mut kept, token);
            assert_eq!(send(url, "GET /v1/tasks", token, "").status, 200);
        }
        let mut stranger = connect(url);
        stranger.write_all(text.as_bytes()).unwrap();
        strangers.push(stranger);
    }
    story.ok(["exec", "--", "true"]);
    read_until(&mut events, "event: change");
    ask_name(&mut kept, token);
    // The first ones have made way.
    for mut stranger in strangers.drain(..FLOOD / 2) {
        match stranger.read(&mut [0]) {
            Ok(read) => assert_eq!(read, 0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
        }
    }
    server.stop();
}

#[test]
fn connections_that_send_nothing_shut_nobody_out() {
    flood("");
}

#[test]
fn headers_without_an_end_shut_nobody_out() {
    flood("GET /healthz HTTP/1.1\r\nHost: local");
}

#[test]
fn public_requests_without_an_end_shut_nobody_out() {
    flood(
        "POST /v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\n\r\n",
    );
}
