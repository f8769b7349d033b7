//! Follows the events of other nodes: for subscribers, and for the views of their sessions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Position, SessionId};
use brigade_store::{EventQuery, Store, StoreError};

use super::Node;
use crate::feed::Feed;
use crate::view::CommittedView;

/// The time between two looks for events, without a hint.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// The least time between two looks, also with hints.
const POLL_PAUSE: Duration = Duration::from_millis(5);
const PAGE_EVENTS: usize = 1024;

pub(crate) async fn follow_events(node: Arc<Node>, feed: Arc<Feed>, view: Arc<CommittedView>) {
    // The feed may know later events of a session that was acquired.
    let mut known = feed.cursor();
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = node.fleet().next_hint() => tokio::time::sleep(POLL_PAUSE).await,
        }
        if let Err(error) = read_new(&node, &feed, &view, &mut known).await {
            tracing::debug!(%error, "events of other nodes cannot be read");
        }
    }
}

/// Reads the events of other lanes after a place, and advances it.
async fn read_new(
    node: &Node,
    feed: &Feed,
    view: &CommittedView,
    known: &mut FeedCursor,
) -> Result<(), StoreError> {
    let store = node.store();
    let own = node.lanes();
    let before = feed.visible_cursor();
    let end = store.cursor().await?;
    forget_removed(feed, known, &before, &end, &own);
    loop {
        // Its own events are published by the loops.
        for lane in &*own {
            known.advance(Position { lane: *lane, no: end.number_in(*lane) });
        }
        if known.includes_all(&end) {
            return Ok(());
        }
        let query = EventQuery { session: None, after: known.clone(), limit: PAGE_EVENTS };
        let page = store.events(&query).await?;
        let others = page.items.iter().filter(|item| !own.contains(&item.position.lane));
        let changed: BTreeSet<SessionId> = others.map(|item| item.record.session).collect();
        for session in changed {
            refresh_view(view, &**store, session).await;
        }
        // After the views, so that a subscriber who gets an event also finds its state.
        feed.advance_others(&page.read_to);
        known.advance_to(&page.read_to);
        if page.items.is_empty() {
            return Ok(());
        }
    }
}

/// Forgets the lanes that had events before a look at the store, and that it does not have.
fn forget_removed(
    feed: &Feed,
    known: &mut FeedCursor,
    before: &FeedCursor,
    stored: &FeedCursor,
    own: &[Lane],
) {
    let is_removed = |position: &&Position| {
        !own.contains(&position.lane) && stored.number_in(position.lane) == 0
    };
    let removed = before.positions().iter().filter(is_removed).map(|position| position.lane);
    let removed: Vec<Lane> = removed.collect();
    if !removed.is_empty() {
        feed.forget_lanes(&removed);
        let positions = known.positions().iter();
        let kept = positions.filter(|position| !removed.contains(&position.lane));
        *known = kept.copied().collect();
    }
}

/// Reads the rows of a session of another node again, if somebody has a view of it.
pub(crate) async fn refresh_view(view: &CommittedView, store: &dyn Store, session: SessionId) {
    let Some(view) = view.get(session).filter(|view| !view.is_held()) else { return };
    match store.load(session).await {
        Ok(Some(loaded)) => view.refresh(&loaded.row, loaded.tasks),
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, %session, "a view cannot be refreshed"),
    }
}
