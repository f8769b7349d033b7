//! Nodes, jobs and questions that the tests share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_model::ids::SessionId;
use brigade_runtime::{
    Clock, Job, JobContext, JobError, NodeOptions, Runtime, RuntimeBuilder, Session,
};
use brigade_store::{MemoryStore, Store};
use brigade_testkit::{NodeConnection, PausedClock, TestRuntime, with_test_loops};
use tokio::time::Instant;

pub(crate) const LEASE: Duration = Duration::from_secs(10);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A job that waits for a message and returns it.
pub(crate) const ECHO: Job<(), String> = Job::new("echo");
/// A job that sleeps for some seconds and returns their number.
pub(crate) const SLEEP: Job<u64, u64> = Job::new("sleep");
/// A job that works for some seconds without waiting for anything durable, and records where.
pub(crate) const WORK: Job<u64, u64> = Job::new("work");

/// Nodes on one store.
pub(crate) struct TestFleet {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: PausedClock,
    pub(crate) work: Arc<WorkLog>,
}

/// One node and its connection.
pub(crate) struct TestNode {
    pub(crate) runtime: Runtime,
    pub(crate) connection: Arc<NodeConnection>,
}

/// The times in which each task worked, by node.
#[derive(Debug, Default)]
pub(crate) struct WorkLog(Mutex<BTreeMap<(SessionId, u32), Vec<WorkSpan>>>);

#[derive(Clone, Debug)]
pub(crate) struct WorkSpan {
    pub(crate) node: String,
    pub(crate) from: Instant,
    pub(crate) to: Option<Instant>,
}

impl TestFleet {
    pub(crate) fn new() -> Self {
        let clock = PausedClock::starting_at(TestRuntime::START);
        let store = Arc::new(MemoryStore::shared_by_nodes(move || clock.now()));
        Self { store, clock, work: Arc::default() }
    }

    pub(crate) async fn node(&self, name: &str) -> TestNode {
        self.node_with(name, |builder| builder).await
    }

    pub(crate) async fn node_with(
        &self,
        name: &str,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> TestNode {
        let connection = NodeConnection::new(self.store.clone());
        let runtime = self.start(name, connection.clone(), build).await;
        TestNode { runtime, connection }
    }

    pub(crate) async fn start(
        &self,
        name: &str,
        connection: Arc<NodeConnection>,
        build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
    ) -> Runtime {
        let options = NodeOptions::new(name).lease(LEASE);
        let work = self.work.clone();
        let node = name.to_owned();
        let builder = with_test_loops(Runtime::builder(), &*self.store)
            .await
            .shared_store(connection as Arc<dyn Store>)
            .clock(Arc::new(self.clock))
            .node(options)
            .job(ECHO, |ctx: JobContext, ()| async move {
                Ok::<_, JobError>(ctx.receive().await?.body.decode::<String>()?)
            })
            .job(SLEEP, |ctx: JobContext, seconds| async move {
                ctx.sleep(Duration::from_secs(seconds)).await?;
                Ok::<_, JobError>(seconds)
            })
            .job(WORK, move |ctx: JobContext, seconds| {
                let work = work.clone();
                let node = node.clone();
                async move {
                    let _working = work.begin(&ctx, node);
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    Ok::<_, JobError>(seconds)
                }
            });
        build(builder).start().await.unwrap()
    }
}

/// Ends the span of a task that worked, when it is dropped.
pub(crate) struct Working {
    log: Arc<WorkLog>,
    task: (SessionId, u32),
    at: usize,
}

impl WorkLog {
    fn begin(self: &Arc<Self>, ctx: &JobContext, node: String) -> Working {
        let task = (ctx.session_id(), ctx.task().get());
        let mut spans = self.0.lock().unwrap();
        let spans = spans.entry(task).or_default();
        spans.push(WorkSpan { node, from: Instant::now(), to: None });
        Working { log: self.clone(), task, at: spans.len() - 1 }
    }

    pub(crate) fn spans(&self, session: &Session, no: u32) -> Vec<WorkSpan> {
        self.0.lock().unwrap().get(&(session.id(), no)).cloned().unwrap_or_default()
    }

    /// Checks that no task worked at two places at once.
    pub(crate) fn check(&self) {
        for (task, spans) in &*self.0.lock().unwrap() {
            for pair in spans.windows(2) {
                let end = pair[0].to.expect("an earlier attempt has ended");
                assert!(end <= pair[1].from, "{task:?} worked twice at once: {pair:?}");
            }
        }
    }
}

impl fmt::Display for WorkLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let log = self.0.lock().unwrap();
        let attempts: usize = log.values().map(Vec::len).sum();
        let moved = log.values().filter(|spans| spans.iter().any(|it| it.node != spans[0].node));
        write!(f, "{} tasks in {attempts} attempts, {} moved", log.len(), moved.count())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(spans) = self.log.0.lock().unwrap().get_mut(&self.task) {
            spans[self.at].to = Some(Instant::now());
        }
    }
}

impl TestNode {
    pub(crate) async fn session(&self, name: &str) -> Session {
        self.runtime.session(name).await.unwrap()
    }

    /// Returns the name of the node that owns a session.
    pub(crate) async fn owner(&self, session: &Session) -> Option<String> {
        let owners = self.runtime.session_owners(&[session.id()]).await.unwrap();
        let owner = owners.first()?.node;
        let nodes = self.runtime.nodes().await.unwrap();
        nodes.into_iter().find(|node| node.row.id == owner).map(|node| node.row.name)
    }

    /// Waits until a node owns a session, or nobody does.
    pub(crate) async fn wait_for_owner(&self, session: &Session, owner: Option<&str>) {
        for _ in 0..600 {
            if self.owner(session).await.as_deref() == owner {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("the owner is {:?}, not {owner:?}", self.owner(session).await);
    }
}
