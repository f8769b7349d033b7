//! Orders the events of several lanes in a file.

use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, Position};
use brigade_store::columns::to_i64;
use rusqlite::{Connection, Row, Transaction, params};

use crate::copy_target::set_meta;
use crate::error::{Result, corrupt};
use crate::lanes::{FileLanes, LaneEnd};
use crate::read::read_u64;
use crate::write::SessionKey;

/// The table of events that have no position in the file yet.
pub(crate) const STAGED_EVENTS: &str = "staged_events";

/// The most events of a transaction.
const SLICE: usize = 1_000;

/// The next event of a lane.
#[derive(Debug)]
struct StagedEvent {
    position: Position,
    session: SessionKey,
    at: i64,
    /// The session's event before this one, if that is in another lane.
    after: Option<Position>,
}

/// Moves the staged events into the file, in the order of time. An event comes after the session's event
/// before it, also if its clock was behind.
pub(crate) fn merge_staged_events(conn: &mut Connection) -> Result<()> {
    let ends = FileLanes::read(conn)?.ends(conn)?;
    let mut merged: FeedCursor = ends.iter().map(|end| end.pruned_to).collect();
    let mut next: Vec<StagedEvent> = Vec::new();
    for LaneEnd { pruned_to, .. } in ends {
        next.extend(next_staged(conn, pruned_to)?);
    }
    let mut position = 0;
    while !next.is_empty() {
        let tx = conn.transaction()?;
        let mut spans = SpanWriter::default();
        for _ in 0..SLICE {
            let ready = next
                .iter()
                .enumerate()
                .filter(|(_, event)| event.after.is_none_or(|after| merged.includes(after)));
            let Some((first, _)) = ready.min_by_key(|(_, event)| event.at) else { break };
            position += 1;
            write_event(&tx, position, &next[first])?;
            spans.add(&tx, next[first].session, position)?;
            merged.advance(next[first].position);
            match next_staged(&tx, next[first].position)? {
                Some(event) => next[first] = event,
                None => drop(next.remove(first)),
            }
        }
        if spans.is_empty() && !next.is_empty() {
            return Err(corrupt("the events of the lanes wait for each other"));
        }
        spans.end(&tx)?;
        tx.commit()?;
    }
    set_meta(conn, "own_base", position)?;
    conn.execute_batch(&format!("DROP TABLE {STAGED_EVENTS}"))?;
    Ok(())
}

/// Returns the next staged event of a lane.
fn next_staged(conn: &Connection, after: Position) -> Result<Option<StagedEvent>> {
    let sql = format!(
        "SELECT no, session, at, after_lane, after_no FROM {STAGED_EVENTS} \
         WHERE lane = ?1 AND no > ?2 ORDER BY no LIMIT 1"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params![after.lane.0, to_i64(after.no)])?;
    rows.next()?.map(|row| read_staged(row, after.lane)).transpose()
}

fn read_staged(row: &Row<'_>, lane: Lane) -> Result<StagedEvent> {
    let after: Option<u32> = row.get(3)?;
    let after = match after {
        Some(lane) => Some(Position { lane: Lane(lane), no: read_u64(row, 4)? }),
        None => None,
    };
    let position = Position { lane, no: read_u64(row, 0)? };
    Ok(StagedEvent { position, session: row.get(1)?, at: row.get(2)?, after })
}

fn write_event(tx: &Transaction<'_>, position: i64, event: &StagedEvent) -> Result<()> {
    let Position { lane, no } = event.position;
    let sql = format!(
        "INSERT INTO events(position, session, seq, at, author, body) \
         SELECT ?1, session, seq, at, author, body FROM {STAGED_EVENTS} WHERE lane = ?2 AND no = ?3"
    );
    tx.prepare_cached(&sql)?.execute(params![position, lane.0, to_i64(no)])?;
    let sql = "INSERT INTO copied_events(position, lane, no) VALUES(?1, ?2, ?3)";
    tx.prepare_cached(sql)?.execute(params![position, lane.0, to_i64(no)])?;
    Ok(())
}

/// Writes the spans of positions that belong to one session.
#[derive(Debug, Default)]
pub(crate) struct SpanWriter {
    span: Option<EventSpan>,
}

#[derive(Debug)]
struct EventSpan {
    session: SessionKey,
    first: i64,
    last: i64,
}

impl SpanWriter {
    /// Adds the next event.
    pub(crate) fn add(
        &mut self,
        conn: &Connection,
        session: SessionKey,
        position: i64,
    ) -> Result<()> {
        if let Some(span) = &mut self.span
            && span.session == session
            && span.last + 1 == position
        {
            span.last = position;
            return Ok(());
        }
        self.write(conn)?;
        self.span = Some(EventSpan { session, first: position, last: position });
        Ok(())
    }

    fn is_empty(&self) -> bool {
        self.span.is_none()
    }

    /// Writes the last span.
    pub(crate) fn end(mut self, conn: &Connection) -> Result<()> {
        self.write(conn)
    }

    fn write(&mut self, conn: &Connection) -> Result<()> {
        let Some(EventSpan { session, first, last }) = self.span.take() else { return Ok(()) };
        let sql = "INSERT INTO event_spans(session, last, first) VALUES(?1, ?2, ?3)";
        conn.prepare_cached(sql)?.execute(params![session, last, first])?;
        Ok(())
    }
}
