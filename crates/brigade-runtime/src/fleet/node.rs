//! The shared state of a node.

#[cfg(feature = "processes")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_model::ids::Lane;
use brigade_model::refusal::Refusal;
use brigade_store::{
    Fleet, JoinResult, JoinedNode, NewNode, NodeId, NodeLoad, NodeRow, Store, StoreError,
};
use tokio::sync::{Notify, Semaphore};
#[cfg(feature = "processes")]
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::call_server::{ServedCalls, serve_calls};
use super::feed_reader::follow_events;
#[cfg(feature = "processes")]
use super::host_ends::{HostEnds, watch_host_ends};
use super::host_watch::{is_same_host, watch_hosts};
use super::lease_keeper::{close_expired_nodes, halt_at_end, keep_lease};
use super::node_lease::NodeLease;
use super::session_claimer::{claim_all, claim_sessions};
use super::unreadable_sessions::UnreadableSessions;
use super::{FleetClock, NodeOptions};
use crate::clock::Clock;
use crate::error::store_refusal;
use crate::feed::Feed;
use crate::loops::LoopSenders;
use crate::performer::PerformerRegistry;
#[cfg(feature = "processes")]
use crate::processes::ProcessService;
use crate::view::CommittedView;

/// The difference of clocks above which a node does not start.
const SKEW_MAX: Duration = Duration::from_secs(30);
/// The most requests of other nodes that are carried out at once.
const HOST_CALLS_MAX: usize = 8;
/// The time for which requests to other hosts use the nodes of one look.
#[cfg(feature = "processes")]
const NODES_KNOWN: Duration = Duration::from_millis(500);
/// The least time between two hints.
const HINT_PAUSE: Duration = Duration::from_millis(2);
/// The pause between two looks at a name that an earlier process still has.
const NAME_PAUSE: Duration = Duration::from_millis(500);

/// The machine that has a node's files.
#[derive(Clone, Debug)]
pub(crate) struct NodeHost {
    /// The machine and the state directory, or the name of a node without files.
    pub(crate) name: String,
    /// True if this process has the lock on the state directory, so that no other one uses it.
    pub(crate) is_locked: bool,
}

impl NodeHost {
    /// Returns true for the same state directory, also if its machine was renamed.
    pub(crate) fn is_same(&self, other: &str) -> bool {
        is_same_host(&self.name, other)
    }
}

/// A node: its lease, its load, and the signals between its loops and its background tasks.
#[derive(Debug)]
pub(crate) struct Node {
    store: Arc<dyn Store>,
    pub(crate) options: NodeOptions,
    pub(crate) host: NodeHost,
    pub(crate) lease: NodeLease,
    pub(crate) clock: FleetClock,
    /// The lanes of the loops, in their order.
    lanes: Mutex<Arc<[Lane]>>,
    /// The history of the store at the last join.
    history: AtomicU64,
    pub(crate) loops: Vec<NodeLoop>,
    /// Notified when this node has committed something that others may wait for.
    pub(crate) committed: Notify,
    /// Notified after a join that followed a lost lease.
    pub(crate) joined_again: Notify,
    /// Notified when there may be sessions to claim.
    pub(crate) claimable: Notify,
    /// True after a claim or a release without an answer: the node may own sessions without knowing.
    pub(crate) may_own_unheld: AtomicBool,
    #[cfg(feature = "processes")]
    pub(super) host_ends: HostEnds,
    /// True while a claim is on its way from the store to the loops.
    pub(crate) is_claiming: AtomicBool,
    pub(crate) is_draining: AtomicBool,
    /// True while views may show what the store has lost.
    pub(super) shows_lost_state: AtomicBool,
    /// The calls of other nodes that the loops have got.
    pub(crate) served_calls: ServedCalls,
    pub(crate) unreadable: UnreadableSessions,
    /// The places for requests about the processes of this host.
    pub(super) host_calls: Semaphore,
    /// The processes of this host.
    #[cfg(feature = "processes")]
    pub(crate) processes: OnceLock<Arc<ProcessService>>,
    /// The nodes at the last look of a request to one of them.
    #[cfg(feature = "processes")]
    recent_nodes: Mutex<Option<(Instant, Arc<[NodeRow]>)>>,
    /// Cancelled when the loops have ended.
    pub(crate) ended: CancellationToken,
}

