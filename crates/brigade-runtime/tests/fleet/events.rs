//! The feed over all nodes.

use std::collections::BTreeMap;

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Seq, SessionId};
use brigade_runtime::{FeedSubscription, FeedUpdate};
use brigade_store::EventQuery;

use crate::support::*;

/// Reads the events up to a place and checks that those of each session come in order.
async fn read_in_order(feed: &mut FeedSubscription, end: &FeedCursor) -> BTreeMap<SessionId, Seq> {
    let mut last: BTreeMap<SessionId, Seq> = BTreeMap::new();
    while let Some(update) = feed.next_until(end).await.unwrap() {
        let FeedUpdate::Event(item) = update else { panic!("a gap") };
        let last = last.entry(item.record.session).or_insert(Seq(0));
        assert_eq!(item.record.seq.0, last.0 + 1, "of {:?}", item.record.session);
        *last = item.record.seq;
    }
    last
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_of_any_node_gets_each_event_once_and_in_order() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let mut feed = two.runtime.subscribe(FeedCursor::START);
    for number in 0..20 {
        let session = if number % 3 == 0 { &here } else { &there };
        session.spawn(SLEEP.with(1)).await.unwrap();
        if number == 10 {
            // The session moves.
            tokio::time::sleep(40 * SECOND).await;
            one.wait_for_owner(&here, None).await;
            there.spawn(SLEEP.with(1)).await.unwrap();
            assert_eq!(one.owner(&here).await.as_deref(), Some("two"));
        }
    }
    tokio::time::sleep(10 * SECOND).await;
    let end = fleet_cursor(&fleet).await;
    let seen = read_in_order(&mut feed, &end).await;
    let row = two.runtime.operator_session(here.id()).await.unwrap().row();
    assert_eq!(seen.get(&here.id()), Some(&row.seq));
}

async fn fleet_cursor(fleet: &TestFleet) -> FeedCursor {
    use brigade_store::Store;
    let after = FeedCursor::START;
    let query = EventQuery { session: None, after, limit: usize::MAX };
    fleet.store.events(&query).await.unwrap().read_to
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_is_woken_by_an_event_of_another_node() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let two = fleet.node("two").await;
    let here = one.session("kitchen").await;
    let there = two.session("kitchen").await;
    let mut feed = there.subscribe(two.runtime.cursor());
    let next_of_task = async {
        loop {
            let Some(Ok(FeedUpdate::Event(item))) = feed.next().await else { panic!("no event") };
            if let Some(no) = item.record.event.task() {
                return no;
            }
        }
    };
    let (no, spawned) = tokio::join!(next_of_task, here.spawn(ECHO.with(())));
    assert_eq!(no, spawned.unwrap().no());
    // The state is there with the event.
    assert_eq!(there.list().len(), 1);
}
