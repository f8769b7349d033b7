//! The feed: every change, in order, for subscribers who start at any place.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_model::event::{Event, EventRecord, FeedItem};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Owner, Position, SessionId, TaskNo};
use brigade_model::message::MessageSender;
use brigade_model::refusal::Refusal;
use brigade_store::{EventQuery, Store};
use tokio::sync::watch;

use crate::error::store_refusal;
use crate::view::SessionView;

/// The number of recent events of all loops that are served without reading the store.
const RING_CAPACITY: usize = 16 * 1024;
/// The number of events that a subscription takes at a time.
const PAGE_EVENTS: usize = 1024;
/// The number of tasks whose owner a subscription remembers.
const OWNER_CACHE_MAX: usize = 16 * 1024;

#[derive(Debug)]
pub(crate) struct Feed {
    store: Arc<dyn Store>,
    recent: Mutex<RecentEvents>,
    latest: watch::Sender<FeedHead>,
    #[cfg(test)]
    before_publish: test_seam::BeforePublish,
}

/// The newest events of this runtime's lanes. No session moves between them, so their order among each
/// other does not matter.
#[derive(Debug)]
struct RecentEvents {
    lanes: Vec<RecentLane>,
    /// The place behind the known events of other lanes. A reader that has not read them gets its
    /// events from the store, which returns those of a moved session in order.
    others: FeedCursor,
}

/// The newest events of one loop.
#[derive(Debug)]
struct RecentLane {
    lane: Lane,
    ring: VecDeque<FeedItem>,
    /// The number of the newest published event.
    published: u64,
    /// The number of the newest event whose state readers may see already.
    visible: u64,
}

/// The place behind the newest event, and the mark that no more will come.
#[derive(Clone, Debug)]
struct FeedHead {
    cursor: FeedCursor,
    closed: bool,
}

/// Events after a place. A slow subscription reads from the store, so it holds up nobody.
#[derive(Debug)]
pub struct FeedSubscription {
    feed: Arc<Feed>,
    latest: watch::Receiver<FeedHead>,
    session: Option<SessionId>,
    /// The owner whose events are shown. `None` shows everything.
    scope: Option<OwnerScope>,
    after: FeedCursor,
    page: VecDeque<FeedItem>,
    /// The place up to which the page has all events that are read. Empty for recent events, of which
    /// a page has all.
    page_to: FeedCursor,
}

/// An owner's view of a session: the session itself and the owner's tasks, without their
/// descendants.
#[derive(Debug)]
pub(crate) struct OwnerScope {
    owner: Owner,
    view: Arc<SessionView>,
    /// True for tasks of the owner, according to the events so far or the task's row.
    own: HashMap<TaskNo, bool>,
}

/// An item that a subscription returns.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FeedUpdate {
    Event(FeedItem),
    /// A gap: requested events up to this place are no longer stored.
    Gap {
        to: FeedCursor,
    },
}

impl Feed {
    /// Creates the feed of a runtime that writes to these lanes, at the end of a store's events.
    pub(crate) fn new(store: Arc<dyn Store>, end: FeedCursor, lanes: &[Lane]) -> Arc<Self> {
        let recent = RecentEvents::after(&end, lanes);
        let (latest, _) = watch::channel(FeedHead { cursor: end, closed: false });
        Arc::new(Self {
            store,
            recent: Mutex::new(recent),
            latest,
            #[cfg(test)]
            before_publish: test_seam::BeforePublish::default(),
        })
    }

    /// Announces committed events up to this position, before their state becomes visible.
    pub(crate) fn announce(&self, last: Position) {
        if let Some(own) = self.lock_recent().lane(last.lane) {
            own.visible = last.no;
        }
    }

    /// Returns the place behind the newest event whose state may be visible. The feed has it now, or
    /// will have it shortly.
    pub(crate) fn visible_cursor(&self) -> FeedCursor {
        let recent = self.lock_recent();
        let mut cursor = recent.others.clone();
        for own in &recent.lanes {
            cursor.advance(Position { lane: own.lane, no: own.visible });
        }
        cursor
    }

