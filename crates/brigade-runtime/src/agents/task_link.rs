//! An agent's link to the runtime, by which the delegation tools act as its task.

use std::future::Future;
use std::sync::{Arc, Weak};

use brigade_agent::SessionStateReader;
use brigade_model::address::TaskRef;
use brigade_model::call::{CallCompletion, SpawnedTask};
use brigade_model::command::{Caller, Command, SpawnCommand};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{Attempt, CallIndex, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_model::shared_values::SharedValue;
use brigade_model::spec::TaskSpec;
use brigade_model::task::StoredTask;
use tokio::sync::SetOnce;

use crate::performer::{Reporter, TaskId, retry_while_unavailable};
use crate::runtime::{Runtime, RuntimeInner, submit};
use crate::session::Session;

/// The runtime, set when it has started. A weak reference, so that it does not keep the runtime
/// alive.
pub(crate) type DeferredRuntime = Arc<SetOnce<Weak<RuntimeInner>>>;

#[derive(Clone, Debug)]
pub(crate) struct TaskLink {
    pub(crate) reporter: Reporter,
    pub(crate) runtime: DeferredRuntime,
}

/// Reads the shared values of the session as of the last commit.
impl SessionStateReader for TaskLink {
    fn read(&self, name: &str) -> Option<SharedValue> {
        let runtime = self.runtime.get()?.upgrade()?;
        runtime.view.get(self.task().session)?.shared_value(name)
    }
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

    /// Returns the session as this task sees it. Do not store it, since it keeps the runtime alive.
    pub(crate) async fn session(&self) -> Result<Session, Refusal> {
        let inner =
            self.runtime.wait().await.upgrade().ok_or_else(crate::error::shutdown_refusal)?;
        let runtime = Runtime { inner };
        self.retry_while_unavailable(|| runtime.task_session(self.task(), self.attempt())).await
    }

    pub(crate) async fn submit(&self, command: Command) -> Result<CommandReply, Refusal> {
        let Reporter { inputs, task, .. } = &self.reporter;
        self.retry_while_unavailable(|| submit(inputs, task.session, command.clone())).await
    }

    /// Repeats a call until the store is available.
    pub(crate) async fn retry_while_unavailable<T, F>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        retry_while_unavailable(&self.reporter, call).await
    }

    /// Spawns a child once: returns the recorded spawn of the slot, or spawns and records it.
    pub(crate) async fn spawn(
        &self,
        slot: CallSlot<'_>,
        spec: impl FnOnce() -> Result<TaskSpec, Refusal>,
    ) -> Result<Arc<CallCompletion>, Refusal> {
        if let Some(recorded) = slot.recorded {
            return Ok(recorded.clone());
        }
        let caller = self.caller();
        let spec = Arc::new(spec()?);
        let spawn = SpawnCommand { caller, spec, call: Some(slot.index) };
        match self.submit(Command::Spawn(spawn)).await? {
            CommandReply::Spawned(spawned) => Ok(Arc::new(CallCompletion::Spawned(spawned))),
            _ => Err(crate::session::unexpected_reply()),
        }
    }

    /// Returns the child with this address or name.
    pub(crate) async fn find_child(&self, task: &str) -> Result<StoredTask, Refusal> {
        let task: TaskRef = task.parse()?;
        let session = self.session().await?;
        self.retry_while_unavailable(|| session.get(task.clone())).await
    }

    /// Returns the transcript of an agent, or `None` for a child that is no agent.
    pub(crate) async fn transcript(&self, child: TaskNo) -> Result<Option<String>, Refusal> {
        let session = self.session().await?;
        self.retry_while_unavailable(|| session.transcript(child.into())).await
    }
}

/// The journal slot of a call's effect, and the completion recorded there before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSlot<'a> {
    pub(crate) index: CallIndex,
    pub(crate) recorded: Option<&'a Arc<CallCompletion>>,
}

/// Returns the child of a recorded spawn.
pub(crate) fn expect_spawned(completion: &CallCompletion) -> Result<&SpawnedTask, Refusal> {
    match completion {
        CallCompletion::Spawned(spawned) => Ok(spawned),
        CallCompletion::Refused(refusal) => Err(refusal.clone()),
        other => Err(Refusal::internal(format!("a spawn was completed with {other:?}"))),
    }
}
