//! From any position without gap or repeat.

use std::sync::Arc;

use brigade_model::command::Caller;
use brigade_model::event::FeedItem;
use brigade_model::ids::{Millis, Position, SessionId};
use brigade_model::limits::Limits;

use super::StoreHarness;
use super::writer::{SessionWriter, job, session_id};
use crate::store::{EventPage, EventQuery, Retention, Store};

pub async fn pages_from_every_position(harness: &dyn StoreHarness) {
    let mut store = three_sessions(harness).await;
    for _ in 0..2 {
        let all = page(&store, None, 0, usize::MAX).await.items;
        let last = store.last_position().await.expect("a position");
        assert_eq!(all.last().map(|item| item.position), Some(last));
        for tree in [
            None,
            Some(session_id(1)),
            Some(session_id(2)),
            Some(session_id(3)),
            Some(session_id(9)),
        ] {
            for after in 0..=last.0 + 1 {
                for most in [1, 2, 5, usize::MAX] {
                    let expected: Vec<FeedItem> = all
                        .iter()
                        .filter(|item| item.position.0 > after)
                        .filter(|item| tree.is_none_or(|tree| item.record.session == tree))
                        .cloned()
                        .collect();
                    assert_eq!(read_all_pages(&store, tree, after, most).await, expected);
                }
            }
        }
        store = harness.reopen(store);
    }
}

/// Whoever asks for what is gone is told up to where; whoever asks for what is kept is not.
pub async fn a_gap_is_told_after_pruning(harness: &dyn StoreHarness) {
    let mut store = three_sessions(harness).await;
    let all = page(&store, None, 0, usize::MAX).await.items;
    let last = store.last_position().await.expect("a position");
    let middle = all[all.len() / 2].record.at;
    let retention = Retention { ended: Millis(u64::MAX), events: Millis(1_000) };
    let pruned = store.prune(&retention, middle.after(Millis(1_000))).await.expect("it prunes");
    let first_kept = all.iter().position(|item| item.record.at > middle).expect("some are kept");
    assert!(first_kept > 0);
    assert_eq!(pruned.events, first_kept as u64);
    let gone = all[first_kept - 1].position;
    for _ in 0..2 {
        for after in 0..=last.0 {
            let page = page(&store, None, after, 3).await;
            assert_eq!(page.gap_to, (after < gone.0).then_some(gone), "after {after}");
            let from = after.max(gone.0);
            let kept: Vec<_> =
                all.iter().filter(|item| item.position.0 > from).take(3).cloned().collect();
            assert_eq!(page.items, kept);
        }
        store = harness.reopen(store);
    }
    let rest = Retention { ended: Millis(u64::MAX), events: Millis(0) };
    store.prune(&rest, middle.after(Millis(1_000_000))).await.expect("it prunes");
    store = harness.reopen(store);
    assert_eq!(store.last_position().await.expect("a position"), last);
    let nothing = page(&store, None, 0, 10).await;
    assert_eq!(nothing, EventPage { items: Vec::new(), read_to: last, gap_to: Some(last) });
    SessionWriter::open(&store, 7, Limits::default()).await;
    let next = page(&store, None, last.0, 10).await;
    assert_eq!(next.items.first().map(|item| item.position), Some(last.next()));
}

/// Events of three trees, one between the other.
async fn three_sessions(harness: &dyn StoreHarness) -> Arc<dyn Store> {
    let store = harness.empty();
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
    tree: Option<SessionId>,
    after: u64,
    most: usize,
) -> EventPage {
    let query = EventQuery { session: tree, after: Position(after), limit: most };
    store.events(&query).await.expect("events are read")
}

/// Follows the pages to the end.
async fn read_all_pages(
    store: &Arc<dyn Store>,
    tree: Option<SessionId>,
    mut after: u64,
    most: usize,
) -> Vec<FeedItem> {
    let mut found = Vec::new();
    loop {
        let page = page(store, tree, after, most).await;
        assert_eq!(page.gap_to, None);
        assert!(page.items.len() <= most);
        assert!(page.read_to.0 >= after, "a page goes forward");
        if page.items.is_empty() {
            return found;
        }
        assert!(page.items.iter().all(|item| item.position <= page.read_to));
        after = page.read_to.0;
        found.extend(page.items);
    }
}