    /// Continues in other lanes. The old ones are then some of the others.
    pub(crate) fn change_lanes(&self, lanes: &[Lane]) {
        let known = self.cursor();
        *self.lock_recent() = RecentEvents::after(&known, lanes);
    }

    /// Publishes that other lanes have events up to a place.
    pub(crate) fn advance_others(&self, to: &FeedCursor) {
        let mut recent = self.lock_recent();
        for position in to.positions() {
            if recent.lane(position.lane).is_none() {
                recent.others.advance(*position);
            }
        }
        let others = recent.others.clone();
        drop(recent);
        self.latest.send_if_modified(|latest| {
            let is_new = !latest.cursor.includes_all(&others);
            latest.cursor.advance_to(&others);
            is_new
        });
    }

    /// Forgets lanes that the store has removed. Readers treat them as read.
    pub(crate) fn forget_lanes(&self, removed: &[Lane]) {
        let kept = |cursor: &FeedCursor| -> FeedCursor {
            let positions = cursor.positions().iter();
            positions.filter(|position| !removed.contains(&position.lane)).copied().collect()
        };
        let mut recent = self.lock_recent();
        recent.others = kept(&recent.others);
        drop(recent);
        self.latest.send_if_modified(|latest| {
            latest.cursor = kept(&latest.cursor);
            false
        });
    }

    fn lock_recent(&self) -> MutexGuard<'_, RecentEvents> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes committed events, with one wake-up per commit.
    pub(crate) fn publish<'a>(
        &self,
        first: Position,
        records: impl Iterator<Item = &'a Arc<EventRecord>>,
    ) {
        #[cfg(test)]
        self.before_publish.run();
        let mut next = first;
        let mut recent = self.lock_recent();
        let capacity = RING_CAPACITY / recent.lanes.len().max(1);
        if let Some(own) = recent.lane(first.lane) {
            let ring = &mut own.ring;
            if ring.back().is_some_and(|last| last.position.next() != first) {
                // Events in between were stored and not published: readers get them from the store.
                ring.clear();
            }
            for record in records {
                ring.push_back(FeedItem { position: next, record: record.clone() });
                next = next.next();
            }
            let over = ring.len().saturating_sub(capacity);
            ring.drain(..over);
            own.published = next.no - 1;
        }
        drop(recent);
        let last = Position { no: next.no - 1, ..next };
        self.latest.send_modify(|latest| latest.cursor.advance(last));
    }

    /// Closes the feed. It ends for each reader after the remaining events.
    pub(crate) fn close(&self) {
        self.latest.send_modify(|latest| latest.closed = true);
    }

    pub(crate) fn cursor(&self) -> FeedCursor {
        self.latest.borrow().cursor.clone()
    }

    pub(crate) fn subscribe(
        self: &Arc<Self>,
        session: Option<SessionId>,
        after: FeedCursor,
    ) -> FeedSubscription {
        let latest = self.latest.subscribe();
        let page = VecDeque::new();
        let feed = self.clone();
        let page_to = FeedCursor::START;
        FeedSubscription { feed, latest, session, scope: None, after, page, page_to }
    }

    /// Returns recent events after a place, if the ring goes back that far.
    fn recent(&self, after: &FeedCursor) -> Option<VecDeque<FeedItem>> {
        let recent = self.lock_recent();
        if !after.includes_all(&recent.others) {
            return None;
        }
        let page = match &recent.lanes[..] {
            [own] => own.after(after.number_in(own.lane))?.take(PAGE_EVENTS).cloned().collect(),
            all => merge(all, after)?,
        };
        (!page.is_empty()).then_some(page)
    }
}

impl RecentEvents {
    /// Returns no events of these lanes, after a place.
    fn after(end: &FeedCursor, lanes: &[Lane]) -> Self {
        let others = end.positions().iter().filter(|position| !lanes.contains(&position.lane));
        let own = lanes.iter().map(|lane| {
            let last = end.number_in(*lane);
            RecentLane { lane: *lane, ring: VecDeque::new(), published: last, visible: last }
        });
        Self { lanes: own.collect(), others: others.copied().collect() }
    }

