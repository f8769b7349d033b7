//! Removes old data in slices. Each slice is one short transaction.

use brigade_model::ids::Time;
use brigade_store::columns::{ALIVE, CLOSED, PENDING, to_i64};
use brigade_store::{PruneResult, Retention};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Result;
use crate::write::{SessionKey, SqliteWriter};

/// The most rows of tasks or events that one slice removes.
const SLICE: usize = 500;

/// The stage of a prune.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PruneStage {
    /// Tasks that ended after this cursor.
    Tasks(PruneCursor),
    Sessions,
    Events,
    Done,
}

/// A task of this file.
#[derive(Clone, Copy, Debug)]
struct TaskKey {
    session: SessionKey,
    no: i64,
}

/// The `(ended_at, session, no)` of the last examined task.
type PruneCursor = (i64, SessionKey, i64);

#[derive(Debug)]
pub(crate) struct PruneJob {
    /// The latest end of removed tasks and sessions; `None` if none is old enough.
    ended_cutoff: Option<i64>,
    /// The latest time of removed events; `None` if none is old enough.
    event_cutoff: Option<i64>,
    stage: PruneStage,
    pruned: PruneResult,
}

impl PruneJob {
    pub(crate) fn new(retention: &Retention, now: Time) -> Self {
        let before = |span: u64| now.0.checked_sub(span).map(to_i64);
        Self {
            ended_cutoff: before(retention.ended.0),
            event_cutoff: before(retention.events.0),
            stage: PruneStage::Tasks((-1, 0, 0)),
            pruned: PruneResult::default(),
        }
    }

    pub(crate) fn result(&self) -> PruneResult {
        self.pruned
    }

    /// Removes one slice and returns whether there may be more.
    pub(crate) fn prune_slice(&mut self, writer: &mut SqliteWriter) -> Result<bool> {
        let tx = writer.begin()?;
        let mut pruned = self.pruned;
        let stage = match self.stage {
            PruneStage::Tasks(cursor) => self.prune_tasks(&tx, cursor, &mut pruned)?,
            PruneStage::Sessions => self.prune_sessions(&tx, &mut pruned)?,
            PruneStage::Events => self.prune_events(&tx, &mut pruned)?,
            PruneStage::Done => PruneStage::Done,
        };
        tx.commit()?;
        (self.stage, self.pruned) = (stage, pruned);
        Ok(stage != PruneStage::Done)
    }

    fn prune_tasks(
        &self,
        conn: &Connection,
        mut at: PruneCursor,
        pruned: &mut PruneResult,
    ) -> Result<PruneStage> {
        let Some(until) = self.ended_cutoff else { return Ok(PruneStage::Sessions) };
        let mut left = SLICE;
        for _ in 0..SLICE {
            let Some(next) = next_finished_task(conn, at, until)? else {
                return Ok(PruneStage::Sessions);
            };
            let (_, tree, no) = next;
            let removed = remove_subtree(conn, TaskKey { session: tree, no }, left)?;
            pruned.tasks += removed as u64;
            left -= removed;
            if left == 0 {
                // A part of this subtree may remain, so the next slice examines it again.
                break;
            }
            at = next;
        }
        Ok(PruneStage::Tasks(at))
    }

    fn prune_sessions(&self, conn: &Connection, pruned: &mut PruneResult) -> Result<PruneStage> {
        let Some(until) = self.ended_cutoff else { return Ok(PruneStage::Events) };
        let sql = "SELECT key FROM sessions WHERE state = ?1 AND last_event_at <= ?2 LIMIT 1";
        let mut statement = conn.prepare_cached(sql)?;
        let over = statement.query_row(params![CLOSED, until], |row| row.get::<_, SessionKey>(0));
        let Some(tree) = over.optional()? else { return Ok(PruneStage::Events) };
        let sql = "SELECT no FROM tasks WHERE session = ?1 ORDER BY no DESC LIMIT ?2";
        let tasks = query_numbers(conn, sql, params![tree, SLICE as i64])?;
        for no in &tasks {
            remove_task(conn, tree, *no)?;
        }
        pruned.tasks += tasks.len() as u64;
        if tasks.len() < SLICE {
            let sql = "DELETE FROM messages WHERE session = ?1 AND no IN \
                       (SELECT no FROM messages WHERE session = ?1 LIMIT ?2)";
            let messages = conn.prepare_cached(sql)?.execute(params![tree, SLICE as i64])?;
            if messages < SLICE {
                conn.prepare_cached("DELETE FROM key_marks WHERE session = ?1")?.execute([tree])?;
                conn.prepare_cached("DELETE FROM sessions WHERE key = ?1")?.execute([tree])?;
                pruned.sessions += 1;
            }
        }
        Ok(PruneStage::Sessions)
    }

