//! Batches from the real model, for tests that look at the file.

use std::path::Path;
use std::sync::Arc;

use brigade_model::call::ConditionRequest;
use brigade_model::command::{
    AfterPark, AttemptReport, Caller, Command, ReportCommand, SpawnCommand, WorkResult,
};
use brigade_model::ids::{Attempt, CallIndex, Epoch, Millis, Seq, SessionId, TaskNo, Time};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::spec::TaskSpec;
use brigade_model::task_tree::TaskTree;
use brigade_model::transition::{CommandOutputs, handle_command, open_session};
use brigade_model::work::{JobWork, RecoveryPolicy, Work};
use brigade_sqlite::{SqliteOptions, SqliteStore};
use brigade_store::{Batch, LoadedSession, SessionBatch, Store, StoreError};

pub(crate) struct Session {
    pub(crate) tree: TaskTree,
    now: Time,
}

impl Session {
    pub(crate) fn open(number: u128) -> (Self, SessionBatch) {
        let name = format!("session {number}").parse().unwrap();
        let now = Time(1_000);
        let (tree, record) = open_session(id(number), name, Limits::default(), (now, Epoch(1)));
        let mut session = Self { tree, now };
        let part = session
            .part(Seq(0), CommandOutputs { events: vec![record], ..CommandOutputs::default() });
        (session, part)
    }

    /// Goes on from what is stored.
    pub(crate) fn continued(loaded: LoadedSession) -> Self {
        let now = loaded.row.now;
        Self { tree: loaded.into_tree(), now }
    }

    /// A batch that spawns so many jobs.
    pub(crate) fn spawn(&mut self, count: usize) -> SessionBatch {
        let spec = Arc::new(job());
        self.all((0..count).map(|_| {
            Command::Spawn(SpawnCommand {
                caller: Caller::Operator,
                spec: spec.clone(),
                call: None,
            })
        }))
    }

    /// A batch that spawns so many jobs, each of which goes to sleep for long.
    pub(crate) fn spawn_waiting(&mut self, count: u32) -> SessionBatch {
        let spec = Arc::new(job());
        let first = self.tree.row().last_task.map_or(1, |last| last.get() + 1);
        self.all((first..first + count).flat_map(|no| {
            let asked = ConditionRequest::Timer { duration: Millis(1_000_000_000) };
            let then = AfterPark::Suspend { parked_count: 1 };
            let what = AttemptReport::Park {
                calls: vec![(CallIndex(0), asked)],
                acked_entries: u32::MAX,
                then,
            };
            let no = TaskNo::new(no).unwrap();
            let spawn = SpawnCommand { caller: Caller::Operator, spec: spec.clone(), call: None };
            [
                Command::Spawn(spawn),
                Command::Report(ReportCommand { no, attempt: Attempt(1), report: what }),
            ]
        }))
    }

    pub(crate) fn finish(&mut self, no: TaskNo) -> SessionBatch {
        let attempt = self.tree.get(no).unwrap().attempt;
        let what = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
        self.all([Command::Report(ReportCommand { no, attempt, report: what })])
    }

    fn all(&mut self, commands: impl IntoIterator<Item = Command>) -> SessionBatch {
        let base = self.tree.row().seq;
        let mut outputs = CommandOutputs::default();
        for command in commands {
            self.now = self.now.after(Millis(1));
            let handled = handle_command(&mut self.tree, &command, self.now).unwrap();
            outputs.events.extend(handled.outputs.events);
            outputs.journal.extend(handled.outputs.journal);
        }
        self.part(base, outputs)
    }

    fn part(&mut self, base: Seq, outputs: CommandOutputs) -> SessionBatch {
        let (tasks, messages) = self.tree.take_dirty();
        let (events, journal) = (outputs.events, outputs.journal);
        SessionBatch { row: self.tree.row().clone(), base, events, tasks, journal, messages }
    }
}

pub(crate) fn id(number: u128) -> SessionId {
    SessionId::from_uuid(uuid::Uuid::from_u128(number))
}

pub(crate) fn job() -> TaskSpec {
    TaskSpec::new(Work::Job(JobWork::Named {
        handler: "work".into(),
        args: Json::of("some arguments of a job").unwrap(),
        recovery: RecoveryPolicy::resume(3),
    }))
}

pub(crate) fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, SqliteOptions::default())
}

pub(crate) fn batch(part: SessionBatch) -> Batch {
    Batch { sessions: vec![part] }
}

/// Makes a store with one session and three tasks in it.
pub(crate) async fn make(path: &Path) -> Session {
    let store = open(path).unwrap();
    let (mut session, part) = Session::open(1);
    store.commit(&batch(part)).await.unwrap();
    store.commit(&batch(session.spawn(3))).await.unwrap();
    session
}
