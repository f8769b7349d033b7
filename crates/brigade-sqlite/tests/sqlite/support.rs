//! Batches from the real model, for tests that read the file.

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
use brigade_model::task_tree::{ChangedRows, TaskTree};
use brigade_model::transition::{CommandOutputs, SessionOpening, handle_command, open_session};
use brigade_model::work::{JobWork, RecoveryPolicy, Work};
use brigade_sqlite::SqliteStore;
use brigade_store::{Batch, LoadedSession, SessionBatch, Store, StoreError};

pub(crate) struct Session {
    pub(crate) tree: TaskTree,
    now: Time,
}

impl Session {
    pub(crate) fn open(number: u128) -> (Self, SessionBatch) {
        let name = format!("session {number}").parse().unwrap();
        let now = Time(1_000);
        let (tree, record) = open_session(SessionOpening {
            id: id(number),
            name,
            limits: Limits::default(),
            at: now,
            epoch: Epoch(1),
        });
        let mut session = Self { tree, now };
        let session_batch = session.session_batch(
            Seq(0),
            CommandOutputs { events: vec![record], ..CommandOutputs::default() },
        );
        (session, session_batch)
    }

    /// Continues a stored session.
    pub(crate) fn from_loaded(loaded: LoadedSession) -> Self {
        let now = loaded.row.now;
        Self { tree: loaded.into_tree(), now }
    }

    /// Returns a batch that spawns this number of jobs.
    pub(crate) fn spawn(&mut self, count: usize) -> SessionBatch {
        let spec = Arc::new(job());
        self.handle_all((0..count).map(|_| spawn_command(spec.clone())))
    }

    /// Returns a batch that spawns a job with an argument of this length.
    pub(crate) fn spawn_with_argument(&mut self, bytes: usize) -> SessionBatch {
        let mut spec = job();
        if let Work::Job(JobWork::Named { args, .. }) = &mut spec.work {
            *args = Json::of(&"x".repeat(bytes)).unwrap();
        }
        self.handle_all([spawn_command(Arc::new(spec))])
    }

    /// Returns a batch that spawns this number of jobs, each of which sleeps for a long time.
    pub(crate) fn spawn_waiting(&mut self, count: u32) -> SessionBatch {
        let spec = Arc::new(job());
        let first = self.tree.row().last_task.map_or(1, |last| last.get() + 1);
        self.handle_all((first..first + count).flat_map(|no| {
            let condition = ConditionRequest::Timer { duration: Millis(1_000_000_000) };
            let then = AfterPark::Suspend { parked_count: 1 };
            let report = AttemptReport::Park {
                calls: vec![(CallIndex(0), condition)],
                acked_entries: u32::MAX,
                then,
            };
            let no = TaskNo::new(no).unwrap();
            [
                spawn_command(spec.clone()),
                Command::Report(ReportCommand { no, attempt: Attempt(1), report }),
            ]
        }))
    }

    pub(crate) fn finish(&mut self, no: TaskNo) -> SessionBatch {
        let attempt = self.tree.get(no).unwrap().attempt;
        let report = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
        self.handle_all([Command::Report(ReportCommand { no, attempt, report })])
    }

    fn handle_all(&mut self, commands: impl IntoIterator<Item = Command>) -> SessionBatch {
        let base = self.tree.row().seq;
        let mut outputs = CommandOutputs::default();
        for command in commands {
            self.now = self.now.after(Millis(1));
            let handled = handle_command(&mut self.tree, &command, self.now).unwrap();
            outputs.events.extend(handled.outputs.events);
            outputs.journal.extend(handled.outputs.journal);
        }
        self.session_batch(base, outputs)
    }

    fn session_batch(&mut self, base: Seq, outputs: CommandOutputs) -> SessionBatch {
        let ChangedRows { tasks, messages } = self.tree.take_dirty();
        SessionBatch {
            row: self.tree.row().clone(),
            base,
            events: outputs.events,
            tasks,
            journal: outputs.journal,
            messages,
        }
    }
}

pub(crate) fn id(number: u128) -> SessionId {
    SessionId::from_uuid(uuid::Uuid::from_u128(number))
}

fn spawn_command(spec: Arc<TaskSpec>) -> Command {
    Command::Spawn(SpawnCommand { caller: Caller::Operator, spec, call: None })
}

pub(crate) fn job() -> TaskSpec {
    TaskSpec::new(Work::Job(JobWork::Named {
        handler: "work".into(),
        args: Json::of("some arguments of a job").unwrap(),
        recovery: RecoveryPolicy::resume_max_crashes(3),
    }))
}

pub(crate) fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path)
}

pub(crate) fn batch(session_batch: SessionBatch) -> Batch {
    Batch { sessions: vec![session_batch], ..Batch::default() }
}

/// Creates a store with one session and three tasks.
pub(crate) async fn create_store(path: &Path) -> Session {
    let store = open(path).unwrap();
    let (mut session, session_batch) = Session::open(1);
    store.commit(&batch(session_batch)).await.unwrap();
    store.commit(&batch(session.spawn(3))).await.unwrap();
    session
}
