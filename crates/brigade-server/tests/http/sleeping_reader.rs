//! A reader of the feed that sleeps for an hour, as the browser of a closed laptop does.

use std::time::Duration;

use brigade_model::ids::Millis;
use brigade_runtime::RuntimeBuilder;
use brigade_sqlite::SqliteStore;
use brigade_store::Retention;
use serde_json::Value;

use crate::events::{open_blocked, read_rest, seqs, talk, with_jobs};
use crate::sse_client::SseClient;
use crate::support::TestServer;

/// A bound of what the buffers of both sockets hold.
const BUFFERS_MAX: usize = 16 * 1024 * 1024;

/// The changes that a reader has received, and the id of the last one.
struct Received {
    seqs: Vec<u64>,
    last_id: String,
}

impl Received {
    /// Parses the whole frames of a stream that was cut.
    fn parse(text: &str) -> Self {
        let mut received = Self { seqs: Vec::new(), last_id: String::new() };
        let whole = text.rsplit_once("\n\n").expect("a frame").0;
        for frame in whole.split("\n\n").filter(|frame| frame.contains("event: change")) {
            let field = |name| frame.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            let change: Value = serde_json::from_str(field("data: ")).unwrap();
            received.seqs.push(change["seq"].as_u64().unwrap());
            received.last_id = field("id: ").to_owned();
        }
        received
    }
}

#[tokio::test]
async fn a_reader_that_slept_for_an_hour_misses_nothing_or_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let open = || SqliteStore::open(dir.path().join("store.db")).unwrap();
    let build = |builder: RuntimeBuilder| with_jobs(builder.store(open()));
    let server = TestServer::start(build).await;
    let socket = open_blocked(&server).await;
    tokio::time::pause();
    for _ in 0..60 {
        tokio::time::advance(Duration::from_secs(60)).await;
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    let text = read_rest(socket).await;
    assert!(text.len() < BUFFERS_MAX, "{} bytes were sent to a reader that sleeps", text.len());
    let received = Received::parse(&text);
    let mut resumed = SseClient::resume(&server, "/v1/events", &received.last_id).await;
    resumed.expect("cursor").await;
    talk(&server, 1).await;
    let missed = 10_000 - received.seqs.len();
    let mut all = received.seqs;
    all.extend(seqs(&resumed.changes(missed).await));
    assert_eq!(all, (1..=10_000).collect::<Vec<_>>(), "each change once");
    drop(resumed);
    // Another hour later, the changes after its last one are removed.
    let removed = Retention { ended: Millis(0), events: Millis(0) };
    while server.runtime.prune(&removed).await.unwrap().events < 5_000 {
        tokio::task::yield_now().await;
    }
    let server = server.restart(build).await;
    let mut late = SseClient::resume(&server, "/v1/events", &received.last_id).await;
    late.expect("cursor").await;
    let gap = late.expect("gap").await;
    assert_eq!(gap.id.as_deref(), gap.data["cursor"].as_str());
}