/// The signals between one loop and the background tasks of its node.
#[derive(Debug, Default)]
pub(crate) struct NodeLoop {
    /// Notified when the node begins or ends to drain.
    pub(crate) drain_changed: Notify,
    pub(crate) held_sessions: AtomicU64,
    pub(crate) running_tasks: AtomicU64,
    /// The number of held sessions with processes of other hosts.
    pub(crate) hosted_elsewhere: AtomicU64,
}

impl Node {
    /// Joins the fleet of a store with a lane for each loop. Waits for the end of an earlier process with the same name.
    pub(crate) async fn join(
        store: Arc<dyn Store>,
        options: NodeOptions,
        host: NodeHost,
        clock: FleetClock,
        loops: usize,
    ) -> Result<Arc<Self>, Refusal> {
        options.check()?;
        let joining =
            JoiningNode { store: &*store, options: &options, host: &host, clock: &clock, loops };
        let deadline = clock.running_time() + 2 * options.lease;
        let (joined, sent_at) = loop {
            match joining.join().await.map_err(|error| store_refusal(&error))? {
                JoinAttempt::Joined(joined, sent_at) => break (joined, sent_at),
                JoinAttempt::NameTaken(node) if host.is_locked && node.host == host.name => {
                    // The lock on the state directory shows that its process has ended.
                    joining.fleet()?.close_node(node.id).await.map_err(|e| store_refusal(&e))?;
                }
                JoinAttempt::NameTaken(node) if clock.running_time() >= deadline => {
                    return Err(Refusal::conflict(format!(
                        "a node of the name {:?} is running on {}; choose another name",
                        node.name, node.host
                    )));
                }
                JoinAttempt::NameTaken(node) => {
                    tracing::info!(name = node.name, "waiting for the end of an earlier node");
                    tokio::time::sleep(NAME_PAUSE).await;
                    joining.fleet()?.close_expired().await.map_err(|e| store_refusal(&e))?;
                }
            }
        };
        let skew = Duration::from_millis(clock.skew_ms().unsigned_abs());
        if skew > SKEW_MAX {
            let _ = joining.fleet()?.close_node(joined.node).await;
            return Err(Refusal::unavailable(format!(
                "the clock of this machine differs from the database's by {} s; at most {} s are \
                 allowed",
                skew.as_secs(),
                SKEW_MAX.as_secs()
            )));
        }
        let lease_clock: Arc<dyn Clock> = Arc::new(clock.clone());
        let lease = NodeLease::new(lease_clock, options.lease, joined.node, sent_at);
        tracing::info!(node = %joined.node, name = options.name, "joined the fleet");
        Ok(Arc::new(Self {
            store,
            options,
            host,
            lease,
            clock,
            lanes: Mutex::new(joined.lanes.into()),
            history: AtomicU64::new(joined.history),
            loops: (0..loops).map(|_| NodeLoop::default()).collect(),
            committed: Notify::new(),
            joined_again: Notify::new(),
            claimable: Notify::new(),
            may_own_unheld: AtomicBool::new(false),
            #[cfg(feature = "processes")]
            host_ends: HostEnds::default(),
            is_claiming: AtomicBool::new(false),
            is_draining: AtomicBool::new(false),
            shows_lost_state: AtomicBool::new(false),
            host_calls: Semaphore::new(HOST_CALLS_MAX),
            #[cfg(feature = "processes")]
            processes: OnceLock::new(),
            #[cfg(feature = "processes")]
            recent_nodes: Mutex::new(None),
            served_calls: ServedCalls::default(),
            unreadable: UnreadableSessions::default(),
            ended: CancellationToken::new(),
        }))
    }

