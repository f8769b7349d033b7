//! The builder of a runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use brigade_model::ids::{Lane, SessionId, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_model::work::{KindPolicy, RecoveryPolicy, TaskKind, parse_custom_kind};
use brigade_store::{MemoryStore, Retention, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "agents")]
use crate::agents::{AgentOptions, AgentPerformer, AgentServices, DeferredRuntime};
use crate::clock::{Clock, SystemClock};
use crate::drain::DrainState;
use crate::error::store_refusal;
use crate::feed::Feed;
#[cfg(feature = "agents")]
use crate::fleet::NodeLimits;
#[cfg(feature = "processes")]
use crate::fleet::claim_hosted_processes;
use crate::fleet::{CallClient, FleetClock, Node, NodeHost, NodeOptions, OwnedSessions};
use crate::ids::new_node_name;
use crate::jobs::{HandlerRegistry, Job, JobHandler, JobPerformer, JobRules};
use crate::loops::{LOOPS_MAX, LoopGroup, LoopSenders, LoopShare};
use crate::performer::{Performer, PerformerRegistry, TaskId};
#[cfg(feature = "processes")]
use crate::processes::{ProcessOptions, ProcessPerformer, ProcessService};
use crate::retention::{PRUNE_INTERVAL, PruneSchedule};
use crate::running_slots::{RunningSlots, SlotPool};
use crate::runtime::{Runtime, RuntimeInner};
use crate::runtime_metrics::RuntimeMetrics;
use crate::supervisor::{DEFAULT_MAX_BATCH, STORE_TRIES_MAX, Supervisor};
use crate::view::CommittedView;

/// The capacity of a loop's input queue. Callers wait while it is full.
const INPUT_QUEUE_CAPACITY: usize = 16 * 1024;

/// The builder of a runtime with a store, job handlers, processes, agents and custom performers.
///
/// ```
/// use brigade_runtime::{Job, JobContext, JobError, Runtime};
/// use brigade_store::MemoryStore;
///
/// const DOUBLE: Job<u32, u32> = Job::new("double");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder()
///     .store(MemoryStore::new())
///     .job(DOUBLE, |_: JobContext, n| async move { Ok::<_, JobError>(2 * n) })
///     .max_running(8)
///     .start()
///     .await?;
/// # runtime.shutdown().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RuntimeBuilder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    handlers: HandlerRegistry,
    performers: PerformerRegistry,
    #[cfg(feature = "processes")]
    processes: Option<ProcessOptions>,
    #[cfg(feature = "agents")]
    agents: Option<AgentOptions>,
    client: Arc<str>,
    max_batch: usize,
    max_running: Option<u32>,
    session_limits: Limits,
    prunes: Option<PruneSchedule>,
    node: Option<NodeOptions>,
    loops: Option<usize>,
    first_error: Option<Refusal>,
}

impl Default for RuntimeBuilder {
    fn default() -> Self {
        Self {
            store: Arc::new(MemoryStore::new()),
            clock: Arc::new(SystemClock),
            handlers: HandlerRegistry::default(),
            performers: PerformerRegistry::default(),
            #[cfg(feature = "processes")]
            processes: None,
            #[cfg(feature = "agents")]
            agents: None,
            client: "program".into(),
            max_batch: DEFAULT_MAX_BATCH,
            max_running: None,
            session_limits: Limits::default(),
            prunes: None,
            node: None,
            loops: None,
            first_error: None,
        }
    }
}

