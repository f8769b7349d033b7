//! Flow control: a client that is slow to read the items of one request.

use brigade_model::event::Event;
use brigade_protocol::daemon_connection::{ReplyStream, ReplyStreamPart};
use brigade_protocol::requests::{EventItem, ReadEventsRequest, StatusRequest};
use brigade_runtime::{Job, JobContext, JobError, NewTask};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{RawClient, SESSION, TEST_TIMEOUT, TestDaemon};

const TASKS: usize = 300;
/// The bytes of each task's argument. All of them together are more than any window.
const ARGUMENT_BYTES: usize = 8_000;

async fn start_daemon() -> TestDaemon {
    let daemon = TestDaemon::start(|builder| {
        let job = |_: JobContext, _: String| async { Ok::<_, JobError>(()) };
        builder.job(Job::new("carry"), job)
    })
    .await;
    let session = daemon.runtime.session(SESSION).await.unwrap();
    let tasks = (0..TASKS).map(|_| NewTask::job("carry", "x".repeat(ARGUMENT_BYTES)));
    let spawned = session.spawn_all(tasks).await.unwrap();
    let tasks = spawned.iter().map(|task| task.as_ref().unwrap().no());
    session.wait_all(tasks.collect::<Vec<_>>()).await.unwrap();
    daemon
}

async fn next(events: &mut ReplyStream<ReadEventsRequest>) -> (u64, bool) {
    let next = timeout(TEST_TIMEOUT, events.next_part()).await.expect("the stream continues");
    match next.unwrap() {
        ReplyStreamPart::Item(EventItem::Event { position, event, .. }) => {
            (position, matches!(event, Event::Spawned { .. }))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn unread_items_block_no_other_request_and_are_not_lost() {
    let daemon = start_daemon().await;
    let client = daemon.operator().await;
    let mut events = client
        .call_streaming(ReadEventsRequest { follow: true, ..ReadEventsRequest::default() })
        .unwrap();
    let (first, _) = next(&mut events).await;
    for _ in 0..3 {
        let status = timeout(TEST_TIMEOUT, client.call(StatusRequest {}))
            .await
            .expect("the reply is not delayed");
        assert_eq!(status.unwrap().sessions, 1);
    }
    let mut last = first;
    let mut spawned = 0;
    while spawned < TASKS {
        let (position, is_spawn) = next(&mut events).await;
        assert_eq!(position, last + 1, "events are in order, and none is missing");
        last = position;
        spawned += usize::from(is_spawn);
    }
}

#[tokio::test]
async fn unacknowledged_items_never_exceed_the_window() {
    const WINDOW: usize = 10 * ARGUMENT_BYTES;
    let daemon = start_daemon().await;
    let mut client = RawClient::connect(&daemon).await;
    client
        .send(
            &json!({ "id": 1, "request": { "read_events": { "follow": true } }, "window": WINDOW }),
        )
        .await;
    for round in 0..3 {
        let mut received = 0;
        // The next item may be larger than the rest of the window.
        while received + ARGUMENT_BYTES + 1_000 < WINDOW {
            received += item_bytes(&client.receive().await).expect("the window has space");
        }
        let status = 2 + round;
        client.send(&json!({ "id": status, "request": { "status": {} } })).await;
        loop {
            let line = client.receive().await;
            match item_bytes(&line) {
                Some(bytes) => received += bytes,
                None => break assert_eq!(line["id"], status),
            }
        }
        assert!(received <= WINDOW, "{received}");
        client.send(&json!({ "id": 1, "ack_bytes": received })).await;
    }
}

/// Returns the size of a line that is an item of the first request.
fn item_bytes(line: &Value) -> Option<usize> {
    let item = line.get("item").filter(|_| line["id"] == 1)?;
    Some(item.to_string().len())
}