    /// Joins again after the lease was lost, with new lanes. The old ones are closed first.
    async fn rejoin(&self) -> Result<Rejoined, StoreError> {
        let before = self.lease.node();
        self.fleet().close_node(before).await?;
        let is_draining = self.is_draining_as(before).await?;
        let joining = JoiningNode {
            store: &*self.store,
            options: &self.options,
            host: &self.host,
            clock: &self.clock,
            loops: self.loops.len(),
        };
        match joining.join().await? {
            JoinAttempt::Joined(joined, sent_at) => {
                let lanes: Arc<[Lane]> = joined.lanes.into();
                if is_draining {
                    self.fleet().set_draining(joined.node, true).await?;
                }
                *self.lanes.lock().unwrap_or_else(PoisonError::into_inner) = lanes.clone();
                self.lease.begin(joined.node, sent_at);
                tracing::warn!(node = %joined.node, "joined the fleet again");
                let history = self.history.swap(joined.history, Ordering::Relaxed);
                Ok(Rejoined { lanes, may_have_lost_commits: history != joined.history })
            }
            JoinAttempt::NameTaken(node) => {
                if self.host.is_locked && node.host == self.host.name {
                    // It is of an earlier attempt of this process.
                    self.fleet().close_node(node.id).await?;
                }
                Err(StoreError::Unavailable(format!("another node has the name {:?}", node.name)))
            }
        }
    }

    /// Returns true if this closed node was draining. Its row has requests that no renewal has returned.
    async fn is_draining_as(&self, closed: NodeId) -> Result<bool, StoreError> {
        let nodes = self.fleet().nodes().await?;
        let row = nodes.iter().find(|row| row.id == closed);
        Ok(row.map_or_else(|| self.is_draining.load(Ordering::Relaxed), |row| row.draining))
    }