impl RuntimeBuilder {
    /// Sets the store. Without one, state is held in memory.
    #[must_use]
    pub fn store(self, store: impl Store) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// Sets a store that others hold too.
    #[must_use]
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = store;
        self
    }

    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the client name under which this runtime's sessions start top-level tasks.
    #[must_use]
    pub fn client(mut self, name: &str) -> Self {
        self.client = name.into();
        self
    }

    /// Registers the handler of a job.
    #[must_use]
    pub fn job<A, R>(self, job: Job<A, R>, handler: impl JobHandler<A, R>) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
    {
        self.register_job(job.name(), job.rules(), handler)
    }

    /// Registers the handler of a job whose name is known only at run time.
    #[must_use]
    pub fn job_named<A, R>(
        self,
        name: &str,
        recovery: RecoveryPolicy,
        handler: impl JobHandler<A, R>,
    ) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
    {
        self.register_job(name, JobRules { recovery, retry: None }, handler)
    }

    fn register_job<A, R>(
        mut self,
        name: &str,
        rules: JobRules,
        handler: impl JobHandler<A, R>,
    ) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
    {
        if let Some(Err(refusal)) = rules.retry.map(|policy| policy.check()) {
            self.first_error = Some(refusal);
        }
        self.handlers.register(name, rules, handler);
        self
    }

    /// Enables processes.
    #[cfg(feature = "processes")]
    #[must_use]
    pub fn processes(mut self, options: ProcessOptions) -> Self {
        self.processes = Some(options);
        self
    }

    /// Enables agents.
    #[cfg(feature = "agents")]
    #[must_use]
    pub fn agents(mut self, options: AgentOptions) -> Self {
        self.agents = Some(options);
        self
    }

    /// Registers the performer of a custom kind of work, with the rules of that kind. The presets
    /// are [`KindPolicy::restarted`], [`KindPolicy::adopted`] and
    /// [`KindPolicy::lost_with_runtime`].
    ///
    /// ```
    /// use brigade_model::action::StartAction;
    /// use brigade_model::work::KindPolicy;
    /// use brigade_runtime::{NewTask, Performer, Reporter, Runtime, StopMode, TaskId};
    ///
    /// struct Doubler;
    ///
    /// impl Performer for Doubler {
    ///     fn start(&self, start: StartAction, reporter: Reporter) {
    ///         tokio::spawn(async move {
    ///             match start.payload::<u32>() {
    ///                 Ok(number) => reporter.succeed(&(2 * number)).await,
    ///                 Err(refusal) => reporter.fail(refusal).await,
    ///             }
    ///         });
    ///     }
    ///
    ///     fn stop(&self, _task: TaskId, _mode: StopMode) {}
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), brigade_model::refusal::Refusal> {
    /// let builder = Runtime::builder().performer("double", KindPolicy::restarted(), Doubler);
    /// let runtime = builder.start().await?;
    /// let session = runtime.session("demo").await?;
    /// let result = session.spawn(NewTask::custom("double", 21)).await?.wait().await?;
    /// assert_eq!(result.outcome.to_string(), "succeeded");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn performer(mut self, kind: &str, policy: KindPolicy, performer: impl Performer) -> Self {
        match parse_custom_kind(kind) {
            Ok(kind) => self.performers.register_custom(kind, policy, Arc::new(performer)),
            Err(refusal) => self.first_error = Some(refusal),
        }
        self
    }

    /// Sets the number of commands at which a commit takes no more inputs. One lets a test crash
    /// between any two.
    #[must_use]
    pub fn max_batch(mut self, most: usize) -> Self {
        self.max_batch = most.max(1);
        self
    }

    /// Recovers the stored sessions, and only then accepts requests.
    pub async fn start(mut self) -> Result<Runtime, Refusal> {
        if let Some(refusal) = self.first_error {
            return Err(refusal);
        }
        let fleet_clock = FleetClock::new(self.clock.clone());
        if self.store.fleet().is_some() {
            self.clock = Arc::new(fleet_clock.clone());
        }
        #[cfg(feature = "processes")]
        let processes = self.register_processes()?;
        #[cfg(feature = "agents")]
        let deferred = self.register_agents(processes.as_ref());
        let handlers = Arc::new(self.handlers);
        let performer = JobPerformer::new(handlers.clone(), self.store.clone());
        self.performers.register(TaskKind::Job, Arc::new(performer));
        self.performers.set_clock(&self.clock);
        let count = self.loops.unwrap_or_else(|| self.store.parallel_lanes());
        let count = count.clamp(1, LOOPS_MAX);
        let channels = (0..count).map(|_| mpsc::channel(INPUT_QUEUE_CAPACITY));
        let (senders, receivers): (Vec<_>, Vec<_>) = channels.unzip();
        let senders = LoopSenders::new(senders);
        let abandoned = CancellationToken::new();
        let shutdown_token = CancellationToken::new();
        let view = Arc::new(CommittedView::default());
        #[cfg(feature = "processes")]
        let host = processes.as_ref().map(|processes| processes.host.to_string());
        #[cfg(not(feature = "processes"))]
        let host = None;
        let node = join_fleet(&self.store, self.node.take(), host, fleet_clock, count).await?;
        #[cfg(feature = "agents")]
        if let (Some(node), Some(agents)) = (&node, &handlers.agents) {
            agents.share_limits(Arc::new(NodeLimits(Arc::downgrade(node))));
        }
        let lanes = match &node {
            Some(node) => node.lanes(),
            None => open_lanes(&*self.store, count).await?,
        };
        let cursor = self.store.cursor().await.map_err(|e| store_refusal(&e))?;
        let feed = Feed::new(self.store.clone(), cursor, &lanes);
        let slots = SlotPool::paused(self.max_running, count);
        let calls = node.as_ref().map(|node| CallClient::start(node.clone(), view.clone()));
        let loops = LoopGroup::members(count).into_iter().zip(receivers).enumerate();
        let supervisor = |(index, (member, inputs))| Supervisor {
            share: LoopShare { index, count },
            member,
            store: self.store.clone(),
            lane: lanes[index],
            clock: self.clock.clone(),
            performers: self.performers.clone(),
            #[cfg(feature = "processes")]
            processes: processes.clone(),
            view: view.clone(),
            meters: RuntimeMetrics::new(),
            feed: feed.clone(),
            inputs,
            sender: senders.at(index).clone(),
            abandoned: abandoned.clone(),
            shutdown_token: shutdown_token.clone(),
            remaining_tries: Some(STORE_TRIES_MAX),
            max_batch: self.max_batch,
            trees: Default::default(),
            views: Default::default(),
            waiters: Default::default(),
            timers: Default::default(),
            sweeping_sessions: Vec::new(),
            discarded_trees: Default::default(),
            lost_sessions: Default::default(),
            retry_reports: Vec::new(),
            last_commit_failed: false,
            refused_turns: 0,
            slots: RunningSlots::new(slots.clone(), index),
            drain: DrainState::default(),
            shutdown_reply: None,
            owned: node
                .as_ref()
                .zip(calls.as_ref())
                .map(|(node, calls)| OwnedSessions::new(node.clone(), calls.clone(), index)),
        };
        let supervisors = recover_all(loops.map(supervisor).collect(), &slots).await?;
        remove_unknown_tasks(&self.performers, &self.store).await?;
        for supervisor in supervisors {
            #[expect(clippy::disallowed_methods, reason = "ends when the last handle is dropped")]
            tokio::spawn(supervisor.run());
        }
        if let Some(node) = &node {
            node.start_tasks(&senders, &feed, &view, &self.performers);
            #[cfg(feature = "processes")]
            if let Some(processes) = &processes {
                let _ = node.processes.set(processes.clone());
                let (node_handle, inputs) = (node.clone(), senders.clone());
                node.start(claim_hosted_processes(node_handle, inputs, processes.clone()));
            }
        }
        let runtime = Runtime {
            inner: Arc::new(RuntimeInner {
                inputs: senders,
                node,
                store: self.store,
                view,
                feed,
                clock: self.clock,
                handlers,
                performers: self.performers,
                #[cfg(feature = "processes")]
                processes,
                client: self.client,
                next_wait_id: AtomicU64::new(1),
                shutdown_token,
                abandoned: abandoned.clone(),
                prune_lock: Arc::default(),
                session_limits: self.session_limits,
                _abandon: abandoned.drop_guard(),
            }),
        };
        // Agents that were started during recovery wait for this.
        #[cfg(feature = "agents")]
        let _ = deferred.set(Arc::downgrade(&runtime.inner));
        if let Some(node) = &runtime.inner.node {
            node.claim_at_start(&runtime.inner.inputs).await;
        }
        if let Some(schedule) = self.prunes {
            schedule.start(&runtime);
        }
        Ok(runtime)
    }

    /// Registers the performer of processes, if they are enabled.
    #[cfg(feature = "processes")]
    fn register_processes(&mut self) -> Result<Option<Arc<ProcessService>>, Refusal> {
        let Some(options) = self.processes.take() else { return Ok(None) };
        let service = ProcessService::open(options, self.clock.clone());
        let service = Arc::new(service.map_err(|error| processes_unavailable(&error))?);
        self.performers.register(TaskKind::Process, Arc::new(ProcessPerformer(service.clone())));
        Ok(Some(service))
    }

    /// Registers the performer of agents, if they are enabled. Returns the cell in which they find
    /// the runtime after its start.
    #[cfg(feature = "agents")]
    fn register_agents(&mut self, processes: Option<&Arc<ProcessService>>) -> DeferredRuntime {
        let deferred = DeferredRuntime::default();
        let Some(options) = self.agents.take() else { return deferred };
        let agents = AgentServices::new(options, deferred.clone(), self.clock.clone(), processes);
        let agents = Arc::new(agents);
        let performer = AgentPerformer::new(agents.clone(), self.store.clone());
        self.performers.register(TaskKind::Agent, Arc::new(performer));
        self.handlers.agents = Some(agents);
        deferred
    }
}

