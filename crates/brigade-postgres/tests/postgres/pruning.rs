//! Events by day, and prunes beside commits.

use std::sync::Arc;

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Millis, Position, Time};
use brigade_postgres::{PostgresOptions, PostgresStore};
use brigade_store::conformance::fixture::{check_fixture, write_fixture};
use brigade_store::{EventQuery, Retention, Store};

use crate::support::SERVER;

/// The milliseconds of a day.
const DAY: u64 = 86_400_000;
const FOREVER: Millis = Millis(u64::MAX);

/// Opens a new schema in which the day of the fixture has a partition.
async fn open_with_first_day(schema: &str) -> Arc<dyn Store> {
    let options = PostgresOptions::from_url(&SERVER.url()).unwrap().schema(schema).unwrap();
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&options).await.unwrap());
    store.open_lane().await.unwrap();
    for table in ["events", "event_spans"] {
        SERVER.execute(&format!(
            "CREATE TABLE {schema}.{table}_0 PARTITION OF {schema}.{table} FOR VALUES FROM (0) TO ({DAY})"
        ));
    }
    write_fixture(&store).await;
    store
}

async fn event_count(store: &Arc<dyn Store>) -> usize {
    let query = EventQuery { session: None, after: Default::default(), limit: usize::MAX };
    store.events(&query).await.unwrap().items.len()
}

fn partitions(schema: &str) -> String {
    SERVER.execute(&format!(
        "SELECT string_agg(c.relname, ' ' ORDER BY c.relname) FROM pg_inherits AS i \
         JOIN pg_class AS c ON c.oid = i.inhrelid WHERE i.inhparent = '{schema}.events'::regclass \
         AND c.relname ~ '_[0-9]$'"
    ))
}

#[tokio::test]
async fn the_next_days_have_partitions() {
    let options = SERVER.new_schema().schema("next_days").unwrap();
    drop(PostgresStore::open(&options).await.unwrap());
    let count = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'next_days.events'::regclass";
    // Yesterday, today, three days ahead, and the default. At midnight there may be one more.
    assert!(matches!(SERVER.execute(count).as_str(), "6" | "7"));
}

#[tokio::test]
async fn a_prune_drops_a_whole_day() {
    let store = open_with_first_day("whole_day").await;
    check_fixture(&store).await;
    let count = event_count(&store).await;
    assert!(count > 100, "{count}");
    assert_eq!(SERVER.execute("SELECT count(*) FROM whole_day.events_0"), count.to_string());
    let retention = Retention { ended: FOREVER, events: Millis(DAY) };
    let pruned = store.prune(&retention, Time(DAY + 500)).await.unwrap();
    assert_eq!((pruned.events, partitions("whole_day").as_str()), (0, "events_0"));
    let pruned = store.prune(&retention, Time(2 * DAY - 1)).await.unwrap();
    assert_eq!((pruned.events, partitions("whole_day").as_str()), (count as u64, ""));
    let query = EventQuery { session: None, after: Default::default(), limit: usize::MAX };
    let page = store.events(&query).await.unwrap();
    assert_eq!((page.items.len(), page.gap_to), (0, Some(store.cursor().await.unwrap())));
}

#[tokio::test]
async fn a_day_stays_behind_a_younger_event() {
    let store = open_with_first_day("younger_first").await;
    let count = event_count(&store).await;
    // The first event of the lane is of another day, as if its session's clock had been ahead.
    SERVER.execute(&format!("UPDATE younger_first.events SET at = {} WHERE pos = 1", 9 * DAY));
    let retention = Retention { ended: FOREVER, events: Millis(DAY) };
    let pruned = store.prune(&retention, Time(3 * DAY)).await.unwrap();
    assert_eq!((pruned.events, partitions("younger_first").as_str()), (0, "events_0"));
    let pruned = store.prune(&retention, Time(10 * DAY)).await.unwrap();
    assert_eq!((pruned.events, partitions("younger_first").as_str()), (count as u64, ""));
}

#[tokio::test]
async fn an_event_that_is_committed_during_a_prune_stays() {
    let store = open_with_first_day("during_prune").await;
    let last = event_count(&store).await as u64;
    let mut commit = SERVER.hold_lock(&format!(
        "INSERT INTO during_prune.events SELECT lane, {}, session, seq + 1, at, NULL, NULL, NULL, body \
         FROM during_prune.events WHERE pos = {last}",
        last + 1
    ));
    let retention = Retention { ended: FOREVER, events: Millis(DAY) };
    let pruned = store.prune(&retention, Time(3 * DAY)).await.unwrap();
    assert_eq!((pruned.events, partitions("during_prune").as_str()), (last, "events_0"));
    commit.commit();
    SERVER.execute(&format!("UPDATE during_prune.lanes SET head = {}", last + 1));
    assert_eq!(event_count(&store).await, 1);
    let pruned = store.prune(&retention, Time(3 * DAY)).await.unwrap();
    assert_eq!((pruned.events, partitions("during_prune").as_str()), (1, ""));
}

#[tokio::test]
async fn a_prune_leaves_a_session_alone_that_a_commit_holds() {
    let store = open_with_first_day("held_session").await;
    let retention = Retention { ended: Millis(0), events: FOREVER };
    let mut commit = SERVER.hold_lock("SELECT FROM held_session.sessions FOR NO KEY UPDATE");
    let pruned = store.prune(&retention, Time(DAY)).await.unwrap();
    assert_eq!(pruned.tasks, 0);
    commit.release();
    let pruned = store.prune(&retention, Time(DAY)).await.unwrap();
    assert!(pruned.tasks > 0);
}

#[tokio::test]
async fn a_cursor_of_many_lanes_loses_those_that_were_removed() {
    let store = open_with_first_day("many_lanes").await;
    let stored = store.cursor().await.unwrap();
    let removed = (1_000..1_100).map(|lane| Position { lane: Lane(lane), no: 5 });
    let after: FeedCursor = stored.positions().iter().copied().chain(removed).collect();
    let page = store.events(&EventQuery { session: None, after, limit: 10 }).await.unwrap();
    assert!(page.items.is_empty());
    assert_eq!(page.read_to, stored);
}
