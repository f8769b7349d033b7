//! How a runtime is put together.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use brigade_model::ids::{TaskNo, TreeId};
use brigade_model::refusal::Refusal;
use brigade_model::work::{Kind, Recovery, custom_kind};
use brigade_store::{MemoryStore, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::agents::{AgentEngine, AgentOptions, Agents, LateRuntime};
use crate::clock::{Clock, SystemClock};
use crate::error::refusal;
use crate::feed::Feed;
use crate::jobs::{Handlers, JobContext, JobEngine, JobError};
use crate::meters::Meters;
use crate::performer::{Performer, Performers, TaskId};
use crate::processes::{ProcessOptions, ProcessPerformer, Processes};
use crate::runtime::{Runtime, RuntimeInner};
use crate::supervisor::{BATCH, LAST_TRIES, Supervisor};
use crate::view::View;

/// Inputs that may wait for the loop. Beyond it, callers wait for room.
const INPUTS: usize = 16 * 1024;

/// Puts a runtime together: a store, jobs, and perhaps work of its own kinds.
#[derive(Debug)]
pub struct Builder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    handlers: Handlers,
    performers: Performers,
    processes: Option<ProcessOptions>,
    agents: Option<AgentOptions>,
    client: Arc<str>,
    batch: usize,
    mistake: Option<Refusal>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            store: Arc::new(MemoryStore::new()),
            clock: Arc::new(SystemClock),
            handlers: Handlers::default(),
            performers: Performers::default(),
            processes: None,
            agents: None,
            client: "program".into(),
            batch: BATCH,
            mistake: None,
        }
    }
}

impl Builder {
    /// Where state is kept; without one, in memory.
    #[must_use]
    pub fn store(self, store: impl Store) -> Self {
        self.shared_store(Arc::new(store))
    }

    /// The same, for a store that somebody else holds too.
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

    /// Who starts work at top level through this runtime's sessions.
    #[must_use]
    pub fn client(mut self, name: &str) -> Self {
        self.client = name.into();
        self
    }

    /// Registers a job. What happens to it after a crash must be said.
    #[must_use]
    pub fn job<A, F, Fut, R, E>(mut self, name: &str, recovery: Recovery, handler: F) -> Self
    where
        A: DeserializeOwned + Send + 'static,
        F: Fn(JobContext, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize,
        E: Into<JobError>,
    {
        self.handlers.register(name, recovery, handler);
        self
    }

    /// Lets the runtime run commands.
    #[must_use]
    pub fn processes(mut self, options: ProcessOptions) -> Self {
        self.processes = Some(options);
        self
    }

    /// Lets the runtime have agents.
    #[must_use]
    pub fn agents(mut self, options: AgentOptions) -> Self {
        self.agents = Some(options);
        self
    }

    /// Registers the performer of a kind of work of the program's own.
    #[must_use]
    pub fn performer(mut self, kind: &str, performer: Arc<dyn Performer>) -> Self {
        match custom_kind(kind) {
            Ok(kind) => self.performers.register(Kind::Custom(kind), performer),
            Err(refusal) => self.mistake = Some(refusal),
        }
        self
    }

    /// How many inputs one commit takes at the most. One, to cut a test between any two.
    #[must_use]
    pub fn batch(mut self, most: usize) -> Self {
        self.batch = most.max(1);
        self
    }

    /// Recovers what the store holds, and only then takes requests.
    pub async fn start(mut self) -> Result<Runtime, Refusal> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        let processes = self.processes.map(|options| Processes::open(options, self.clock.clone()));
        let processes = processes.transpose().map_err(|error| no_processes(&error))?.map(Arc::new);
        let late = LateRuntime::default();
        let servers = processes.as_ref().map(|processes| processes.servers());
        let agents = self.agents.map(|options| {
            Arc::new(Agents::new(options, late.clone(), self.clock.clone(), servers))
        });
        if let Some(agents) = &agents {
            let engine = AgentEngine::new(agents.clone(), self.store.clone());
            self.performers.register(Kind::Agent, Arc::new(engine));
        }
        self.handlers.agents = agents;
        let handlers = Arc::new(self.handlers);
        let engine = JobEngine::new(handlers.clone(), self.store.clone());
        self.performers.register(Kind::Job, Arc::new(engine));
        if let Some(processes) = &processes {
            let performer = Arc::new(ProcessPerformer(processes.clone()));
            self.performers.register(Kind::Process, performer);
        }
        let (sender, inputs) = mpsc::channel(INPUTS);
        let abandoned = CancellationToken::new();
        let leaving = CancellationToken::new();
        let view = Arc::new(View::default());
        let last = self.store.last_position().await.map_err(|e| refusal(&e))?;
        let feed = Feed::new(self.store.clone(), last);
        let mut supervisor = Supervisor {
            store: self.store.clone(),
            clock: self.clock.clone(),
            performers: self.performers.clone(),
            view: view.clone(),
            meters: Meters::new(),
            feed: feed.clone(),
            inputs,
            sender: sender.clone(),
            abandoned: abandoned.clone(),
            leaving: leaving.clone(),
            tries: Some(LAST_TRIES),
            batch: self.batch,
            trees: Default::default(),
            views: Default::default(),
            waiters: Default::default(),
            timers: Default::default(),
            sweeping: Vec::new(),
            unloaded: Default::default(),
            retry: Vec::new(),
            failed: false,
            shutdown: None,
        };
        supervisor.recover().await?;
        remove_unknown(&self.performers, &self.store).await?;
        #[expect(clippy::disallowed_methods, reason = "ends when the last handle is dropped")]
        tokio::spawn(supervisor.run());
        let runtime = Runtime {
            inner: Arc::new(RuntimeInner {
                inputs: sender,
                store: self.store,
                view,
                feed,
                clock: self.clock,
                handlers,
                performers: self.performers,
                processes,
                client: self.client,
                next_wait: AtomicU64::new(1),
                leaving,
                _abandon: abandoned.drop_guard(),
            }),
        };
        // Agents that were begun during recovery have waited for this.
        let _ = late.set(Arc::downgrade(&runtime.inner));
        Ok(runtime)
    }
}

fn no_processes(error: &std::io::Error) -> Refusal {
    Refusal::unavailable(format!("commands cannot be run here: {error}"))
}

/// What is kept of tasks that the store does not have: nobody could ever ask for it or stop it.
pub(crate) async fn remove_unknown(
    performers: &Performers,
    store: &Arc<dyn Store>,
) -> Result<(), Refusal> {
    for performer in performers.all() {
        let mut kept: BTreeMap<TreeId, Vec<TaskNo>> = BTreeMap::new();
        for task in performer.kept().await {
            kept.entry(task.tree).or_default().push(task.no);
        }
        for (tree, numbers) in kept {
            let unknown = store.missing(tree, &numbers).await.map_err(|e| refusal(&e))?;
            performer.remove_all(unknown.into_iter().map(|no| TaskId { tree, no }).collect()).await;
        }
    }
    Ok(())
}