/// Settings that apply to all sessions of the runtime.
impl RuntimeBuilder {
    /// Sets the limits of every session that is opened without its own. A session that is open
    /// already keeps its limits.
    ///
    /// ```
    /// use brigade_model::limits::Limits;
    /// use brigade_runtime::Runtime;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), brigade_model::refusal::Refusal> {
    /// let limits = Limits { running: Some(4), ..Limits::default() };
    /// let runtime = Runtime::builder().session_limits(limits).max_running(16).start().await?;
    /// let session = runtime.session("kitchen").await?;
    /// assert_eq!(session.row().limits.running, Some(4));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn session_limits(mut self, limits: Limits) -> Self {
        self.session_limits = limits;
        self
    }

    /// Lets at most this many tasks run at once, in all sessions together. Further tasks queue.
    ///
    /// Sessions with queued tasks take turns, so that none starves. As under the running limit of
    /// a session, a suspended task holds no slot, so a parent that awaits its child does not block
    /// it. Tasks that run already are not stopped: processes adopted at the start count, even if
    /// they are more. A limit of 0 starts nothing.
    #[must_use]
    pub fn max_running(mut self, max: u32) -> Self {
        self.max_running = Some(max);
        self
    }

    /// Sets the number of loops, from 1 to 16. Each has a part of the sessions, and commits them in turn
    /// with the other loops.
    ///
    /// More loops help where a commit takes long and different sessions are busy at once. A store that has
    /// one writer refuses more than one. By default, the store says how many lanes it writes well at
    /// once: 1 in memory and on SQLite, 2 on PostgreSQL.
    #[must_use]
    pub fn loops(mut self, loops: usize) -> Self {
        if !(1..=LOOPS_MAX).contains(&loops) {
            self.first_error = Some(Refusal::invalid(format!(
                "a runtime has 1 to {LOOPS_MAX} loops, not {loops}"
            )));
        }
        self.loops = Some(loops);
        self
    }

    /// Sets the name, the labels and the lease of this runtime as a node of a fleet.
    ///
    /// A store that several nodes can share makes every runtime on it a node: its sessions move to other
    /// nodes when it ends, and it answers requests for theirs. Without this, its name follows from the
    /// machine and the state directory of its processes.
    /// Other stores refuse it.
    #[must_use]
    pub fn node(mut self, options: NodeOptions) -> Self {
        self.node = Some(options);
        self
    }

    /// Removes ended tasks, closed sessions and events that are older than this: at the start, and
    /// then once an hour or at the interval of [`RuntimeBuilder::retention_every`].
    ///
    /// A prune that fails is logged and repeated soon. Without this, only [`Runtime::prune`]
    /// removes any of them.
    #[must_use]
    pub fn retention(mut self, retention: Retention) -> Self {
        self.prunes = Some(PruneSchedule { retention, interval: PRUNE_INTERVAL });
        self
    }

    /// Sets the retention and the time between two prunes, at least one second.
    #[must_use]
    pub fn retention_every(mut self, retention: Retention, interval: Duration) -> Self {
        let interval = interval.max(Duration::from_secs(1));
        self.prunes = Some(PruneSchedule { retention, interval });
        self
    }
}

