//! `/v1/connection`: the protocol of the socket for the bearer of an operator's token.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::ids::Time;
use brigade_model::refusal::RefusalKind;
use brigade_model::work::{CommandLine, ProcessWork};
use brigade_protocol::call::Call;
use brigade_protocol::frames::ClientRole;
use brigade_protocol::http::TokenScope;
use brigade_protocol::remote_daemon::{DaemonStream, OpeningStream, RemoteDaemon, StreamOpener};
use brigade_protocol::requests::{
    CreateTokenRequest, ExecRequest, ListTokensRequest, PruneRequest, RevokeTokenRequest,
    ShutdownRequest, StatusRequest, WaitReply, WaitRequest, WaitUntil,
};
use brigade_protocol::{ClientError, DaemonConnection};
use brigade_runtime::{Job, JobContext, JobError, NewTask};
use brigade_store::{MemoryStore, RecordKey, RecordKind, RecordQuery};
use brigade_testkit::{CrashStore, ManualClock};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{SESSION, TEST_TIMEOUT, TestServer};
use crate::task_server::TaskServer;

const MINUTE: Duration = Duration::from_secs(60);

/// Asks for the protocol, and returns the head of the response with the stream behind it.
async fn upgrade(address: SocketAddr, secret: &str, behind: &str) -> (String, TcpStream) {
    let bearer = match secret {
        "" => String::new(),
        secret => format!("Authorization: Bearer {secret}\r\n"),
    };
    let request = format!(
        "GET /v1/connection HTTP/1.1\r\nHost: localhost\r\n{bearer}Connection: Upgrade\r\n\
         Upgrade: brigade\r\n\r\n{behind}"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let byte = timeout(TEST_TIMEOUT, stream.read_u8()).await.unwrap().unwrap();
        head.push(byte.into());
    }
    (head, stream)
}

/// Reads one line of the protocol.
async fn read_line(stream: &mut TcpStream) -> Value {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        line.push(timeout(TEST_TIMEOUT, stream.read_u8()).await.unwrap().unwrap());
    }
    serde_json::from_slice(&line).unwrap()
}

async fn write_line(stream: &mut TcpStream, value: &Value) {
    stream.write_all(format!("{value}\n").as_bytes()).await.unwrap();
}

fn hello() -> Value {
    json!({ "protocol": 3, "oldest_protocol": 2, "version": "0.1.0", "role": "operator" })
}

/// Opens streams over plain HTTP.
#[derive(Debug)]
struct RawOpener {
    address: SocketAddr,
    secret: String,
}

impl StreamOpener for RawOpener {
    fn server_name(&self) -> &str {
        "the test server"
    }

    fn open_stream(&self) -> OpeningStream<'_> {
        Box::pin(async {
            let (head, stream) = upgrade(self.address, &self.secret, "").await;
            match head.starts_with("HTTP/1.1 101 ") {
                true => Ok(Box::new(stream) as Box<dyn DaemonStream>),
                false => Err(ClientError::NotServed(head)),
            }
        })
    }
}

fn remote(server: &TestServer, secret: &str) -> RemoteDaemon {
    let opener = RawOpener { address: server.address, secret: secret.to_owned() };
    RemoteDaemon::new(vec![Box::new(opener)])
}

async fn connect(server: &TestServer, secret: &str) -> DaemonConnection {
    remote(server, secret).connect(ClientRole::Operator).await.unwrap()
}

