//! Reads events: pages of all sessions, which merge the lanes, and pages of one session.

use std::collections::VecDeque;
use std::sync::Arc;

use brigade_model::event::{EventRecord, FeedItem};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Position, SessionId};
use brigade_store::columns::{decode_author, to_i64};
use brigade_store::{EventPage, EventQuery, codec};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connections::{Connection, Parameter};
use crate::error::Result;
use crate::lanes::parse_lane;
use crate::read::{id_parameter, to_u64};
use crate::write::lane_code;

/// The lanes with events after the cursor, whose lanes and numbers are `$1` and `$2`.
const UNREAD_LANES: &str = "\
    SELECT lanes.lane, lanes.head, lanes.pruned_to, \
        greatest(coalesce(read.pos, 0), lanes.pruned_to) AS read_to \
    FROM {schema}.lanes LEFT JOIN unnest($1::int[], $2::bigint[]) AS read(lane, pos) USING (lane) \
    WHERE lanes.head > coalesce(read.pos, 0)";

/// The lane of an event's `after`, unless the lane was removed: then all its events count as read.
const AFTER_LANE: &str =
    "(SELECT a.lane FROM {schema}.lanes AS a WHERE a.lane = e.after_lane) AS after_lane";

/// The number of lanes above which a cursor may have many that were removed.
const CHECKED_LANES_MIN: usize = 64;

/// Returns the place behind the newest event of each lane.
pub(crate) async fn cursor(connection: &Connection<'_>) -> Result<FeedCursor> {
    let sql = "SELECT lane, head FROM {schema}.lanes WHERE head > 0";
    let rows = connection.query(sql, &[]).await?;
    rows.iter().map(|row| read_position(row, 0)).collect()
}

/// Returns the next page of a query. It is one statement, so it sees one state of the database.
pub(crate) async fn events(connection: &Connection<'_>, query: &EventQuery) -> Result<EventPage> {
    let mut page = match query.session {
        None => all_events(connection, query).await?,
        Some(id) => session_events(connection, id, query).await?,
    };
    if query.after.positions().len() > CHECKED_LANES_MIN {
        page.read_to = without_removed_lanes(connection, &page.read_to).await?;
    }
    Ok(page)
}

/// Returns a cursor without the lanes that the store does not have any more.
async fn without_removed_lanes(
    connection: &Connection<'_>,
    cursor: &FeedCursor,
) -> Result<FeedCursor> {
    let sql = "SELECT lane FROM {schema}.lanes WHERE lane = ANY ($1)";
    let lanes = CursorColumns::of(cursor).lanes;
    let rows = connection.query(sql, &[(&lanes, Type::INT4_ARRAY)]).await?;
    let stored: Vec<Lane> =
        rows.iter().map(|row| parse_lane(row.try_get(0)?)).collect::<Result<_>>()?;
    let kept = cursor.positions().iter().filter(|position| stored.contains(&position.lane));
    Ok(kept.copied().collect())
}

/// The columns of a cursor.
struct CursorColumns {
    lanes: Vec<i32>,
    numbers: Vec<i64>,
}

impl CursorColumns {
    fn of(cursor: &FeedCursor) -> Self {
        let positions = cursor.positions();
        Self {
            lanes: positions.iter().map(|position| lane_code(position.lane)).collect(),
            numbers: positions.iter().map(|position| to_i64(position.no)).collect(),
        }
    }

    fn parameters(&self) -> [Parameter<'_>; 2] {
        [(&self.lanes, Type::INT4_ARRAY), (&self.numbers, Type::INT8_ARRAY)]
    }
}

/// The events of a lane that a page may take, and its last event in the store.
#[derive(Debug)]
struct UnreadLane {
    head: Position,
    pruned_to: Position,
    events: VecDeque<LaneEvent>,
}

#[derive(Debug)]
struct LaneEvent {
    item: FeedItem,
    /// The session's event before this one, if that is in another lane.
    after: Option<Position>,
}

/// Returns the next page of all sessions. It merges the lanes in the order of time. An event is held
/// back until the page, or an earlier one, has the session's event before it.
async fn all_events(connection: &Connection<'_>, query: &EventQuery) -> Result<EventPage> {
    let sql = format!(
        "SELECT l.lane, l.head, l.pruned_to, e.pos, e.author, e.body, e.after_lane, e.after_pos \
         FROM ({UNREAD_LANES}) AS l LEFT JOIN LATERAL ( \
             SELECT e.pos, e.author, e.body, {AFTER_LANE}, e.after_pos FROM {{schema}}.events AS e \
             WHERE e.lane = l.lane AND e.pos > l.read_to ORDER BY e.pos LIMIT $3) AS e ON true \
         ORDER BY l.lane, e.pos"
    );
    let columns = CursorColumns::of(&query.after);
    let [lanes, numbers] = columns.parameters();
    let most = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let rows = connection.query(&sql, &[lanes, numbers, (&most, Type::INT8)]).await?;
    let mut lanes = read_lanes(&rows)?;
    let mut page = begin_page(query, &lanes);
    while page.items.len() < query.limit {
        let is_next = |lane: &&mut UnreadLane| {
            let next = lane.events.front();
            next.is_some_and(|next| next.after.is_none_or(|it| page.read_to.includes(it)))
        };
        let next = lanes.iter_mut().filter(is_next).min_by_key(|lane| lane.next_at());
        let Some(event) = next.and_then(|lane| lane.events.pop_front()) else { break };
        page.read_to.advance(event.item.position);
        page.items.push(event.item);
    }
    Ok(page)
}