    fn lane(&mut self, lane: Lane) -> Option<&mut RecentLane> {
        self.lanes.iter_mut().find(|own| own.lane == lane)
    }
}

impl RecentLane {
    /// Returns the events after a number, if the ring goes back that far.
    fn after(&self, number: u64) -> Option<impl Iterator<Item = &FeedItem>> {
        let first = self.ring.front().map_or(self.published + 1, |first| first.position.no);
        let skip = usize::try_from((number + 1).checked_sub(first)?).ok()?;
        Some(self.ring.iter().skip(skip))
    }
}

/// Returns a page of several lanes after a place, oldest first, if each ring goes back that far.
fn merge(lanes: &[RecentLane], after: &FeedCursor) -> Option<VecDeque<FeedItem>> {
    let unread = lanes.iter().map(|own| Some(own.after(after.number_in(own.lane))?.peekable()));
    let mut unread = unread.collect::<Option<Vec<_>>>()?;
    let mut page = VecDeque::new();
    while page.len() < PAGE_EVENTS {
        let oldest = unread.iter_mut().filter_map(|lane| Some((lane.peek()?.record.at, lane)));
        let Some((_, lane)) = oldest.min_by_key(|(at, _)| *at) else { break };
        page.extend(lane.next().cloned());
    }
    Some(page)
}

impl OwnerScope {
    pub(crate) fn new(owner: Owner, view: Arc<SessionView>) -> Self {
        Self { owner, view, own: HashMap::new() }
    }

    async fn is_visible(
        &mut self,
        record: &EventRecord,
        store: &dyn Store,
    ) -> Result<bool, Refusal> {
        match &record.event {
            Event::Spawned(spawned) => self.remember_owner(spawned.no, spawned.owner),
            Event::RunOpened { no, owner, .. } => self.remember_owner(*no, *owner),
            Event::PassedToSession { no, .. } => self.remember_owner(*no, Owner::Session),
            Event::MessageSent(message) if message.to == self.owner => return Ok(true),
            // Messages from a task's own children are not shown to its owner.
            Event::MessageSent(message) if matches!(message.from, MessageSender::Child(_)) => {
                return Ok(false);
            }
            Event::Collected { runs } => {
                for run in runs {
                    if !self.owns(record.session, run.no, store).await? {
                        return Ok(false);
                    }
                }
            }
            _ => {}
        }
        match record.event.task() {
            Some(no) => self.owns(record.session, no, store).await,
            None => Ok(true),
        }
    }

    fn remember_owner(&mut self, no: TaskNo, owner: Owner) {
        if self.own.len() >= OWNER_CACHE_MAX {
            self.own.clear();
        }
        self.own.insert(no, owner == self.owner);
    }

    /// Returns true if the task is the owner's. A pruned task belongs to nobody.
    async fn owns(
        &mut self,
        session: SessionId,
        no: TaskNo,
        store: &dyn Store,
    ) -> Result<bool, Refusal> {
        if let Some(own) = self.own.get(&no) {
            return Ok(*own);
        }
        let owner = match self.view.get(no) {
            Some(row) => Some(row.owner),
            None => {
                store.task(session, no).await.map_err(|e| store_refusal(&e))?.map(|row| row.owner)
            }
        };
        if let Some(owner) = owner {
            self.remember_owner(no, owner);
        }
        Ok(owner == Some(self.owner))
    }
}

impl FeedSubscription {
    /// Restricts the subscription to the events that an owner sees.
    #[must_use]
    pub(crate) fn with_scope(self, scope: Option<OwnerScope>) -> Self {
        Self { scope, ..self }
    }

    /// Returns the place after which [`FeedSubscription::next`] continues, to resume from later.
    pub fn cursor(&self) -> FeedCursor {
        self.after.clone()
    }

