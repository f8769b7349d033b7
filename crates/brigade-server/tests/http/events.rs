//! The feed of changes, as pages and as streams.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use brigade_model::ids::Millis;
use brigade_protocol::http::TokenScope;
use brigade_runtime::{Job, JobContext, JobError, RuntimeBuilder};
use brigade_sqlite::SqliteStore;
use brigade_store::Retention;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::time::timeout;

use crate::sse_client::SseClient;
use crate::support::{SESSION, TEST_TIMEOUT, TestServer};

/// A job that notes progress this many times.
const TALK: Job<u32, ()> = Job::new("talk");
/// A job with a child that waits for a message.
const PARENT: Job<(), ()> = Job::new("parent");
const CHILD: Job<(), ()> = Job::new("child");

pub(crate) fn with_jobs(builder: RuntimeBuilder) -> RuntimeBuilder {
    builder
        .job(TALK, async |context: JobContext, count: u32| {
            for number in 0..count {
                context.progress(number).await?;
            }
            Ok::<(), JobError>(())
        })
        .job(PARENT, async |context: JobContext, ()| {
            let child = context.spawn(CHILD.with(())).await?;
            context.wait_all([&child]).await?;
            Ok::<(), JobError>(())
        })
        .job(CHILD, async |context: JobContext, ()| {
            context.progress("hello").await?;
            Ok::<(), JobError>(())
        })
}

async fn start() -> TestServer {
    TestServer::start(with_jobs).await
}

/// Runs a job that causes at least this many changes.
pub(crate) async fn talk(server: &TestServer, count: u32) {
    let session = server.runtime.session(SESSION).await.unwrap();
    session.spawn(TALK.with(count)).await.unwrap().wait().await.unwrap();
}

pub(crate) fn seqs(changes: &[Value]) -> Vec<u64> {
    changes.iter().map(|change| change["seq"].as_u64().unwrap()).collect()
}

fn types(changes: &[Value]) -> Vec<&str> {
    changes.iter().map(|change| change["type"].as_str().unwrap()).collect()
}