/// Recovers the sessions of all loops. Nothing starts until all of it is stored.
async fn recover_all(
    mut supervisors: Vec<Supervisor>,
    slots: &SlotPool,
) -> Result<Vec<Supervisor>, Refusal> {
    let mut recovered = Vec::with_capacity(supervisors.len());
    for supervisor in &mut supervisors {
        recovered.push(supervisor.recover().await?);
    }
    slots.unpause();
    for (supervisor, recovered) in supervisors.iter_mut().zip(recovered) {
        supervisor.begin(recovered).await?;
    }
    Ok(supervisors)
}

/// Opens a lane for each loop of a runtime that is no node.
async fn open_lanes(store: &dyn Store, count: usize) -> Result<Arc<[Lane]>, Refusal> {
    let mut lanes = Vec::with_capacity(count);
    for _ in 0..count {
        let lane = store.open_lane().await.map_err(|e| store_refusal(&e))?;
        if lanes.contains(&lane) {
            return Err(Refusal::invalid(
                "this store has one writer; use one loop, or a store on PostgreSQL",
            ));
        }
        lanes.push(lane);
    }
    Ok(lanes.into())
}

/// Returns the name of a node from its host: the machine, and the beginning of the id of its directory.
fn node_name_of(host: &str) -> String {
    let (machine, id) = host.rsplit_once('/').unwrap_or(("node", host));
    let id: String = id.chars().rev().take(6).collect();
    format!("{machine}-{id}")
}

