//! The runtime's handle, through which programs open sessions and submit commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brigade_model::command::{Caller, ClientCaller, Command};
use brigade_model::decide::CommandReply;
use brigade_model::event_author::CallerOrigin;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Attempt, SessionId};
use brigade_model::limits::Limits;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_model::task_tree::SessionRow;
#[cfg(feature = "processes")]
use brigade_process::PeerProcess;
use brigade_store::{PruneResult, Retention, Store};
use futures_util::future::join_all;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::builder::{RuntimeBuilder, remove_unknown_tasks};
use crate::clock::Clock;
use crate::error::{in_doubt_refusal, shutdown_refusal, store_refusal};
use crate::feed::{Feed, FeedSubscription};
use crate::fleet::{Node, refresh_view};
use crate::jobs::HandlerRegistry;
use crate::loop_input::LoopInput;
use crate::loops::LoopSenders;
use crate::performer::{PerformerRegistry, TaskId};
#[cfg(feature = "processes")]
use crate::processes::{PeerOrigin, ProcessService};
use crate::records::RuntimeRecords;
use crate::session::Session;
use crate::view::{CommittedView, SessionView};

/// A running Brigade. Cheap to clone.
///
/// Dropping the last clone without [`Runtime::shutdown`] ends everything that exists only in this
/// process.
///
/// ```
/// use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().start().await?;
/// let session = runtime.session("kitchen").await?;
/// let tea = NewTask::closure("tea", |_: JobContext| async { Ok::<_, JobError>("Assam".to_owned()) });
/// assert_eq!(session.spawn(tea).await?.result().await?, "Assam");
/// assert_eq!(runtime.sessions().await?.len(), 1);
/// runtime.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Runtime {
    pub(crate) inner: Arc<RuntimeInner>,
}

#[derive(Debug)]
pub(crate) struct RuntimeInner {
    pub(crate) inputs: LoopSenders,
    /// The node that this runtime is, if it shares its store.
    pub(crate) node: Option<Arc<Node>>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) view: Arc<CommittedView>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) handlers: Arc<HandlerRegistry>,
    pub(crate) performers: PerformerRegistry,
    #[cfg(feature = "processes")]
    pub(crate) processes: Option<Arc<ProcessService>>,
    pub(crate) client: Arc<str>,
    /// The limits of sessions that are opened without their own.
    pub(crate) session_limits: Limits,
    pub(crate) next_wait_id: AtomicU64,
    /// The request to shut down, which the loops see also while they wait for the store.
    pub(crate) shutdown_token: CancellationToken,
    /// Cancelled when the last handle is dropped.
    pub(crate) abandoned: CancellationToken,
    /// Held during a prune, so that a shutdown can wait until no prune uses the store.
    pub(crate) prune_lock: Arc<Mutex<()>>,
    /// The guard that ends the loops when the last handle is dropped.
    pub(crate) _abandon: DropGuard,
}

impl Runtime {
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Returns the open session of this name, else the newest closed one.
    pub async fn find_session(&self, name: &str) -> Result<Option<SessionRow>, Refusal> {
        let name: SessionName = name.parse()?;
        self.inner.store.session_named(&name).await.map_err(|e| store_refusal(&e))
    }

    /// Returns a session as seen by the task that runs this attempt. A task that is a part of its
    /// parent acts as the parent: what it starts is the parent's, and outlives it.
    pub async fn task_session(&self, task: TaskId, attempt: Attempt) -> Result<Session, Refusal> {
        let session = self.operator_session(task.session).await?;
        let caller = Caller::Task { no: task.no, attempt };
        let part = session.view.get(task.no).filter(|row| row.spec.part_of_parent);
        // An older attempt of the part has no owner to act as.
        let part = part.filter(|row| row.attempt == attempt);
        let parent = part.and_then(|row| row.owner.task());
        let parent = parent.and_then(|no| Some((no, session.view.get(no)?.attempt)));
        Ok(match parent {
            Some((no, attempt)) => Session {
                caller: Caller::Task { no, attempt },
                acts_through: Some(task.no),
                ..session
            },
            None => Session { caller, ..session },
        })
    }

    /// Returns true if the task is a part of its parent, and acts as the parent.
    #[cfg(feature = "agents")]
    pub fn is_part(&self, task: TaskId) -> bool {
        let row = self.inner.view.get(task.session).and_then(|session| session.get(task.no));
        row.is_some_and(|row| row.spec.part_of_parent)
    }

    /// Returns the origin of a connected process: a descendant of a task's process, or outside.
    #[cfg(feature = "processes")]
    pub fn origin_of(&self, peer: &PeerProcess) -> PeerOrigin {
        match &self.inner.processes {
            Some(processes) => processes.origin_of(peer),
            None => PeerOrigin::Outside,
        }
    }

    /// Returns true if a variable of this process is a secret that tasks may not pass on.
    #[cfg(feature = "processes")]
    pub fn withholds(&self, variable: &str) -> bool {
        self.inner.processes.as_ref().is_some_and(|processes| processes.withholds(variable))
    }