    /// Joins again, and tries for as long as it takes.
    pub(super) async fn rejoin_until_joined(&self, pause: Duration) -> Rejoined {
        loop {
            match self.rejoin().await {
                Ok(rejoined) => return rejoined,
                Err(error) => tracing::warn!(%error, "the node cannot join again yet"),
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Starts the background tasks of the node. They end with its loop.
    pub(crate) fn start_tasks(
        self: &Arc<Self>,
        inputs: &LoopSenders,
        feed: &Arc<Feed>,
        view: &Arc<CommittedView>,
        performers: &PerformerRegistry,
    ) {
        self.start(keep_lease(self.clone()));
        self.start(close_expired_nodes(self.clone()));
        self.start(watch_hosts(self.clone(), inputs.clone()));
        #[cfg(feature = "processes")]
        self.start(watch_host_ends(self.clone()));
        self.start(halt_at_end(self.clone(), performers.clone(), view.clone()));
        self.start(claim_sessions(self.clone(), inputs.clone()));
        self.start(serve_calls(self.clone(), inputs.clone()));
        self.start(follow_events(self.clone(), feed.clone(), view.clone()));
        self.start(send_hints(self.clone()));
    }

    /// Starts a task that ends with the node.
    pub(crate) fn start(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        #[expect(clippy::disallowed_methods, reason = "ends with the node")]
        tokio::spawn(async move { ended.run_until_cancelled(task).await });
    }

    /// Claims the sessions that need an owner, before the first request is answered.
    pub(crate) async fn claim_at_start(&self, inputs: &LoopSenders) {
        if let Err(error) = claim_all(self, inputs).await {
            tracing::warn!(%error, "sessions cannot be claimed yet");
            self.may_own_unheld.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn fleet(&self) -> &dyn Fleet {
        self.store.fleet().unwrap_or_else(|| unreachable!("a node joins only a fleet"))
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Returns the nodes of the fleet, as they were a moment ago.
    #[cfg(feature = "processes")]
    pub(super) async fn recent_nodes(&self) -> Result<Arc<[NodeRow]>, Refusal> {
        let recent = self.recent_nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((read_at, nodes)) = recent
            && read_at.elapsed() < NODES_KNOWN
        {
            return Ok(nodes);
        }
        let read_at = Instant::now();
        let nodes: Arc<[NodeRow]> =
            self.fleet().nodes().await.map_err(|error| store_refusal(&error))?.into();
        let mut recent = self.recent_nodes.lock().unwrap_or_else(PoisonError::into_inner);
        *recent = Some((read_at, nodes.clone()));
        Ok(nodes)
    }

    pub(crate) fn id(&self) -> NodeId {
        self.lease.node()
    }

    /// Returns the lanes of the loops, in their order.
    pub(crate) fn lanes(&self) -> Arc<[Lane]> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of sessions in memory.
    pub(crate) fn held_sessions(&self) -> u64 {
        self.loops.iter().map(|it| it.held_sessions.load(Ordering::Relaxed)).sum()
    }

    /// Returns true if a held session has processes of other hosts.
    pub(crate) fn has_hosted_elsewhere(&self) -> bool {
        self.loops.iter().any(|it| it.hosted_elsewhere.load(Ordering::Relaxed) > 0)
    }

    pub(crate) fn load(&self) -> NodeLoad {
        NodeLoad {
            sessions: self.held_sessions(),
            running: self.loops.iter().map(|it| it.running_tasks.load(Ordering::Relaxed)).sum(),
            skew_ms: self.clock.skew_ms(),
        }
    }

    /// Refuses if the node may not act.
    pub(crate) fn check_lease(&self) -> Result<(), Refusal> {
        match self.lease.is_held() {
            true => Ok(()),
            false => Err(unheld_refusal()),
        }
    }
}

/// Returns the refusal of a node without a lease.
pub(super) fn unheld_refusal() -> Refusal {
    Refusal::unavailable(
        "this node has lost its connection to the database; try again, or ask another node",
    )
}

/// Tells the other nodes about commits, at most once in a short time.
async fn send_hints(node: Arc<Node>) {
    loop {
        node.committed.notified().await;
        if let Err(error) = node.fleet().notify().await {
            tracing::debug!(%error, "other nodes find the changes by polling");
        }
        tokio::time::sleep(HINT_PAUSE).await;
    }
}

/// A node that has joined the fleet again.
pub(super) struct Rejoined {
    pub(super) lanes: Arc<[Lane]>,
    /// True if the store may have lost commits since the join before.
    pub(super) may_have_lost_commits: bool,
}

/// A node on its way into the fleet.
struct JoiningNode<'a> {
    store: &'a dyn Store,
    options: &'a NodeOptions,
    host: &'a NodeHost,
    clock: &'a FleetClock,
    loops: usize,
}

enum JoinAttempt {
    /// The node, and the running time at which the join was sent.
    Joined(JoinedNode, Duration),
    NameTaken(NodeRow),
}

impl JoiningNode<'_> {
    fn fleet(&self) -> Result<&dyn Fleet, Refusal> {
        self.store.fleet().ok_or_else(|| {
            Refusal::invalid("nodes cannot share this store; use a store on PostgreSQL")
        })
    }

    async fn join(&self) -> Result<JoinAttempt, StoreError> {
        let fleet = self.fleet().map_err(|refusal| StoreError::Unavailable(refusal.message))?;
        let name = self.options.name.clone().unwrap_or_default();
        let mut labels = self.options.labels.clone();
        labels.push(format!("node={name}"));
        labels.push(format!("host={}", self.host.name));
        let node = NewNode {
            name,
            host: self.host.name.clone(),
            labels,
            capacity: self.options.capacity,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            lease: self.options.lease,
            lanes: u32::try_from(self.loops).unwrap_or(1),
        };
        let before = self.clock.machine_now();
        let sent_at = self.clock.running_time();
        match fleet.join(&node).await? {
            JoinResult::Joined(joined) if joined.lanes.len() != self.loops => {
                Err(StoreError::Corrupt("a node has too few lanes".into()))
            }
            JoinResult::Joined(joined) => {
                self.clock.correct(joined.renewal.now, before);
                Ok(JoinAttempt::Joined(joined, sent_at))
            }
            JoinResult::NameTaken(node) => Ok(JoinAttempt::NameTaken(node)),
        }
    }
}
