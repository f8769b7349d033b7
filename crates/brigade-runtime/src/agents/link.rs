//! An agent's hold on the runtime: through it the delegation tools act as the task that it is.

use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use brigade_agent::SessionState;
use brigade_model::address::TaskRef;
use brigade_model::call::{Answer, Spawned};
use brigade_model::command::{Caller, Command, Spawn};
use brigade_model::decide::Reply;
use brigade_model::ids::{Attempt, CallIndex, TaskNo};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::shared::SharedValue;
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

/// What the session shares, as it was last committed.
impl SessionState for TaskLink {
    fn read(&self, name: &str) -> Option<SharedValue> {
        let runtime = self.runtime.get()?.upgrade()?;
        runtime.view.get(self.task().tree)?.shared(name)
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
        let inner = self.runtime.wait().await.upgrade().ok_or_else(crate::error::gone)?;
        let runtime = Runtime { inner };
        self.insist(|| runtime.act_as(self.task(), self.attempt())).await
    }

    pub(crate) async fn submit(&self, command: Command) -> Result<Reply, Refusal> {
        let Reporter { inputs, task, .. } = &self.reporter;
        self.insist(|| submit(inputs, task.tree, command.clone())).await
    }

    /// Asks until there is an answer.
    pub(crate) async fn insist<T, F>(&self, ask: impl Fn() -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T, Refusal>>,
    {
        insist(&self.reporter, ask).await
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
        let session = self.session().await?;
        self.insist(|| session.get(task.clone())).await
    }

    /// What an agent has said and done. `None` for a child that is no agent.
    pub(crate) async fn transcript(&self, child: TaskNo) -> Result<Option<String>, Refusal> {
        let session = self.session().await?;
        self.insist(|| session.transcript(child.into())).await
    }
}

/// How long before something is asked again that the store would not do.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// Asks until there is an answer: that the store was away for a moment changes nothing, is no news to
/// an agent, and must not be written down as what came of a call. Only without a runtime there will
/// be no answer.
pub(crate) async fn insist<T, F>(reporter: &Reporter, ask: impl Fn() -> F) -> Result<T, Refusal>
where
    F: Future<Output = Result<T, Refusal>>,
{
    loop {
        match ask().await {
            Err(refusal)
                if refusal.kind == RefusalKind::Unavailable && !reporter.inputs.is_closed() =>
            {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            answer => return answer,
        }
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