    /// Removes events from the beginning only, so that the stored ones have no gap.
    fn prune_events(&self, conn: &Connection, pruned: &mut PruneResult) -> Result<PruneStage> {
        let sql = "SELECT position, at, session IN (SELECT key FROM sessions) FROM events \
                   ORDER BY position LIMIT ?1";
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([SLICE as i64])?;
        let mut end = None;
        let mut count = 0;
        while let Some(row) = rows.next()? {
            let (at, kept): (i64, bool) = (row.get(1)?, row.get(2)?);
            if kept && self.event_cutoff.is_none_or(|until| at > until) {
                break;
            }
            end = Some(row.get::<_, i64>(0)?);
            count += 1;
        }
        drop(rows);
        let Some(end) = end else { return Ok(PruneStage::Done) };
        // A span that is pruned in part stays, with its events.
        let sql = "DELETE FROM event_spans WHERE last <= ?1 AND session IN \
                   (SELECT DISTINCT session FROM events WHERE position <= ?1)";
        conn.prepare_cached(sql)?.execute([end])?;
        conn.prepare_cached("DELETE FROM events WHERE position <= ?1")?.execute([end])?;
        let sql = "UPDATE meta SET value = ?1 WHERE name = 'pruned_to'";
        conn.prepare_cached(sql)?.execute([end])?;
        prune_copied_events(conn, end)?;
        pruned.events += count as u64;
        Ok(if count == SLICE { PruneStage::Events } else { PruneStage::Done })
    }
}

/// Removes the lanes' positions of events up to a position of the file.
fn prune_copied_events(conn: &Connection, end: i64) -> Result<()> {
    let sql = "UPDATE copied_lanes SET pruned_to = pruned.no \
               FROM (SELECT lane, max(no) AS no FROM copied_events WHERE position <= ?1 \
                     GROUP BY lane) AS pruned \
               WHERE copied_lanes.lane = pruned.lane";
    conn.prepare_cached(sql)?.execute([end])?;
    conn.prepare_cached("DELETE FROM copied_events WHERE position <= ?1")?.execute([end])?;
    Ok(())
}

fn next_finished_task(
    conn: &Connection,
    after: PruneCursor,
    until: i64,
) -> Result<Option<PruneCursor>> {
    let sql = "SELECT ended_at, session, no FROM tasks INDEXED BY tasks_finished \
               WHERE residency = 3 AND ended_at <= ?4 AND (ended_at, session, no) > (?1, ?2, ?3) \
               ORDER BY ended_at, session, no LIMIT 1";
    let mut statement = conn.prepare_cached(sql)?;
    let found = statement.query_row(params![after.0, after.1, after.2, until], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
    });
    Ok(found.optional()?)
}

/// Removes at most `most` tasks of a subtree, children first. The subtree stays if a task in it is
/// alive, lingers or limits a kept task. Uncollected results of descendants go too: their owner has
/// ended.
fn remove_subtree(conn: &Connection, task: TaskKey, most: usize) -> Result<usize> {
    let sql = "WITH RECURSIVE subtree(no) AS ( \
                   VALUES(?2) \
                   UNION ALL \
                   SELECT tasks.no FROM subtree CROSS JOIN tasks INDEXED BY tasks_owner \
                   ON tasks.session = ?1 AND tasks.owner = subtree.no) \
               SELECT no FROM subtree ORDER BY no DESC";
    let subtree = query_numbers(conn, sql, params![task.session, task.no])?;
    let sql = "SELECT residency < ?3 OR EXISTS (SELECT 1 FROM tasks AS kept INDEXED BY tasks_limited \
                   WHERE kept.session = ?1 AND kept.limited_by = ?2) \
               FROM tasks WHERE session = ?1 AND no = ?2";
    let mut is_needed = conn.prepare_cached(sql)?;
    for no in &subtree {
        if is_needed.query_row(params![task.session, *no, PENDING], |row| row.get(0))? {
            return Ok(0);
        }
    }
    let removed = subtree.len().min(most);
    for no in &subtree[..removed] {
        remove_task(conn, task.session, *no)?;
    }
    Ok(removed)
}

/// Removes one task with its journal, runs and messages. Its key stays taken while its parent is
/// alive.
fn remove_task(conn: &Connection, tree: SessionKey, no: i64) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO key_marks(session, owner, no, owner_run, idempotency_key) \
               SELECT session, owner, no, owner_run, idempotency_key FROM tasks \
               WHERE session = ?1 AND no = ?2 AND idempotency_key IS NOT NULL AND (owner = 0 OR ?3 = \
               (SELECT parent.residency FROM tasks AS parent \
                WHERE parent.session = ?1 AND parent.no = tasks.owner))";
    conn.prepare_cached(sql)?.execute(params![tree, no, ALIVE])?;
    for sql in [
        "DELETE FROM tasks WHERE session = ?1 AND no = ?2",
        "DELETE FROM key_marks WHERE session = ?1 AND owner = ?2",
        "DELETE FROM journal WHERE session = ?1 AND task = ?2",
        "DELETE FROM runs WHERE session = ?1 AND task = ?2",
        "DELETE FROM messages WHERE session = ?1 AND recipient = ?2",
    ] {
        conn.prepare_cached(sql)?.execute([tree, no])?;
    }
    Ok(())
}

fn query_numbers(conn: &Connection, sql: &str, of: impl rusqlite::Params) -> Result<Vec<i64>> {
    let mut statement = conn.prepare_cached(sql)?;
    let found = statement.query_map(of, |row| row.get(0))?;
    Ok(found.collect::<rusqlite::Result<_>>()?)
}
