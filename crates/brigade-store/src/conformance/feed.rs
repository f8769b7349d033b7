//! Checks that pages of events have no gap and no repeat from any position.

use std::collections::BTreeMap;
use std::sync::Arc;

use brigade_model::command::{Caller, Command, SpawnCommand};
use brigade_model::event::FeedItem;
use brigade_model::event_author::{AuthorKind, CallerOrigin, EventAuthor};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Millis, Seq, SessionId};
use brigade_model::limits::Limits;

use super::StoreHarness;
use super::writer::{SessionWriter, job, position, session_id};
use crate::batch::Batch;
use crate::store::{EventPage, EventQuery, Retention, Store};

pub async fn pages_from_every_position(harness: &dyn StoreHarness) {
    let mut store = three_sessions(harness).await;
    for _ in 0..2 {
        let all = page(&store, None, 0, usize::MAX).await.items;
        let last = all[all.len() - 1].position;
        assert_eq!(store.cursor().await.expect("a cursor"), last.into());
        let ids = [1, 2, 3, 9].map(session_id).map(Some);
        for session in [None].into_iter().chain(ids) {
            for after in 0..=last.no + 1 {
                for limit in [1, 2, 5, usize::MAX] {
                    let expected: Vec<FeedItem> = all
                        .iter()
                        .filter(|item| item.position.no > after)
                        .filter(|item| session.is_none_or(|id| item.record.session == id))
                        .cloned()
                        .collect();
                    assert_eq!(read_all_pages(&store, session, after, limit).await, expected);
                }
            }
        }
        store = harness.reopen(store).await;
    }
}

/// Checks that sessions which move between lanes are read in the order of their events, from every
/// place. A time in one lane may be far before the time in another one.
pub async fn moved_sessions_are_read_in_order(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let lanes = [
        store.open_lane().await.expect("a lane"),
        store.open_lane().await.expect("a lane"),
        store.open_lane().await.expect("a lane"),
    ];
    let mut writers = Vec::new();
    for number in 1..=3 {
        let mut writer = SessionWriter::open(&store, number, Limits::default()).await;
        writer.now = writer.now.after(Millis(if number == 2 { 1_000_000 } else { 0 }));
        writers.push(writer);
    }
    for (round, lane) in lanes.iter().cycle().take(8).enumerate() {
        for (number, writer) in writers.iter_mut().enumerate() {
            if (round + number) % 3 > 0 {
                writer.move_to(*lane).await;
            }
            writer.spawn(Caller::Operator, job()).await;
        }
    }
    let whole = read_from(&store, None, FeedCursor::START, usize::MAX).await;
    for limit in [1, 2, 3, 5, usize::MAX] {
        let mut after = FeedCursor::START;
        let mut read = Vec::new();
        loop {
            let rest = read_from(&store, None, after.clone(), limit).await;
            check_continuation(&read, &rest, whole.len());
            for session in [1, 2, 3].map(session_id) {
                let events = read_from(&store, Some(session), after.clone(), limit).await;
                let expected = rest.iter().filter(|item| item.record.session == session);
                assert_eq!(events, expected.cloned().collect::<Vec<_>>());
            }
            let query = EventQuery { session: None, after: after.clone(), limit };
            let page = store.events(&query).await.expect("events are read");
            if page.items.is_empty() {
                break;
            }
            read.extend(page.items);
            after = page.read_to;
        }
    }
}

/// Checks that two parts of the feed have each event once, and those of each session in order.
fn check_continuation(read: &[FeedItem], rest: &[FeedItem], count: usize) {
    assert_eq!(read.len() + rest.len(), count);
    let mut last: BTreeMap<SessionId, Seq> = BTreeMap::new();
    for record in read.iter().chain(rest).map(|item| &item.record) {
        let before = last.insert(record.session, record.seq).unwrap_or_default();
        assert_eq!(record.seq, before.next(), "of {}", record.session);
    }
}

/// Reads the pages from a place up to the last one.
async fn read_from(
    store: &Arc<dyn Store>,
    session: Option<SessionId>,
    after: FeedCursor,
    limit: usize,
) -> Vec<FeedItem> {
    let mut query = EventQuery { session, after, limit };
    let mut found = Vec::new();
    loop {
        let page = store.events(&query).await.expect("events are read");
        if page.items.is_empty() {
            return found;
        }
        found.extend(page.items);
        query.after = page.read_to;
    }
}

