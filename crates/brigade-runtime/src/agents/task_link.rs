//! An agent's hold on the runtime: through it the delegation tools act as the task that it is.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use brigade_agent::SessionStateReader;
use brigade_model::address::TaskRef;
use brigade_model::call::{CallCompletion, SpawnedTask};
use brigade_model::command::{Caller, Command, SpawnCommand};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{Attempt, CallIndex, TaskNo};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::shared_values::SharedValue;
use brigade_model::spec::TaskSpec;
use brigade_model::task::TaskRow;
use tokio::sync::SetOnce;

use crate::performer::{Reporter, TaskId, submit};
use crate::runtime::{Runtime, RuntimeInner};
use crate::session::Session;

/// The runtime, once it is there, for as long as somebody else holds it.
pub(crate) type DeferredRuntime = Arc<SetOnce<Weak<RuntimeInner>>>;

#[derive(Clone, Debug)]
pub(crate) struct TaskLink {
    pub(crate) reporter: Reporter,
    pub(crate) runtime: DeferredRuntime,
}

/// What the session shares, as it was last committed.
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

    /// The session as this task sees it: not to be kept, for it keeps the runtime.
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

    /// Asks until there is an answer.
    pub(crate) async fn retry_while_unavailable<T, F>(
        &self,
        ask: impl Fn() -> F,
    ) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        retry_while_unavailable(&self.reporter, ask).await
    }

    /// Spawns a child once: the record of it is in the slot, or is made with it.
    pub(crate) async fn spawn(
        &self,
        (index, before): (CallIndex, Option<&Arc<CallCompletion>>),
        spec: impl FnOnce() -> Result<TaskSpec, Refusal>,
    ) -> Result<Arc<CallCompletion>, Refusal> {
        if let Some(before) = before {
            return Ok(before.clone());
        }
        let (caller, spec) = (self.caller(), Arc::new(spec()?));
        let spawn = SpawnCommand { caller, spec, call: Some(index) };
        match self.submit(Command::Spawn(spawn)).await? {
            CommandReply::Spawned(spawned) => Ok(Arc::new(CallCompletion::Spawned(spawned))),
            _ => Err(crate::session::unexpected_reply()),
        }
    }

    /// The child that is meant.
    pub(crate) async fn find_child(&self, task: &str) -> Result<(TaskNo, Arc<TaskRow>), Refusal> {
        let task: TaskRef = task.parse()?;
        let session = self.session().await?;
        self.retry_while_unavailable(|| session.get(task.clone())).await
    }

    /// What an agent has said and done. `None` for a child that is no agent.
    pub(crate) async fn transcript(&self, child: TaskNo) -> Result<Option<String>, Refusal> {
        let session = self.session().await?;
        self.retry_while_unavailable(|| session.transcript(child.into())).await
    }
}

/// How long before something is asked again that the store would not do.
const UNAVAILABLE_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Asks until there is an answer: that the store was away for a moment changes nothing, is no news to
/// an agent, and must not be written down as what came of a call. Only without a runtime there will
/// be no answer.
pub(crate) async fn retry_while_unavailable<T, F>(
    reporter: &Reporter,
    ask: impl Fn() -> F,
) -> Result<T, Refusal>
where
    F: Future<Output = Result<T, Refusal>>,
{
    loop {
        match ask().await {
            Err(refusal)
                if refusal.kind == RefusalKind::Unavailable && !reporter.inputs.is_closed() =>
            {
                tokio::time::sleep(UNAVAILABLE_RETRY_PAUSE).await;
            }
            answer => return answer,
        }
    }
}

/// The child that a record speaks of.
pub(crate) fn expect_spawned(answer: &CallCompletion) -> Result<&SpawnedTask, Refusal> {
    match answer {
        CallCompletion::Spawned(spawned) => Ok(spawned),
        CallCompletion::Refused(refusal) => Err(refusal.clone()),
        other => Err(Refusal::internal(format!("a spawn was answered with {other:?}"))),
    }
}
