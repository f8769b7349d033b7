//! The runtime's handle: where sessions are opened and everything is seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brigade_model::command::{Caller, ClientCaller, Command};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{Attempt, Position, SessionId};
use brigade_model::limits::Limits;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::task_tree::SessionRow;
use brigade_process::PeerProcess;
use brigade_store::{PruneResult, Retention, Store};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::builder::{RuntimeBuilder, remove_unknown_tasks};
use crate::clock::Clock;
use crate::error::{in_doubt_refusal, shutdown_refusal, store_refusal};
use crate::feed::{Feed, FeedSubscription};
use crate::jobs::HandlerRegistry;
use crate::loop_input::LoopInput;
use crate::performer::{PerformerRegistry, TaskId, submit};
use crate::processes::{PeerOrigin, ProcessService};
use crate::session::Session;
use crate::view::{CommittedView, SessionView};

/// A running Brigade. Cheap to clone; when the last clone is dropped without
/// [`Runtime::shutdown`], everything that lives only in this process ends with it.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) inner: Arc<RuntimeInner>,
}

#[derive(Debug)]
pub(crate) struct RuntimeInner {
    pub(crate) inputs: mpsc::Sender<LoopInput>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) view: Arc<CommittedView>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) handlers: Arc<HandlerRegistry>,
    pub(crate) performers: PerformerRegistry,
    pub(crate) processes: Option<Arc<ProcessService>>,
    pub(crate) client: Arc<str>,
    pub(crate) next_wait_id: AtomicU64,
    /// Tells the loop that it is to leave while it waits for the store.
    pub(crate) shutdown_token: CancellationToken,
    /// Ends the loop when the last handle goes.
    pub(crate) _abandon: DropGuard,
}

impl Runtime {
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// The open session of this name, or a new one.
    pub async fn session(&self, name: &str) -> Result<Session, Refusal> {
        self.session_with(name, Limits::default()).await
    }

    /// The same, with limits for a session that is new.
    pub async fn session_with(&self, name: &str, limits: Limits) -> Result<Session, Refusal> {
        let view = self.open_session(name, limits).await?;
        Ok(self.attach(view, Caller::Client(self.inner.client.as_ref().into())))
    }

    /// The open session of this name, or a new one, as another client than this program.
    pub async fn session_as(
        &self,
        name: &str,
        client: impl Into<ClientCaller>,
    ) -> Result<Session, Refusal> {
        let view = self.open_session(name, Limits::default()).await?;
        Ok(self.attach(view, Caller::Client(client.into())))
    }

    async fn open_session(&self, name: &str, limits: Limits) -> Result<Arc<SessionView>, Refusal> {
        let name: SessionName = name.parse()?;
        let (reply, answer) = oneshot::channel();
        let input = LoopInput::Open { name, limits, reply };
        self.inner.inputs.send(input).await.map_err(|_| shutdown_refusal())?;
        answer.await.map_err(|_| in_doubt_refusal())?
    }

    /// The open session of this name, else the newest closed one.
    pub async fn find_session(&self, name: &str) -> Result<Option<SessionRow>, Refusal> {
        let name: SessionName = name.parse()?;
        self.inner.store.session_named(&name).await.map_err(|e| store_refusal(&e))
    }

    /// A session as the task sees it that is at work in this attempt.
    pub async fn task_session(&self, task: TaskId, attempt: Attempt) -> Result<Session, Refusal> {
        let session = self.operator_session(task.session).await?;
        Ok(Session { caller: Caller::Task { no: task.no, attempt }, ..session })
    }

    /// Tells from where a connected process comes: from below the process of a task, or not.
    pub fn origin_of(&self, peer: &PeerProcess) -> PeerOrigin {
        match &self.inner.processes {
            Some(processes) => processes.origin_of(peer),
            None => PeerOrigin::Outside,
        }
    }

    /// Whether a variable of this process is a secret that tasks may not have passed on to others.
    pub fn withholds(&self, variable: &str) -> bool {
        self.inner.processes.as_ref().is_some_and(|processes| processes.withholds(variable))
    }

    /// A session as the operator sees it: all of it, consuming nothing.
    pub async fn operator_session(&self, tree: SessionId) -> Result<Session, Refusal> {
        let row = self.inner.store.session(tree).await.map_err(|e| store_refusal(&e))?;
        let row = row.ok_or_else(|| Refusal::not_found("there is no such session"))?;
        Ok(self.attach(self.inner.view.open(&row), Caller::Operator))
    }

    /// A session as a client sees it, open or closed.
    pub async fn client_session(
        &self,
        tree: SessionId,
        client: impl Into<ClientCaller>,
    ) -> Result<Session, Refusal> {
        let session = self.operator_session(tree).await?;
        Ok(Session { caller: Caller::Client(client.into()), ..session })
    }

    fn attach(&self, view: Arc<SessionView>, caller: Caller) -> Session {
        Session { runtime: self.clone(), id: view.row().id, caller, view }
    }

    /// Puts one command through the loop: the door behind every other method.
    pub async fn submit(&self, tree: SessionId, command: Command) -> Result<CommandReply, Refusal> {
        submit(&self.inner.inputs, tree, command).await
    }

    /// The clock of this runtime, for whoever measures time beside it.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock.clone()
    }

    /// Every session that is kept, in the order in which they were opened.
    pub async fn sessions(&self) -> Result<Vec<SessionRow>, Refusal> {
        self.inner.store.sessions().await.map_err(|e| store_refusal(&e))
    }

    /// Every change in every session, from after a position.
    pub fn subscribe(&self, after: Position) -> FeedSubscription {
        self.inner.feed.subscribe(None, after)
    }

    /// The position of the newest event.
    pub fn position(&self) -> Position {
        self.inner.feed.last_position()
    }

    /// Removes what retention allows, and with each task what is kept of it elsewhere.
    pub async fn prune(&self, retention: &Retention) -> Result<PruneResult, Refusal> {
        let now = self.inner.clock.now();
        let store = &self.inner.store;
        let pruned = store.prune(retention, now).await.map_err(|e| store_refusal(&e))?;
        remove_unknown_tasks(&self.inner.performers, store).await?;
        Ok(pruned)
    }

    /// Leaves in good order: futures are dropped, jobs that resume are queued to go on next time,
    /// the others end as lost, and all of that is stored when this returns `Ok`. When the store
    /// cannot take it, the next start finds what a crash would have left.
    pub async fn shutdown(self) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        self.inner.shutdown_token.cancel();
        self.inner
            .inputs
            .send(LoopInput::Shutdown { reply })
            .await
            .map_err(|_| shutdown_refusal())?;
        answer.await.map_err(|_| shutdown_refusal())?
    }

    pub(crate) fn next_wait_id(&self) -> u64 {
        self.inner.next_wait_id.fetch_add(1, Ordering::Relaxed)
    }
}