/// Joins the fleet of a store that has one. `host` is that of a locked state directory.
async fn join_fleet(
    store: &Arc<dyn Store>,
    options: Option<NodeOptions>,
    host: Option<String>,
    clock: FleetClock,
    loops: usize,
) -> Result<Option<Arc<Node>>, Refusal> {
    if store.fleet().is_none() {
        return match options {
            Some(_) => Err(Refusal::invalid("nodes cannot share this store; use PostgreSQL")),
            None => Ok(None),
        };
    }
    let mut options = options.unwrap_or_default();
    let name = options.name.get_or_insert_with(|| match &host {
        Some(host) => node_name_of(host),
        None => new_node_name(),
    });
    let host = match host {
        Some(name) => NodeHost { name, is_locked: true },
        None => NodeHost { name: name.clone(), is_locked: false },
    };
    Node::join(store.clone(), options, host, clock, loops).await.map(Some)
}

#[cfg(feature = "processes")]
fn processes_unavailable(error: &std::io::Error) -> Refusal {
    Refusal::unavailable(format!("processes cannot be run here: {error}"))
}

/// Removes the data of tasks that the store does not have, since nobody could request or stop them.
pub(crate) async fn remove_unknown_tasks(
    performers: &PerformerRegistry,
    store: &Arc<dyn Store>,
) -> Result<(), Refusal> {
    for performer in performers.all() {
        let mut stored: BTreeMap<SessionId, Vec<TaskNo>> = BTreeMap::new();
        for task in performer.tasks_with_data().await {
            stored.entry(task.session).or_default().push(task.no);
        }
        for (session, numbers) in stored {
            let unknown =
                store.missing_tasks(session, &numbers).await.map_err(|e| store_refusal(&e))?;
            performer
                .remove_all(unknown.into_iter().map(|no| TaskId { session, no }).collect())
                .await;
        }
    }
    Ok(())
}
