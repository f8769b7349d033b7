//! Every change, in order, to whoever asks from wherever they left off.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::event::{EventRecord, FeedItem};
use brigade_model::ids::{Position, TreeId};
use brigade_model::refusal::Refusal;
use brigade_store::{EventQuery, Store};
use tokio::sync::watch;

use crate::error::{gone, refusal};

/// How many recent events are handed out without asking the store.
const RING: usize = 16 * 1024;
/// How many events a subscription takes at a time.
const PAGE: usize = 1024;

#[derive(Debug)]
pub(crate) struct Feed {
    store: Arc<dyn Store>,
    ring: Mutex<VecDeque<FeedItem>>,
    latest: watch::Sender<Latest>,
}

/// The newest event, and whether there will be more.
#[derive(Clone, Copy, Debug)]
struct Latest {
    position: Position,
    closed: bool,
}

/// Events from a position on. Falls back to the store when it is slow, so it bounds nobody.
#[derive(Debug)]
pub struct Subscription {
    feed: Arc<Feed>,
    latest: watch::Receiver<Latest>,
    tree: Option<TreeId>,
    after: Position,
    page: VecDeque<FeedItem>,
}

/// What a subscription hands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedMessage {
    Event(FeedItem),
    /// Events up to here were asked for and are no longer kept.
    Gap {
        to: Position,
    },
}

impl Feed {
    pub(crate) fn new(store: Arc<dyn Store>, last: Position) -> Arc<Self> {
        let (latest, _) = watch::channel(Latest { position: last, closed: false });
        Arc::new(Self { store, ring: Mutex::default(), latest })
    }

    /// Hands out committed events. One wake-up per commit.
    pub(crate) fn publish<'a>(
        &self,
        first: Position,
        records: impl Iterator<Item = &'a Arc<EventRecord>>,
    ) {
        let mut position = first;
        {
            let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
            for record in records {
                ring.push_back(FeedItem { position, record: record.clone() });
                position = position.next();
            }
            let over = ring.len().saturating_sub(RING);
            ring.drain(..over);
        }
        self.latest.send_modify(|latest| latest.position = Position(position.0 - 1));
    }

    /// The loop has left: readers are told so when they have read the rest.
    pub(crate) fn close(&self) {
        self.latest.send_modify(|latest| latest.closed = true);
    }

    pub(crate) fn last(&self) -> Position {
        self.latest.borrow().position
    }

    pub(crate) fn subscribe(
        self: &Arc<Self>,
        tree: Option<TreeId>,
        after: Position,
    ) -> Subscription {
        let latest = self.latest.subscribe();
        Subscription { feed: self.clone(), latest, tree, after, page: VecDeque::new() }
    }

    /// Recent events after a position, if the ring goes back that far.
    fn recent(&self, after: Position) -> Option<VecDeque<FeedItem>> {
        let ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ring.front()?.position;
        if after.next() < first {
            return None;
        }
        let skip = usize::try_from(after.0 + 1 - first.0).ok()?;
        Some(ring.iter().skip(skip).take(PAGE).cloned().collect())
    }
}

impl Subscription {
    /// The position after which [`Subscription::next`] goes on: what to resume from.
    pub fn cursor(&self) -> Position {
        self.after
    }

    /// The next event. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<FeedMessage, Refusal> {
        loop {
            while let Some(item) = self.page.pop_front() {
                self.after = item.position;
                if self.tree.is_none_or(|tree| item.record.tree == tree) {
                    return Ok(FeedMessage::Event(item));
                }
            }
            let latest = *self.latest.borrow_and_update();
            if self.after >= latest.position {
                if latest.closed {
                    return Err(gone());
                }
                self.latest.changed().await.map_err(|_| gone())?;
                continue;
            }
            if let Some(page) = self.feed.recent(self.after) {
                self.page = page;
                continue;
            }
            let query = EventQuery { tree: self.tree, after: self.after, most: PAGE };
            let page = self.feed.store.events(&query).await.map_err(|e| refusal(&e))?;
            self.page = page.items.into();
            if let Some(to) = page.gap_to {
                self.after = self.after.max(to);
                return Ok(FeedMessage::Gap { to });
            }
            if self.page.is_empty() {
                self.after = self.after.max(page.read_to);
            }
        }
    }
}