/// Reads the unread lanes with their events, which are in the order of their lanes and positions.
fn read_lanes(rows: &[Row]) -> Result<Vec<UnreadLane>> {
    let mut lanes: Vec<UnreadLane> = Vec::new();
    for row in rows {
        let head = read_position(row, 0)?;
        if lanes.last().is_none_or(|lane| lane.head.lane != head.lane) {
            let pruned_to = Position { lane: head.lane, no: to_u64(row.try_get(2)?)? };
            lanes.push(UnreadLane { head, pruned_to, events: VecDeque::new() });
        }
        let position: Option<i64> = row.try_get(3)?;
        if let (Some(no), Some(lane)) = (position, lanes.last_mut()) {
            let position = Position { lane: head.lane, no: to_u64(no)? };
            let item = FeedItem { position, record: decode_event(row, position, 4)? };
            let after_lane: Option<i32> = row.try_get(6)?;
            let after = after_lane.map(|_| read_position(row, 6)).transpose()?;
            lane.events.push_back(LaneEvent { item, after });
        }
    }
    Ok(lanes)
}

impl UnreadLane {
    fn next_at(&self) -> Option<brigade_model::ids::Time> {
        self.events.front().map(|event| event.item.record.at)
    }
}

/// Returns the next page of one session, in the order of its own sequence numbers.
async fn session_events(
    connection: &Connection<'_>,
    id: SessionId,
    query: &EventQuery,
) -> Result<EventPage> {
    // Each span has an event, so a page needs no more spans of a lane than it has events. A span is of
    // one day, so the condition on `at` finds its partition.
    let sql = format!(
        "SELECT l.lane, l.head, l.pruned_to, e.pos, e.author, e.body, e.after_lane, e.after_pos \
         FROM ({UNREAD_LANES}) AS l LEFT JOIN LATERAL ( \
             SELECT e.pos, e.author, e.body, e.after_lane, e.after_pos FROM ( \
                 SELECT first_pos, last_pos, at FROM {{schema}}.event_spans \
                 WHERE session = (SELECT key FROM {{schema}}.sessions WHERE id = $4) \
                     AND lane = l.lane AND last_pos > l.read_to \
                 ORDER BY last_pos LIMIT $3) AS span \
             JOIN {{schema}}.events AS e ON e.lane = l.lane AND e.pos > l.read_to \
                 AND e.pos >= span.first_pos AND e.pos <= span.last_pos \
                 AND e.at >= span.at AND e.at < (span.at / 86400000 + 1) * 86400000 \
             ORDER BY e.pos LIMIT $3) AS e ON true \
         ORDER BY l.lane, e.pos"
    );
    let columns = CursorColumns::of(&query.after);
    let [lanes, numbers] = columns.parameters();
    let most = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let values = [lanes, numbers, (&most as _, Type::INT8), id_parameter(&id)];
    let lanes = read_lanes(&connection.query(&sql, &values).await?)?;
    let mut page = begin_page(query, &lanes);
    let heads: Vec<Position> = lanes.iter().map(|lane| lane.head).collect();
    let events = lanes.into_iter().flat_map(|lane| lane.events);
    page.items = events.map(|event| event.item).collect();
    page.items.sort_by_key(|item| item.record.seq);
    let is_last = page.items.len() < query.limit;
    page.items.truncate(query.limit);
    let read = page.items.iter().map(|item| item.position);
    for position in read.chain(heads.into_iter().filter(|_| is_last)) {
        page.read_to.advance(position);
    }
    Ok(page)
}

/// Returns an empty page behind the events that retention has removed.
fn begin_page(query: &EventQuery, lanes: &[UnreadLane]) -> EventPage {
    let mut read_to = query.after.clone();
    let mut gap = FeedCursor::START;
    for pruned_to in lanes.iter().map(|lane| lane.pruned_to) {
        if !query.after.includes(pruned_to) {
            gap.advance(pruned_to);
            read_to.advance(pruned_to);
        }
    }
    let gap_to = (gap != FeedCursor::START).then_some(gap);
    EventPage { items: Vec::new(), read_to, gap_to }
}

/// Reads the columns `lane, number` from a column on.
pub(crate) fn read_position(row: &Row, first: usize) -> Result<Position> {
    let lane = parse_lane(row.try_get(first)?)?;
    Ok(Position { lane, no: to_u64(row.try_get(first + 1)?)? })
}

/// Decodes the columns `author, body` from a column on.
fn decode_event(row: &Row, position: Position, first: usize) -> Result<Arc<EventRecord>> {
    let body: &[u8] = row.try_get(first + 1)?;
    let mut record: EventRecord = codec::decode(format_args!("the event at {position}"), body)?;
    if let Some(author) = row.try_get::<_, Option<&str>>(first)? {
        record.by = Some(decode_author(format_args!("the event at {position}"), author)?);
    }
    Ok(Arc::new(record))
}
