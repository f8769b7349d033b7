//! An agent's hold on the runtime: through it the delegation tools act as the task that it is.

use std::sync::{Arc, Weak};

use brigade_model::address::TaskRef;
use brigade_model::call::{Answer, Spawned};
use brigade_model::command::{Caller, Command, Spawn};
use brigade_model::decide::Reply;
use brigade_model::ids::{Attempt, CallIndex, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_model::spec::Spec;
use brigade_model::task::TaskRow;
use tokio::sync::SetOnce;

use crate::performer::{Reporter, TaskId, submit};
use crate::runtime::{Runtime, RuntimeInner};
use crate::session::Session;

/// The runtime, once it is there, for as long as somebody else holds it.
pub(crate) type LateRuntime = Arc<SetOnce<Weak<RuntimeInner>>>;

#[derive(Clone, Debug)]
pub(crate) struct TaskLink {
    pub(crate) reporter: Reporter,
    pub(crate) runtime: LateRuntime,
}

impl TaskLink {
    pub(crate) fn task(&self) -> TaskId {
        self.reporter.task
    }

    fn attempt(&self) -> Attempt {
        self.reporter.attempt
    }

    pub(crate) fn caller(&self) -> Caller {
        Caller::Task { no: self.task().no, attempt: self.attempt() }
    }

    /// The session as this task sees it: not to be kept, for it keeps the runtime.
    pub(crate) async fn session(&self) -> Result<Session, Refusal> {
        let inner = self.runtime.wait().await.upgrade().ok_or_else(crate::error::gone)?;
        Runtime { inner }.act_as(self.task(), self.attempt()).await
    }

    pub(crate) async fn submit(&self, command: Command) -> Result<Reply, Refusal> {
        submit(&self.reporter.inputs, self.task().tree, command).await
    }

    /// Spawns a child once: the record of it is in the slot, or is made with it.
    pub(crate) async fn spawn(
        &self,
        (index, before): (CallIndex, Option<&Arc<Answer>>),
        spec: impl FnOnce() -> Result<Spec, Refusal>,
    ) -> Result<Arc<Answer>, Refusal> {
        if let Some(before) = before {
            return Ok(before.clone());
        }
        let (caller, spec) = (self.caller(), Arc::new(spec()?));
        let spawn = Spawn { caller, spec, call: Some(index) };
        match self.submit(Command::Spawn(spawn)).await? {
            Reply::Spawned(spawned) => Ok(Arc::new(Answer::Spawned(spawned))),
            _ => Err(crate::session::unexpected()),
        }
    }

    /// The child that is meant.
    pub(crate) async fn child(&self, task: &str) -> Result<(TaskNo, Arc<TaskRow>), Refusal> {
        let task: TaskRef = task.parse()?;
        self.session().await?.get(task).await
    }
}

/// The child that a record speaks of.
pub(crate) fn spawned(answer: &Answer) -> Result<&Spawned, Refusal> {
    match answer {
        Answer::Spawned(spawned) => Ok(spawned),
        Answer::Refused(refusal) => Err(refusal.clone()),
        other => Err(Refusal::internal(format!("a spawn was answered with {other:?}"))),
    }
}
