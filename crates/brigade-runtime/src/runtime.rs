//! The runtime's handle: where sessions are opened and everything is seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brigade_model::command::{Caller, ClientCaller, Command};
use brigade_model::decide::Reply;
use brigade_model::ids::{Attempt, Position, TreeId};
use brigade_model::limits::Limits;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::tree::TreeRow;
use brigade_process::PeerProcess;
use brigade_store::{Pruned, Retention, Store};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::builder::{Builder, remove_unknown};
use crate::clock::Clock;
use crate::error::{gone, in_doubt, refusal};
use crate::feed::{Feed, Subscription};
use crate::input::Input;
use crate::jobs::Handlers;
use crate::performer::{Performers, TaskId, submit};
use crate::processes::{PeerOrigin, Processes};
use crate::session::Session;
use crate::view::{TreeView, View};

/// A running Brigade. Cheap to clone; when the last clone is dropped without
/// [`Runtime::shutdown`], everything that lives only in this process ends with it.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) inner: Arc<RuntimeInner>,
}

#[derive(Debug)]
pub(crate) struct RuntimeInner {
    pub(crate) inputs: mpsc::Sender<Input>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) view: Arc<View>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) handlers: Arc<Handlers>,
    pub(crate) performers: Performers,
    pub(crate) processes: Option<Arc<Processes>>,
    pub(crate) client: Arc<str>,
    pub(crate) next_wait: AtomicU64,
    /// Tells the loop that it is to leave while it waits for the store.
    pub(crate) leaving: CancellationToken,
    /// Ends the loop when the last handle goes.
    pub(crate) _abandon: DropGuard,
}

impl Runtime {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The open session of this name, or a new one.
    pub async fn session(&self, name: &str) -> Result<Session, Refusal> {
        self.session_with(name, Limits::default()).await
    }

    /// The same, with limits for a session that is new.
    pub async fn session_with(&self, name: &str, limits: Limits) -> Result<Session, Refusal> {
        let view = self.open(name, limits).await?;
        Ok(self.attach(view, Caller::Client(self.inner.client.as_ref().into())))
    }

    /// The open session of this name, or a new one, as another client than this program.
    pub async fn session_as(
        &self,
        name: &str,
        client: impl Into<ClientCaller>,
    ) -> Result<Session, Refusal> {
        let view = self.open(name, Limits::default()).await?;
        Ok(self.attach(view, Caller::Client(client.into())))
    }

    async fn open(&self, name: &str, limits: Limits) -> Result<Arc<TreeView>, Refusal> {
        let name: SessionName = name.parse()?;
        let (reply, answer) = oneshot::channel();
        let input = Input::Open { name, limits, reply };
        self.inner.inputs.send(input).await.map_err(|_| gone())?;
        answer.await.map_err(|_| in_doubt())?
    }

    /// The open session of this name, else the newest closed one.
    pub async fn find_session(&self, name: &str) -> Result<Option<TreeRow>, Refusal> {
        let name: SessionName = name.parse()?;
        self.inner.store.tree_named(&name).await.map_err(|e| refusal(&e))
    }

    /// A session as the task sees it that is at work in this attempt.
    pub async fn act_as(&self, task: TaskId, attempt: Attempt) -> Result<Session, Refusal> {
        let session = self.operate(task.tree).await?;
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
    pub async fn operate(&self, tree: TreeId) -> Result<Session, Refusal> {
        let row = self.inner.store.tree(tree).await.map_err(|e| refusal(&e))?;
        let row = row.ok_or_else(|| Refusal::not_found("there is no such session"))?;
        Ok(self.attach(self.inner.view.open(&row), Caller::Operator))
    }

    /// A session as a client sees it, open or closed.
    pub async fn visit(
        &self,
        tree: TreeId,
        client: impl Into<ClientCaller>,
    ) -> Result<Session, Refusal> {
        let session = self.operate(tree).await?;
        Ok(Session { caller: Caller::Client(client.into()), ..session })
    }

    fn attach(&self, view: Arc<TreeView>, caller: Caller) -> Session {
        Session { runtime: self.clone(), tree: view.row().id, caller, view }
    }

    /// Puts one command through the loop: the door behind every other method.
    pub async fn submit(&self, tree: TreeId, command: Command) -> Result<Reply, Refusal> {
        submit(&self.inner.inputs, tree, command).await
    }

    /// The clock of this runtime, for whoever measures time beside it.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock.clone()
    }

    /// Every session that is kept, in the order in which they were opened.
    pub async fn sessions(&self) -> Result<Vec<TreeRow>, Refusal> {
        self.inner.store.trees().await.map_err(|e| refusal(&e))
    }

    /// Every change in every session, from after a position.
    pub fn subscribe(&self, after: Position) -> Subscription {
        self.inner.feed.subscribe(None, after)
    }

    /// The position of the newest event.
    pub fn position(&self) -> Position {
        self.inner.feed.last()
    }

    /// Removes what retention allows, and with each task what is kept of it elsewhere.
    pub async fn prune(&self, retention: &Retention) -> Result<Pruned, Refusal> {
        let now = self.inner.clock.now();
        let store = &self.inner.store;
        let pruned = store.prune(retention, now).await.map_err(|e| refusal(&e))?;
        remove_unknown(&self.inner.performers, store).await?;
        Ok(pruned)
    }

    /// Leaves in good order: futures are dropped, jobs that resume are queued to go on next time,
    /// the others end as lost, and all of that is stored when this returns `Ok`. When the store
    /// cannot take it, the next start finds what a crash would have left.
    pub async fn shutdown(self) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        self.inner.leaving.cancel();
        self.inner.inputs.send(Input::Shutdown { reply }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }

    pub(crate) fn next_wait(&self) -> u64 {
        self.inner.next_wait.fetch_add(1, Ordering::Relaxed)
    }
}
