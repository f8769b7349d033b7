//! Batches from the real model, for tests that look at the file.

use std::path::Path;
use std::sync::Arc;

use brigade_model::command::{Caller, Command, EndedHow, Report, Reported, Spawn};
use brigade_model::ids::{Epoch, Millis, Seq, TaskNo, Time, TreeId};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::spec::Spec;
use brigade_model::tree::Tree;
use brigade_model::turn::{Outputs, handle, open_session};
use brigade_model::work::{JobWork, Recovery, Work};
use brigade_sqlite::{SqliteOptions, SqliteStore};
use brigade_store::{Batch, LoadedTree, Store, StoreError, TreeBatch};

pub struct Session {
    pub tree: Tree,
    now: Time,
}

impl Session {
    pub fn open(number: u128) -> (Self, TreeBatch) {
        let name = format!("session {number}").parse().unwrap();
        let now = Time(1_000);
        let (tree, record) = open_session(id(number), name, Limits::default(), (now, Epoch(1)));
        let mut session = Self { tree, now };
        let part = session.part(Seq(0), Outputs { events: vec![record], ..Outputs::default() });
        (session, part)
    }

    /// Goes on from what is stored.
    pub fn continued(loaded: LoadedTree) -> Self {
        let now = loaded.row.now;
        Self { tree: loaded.into_tree(), now }
    }

    /// A batch that spawns so many jobs.
    pub fn spawn(&mut self, count: usize) -> TreeBatch {
        let spec = Arc::new(job());
        self.all((0..count).map(|_| {
            Command::Spawn(Spawn { caller: Caller::Operator, spec: spec.clone(), call: None })
        }))
    }

    #[allow(dead_code, reason = "not every test that has this module ends tasks")]
    pub fn finish(&mut self, no: TaskNo) -> TreeBatch {
        let attempt = self.tree.get(no).unwrap().attempt;
        let what = Reported::Ended(EndedHow::Returned(Json::null()).into());
        self.all([Command::Report(Report { no, attempt, what })])
    }

    fn all(&mut self, commands: impl IntoIterator<Item = Command>) -> TreeBatch {
        let base = self.tree.row().seq;
        let mut outputs = Outputs::default();
        for command in commands {
            self.now = self.now.after(Millis(1));
            let handled = handle(&mut self.tree, &command, self.now).unwrap();
            outputs.events.extend(handled.outputs.events);
            outputs.journal.extend(handled.outputs.journal);
        }
        self.part(base, outputs)
    }

    fn part(&mut self, base: Seq, outputs: Outputs) -> TreeBatch {
        let (tasks, messages) = self.tree.take_touched();
        let (events, journal) = (outputs.events, outputs.journal);
        TreeBatch { row: self.tree.row().clone(), base, events, tasks, journal, messages }
    }
}

pub fn id(number: u128) -> TreeId {
    TreeId::from_uuid(uuid::Uuid::from_u128(number))
}

pub fn job() -> Spec {
    Spec::new(Work::Job(JobWork::Named {
        handler: "work".into(),
        args: Json::of("some arguments of a job").unwrap(),
        recovery: Recovery::resume(3),
    }))
}

pub fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path, SqliteOptions::default())
}

pub fn batch(part: TreeBatch) -> Batch {
    Batch { trees: vec![part] }
}

/// Makes a store with one session and three tasks in it.
#[allow(dead_code, reason = "not every test that has this module begins with a store")]
pub async fn make(path: &Path) -> Session {
    let store = open(path).unwrap();
    let (mut session, part) = Session::open(1);
    store.commit(&batch(part)).await.unwrap();
    store.commit(&batch(session.spawn(3))).await.unwrap();
    session
}
