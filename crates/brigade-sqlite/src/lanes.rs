//! The lanes of a file.
//!
//! A file has one writer and thus one lane. Only a copy of a store that several nodes wrote brings events
//! of several lanes. Their order in the file is one in which each session's events are in order, so pages
//! follow it and skip the events that a cursor includes.

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Position};
use brigade_store::columns::to_i64;
use brigade_store::{EventPage, EventQuery};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Result, corrupt};
use crate::read::{ReadTransaction, decode_event, last_position, pruned_to, read_u64};

/// The lane of a file's own events, and whether it has others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileLanes {
    own: Lane,
    /// The position in the file before the first own event.
    base: u64,
    has_copied: bool,
}

/// The last event of a lane, and the last one that was removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneEnd {
    pub(crate) head: Position,
    pub(crate) pruned_to: Position,
}

impl FileLanes {
    /// Reads the lanes of a file, which do not change while it is open. A file of an earlier version has
    /// the lane 0.
    pub(crate) fn read(conn: &Connection) -> Result<Self> {
        let value = |name: &str| {
            let sql = "SELECT value FROM meta WHERE name = ?1";
            conn.query_row(sql, [name], |row| row.get::<_, i64>(0)).optional()
        };
        let Some(own) = value("own_lane")? else {
            return Ok(Self { own: Lane::default(), base: 0, has_copied: false });
        };
        let own = u32::try_from(own).map_err(|_| corrupt(format!("{own} is not a lane")))?;
        let base = value("own_base")?.unwrap_or(0);
        let base = u64::try_from(base).map_err(|_| corrupt(format!("{base} is negative")))?;
        let sql = "SELECT EXISTS (SELECT 1 FROM copied_lanes)";
        let has_copied = conn.query_row(sql, [], |row| row.get(0))?;
        Ok(Self { own: Lane(own), base, has_copied })
    }

    pub(crate) fn own(self) -> Lane {
        self.own
    }

    /// Returns true if the file has had events of other lanes.
    pub(crate) fn has_copied(self) -> bool {
        self.has_copied
    }

    /// Returns the position of an own event from its position in the file.
    pub(crate) fn own_position(self, position: u64) -> Position {
        Position { lane: self.own, no: position.saturating_sub(self.base) }
    }

    /// Returns the position in the file of an own event.
    pub(crate) fn position_of_own(self, no: u64) -> u64 {
        no.saturating_add(self.base)
    }

    /// Returns the lanes that had events, by their numbers. The own one is the last.
    pub(crate) fn ends(self, conn: &Connection) -> Result<Vec<LaneEnd>> {
        let mut ends = Vec::new();
        if self.has_copied {
            let sql = "SELECT lane, head, pruned_to FROM copied_lanes ORDER BY lane";
            let mut statement = conn.prepare_cached(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let lane = Lane(row.get(0)?);
                let head = Position { lane, no: read_u64(row, 1)? };
                let pruned_to = Position { lane, no: read_u64(row, 2)? };
                ends.push(LaneEnd { head, pruned_to });
            }
        }
        let head = self.own_position(last_position(conn)?);
        if head.no > 0 {
            ends.push(LaneEnd { head, pruned_to: self.own_position(pruned_to(conn)?) });
        }
        Ok(ends)
    }
}

impl ReadTransaction<'_> {
    /// Returns the place behind the newest event of each lane.
    pub(crate) fn cursor_of_lanes(&self) -> Result<FeedCursor> {
        Ok(self.lanes.ends(&self.tx)?.into_iter().map(|end| end.head).collect())
    }

    /// Returns a page of events of several lanes.
    pub(crate) fn events_of_lanes(&self, query: &EventQuery) -> Result<EventPage> {
        let ends = self.lanes.ends(&self.tx)?;
        let mut read_to = query.after.clone();
        let mut gap = FeedCursor::START;
        for end in ends.iter().filter(|end| !query.after.includes(end.pruned_to)) {
            gap.advance(end.pruned_to);
            read_to.advance(end.pruned_to);
        }
        let gap_to = (gap != FeedCursor::START).then_some(gap);
        let mut page = EventPage { items: Vec::new(), read_to, gap_to };
        if let Some(first) = self.first_unread(&ends, &page.read_to)? {
            self.read_unread(query, first, &mut page)?;
        }
        for item in &page.items {
            page.read_to.advance(item.position);
        }
        if page.items.len() < query.limit {
            for end in ends {
                page.read_to.advance(end.head);
            }
        }
        Ok(page)
    }

    /// Returns the position in the file of the first event after a place.
    fn first_unread(&self, ends: &[LaneEnd], after: &FeedCursor) -> Result<Option<u64>> {
        let sql = "SELECT position FROM copied_events WHERE lane = ?1 AND no > ?2 \
                   ORDER BY no LIMIT 1";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut first: Option<u64> = None;
        for head in ends.iter().map(|end| end.head).filter(|head| !after.includes(*head)) {
            let read = after.number_in(head.lane);
            let position = if head.lane == self.lanes.own() {
                Some(self.lanes.position_of_own(read) + 1)
            } else {
                let mut rows = statement.query(params![head.lane.0, to_i64(read)])?;
                rows.next()?.map(|row| read_u64(row, 0)).transpose()?
            };
            first = [first, position].into_iter().flatten().min();
        }
        Ok(first)
    }

    /// Reads events from a position in the file on. Those that the place of the page includes are skipped.
    fn read_unread(&self, query: &EventQuery, first: u64, page: &mut EventPage) -> Result<()> {
        let first = to_i64(first);
        let mut statement;
        let mut rows = match query.session {
            None => {
                let sql = "SELECT events.position, copied.lane, copied.no, body, author \
                           FROM events LEFT JOIN copied_events AS copied USING (position) \
                           WHERE events.position >= ?1 ORDER BY events.position";
                statement = self.tx.prepare_cached(sql)?;
                statement.query([first])?
            }
            Some(id) => {
                let Some(key) = self.session_key(id)? else { return Ok(()) };
                let sql = "SELECT events.position, copied.lane, copied.no, body, author \
                           FROM event_spans AS span \
                           CROSS JOIN events ON events.position BETWEEN max(first, ?2) AND last \
                           LEFT JOIN copied_events AS copied USING (position) \
                           WHERE span.session = ?1 AND last >= ?2 ORDER BY last, events.position";
                statement = self.tx.prepare_cached(sql)?;
                statement.query(params![key, first])?
            }
        };
        while page.items.len() < query.limit
            && let Some(row) = rows.next()?
        {
            let lane: Option<u32> = row.get(1)?;
            let position = match lane {
                Some(lane) => Position { lane: Lane(lane), no: read_u64(row, 2)? },
                None => self.lanes.own_position(read_u64(row, 0)?),
            };
            if !page.read_to.includes(position) {
                page.items.push(decode_event(row, 3, position)?);
            }
        }
        Ok(())
    }
}
