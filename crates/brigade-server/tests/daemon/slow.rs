//! A client that is slow to take the items of one question.

use brigade_model::event::Event;
use brigade_model::work::RecoveryPolicy;
use brigade_runtime::{JobContext, JobError, NewTask};
use brigade_server::daemon_connection::{ReplyStream, ReplyStreamPart};
use brigade_server::requests::{EventItem, ReadEventsRequest, StatusRequest};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{House, RawClient, SESSION, TOO_LONG};

const TASKS: usize = 300;
/// Bytes of each task's argument: all of them are more than any room.
const EACH: usize = 8_000;

async fn house() -> House {
    let house = House::open(|builder| {
        let job = |_: JobContext, _: String| async { Ok::<_, JobError>(()) };
        builder.job("carry", RecoveryPolicy::resume(3), job)
    })
    .await;
    let session = house.runtime.session(SESSION).await.unwrap();
    let tasks = (0..TASKS).map(|_| NewTask::job("carry", "x".repeat(EACH)));
    let spawned = session.spawn_all(tasks).await.unwrap();
    let tasks = spawned.iter().map(|task| task.as_ref().unwrap().no().into());
    session.wait_all(tasks.collect::<Vec<_>>()).await.unwrap();
    house
}

async fn next(events: &mut ReplyStream<ReadEventsRequest>) -> (u64, bool) {
    let next = timeout(TOO_LONG, events.next_part()).await.expect("it goes on");
    match next.unwrap() {
        ReplyStreamPart::Item(EventItem::Event { position, event, .. }) => {
            (position, matches!(event, Event::Spawned { .. }))
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_nobody_takes_blocks_no_other_question_and_is_not_lost() {
    let house = house().await;
    let client = house.operator().await;
    let mut events = client
        .call_streaming(ReadEventsRequest { follow: true, ..ReadEventsRequest::default() })
        .unwrap();
    let (first, _) = next(&mut events).await;
    for _ in 0..3 {
        let status =
            timeout(TOO_LONG, client.call(StatusRequest {})).await.expect("it is not held up");
        assert_eq!(status.unwrap().sessions, 1);
    }
    let (mut last, mut spawned) = (first, 0);
    while spawned < TASKS {
        let (position, is_spawn) = next(&mut events).await;
        assert_eq!(position, last + 1, "in order, and none is missing");
        last = position;
        spawned += usize::from(is_spawn);
    }
}

#[tokio::test]
async fn no_more_is_on_its_way_than_there_is_room_for() {
    const ROOM: usize = 10 * EACH;
    let house = house().await;
    let mut client = RawClient::connect(&house).await;
    client.say(&json!({ "id": 1, "ask": { "events": { "follow": true } }, "room": ROOM })).await;
    for round in 0..3 {
        let mut taken = 0;
        // The next one may be larger than what is left.
        while taken + EACH + 1_000 < ROOM {
            taken += item(&client.hear().await).expect("there is room");
        }
        let status = 2 + round;
        client.say(&json!({ "id": status, "ask": { "status": {} } })).await;
        loop {
            let line = client.hear().await;
            match item(&line) {
                Some(bytes) => taken += bytes,
                None => break assert_eq!(line["id"], status),
            }
        }
        assert!(taken <= ROOM, "{taken}");
        client.say(&json!({ "id": 1, "more": taken })).await;
    }
}

/// Its size, if it is an item of the first question.
fn item(line: &Value) -> Option<usize> {
    let item = line.get("item").filter(|_| line["id"] == 1)?;
    Some(item.to_string().len())
}
