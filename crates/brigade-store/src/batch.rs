//! The rows and events that one commit writes.

use std::sync::Arc;

use brigade_model::call::TaskEntry;
use brigade_model::event::{Event, EventRecord};
use brigade_model::ids::{Lane, Seq, TaskNo};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{MessageRow, SessionRow};

use crate::fleet::CallAnswer;
use crate::store::RunRow;

/// The changes of one iteration of the loop, in any number of sessions.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// The lane of the writer, from [`Store::open_lane`](crate::Store::open_lane).
    pub lane: Lane,
    pub sessions: Vec<SessionBatch>,
    /// Replies to calls of other nodes, stored with the events that they report.
    pub answers: Vec<CallAnswer>,
}

/// One session's part of a batch.
#[derive(Clone, Debug)]
pub struct SessionBatch {
    /// The session after the batch. Its epoch must be the stored one.
    pub row: SessionRow,
    /// The last event before the batch; zero for a new session.
    pub base: Seq,
    /// Events with sequence numbers from `base + 1`, without a gap.
    pub events: Vec<Arc<EventRecord>>,
    pub tasks: Vec<StoredTask>,
    pub journal: Vec<TaskEntry>,
    /// Changed messages. A later row of the same message replaces an earlier one.
    pub messages: Vec<MessageRow>,
}

/// An ended run that a new run of its task replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupersededRun {
    pub no: TaskNo,
    pub run: RunRow,
}

impl Batch {
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.answers.is_empty()
    }

    pub fn events(&self) -> impl Iterator<Item = &Arc<EventRecord>> {
        self.sessions.iter().flat_map(|session| &session.events)
    }
}

impl SessionBatch {
    /// Returns the first task that this batch spawns. Tasks with higher numbers are new too; tasks
    /// with lower numbers are not.
    pub fn first_spawned(&self) -> Option<TaskNo> {
        self.events.iter().find_map(|record| match &record.event {
            Event::Spawned(spawned) => Some(spawned.no),
            _ => None,
        })
    }

    /// Returns the ended runs that this batch replaces by new runs. `stored` reads a row as it was
    /// before the batch.
    pub fn superseded_runs<E>(
        &self,
        mut stored: impl FnMut(TaskNo) -> Result<Option<TaskRow>, E>,
    ) -> Result<Vec<SupersededRun>, E> {
        let mut found = Vec::new();
        for (at, record) in self.events.iter().enumerate() {
            let Event::RunOpened { no, .. } = &record.event else { continue };
            let run = match self.find_run_end(at, *no) {
                Some(run) => Some(run),
                None => stored(*no)?.and_then(|row| {
                    let ended = row.ended()?;
                    Some(RunRow {
                        run: row.run,
                        outcome: ended.outcome.clone(),
                        ended_at: ended.at,
                    })
                }),
            };
            found.extend(run.map(|run| SupersededRun { no: *no, run }));
        }
        Ok(found)
    }

    fn find_run_end(&self, at: usize, no: TaskNo) -> Option<RunRow> {
        self.events[..at].iter().rev().find_map(|record| match &record.event {
            Event::Ended { no: ended, run, outcome, .. } if *ended == no => {
                Some(RunRow { run: *run, outcome: outcome.clone(), ended_at: record.at })
            }
            _ => None,
        })
    }
}