/// Returns the cursor of a place that is this many changes later.
fn later_cursor(cursor: &str, by: u64) -> String {
    let mut bytes = URL_SAFE_NO_PAD.decode(cursor).unwrap();
    let position = u64::from_be_bytes(bytes[17..].try_into().unwrap()) + by;
    bytes[17..].copy_from_slice(&position.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_its_cursor_and_then_each_change() {
    let server = start().await;
    server.runtime.session(SESSION).await.unwrap();
    let cursor = server.get("/v1/whoami").await.expect(200)["cursor"].clone();
    let mut stream = SseClient::open(&server, "/v1/events").await;
    let first = stream.expect("cursor").await;
    assert_eq!(first.data, json!({ "cursor": cursor }));
    assert_eq!(first.id.as_deref(), cursor.as_str());
    talk(&server, 2).await;
    let spawned = stream.expect("change").await;
    let id = spawned.data["task"].as_str().unwrap();
    assert_eq!(spawned.data["type"], "spawned");
    assert_eq!(id, format!("{}.1", spawned.data["session"].as_str().unwrap()));
    assert_eq!(spawned.data["data"]["address"], "job:1");
    assert_eq!(spawned.data["data"]["description"], "talk");
    assert_eq!(spawned.id, Some(later_cursor(cursor.as_str().unwrap(), 1)));
    assert!(spawned.data["at"].as_str().unwrap().ends_with('Z'));
    assert!(spawned.data.get("row").is_none());
    let changes = stream.changes_to("ended").await;
    let progress = changes.iter().filter(|change| change["type"] == "progressed");
    let progress: Vec<&Value> = progress.map(|change| &change["data"]["progress"]).collect();
    assert_eq!(progress, [0, 1]);
    let ended = changes.last().unwrap();
    assert_eq!(ended["data"]["outcome"], json!({ "type": "succeeded", "text": "succeeded" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_resumes_without_gap_or_repeat() {
    let server = start().await;
    let session = server.runtime.session(SESSION).await.unwrap();
    let path = format!("/v1/sessions/{}/events", session.id());
    let mut stream = SseClient::open(&server, &path).await;
    stream.expect("cursor").await;
    let task = session.spawn(TALK.with(2_000)).await.unwrap();
    let mut changes = stream.changes(1).await;
    while changes.last().unwrap()["type"] != "ended" {
        let last_id = stream.last_id.clone();
        drop(stream);
        stream = SseClient::resume(&server, &path, &last_id).await;
        assert_eq!(stream.expect("cursor").await.data["cursor"], last_id);
        for _ in 0..300 {
            changes.append(&mut stream.changes(1).await);
            if changes.last().unwrap()["type"] == "ended" {
                break;
            }
        }
    }
    task.wait().await.unwrap();
    let first = changes[0]["seq"].as_u64().unwrap();
    assert!(changes.len() > 2_000);
    assert_eq!(seqs(&changes), (first..first + changes.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_resumes_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let open = || SqliteStore::open(dir.path().join("store.db")).unwrap();
    let build = |builder: RuntimeBuilder| with_jobs(builder.store(open()));
    let server = TestServer::start(build).await;
    let mut stream = SseClient::open(&server, "/v1/events").await;
    stream.expect("cursor").await;
    talk(&server, 50).await;
    let mut changes = stream.changes(20).await;
    let last_id = stream.last_id.clone();
    let secret = server.operator.clone();
    let server = server.restart(build).await;
    talk(&server, 5).await;
    let mut stream =
        SseClient::open_as(&server, &secret, "/v1/events", Some(&last_id)).await.unwrap();
    stream.expect("cursor").await;
    changes.append(&mut stream.changes_to("ended").await);
    changes.append(&mut stream.changes_to("ended").await);
    assert_eq!(seqs(&changes), (1..=changes.len() as u64).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_cursors_are_refused() {
    let server = start().await;
    talk(&server, 1).await;
    let other = start().await;
    let cursor = async |server: &TestServer| {
        let me = server.get("/v1/whoami").await.expect(200);
        me["cursor"].as_str().unwrap().to_owned()
    };
    let own = cursor(&server).await;
    let foreign = cursor(&other).await;
    let future = later_cursor(&own, 1);
    for wrong in ["1", "", "x y", &own[1..], &foreign, &future] {
        let path = format!("/v1/events?after={}", wrong.replace(' ', "+"));
        server.get(&path).await.expect_problem(400, "invalid");
        let stream = SseClient::open_as(&server, &server.operator, &path, None).await;
        stream.err().unwrap().expect_problem(400, "invalid");
        // The header wins.
        let path = format!("/v1/events?after={own}");
        let stream = SseClient::open_as(&server, &server.operator, &path, Some(wrong)).await;
        stream.err().unwrap().expect_problem(400, "invalid");
    }
    let mut stream = SseClient::resume(&server, "/v1/events?after=1", &own).await;
    assert_eq!(stream.expect("cursor").await.data["cursor"], own);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_changes_are_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let open = || SqliteStore::open(dir.path().join("store.db")).unwrap();
    let build = |builder: RuntimeBuilder| with_jobs(builder.store(open()));
    let server = TestServer::start(build).await;
    let start = server.get("/v1/whoami").await.expect(200)["cursor"].clone();
    let start = start.as_str().unwrap();
    talk(&server, 5).await;
    let removed = Retention { ended: Millis(0), events: Millis(0) };
    // Only what is older than now is removed.
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(server.runtime.prune(&removed).await.unwrap().events > 5);
    let server = server.restart(build).await;
    let mut stream = SseClient::open(&server, &format!("/v1/events?after={start}")).await;
    assert_eq!(stream.expect("cursor").await.data["cursor"], start);
    let gap = stream.expect("gap").await;
    let after_gap = gap.data["cursor"].as_str().unwrap().to_owned();
    assert_eq!(gap.id.as_ref(), Some(&after_gap));
    talk(&server, 1).await;
    assert_eq!(types(&stream.changes(1).await), ["spawned"]);
    let mut resumed = SseClient::resume(&server, "/v1/events", &after_gap).await;
    resumed.expect("cursor").await;
    assert_eq!(types(&resumed.changes(1).await), ["spawned"], "there is no second gap");
    let page = server.get(&format!("/v1/events?after={start}")).await.expect(200);
    assert_eq!(page["gap"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_has_a_cursor_to_read_on() {
    let server = start().await;
    talk(&server, 20).await;
    let mut changes = Vec::new();
    let mut path = "/v1/events?limit=7".to_owned();
    loop {
        let page = server.get(&path).await.expect(200);
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 7);
        changes.extend(items.clone());
        if page["has_more"] == false {
            break;
        }
        path = format!("/v1/events?limit=7&after={}", page["cursor"].as_str().unwrap());
    }
    assert_eq!(seqs(&changes), (1..=changes.len() as u64).collect::<Vec<_>>());
    assert_eq!(types(&changes[..2]), ["session_opened", "spawned"]);
    assert!(changes.len() > 20);
    for wrong in [
        "limit=0",
        "limit=1001",
        "limit=x",
        "types=",
        "types=endedd",
        "types=ended,%20queued",
        "rows=1",
        "subtree=true",
        "colour=red",
    ] {
        server.get(&format!("/v1/events?{wrong}")).await.expect_problem(400, "invalid");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn types_select_changes_and_rows_show_the_task() {
    let server = start().await;
    talk(&server, 3).await;
    let page = server.get("/v1/events?types=spawned,ended&rows=true").await.expect(200);
    let changes = page["items"].as_array().unwrap();
    assert_eq!(types(changes), ["spawned", "ended"]);
    let listed = server.get("/v1/tasks?ended=true").await.expect(200);
    for change in changes {
        assert_eq!(change["row"], listed["items"][0], "the task as it is now");
    }
    let mut stream = SseClient::open(&server, "/v1/events?types=ended&rows=true").await;
    stream.expect("cursor").await;
    talk(&server, 3).await;
    let ended = stream.expect("change").await.data;
    assert_eq!(ended["type"], "ended");
    assert_eq!(ended["row"]["state"], "succeeded");
    assert_eq!(ended["row"]["id"], ended["task"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_has_its_own_changes_and_those_of_its_descendants() {
    let server = start().await;
    talk(&server, 1).await;
    let session = server.runtime.session(SESSION).await.unwrap();
    session.spawn(PARENT.with(())).await.unwrap().wait().await.unwrap();
    talk(&server, 1).await;
    let read = async |number: u32, query: &str| {
        let path = format!("/v1/tasks/{}.{number}/events?{query}", session.id());
        let page = server.get(&path).await.expect(200);
        let mut tasks: Vec<String> = Vec::new();
        for change in page["items"].as_array().unwrap() {
            let task = change["task"].as_str().unwrap_or("none");
            tasks.push(task.rsplit('.').next().unwrap().to_owned());
        }
        tasks.sort();
        tasks.dedup();
        tasks
    };
    assert_eq!(read(2, "types=spawned,started,parked,ended").await, ["2"]);
    assert_eq!(read(2, "types=spawned,progressed,ended&subtree=true").await, ["2", "3"]);
    assert_eq!(read(3, "types=spawned,progressed,ended&subtree=true").await, ["3"]);
    assert_eq!(read(2, "types=collected").await, ["none"]);
    for wrong in ["9", "0", "x"] {
        let path = format!("/v1/tasks/{}.{wrong}/events", session.id());
        server.get(&path).await.expect_problem(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_sees_the_changes_of_its_own_tasks() {
    let server = start().await;
    let session = server.runtime.session(SESSION).await.unwrap();
    let other = server.runtime.session("bakery").await.unwrap();
    let client = server.create_token("bob", TokenScope::Client, Some(SESSION)).await;
    let mut stream =
        SseClient::open_as(&server, &client, "/v1/events?rows=true", None).await.unwrap();
    stream.expect("cursor").await;
    other.spawn(TALK.with(3)).await.unwrap().wait().await.unwrap();
    session.spawn(PARENT.with(())).await.unwrap().wait().await.unwrap();
    let changes = stream.changes_to("ended").await;
    let id = format!("{}.1", session.id());
    assert!(changes.len() >= 3, "{changes:?}");
    for change in &changes {
        assert_eq!(change["session"], session.id().to_string(), "another session");
        assert!(change["task"] == id.as_str() || change.get("task").is_none(), "a descendant");
    }
    let get = async |path: String| server.send_as(&client, Method::GET, &path, None).await;
    let hidden = get(format!("/v1/sessions/{}/events", other.id())).await;
    hidden.expect_problem(403, "forbidden");
    for task in [format!("{}.1", other.id()), format!("{}.2", session.id())] {
        let hidden = get(format!("/v1/tasks/{task}/events")).await;
        hidden.expect_problem(403, "forbidden");
    }
    let page = get("/v1/events?types=spawned".to_owned()).await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    let reader = server.create_token("eve", TokenScope::ReadOnly, None).await;
    let path = "/v1/events?types=spawned";
    let page = server.send_as(&reader, Method::GET, path, None).await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 3, "a reader sees everything");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_clients_have_the_same_changes() {
    let server = start().await;
    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut stream = SseClient::open(&server, "/v1/events").await;
        stream.expect("cursor").await;
        streams.push(stream);
    }
    talk(&server, 100).await;
    let mut expected = Vec::new();
    for stream in &mut streams {
        let changes = stream.changes_to("ended").await;
        if expected.is_empty() {
            expected = changes;
        } else {
            assert_eq!(changes, expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_connection_ends_its_stream() {
    let server = start().await;
    let secret = server.create_token("eve", TokenScope::ReadOnly, None).await;
    let open = || SseClient::open_as(&server, &secret, "/v1/events", None);
    let mut streams = Vec::new();
    for _ in 0..128 {
        let mut stream = open().await.unwrap();
        stream.expect("cursor").await;
        streams.push(stream);
    }
    open().await.err().unwrap().expect_problem(429, "limit");
    drop(streams.pop());
    let opened = timeout(TEST_TIMEOUT, async {
        loop {
            if let Ok(stream) = open().await {
                return stream;
            }
        }
    });
    opened.await.expect("a free slot").expect("cursor").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_when_the_server_shuts_down() {
    let server = start().await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = SseClient::open(&server, "/v1/events").await;
        stream.expect("cursor").await;
        streams.push(stream);
    }
    let cursor = streams[0].last_id.clone();
    // It fails if the server does not end.
    let _server = server.restart(with_jobs).await;
    for stream in &mut streams {
        assert_eq!(stream.expect("bye").await.data["cursor"], cursor);
        assert!(stream.next().await.is_none());
    }
}

/// The time stands still, so that only the server's timers wake it.
#[tokio::test]
async fn a_silent_stream_has_heartbeats() {
    let server = start().await;
    let mut stream = SseClient::open(&server, "/v1/events?types=ended").await;
    let cursor = stream.expect("cursor").await.data["cursor"].clone();
    let session = server.runtime.session(SESSION).await.unwrap();
    tokio::time::pause();
    let beat = stream.expect("heartbeat").await;
    assert_ne!(beat.data["cursor"], cursor, "it goes on from here, although nothing was selected");
    assert_eq!(beat.id.as_deref(), beat.data["cursor"].as_str());
    let beaten_at = tokio::time::Instant::now();
    stream.expect("heartbeat").await;
    // Other timers may wake the server between the write and the read.
    let interval = beaten_at.elapsed().as_secs();
    assert!((14..=16).contains(&interval), "{interval} s of the test's time");
    drop(session);
}

#[tokio::test]
async fn a_revoked_token_loses_its_stream() {
    let server = start().await;
    let secret = server.create_token("eve", TokenScope::ReadOnly, None).await;
    let me = server.send_as(&secret, Method::GET, "/v1/whoami", None).await.expect(200);
    let mut stream = SseClient::open_as(&server, &secret, "/v1/events", None).await.unwrap();
    stream.expect("cursor").await;
    let path = format!("/v1/tokens/{}", me["token"]["id"].as_str().unwrap());
    server.send(Method::DELETE, &path, None).await.expect(204);
    assert_eq!(stream.expect("error").await.data["code"], "unauthenticated");
    assert!(stream.next().await.is_none());
}

/// Opens a stream on a socket that reads nothing by itself, and fills its buffers.
pub(crate) async fn open_blocked(server: &TestServer) -> tokio::net::TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let mut socket = socket.connect(server.address).await.unwrap();
    let request = format!(
        "GET /v1/events?rows=true HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\
         Authorization: Bearer {}\r\n\r\n",
        server.operator
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    socket.read_u8().await.unwrap();
    talk(server, 10_000).await;
    // The server has nothing to do any more: it has written as much as the buffers take.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    socket
}

pub(crate) async fn read_rest(mut socket: tokio::net::TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end too.
    let _ = timeout(TEST_TIMEOUT, socket.read_to_end(&mut bytes)).await.expect("an end");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_slow_reader_is_told_and_closed() {
    let server = start().await;
    let socket = open_blocked(&server).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    let text = read_rest(socket).await;
    let frames: Vec<&str> = text.split("\n\n").filter(|frame| frame.contains("event: ")).collect();
    let [.., change, last] = &frames[..] else { panic!("{text}") };
    let id_of = |frame: &str| {
        let id = frame.lines().find_map(|line| line.strip_prefix("id: "));
        id.unwrap_or_default().to_owned()
    };
    assert!(last.contains("event: too_slow"), "{last}");
    assert!(frames.len() < 10_000, "it has not read everything");
    let mut resumed = SseClient::resume(&server, "/v1/events", &id_of(last)).await;
    resumed.expect("cursor").await;
    let next = resumed.changes(1).await[0]["seq"].as_u64().unwrap();
    let seq = change.split("\"seq\":").nth(1).unwrap().split(',').next().unwrap();
    assert_eq!(seq.parse::<u64>().unwrap() + 1, next, "nothing is lost");
}

#[tokio::test]
async fn a_reader_that_reads_nothing_is_disconnected() {
    let server = start().await;
    let socket = open_blocked(&server).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let text = read_rest(socket).await;
    assert!(!text.contains("event: too_slow"));
    server.get("/v1/whoami").await.expect(200);
}