    /// Returns a session as the operator sees it: every task, and reads consume nothing.
    pub async fn operator_session(&self, id: SessionId) -> Result<Session, Refusal> {
        let row = self.inner.store.session(id).await.map_err(|e| store_refusal(&e))?;
        let row = row.ok_or_else(|| Refusal::not_found("there is no such session"))?;
        let view = self.inner.view.open(&row);
        if self.inner.node.is_some() {
            refresh_view(&self.inner.view, &*self.inner.store, id).await;
        }
        Ok(self.attach(view, Caller::Operator))
    }

    /// Returns an open or closed session as a client sees it.
    pub async fn client_session(
        &self,
        id: SessionId,
        client: impl Into<ClientCaller>,
    ) -> Result<Session, Refusal> {
        let session = self.operator_session(id).await?;
        Ok(Session { caller: Caller::Client(client.into()), ..session })
    }

    pub(crate) fn attach(&self, view: Arc<SessionView>, caller: Caller) -> Session {
        Session {
            runtime: self.clone(),
            id: view.row().id,
            caller,
            acts_through: None,
            origin: None,
            view,
            cancellation: None,
        }
    }

    /// Submits one command to the session's loop. Every other method uses this path.
    pub async fn submit(
        &self,
        session: SessionId,
        command: Command,
    ) -> Result<CommandReply, Refusal> {
        self.check_lease()?;
        submit(self.inner.inputs.of(session), session, command).await
    }

    /// Refuses requests while this runtime is a node that may not act.
    pub(crate) fn check_lease(&self) -> Result<(), Refusal> {
        self.inner.node.as_ref().map_or(Ok(()), |node| node.check_lease())
    }

    /// Returns the clock of this runtime.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock.clone()
    }

    /// Returns every stored session, in the order in which they were opened.
    pub async fn sessions(&self) -> Result<Vec<SessionRow>, Refusal> {
        self.inner.store.sessions().await.map_err(|e| store_refusal(&e))
    }

    /// Subscribes to every change in every session, starting after a place.
    pub fn subscribe(&self, after: FeedCursor) -> FeedSubscription {
        self.inner.feed.subscribe(None, after)
    }

    /// Returns the place behind the newest event.
    pub fn cursor(&self) -> FeedCursor {
        self.inner.feed.cursor()
    }

    /// Removes what retention allows, the data that performers hold of each removed task, and
    /// expired records.
    pub async fn prune(&self, retention: &Retention) -> Result<PruneResult, Refusal> {
        let now = self.inner.clock.now();
        let store = &self.inner.store;
        let pruned = store.prune(retention, now).await.map_err(|e| store_refusal(&e))?;
        remove_unknown_tasks(&self.inner.performers, store).await?;
        let records = self.records().remove_expired().await?;
        tracing::debug!(records, "removed expired records");
        Ok(pruned)
    }

    /// Returns the records of the store.
    pub fn records(&self) -> RuntimeRecords<'_> {
        RuntimeRecords::new(&*self.inner.store, &*self.inner.clock)
    }

    /// Shuts down in good order and returns `Ok` when that is stored.
    ///
    /// Futures are dropped. Jobs that resume are queued for the next start, the others end as lost.
    /// If the store cannot take this, the next start recovers as after a crash.
    pub async fn shutdown(self) -> Result<(), Refusal> {
        let mut received = Vec::new();
        self.inner.shutdown_token.cancel();
        let input = || {
            let (reply, stored) = oneshot::channel();
            received.push(stored);
            LoopInput::Shutdown { reply }
        };
        let _ = self.inner.inputs.send_all(input).await;
        // A loop that has ended has dropped its reply.
        let mut stored = join_all(received).await.into_iter();
        let stored = stored.try_for_each(|it| it.map_err(|_| shutdown_refusal()).flatten());
        drop(self.inner.prune_lock.lock().await);
        stored
    }

    pub(crate) fn next_wait_id(&self) -> u64 {
        self.inner.next_wait_id.fetch_add(1, Ordering::Relaxed)
    }
}

/// Sends one command to the loop and waits for its reply.
pub(crate) async fn submit(
    inputs: &mpsc::Sender<LoopInput>,
    session: SessionId,
    command: Command,
) -> Result<CommandReply, Refusal> {
    submit_from(inputs, session, command, None).await
}

/// Sends one command of a caller with an origin.
pub(crate) async fn submit_from(
    inputs: &mpsc::Sender<LoopInput>,
    session: SessionId,
    command: Command,
    origin: Option<CallerOrigin>,
) -> Result<CommandReply, Refusal> {
    let (reply, received) = oneshot::channel();
    inputs
        .send(LoopInput::Submit { session, command, origin, reply })
        .await
        .map_err(|_| shutdown_refusal())?;
    received.await.map_err(|_| in_doubt_refusal())?
}
