//! The feed over all nodes.

use std::collections::BTreeMap;

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Millis, Seq, SessionId};
use brigade_runtime::{Clock, FeedSubscription, FeedUpdate};
use brigade_store::{EventQuery, Retention, Store};

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

#[tokio::test(start_paused = true)]
async fn the_lane_of_a_node_that_ended_long_ago_is_forgotten() {
    let fleet = TestFleet::new();
    let one = fleet.node("one").await;
    let session = one.session("kitchen").await;
    session.spawn(ECHO.with(())).await.unwrap();
    let old = one.runtime.cursor();
    drop(session);
    one.runtime.shutdown().await.unwrap();
    tokio::time::sleep(25 * 60 * 60 * SECOND).await;
    let two = fleet.node("two").await;
    let session = two.session("kitchen").await;
    let retention = Retention { ended: Millis(u64::MAX), events: Millis(60_000) };
    fleet.store.prune(&retention, fleet.clock.now()).await.unwrap();
    let stored = fleet.store.cursor().await.unwrap();
    assert!(old.positions().iter().all(|position| stored.number_in(position.lane) == 0));
    session.spawn(SLEEP.with(1)).await.unwrap();
    // The node still knows the lane. Readers end, from the start and from a place in that lane.
    let end = two.runtime.cursor();
    assert!(end.includes_all(&old));
    for after in [FeedCursor::START, old.clone()] {
        let mut feed = two.runtime.subscribe(after);
        let mut events = 0;
        while let Some(update) = feed.next_until(&end).await.unwrap() {
            events += u32::from(matches!(update, FeedUpdate::Event(_)));
        }
        assert!(events > 0);
    }
    tokio::time::sleep(SECOND).await;
    let known = two.runtime.cursor();
    assert!(old.positions().iter().all(|position| known.number_in(position.lane) == 0));
}