/// Returns the status of a refused connection.
async fn refused_status(server: &TestServer, secret: &str) -> u16 {
    match remote(server, secret).connect(ClientRole::Operator).await {
        Err(ClientError::NotServed(head)) => {
            head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

async fn token_id(server: &TestServer, secret: &str) -> String {
    let me = server.send_as(secret, Method::GET, "/v1/whoami", None).await.expect(200);
    me["token"]["id"].as_str().unwrap().to_owned()
}

async fn revoke(server: &TestServer, secret: &str) {
    let id = token_id(server, secret).await;
    server.connect().await.call(RevokeTokenRequest { id }).await.unwrap();
}

async fn call<A: Call>(connection: &DaemonConnection, request: A) -> Result<A::Reply, ClientError> {
    timeout(TEST_TIMEOUT, connection.call(request)).await.expect("a reply or the end")
}

fn wait_for(session: &str, task: &str) -> WaitRequest {
    WaitRequest {
        session: session.to_owned(),
        tasks: vec![task.to_owned()],
        mode: WaitMode::All,
        timeout_ms: None,
        until: WaitUntil::Ended,
    }
}

fn shell(directory: &str, line: &str) -> ExecRequest {
    let command = CommandLine::Shell(line.into());
    let process = ProcessWork { cwd: Some(directory.into()), ..ProcessWork::new(command) };
    ExecRequest::new(directory.to_owned(), process)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_operators_token_connects() {
    let server = TestServer::start(|builder| builder).await;
    server.runtime.session(SESSION).await.unwrap();
    let read_only = server.create_token("eve", TokenScope::ReadOnly, None).await;
    let client = server.create_token("bob", TokenScope::Client, Some(SESSION)).await;
    let revoked = server.create_token("joe", TokenScope::Operator, None).await;
    revoke(&server, &revoked).await;
    assert_eq!(refused_status(&server, "").await, 401);
    assert_eq!(refused_status(&server, "nonsense").await, 401);
    assert_eq!(refused_status(&server, &revoked).await, 401);
    assert_eq!(refused_status(&server, &read_only).await, 403);
    assert_eq!(refused_status(&server, &client).await, 403);
    let status = call(&connect(&server, &server.operator).await, StatusRequest {}).await.unwrap();
    assert_eq!(status.sessions, 1);
}

/// Neither in the hello nor as a bearer.
#[tokio::test(flavor = "multi_thread")]
async fn the_operator_key_is_no_token() {
    let server = TestServer::start(|builder| builder).await;
    let key = std::fs::read_to_string(server.state_dir.operator_key_path()).unwrap();
    assert_eq!(refused_status(&server, key.trim()).await, 401);
    let mut with_key = hello();
    with_key["operator_key"] = key.trim().into();
    let (head, mut stream) = upgrade(server.address, "", &format!("{with_key}\n")).await;
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    let mut answer = String::new();
    // The server may reset the connection, because of the line that is no request.
    let _ = timeout(TEST_TIMEOUT, stream.read_to_string(&mut answer)).await.unwrap();
    assert!(!answer.contains("\"pid\""), "{answer}");
    // A wrong key in the hello does no harm: the token is the caller.
    with_key["operator_key"] = "0".repeat(64).into();
    let (head, mut stream) = upgrade(server.address, &server.operator, "").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    write_line(&mut stream, &with_key).await;
    assert_eq!(read_line(&mut stream).await["protocol"], 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_request_is_told_of_the_upgrade() {
    let server = TestServer::start(|builder| builder).await;
    let detail = server.get("/v1/connection").await.expect_problem(400, "invalid");
    assert!(detail.contains("Upgrade: brigade"), "{detail}");
    let post = server.post("/v1/connection", json!({})).await;
    post.expect_problem(405, "invalid");
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_behind_the_request_are_read() {
    let server = TestServer::start(|builder| builder).await;
    let status = json!({ "id": 1, "request": { "status": {} } });
    let behind = format!("{}\n{status}\n", hello());
    let (head, mut stream) = upgrade(server.address, &server.operator, &behind).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.to_lowercase().contains("upgrade: brigade\r\n"), "{head}");
    assert_eq!(read_line(&mut stream).await["pid"], std::process::id());
    assert_eq!(read_line(&mut stream).await["reply"]["pid"], std::process::id());
}

/// The hello can only ask for less than the token gives.
#[tokio::test(flavor = "multi_thread")]
async fn a_named_client_is_no_operator_and_events_name_the_token() {
    let server = TaskServer::start().await;
    let secret = server.server.create_token("laptop", TokenScope::Operator, None).await;
    let id = token_id(&server.server, &secret).await;
    let role = ClientRole::Client("claude".to_owned());
    let client = remote(&server.server, &secret).connect(role).await.unwrap();
    let refused = call(&client, PruneRequest { ended_age_ms: 0, event_age_ms: 0 }).await;
    let Err(ClientError::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.kind, RefusalKind::Forbidden);
    let started = call(&client, shell(&server.cwd(), "true")).await.unwrap();
    let path = format!("/v1/sessions/{}/events?types=spawned", server.session);
    let page = server.server.get(&path).await.expect(200);
    let author = json!({
        "kind": "client", "name": "claude", "origin": format!("token laptop ({id})"),
    });
    assert_eq!(page["items"][0]["by"], author, "{}", started.task.address);
}

/// Asserts that a connection has ended, and that its token connects no more.
async fn expect_end(server: &TestServer, connection: &DaemonConnection, secret: &str) {
    timeout(TEST_TIMEOUT, connection.wait_closed()).await.expect("the end");
    // The last frame says that this request was not read.
    let late = call(connection, StatusRequest {}).await;
    assert!(matches!(late, Err(ClientError::NotReceived)), "{late:?}");
    assert_eq!(refused_status(server, secret).await, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_ends_an_idle_connection_and_a_wait() {
    let server = TaskServer::start().await;
    let secret = server.server.create_token("laptop", TokenScope::Operator, None).await;
    let idle = connect(&server.server, &secret).await;
    let waiting = connect(&server.server, &secret).await;
    let role = ClientRole::Client("claude".to_owned());
    let collecting = remote(&server.server, &secret).connect(role).await.unwrap();
    let other = connect(&server.server, &server.server.operator).await;
    call(&idle, StatusRequest {}).await.unwrap();
    let session = server.cwd();
    let process = shell(&session, "until [ -e go ]; do sleep 0.02; done");
    call(&collecting, process).await.unwrap();
    let waits = async {
        let first = waiting.call(wait_for(&session, "1"));
        let second = collecting.call(wait_for(&session, "1"));
        let third = other.call(wait_for(&session, "1"));
        tokio::join!(first, second, third)
    };
    let (waited, ()) = tokio::join!(waits, async {
        // The waits are read before these requests.
        for connection in [&waiting, &collecting, &other] {
            call(connection, StatusRequest {}).await.unwrap();
        }
        revoke(&server.server, &secret).await;
        for connection in [&idle, &waiting, &collecting] {
            timeout(TEST_TIMEOUT, connection.wait_closed()).await.expect("the end");
        }
        std::fs::write(server.dir.path().join("go"), "").unwrap();
    });
    let (first, second, third) = waited;
    for lost in [first, second] {
        assert!(matches!(lost, Err(ClientError::Lost)), "{lost:?}");
    }
    let WaitReply { ended, .. } = third.expect("the other token is valid");
    assert_eq!(ended.len(), 1);
    let task = server.get(&format!("{}.1", server.session), "").await.expect(200);
    assert_eq!(task["collected"], false, "the client's wait got nothing");
    expect_end(&server.server, &idle, &secret).await;
}

/// Only the reply can tell the client what has happened.
#[tokio::test(flavor = "multi_thread")]
async fn an_exec_that_is_committed_when_the_token_ends_is_answered() {
    let store = CrashStore::new(Arc::new(MemoryStore::new()), None);
    let dir = tempfile::tempdir().unwrap();
    let shared = store.clone();
    let server = TaskServer::start_with(dir, |builder, _| builder.shared_store(shared)).await;
    let secret = server.server.create_token("laptop", TokenScope::Operator, None).await;
    let id = token_id(&server.server, &secret).await;
    let operator = server.server.connect().await;
    let connection = connect(&server.server, &secret).await;
    let held = store.hold_commits();
    let exec = connection.call(shell(&server.cwd(), "true"));
    let (started, ()) = tokio::join!(exec, async {
        timeout(TEST_TIMEOUT, held.wait_held()).await.unwrap();
        operator.call(RevokeTokenRequest { id }).await.unwrap();
        drop(held);
    });
    let started = started.expect("a reply");
    assert_eq!(started.task.address, "process:1");
    expect_end(&server.server, &connection, &secret).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_can_revoke_itself() {
    let server = TestServer::start(|builder| builder).await;
    let secret = server.create_token("laptop", TokenScope::Operator, None).await;
    let connection = connect(&server, &secret).await;
    let id = token_id(&server, &secret).await;
    let revoked = call(&connection, RevokeTokenRequest { id }).await.expect("a reply");
    assert_eq!(revoked.name, "laptop");
    expect_end(&server, &connection, &secret).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_ends_its_connection() {
    let clock = ManualClock::at(Time(1_000_000));
    let server = TestServer::start(|builder| builder.clock(Arc::new(clock.clone()))).await;
    let name = "short".to_owned();
    let request = CreateTokenRequest {
        name,
        scope: TokenScope::Operator,
        session: None,
        expires_in_ms: Some(60_000),
    };
    let secret = server.connect().await.call(request).await.unwrap().secret;
    let connection = connect(&server, &secret).await;
    clock.advance(MINUTE - Duration::from_millis(1));
    call(&connection, StatusRequest {}).await.unwrap();
    clock.advance(Duration::from_millis(1));
    expect_end(&server, &connection, &secret).await;
}

/// Another node has no part in the open requests of this one.
#[tokio::test]
async fn a_token_that_another_node_removes_is_noticed() {
    let server = TestServer::start(|builder| builder).await;
    let secret = server.create_token("laptop", TokenScope::Operator, None).await;
    let connection = connect(&server, &secret).await;
    call(&connection, StatusRequest {}).await.unwrap();
    let records = server.runtime.records();
    let id = token_id(&server, &secret).await;
    let query = RecordQuery::new(RecordKind::from_static("http-token")).after(id.clone());
    let stored = records.list(&query).await.unwrap().items.remove(0);
    assert!(stored.key.starts_with(&id), "{}", stored.key);
    let kind = RecordKind::from_static("http-token");
    records.take(&RecordKey::new(kind, stored.key).unwrap()).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(MINUTE).await;
    tokio::time::resume();
    expect_end(&server, &connection, &secret).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_open_requests_and_names_the_last() {
    let server = TaskServer::start().await;
    server.start_job("echo", Value::Null).await;
    let TaskServer { server, dir, .. } = server;
    let session = dir.path().canonicalize().unwrap().to_str().unwrap().to_owned();
    let connection = connect(&server, &server.operator).await;
    call(&connection, StatusRequest {}).await.unwrap();
    let shutdown = server.connect().await;
    let (waited, ()) = tokio::join!(connection.call(wait_for(&session, "1")), async {
        // The wait is read before the shutdown, since both are of this thread's order.
        call(&connection, StatusRequest {}).await.unwrap();
        shutdown.call(ShutdownRequest {}).await.unwrap();
        timeout(TEST_TIMEOUT, connection.wait_closed()).await.expect("the end");
    });
    assert!(matches!(waited, Err(ClientError::Lost)), "{waited:?}");
    let late = call(&connection, StatusRequest {}).await;
    assert!(matches!(late, Err(ClientError::NotReceived)), "{late:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_has_a_bound_of_connections() {
    let server = TestServer::start(|builder| builder).await;
    let secret = server.create_token("greedy", TokenScope::Operator, None).await;
    let mut open = Vec::new();
    for _ in 0..128 {
        open.push(connect(&server, &secret).await);
    }
    assert_eq!(refused_status(&server, &secret).await, 429);
    let tasks = server.send_as(&secret, Method::GET, "/v1/tasks", None).await;
    tasks.expect_problem(429, "limit");
    call(&connect(&server, &server.operator).await, ListTokensRequest {}).await.unwrap();
    drop(open.pop());
    // The server reads the end of the connection a moment later.
    let again = async {
        while server.send_as(&secret, Method::GET, "/v1/tasks", None).await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, again).await.expect("a free slot");
    call(&connect(&server, &secret).await, StatusRequest {}).await.unwrap();
}

/// Waits until the daemon has this many clients beside the one that asks.
async fn wait_clients(server: &TestServer, count: usize) {
    let operator = server.connect().await;
    let counted = async {
        while operator.call(StatusRequest {}).await.unwrap().clients != count + 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, counted).await.expect("the daemon counts them");
}

#[tokio::test]
async fn half_a_line_and_no_hello_have_a_time() {
    let server = TestServer::start(|builder| builder).await;
    let (_, mut silent) = upgrade(server.address, &server.operator, "").await;
    let (_, mut half) = upgrade(server.address, &server.operator, "").await;
    write_line(&mut half, &hello()).await;
    assert_eq!(read_line(&mut half).await["protocol"], 3);
    half.write_all(b"{\"id\":1,\"requ").await.unwrap();
    let (_, mut cut) = upgrade(server.address, &server.operator, "").await;
    write_line(&mut cut, &hello()).await;
    read_line(&mut cut).await;
    cut.write_all(b"{\"id\":1,\"request\":{\"shutdown\":{}").await.unwrap();
    drop(cut);
    wait_clients(&server, 1).await;
    tokio::time::pause();
    for stream in [&mut silent, &mut half] {
        let mut answer = Vec::new();
        let read = timeout(MINUTE * 10, stream.read_to_end(&mut answer)).await;
        read.expect("the server closes the connection").unwrap();
        assert_eq!(answer, b"");
    }
    tokio::time::resume();
    wait_clients(&server, 0).await;
}

/// Its events are more than the buffers of both sockets hold.
#[tokio::test]
async fn a_client_that_stops_reading_is_disconnected() {
    const TASKS: usize = 3_000;
    let server = TestServer::start(|builder| {
        let job = |_: JobContext, _: String| async { Ok::<_, JobError>(()) };
        builder.job(Job::new("carry"), job)
    })
    .await;
    let session = server.runtime.session(SESSION).await.unwrap();
    let tasks = (0..TASKS).map(|_| NewTask::job("carry", "x".repeat(8_000)));
    let spawned = session.spawn_all(tasks).await.unwrap();
    let tasks = spawned.iter().map(|task| task.as_ref().unwrap().no());
    session.wait_all(tasks.collect::<Vec<_>>()).await.unwrap();
    let (_, mut stream) = upgrade(server.address, &server.operator, "").await;
    write_line(&mut stream, &hello()).await;
    read_line(&mut stream).await;
    // Without a window the daemon sends as fast as the client reads.
    write_line(&mut stream, &json!({ "id": 1, "request": { "read_events": { "follow": true } } }))
        .await;
    read_line(&mut stream).await;
    wait_clients(&server, 1).await;
    tokio::time::pause();
    for _ in 0..60 {
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    wait_clients(&server, 0).await;
}