    /// Returns the next update, or `None` after the last one of a runtime that has shut down.
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<FeedUpdate, Refusal>> {
        self.next_to(None).await.transpose()
    }

    /// Returns the next update, or `None` if there is none up to this place, which must not be of
    /// the future. Dropping the future loses nothing.
    ///
    /// While a lane has events up to this place, later ones of other lanes may come before them.
    pub async fn next_until(&mut self, end: &FeedCursor) -> Result<Option<FeedUpdate>, Refusal> {
        self.next_to(Some(end)).await
    }

    /// Returns the next update, or `None` if there is none up to this place.
    pub(crate) async fn next_to(
        &mut self,
        end: Option<&FeedCursor>,
    ) -> Result<Option<FeedUpdate>, Refusal> {
        loop {
            while let Some(item) = self.page.front() {
                if end.is_some_and(|end| !end.includes(item.position) && self.has_read_to(end)) {
                    return Ok(None);
                }
                let mut shown = self.session.is_none_or(|session| item.record.session == session);
                if let Some(scope) = self.scope.as_mut().filter(|_| shown) {
                    shown = scope.is_visible(&item.record, &*self.feed.store).await?;
                }
                self.after.advance(item.position);
                if let Some(item) = self.page.pop_front().filter(|_| shown) {
                    return Ok(Some(FeedUpdate::Event(item)));
                }
            }
            let latest = self.latest.borrow_and_update().clone();
            if end.is_some_and(|end| self.after.includes_all(end)) {
                return Ok(None);
            }
            if end.is_none() && self.after.includes_all(&latest.cursor) {
                if latest.closed || self.latest.changed().await.is_err() {
                    return Ok(None);
                }
                continue;
            }
            if let Some(page) = self.feed.recent(&self.after) {
                self.page = page;
                self.page_to = FeedCursor::START;
                continue;
            }
            let after = self.after.clone();
            let query = EventQuery { session: self.session, after, limit: PAGE_EVENTS };
            let page = self.feed.store.events(&query).await.map_err(|e| store_refusal(&e))?;
            self.page = page.items.into();
            self.page_to.clone_from(&page.read_to);
            if !page.read_to.includes_all(&self.after) {
                // The page has no lanes that the store has removed.
                let positions = self.after.positions().iter();
                let kept = positions.filter(|position| page.read_to.includes(**position));
                self.after = kept.copied().collect();
            }
            if let Some(to) = page.gap_to {
                self.after.advance_to(&to);
                return Ok(Some(FeedUpdate::Gap { to: self.after.clone() }));
            }
            if self.page.is_empty() {
                self.after.advance_to(&page.read_to);
                // The store has all events up to these places, except those of removed lanes.
                self.after.advance_to(end.unwrap_or(&latest.cursor));
            }
        }
    }

    /// Returns true if the page has no event up to a place, and no later page will.
    fn has_read_to(&self, end: &FeedCursor) -> bool {
        end.positions().iter().all(|last| {
            let next = self.page.iter().find(|item| item.position.lane == last.lane);
            self.after.includes(*last)
                || next.map_or(self.page_to.includes(*last), |next| !end.includes(next.position))
        })
    }
}

/// A seam for tests of readers between the two parts of a publication.
#[cfg(test)]
pub(crate) mod test_seam {
    use std::fmt;
    use std::sync::Mutex;

    use super::Feed;

    #[derive(Default)]
    pub(super) struct BeforePublish(Mutex<Option<Box<dyn FnMut() + Send>>>);

    impl BeforePublish {
        pub(super) fn run(&self) {
            if let Some(function) = self.0.lock().unwrap().as_mut() {
                function();
            }
        }
    }

    impl fmt::Debug for BeforePublish {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("BeforePublish")
        }
    }

    impl Feed {
        /// Calls a function in each publication: the view has the state, the feed has no event of
        /// it yet.
        pub(crate) fn call_before_publish(&self, function: impl FnMut() + Send + 'static) {
            *self.before_publish.0.lock().unwrap() = Some(Box::new(function));
        }
    }
}
