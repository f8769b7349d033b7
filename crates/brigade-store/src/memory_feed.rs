//! The events of a store in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use brigade_model::event::{EventRecord, FeedItem};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Position};

use crate::store::{EventPage, EventQuery};

/// The events of all lanes, in the order of their commits.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFeed {
    items: VecDeque<FeedItem>,
    opened_lanes: u32,
    /// The place behind the newest event of each lane.
    cursor: FeedCursor,
    /// The place behind the removed events.
    removed_to: FeedCursor,
}

impl MemoryFeed {
    pub(crate) fn open_lane(&mut self) -> Lane {
        let lane = Lane(self.opened_lanes);
        self.opened_lanes += 1;
        lane
    }

    /// Continues after later events that the store has lost. The numbers of their lanes are not given again.
    pub(crate) fn follow_lost(&mut self, lost: &Self) {
        self.opened_lanes = lost.opened_lanes;
    }

    pub(crate) fn cursor(&self) -> &FeedCursor {
        &self.cursor
    }

    pub(crate) fn last_position(&self, lane: Lane) -> Position {
        Position { lane, no: self.cursor.number_in(lane) }
    }

    pub(crate) fn append(&mut self, lane: Lane, records: &[Arc<EventRecord>]) {
        let mut position = self.last_position(lane);
        for record in records {
            position = position.next();
            self.items.push_back(FeedItem { position, record: record.clone() });
        }
        self.cursor.advance(position);
    }

    /// Removes the oldest events beyond a number.
    pub(crate) fn retain_newest(&mut self, max: usize) {
        while self.items.len() > max {
            self.remove_first();
        }
    }

    /// Removes the oldest events as long as they match. Returns how many.
    pub(crate) fn remove_oldest(&mut self, matches: impl Fn(&EventRecord) -> bool) -> u64 {
        let mut removed = 0;
        while self.items.front().is_some_and(|item| matches(&item.record)) {
            self.remove_first();
            removed += 1;
        }
        removed
    }

    /// Forgets a lane of which no event is stored any more. Returns false if there is one.
    pub(crate) fn remove_lane(&mut self, lane: Lane) -> bool {
        if self.removed_to.number_in(lane) < self.cursor.number_in(lane) {
            return false;
        }
        for cursor in [&mut self.cursor, &mut self.removed_to] {
            let kept = cursor.positions().iter().filter(|position| position.lane != lane);
            *cursor = kept.copied().collect();
        }
        true
    }

    fn remove_first(&mut self) {
        if let Some(item) = self.items.pop_front() {
            self.removed_to.advance(item.position);
        }
    }

    pub(crate) fn read(&self, query: &EventQuery) -> EventPage {
        let has_gap = !query.after.includes_all(&self.removed_to);
        let mut after = query.after.clone();
        after.advance_to(&self.removed_to);
        let mut page = EventPage {
            items: Vec::new(),
            read_to: after.clone(),
            gap_to: has_gap.then(|| self.removed_to.clone()),
        };
        let unread = self.items.iter().skip(self.first_unread(&after));
        for item in unread.filter(|item| !after.includes(item.position)) {
            if page.items.len() == query.limit {
                return page;
            }
            page.read_to.advance(item.position);
            if query.session.is_none_or(|session| item.record.session == session) {
                page.items.push(item.clone());
            }
        }
        page.read_to.advance_to(&self.cursor);
        page
    }

    /// Returns the index of the first item that may be behind a place. In one lane it is exact.
    fn first_unread(&self, after: &FeedCursor) -> usize {
        let [last] = self.cursor.positions() else { return 0 };
        let removed = self.removed_to.number_in(last.lane);
        let before = after.number_in(last.lane).saturating_sub(removed);
        usize::try_from(before).unwrap_or(usize::MAX)
    }
}