/// Checks that an event has its author after it was stored, also one of a kind that this version
/// does not know.
pub async fn authors_of_events_are_stored(harness: &dyn StoreHarness) {
    let store = harness.empty().await;
    let mut writer = SessionWriter::open(&store, 1, Limits::default()).await;
    let origin = CallerOrigin::new("token 'laptop' \"ünïcode\"");
    let mut authors = vec![None];
    for caller in [Caller::Operator, Caller::Client("codex".into())] {
        authors.push(Some(Arc::new(EventAuthor::of(&caller, None))));
        authors.push(Some(Arc::new(EventAuthor::of(&caller, Some(&origin)))));
    }
    let mut newer = EventAuthor::of(&Caller::Operator, Some(&origin));
    newer.kind = AuthorKind::Other("robot".into());
    authors.push(Some(Arc::new(newer)));
    let mut committed = page(&store, None, 0, usize::MAX).await.items;
    for author in authors {
        let spawn = SpawnCommand { caller: Caller::Operator, spec: Arc::new(job()), call: None };
        let (_, mut part) = writer.decide(&Command::Spawn(spawn)).await;
        for record in &mut part.events {
            Arc::make_mut(record).by = author.clone();
        }
        let records = part.events.clone();
        let first = store
            .commit(&Batch { sessions: vec![part], ..Batch::default() })
            .await
            .expect("a commit");
        let positions = (first.no..).map(position);
        let items = positions.zip(records);
        committed.extend(items.map(|(position, record)| FeedItem { position, record }));
    }
    drop(writer);
    let store = harness.reopen(store).await;
    for session in [None, Some(session_id(1))] {
        assert_eq!(read_all_pages(&store, session, 0, 2).await, committed);
    }
}

/// Checks that a page reports a gap if requested events were removed, and only then.
pub async fn a_gap_is_reported_after_pruning(harness: &dyn StoreHarness) {
    let mut store = three_sessions(harness).await;
    let all = page(&store, None, 0, usize::MAX).await.items;
    let last = all[all.len() - 1].position;
    assert_eq!(store.cursor().await.expect("a cursor"), last.into());
    let middle = all[all.len() / 2].record.at;
    let retention = Retention { ended: Millis(u64::MAX), events: Millis(1_000) };
    let pruned =
        store.prune(&retention, middle.after(Millis(1_000))).await.expect("the store prunes");
    let first_stored =
        all.iter().position(|item| item.record.at > middle).expect("some events are stored");
    assert!(first_stored > 0);
    assert_eq!(pruned.events, first_stored as u64);
    let last_removed = all[first_stored - 1].position;
    for _ in 0..2 {
        for after in 0..=last.no {
            let page = page(&store, None, after, 3).await;
            assert_eq!(
                page.gap_to,
                (after < last_removed.no).then(|| last_removed.into()),
                "after {after}"
            );
            let from = after.max(last_removed.no);
            let stored: Vec<_> =
                all.iter().filter(|item| item.position.no > from).take(3).cloned().collect();
            assert_eq!(page.items, stored);
        }
        store = harness.reopen(store).await;
    }
    let no_events = Retention { ended: Millis(u64::MAX), events: Millis(0) };
    store.prune(&no_events, middle.after(Millis(1_000_000))).await.expect("the store prunes");
    store = harness.reopen(store).await;
    assert_eq!(store.cursor().await.expect("a cursor"), last.into());
    let nothing = page(&store, None, 0, 10).await;
    assert_eq!(
        nothing,
        EventPage { items: Vec::new(), read_to: last.into(), gap_to: Some(last.into()) }
    );
    SessionWriter::open(&store, 7, Limits::default()).await;
    let next = page(&store, None, last.no, 10).await;
    assert_eq!(next.items.first().map(|item| item.position), Some(last.next()));
}

/// Returns a store with interleaved events of three sessions.
async fn three_sessions(harness: &dyn StoreHarness) -> Arc<dyn Store> {
    let store = harness.empty().await;
    let mut writers = Vec::new();
    for number in 1..=3 {
        writers.push(SessionWriter::open(&store, number, Limits::default()).await);
    }
    for round in 0..5 {
        for (at, writer) in writers.iter_mut().enumerate() {
            if (round + at) % 3 != 0 {
                let no = writer.spawn(Caller::Operator, job()).await;
                writer.finish(no).await;
            }
        }
    }
    store
}

async fn page(
    store: &Arc<dyn Store>,
    session: Option<SessionId>,
    after: u64,
    limit: usize,
) -> EventPage {
    let query = EventQuery { session, after: position(after).into(), limit };
    store.events(&query).await.expect("events are read")
}

/// Reads the pages up to the last one.
async fn read_all_pages(
    store: &Arc<dyn Store>,
    session: Option<SessionId>,
    mut after: u64,
    limit: usize,
) -> Vec<FeedItem> {
    let mut found = Vec::new();
    loop {
        let page = page(store, session, after, limit).await;
        assert_eq!(page.gap_to, None);
        assert!(page.items.len() <= limit);
        assert!(page.read_to.includes(position(after)), "a page goes forward");
        if page.items.is_empty() {
            return found;
        }
        assert!(page.items.iter().all(|item| page.read_to.includes(item.position)));
        after = page.read_to.number_in(Lane::default());
        found.extend(page.items);
    }
}
