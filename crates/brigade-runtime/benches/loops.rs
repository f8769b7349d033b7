//! Durable tasks per second, from the spawn to the end, with several loops.
//!
//! `cargo bench -p brigade-runtime --bench loops -- [rounds] [seconds]` measures each number of loops in each
//! round, so that a change of the machine's load meets all of them. PostgreSQL is a private server of
//! this process.

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints its result")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brigade_postgres::PostgresStore;
use brigade_postgres::test_server::TestServer;
use brigade_runtime::{Job, JobContext, JobError, Runtime};
use brigade_store::{MemoryStore, Store};
use brigade_testkit::SlowStore;
use futures_util::future::join_all;

const COOK: Job<(), ()> = Job::new("cook");
const LOOPS: [usize; 4] = [1, 2, 4, 8];

/// The store of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoreKind {
    Memory,
    Postgres { commit_delay: Duration },
}

/// The work of a measurement: each session has one client, who awaits each task.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    store: StoreKind,
    sessions: usize,
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.store {
            StoreKind::Memory => write!(f, "memory")?,
            StoreKind::Postgres { commit_delay } => write!(f, "postgres, {commit_delay:?} more")?,
        }
        write!(f, ", {} sessions", self.sessions)
    }
}

impl Measurement {
    /// Returns the tasks per second.
    async fn run(self, server: &TestServer, loops: usize, duration: Duration) -> f64 {
        let store: Arc<dyn Store> = match self.store {
            StoreKind::Memory => Arc::new(MemoryStore::new()),
            StoreKind::Postgres { commit_delay } => {
                let store = PostgresStore::open(&server.new_schema()).await.unwrap();
                let store = Arc::new(store);
                match commit_delay.is_zero() {
                    true => store,
                    false => {
                        let slow = SlowStore::new(store);
                        slow.slow_after(0, commit_delay);
                        slow
                    }
                }
            }
        };
        let cook = |_: JobContext, ()| async { Ok::<_, JobError>(()) };
        let builder = Runtime::builder().shared_store(store).loops(loops).job(COOK, cook);
        let runtime = builder.start().await.unwrap();
        let done = AtomicU64::new(0);
        let begun = Instant::now();
        let clients = (0..self.sessions).map(|at| {
            let (runtime, done) = (&runtime, &done);
            async move {
                let session = runtime.session(&format!("session {at}")).await.unwrap();
                while begun.elapsed() < duration {
                    session.spawn(COOK.with(())).await.unwrap().result().await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        join_all(clients).await;
        let rate = done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
        runtime.shutdown().await.unwrap();
        rate
    }
}

#[tokio::main]
async fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let rounds = numbers.first().copied().unwrap_or(3);
    let duration = Duration::from_secs(numbers.get(1).copied().unwrap_or(3));
    let server = TestServer::start();
    let delays = [0, 3].map(Duration::from_millis);
    let stores = delays.map(|commit_delay| StoreKind::Postgres { commit_delay });
    for store in [StoreKind::Memory].into_iter().chain(stores) {
        for sessions in [16, 256] {
            let measurement = Measurement { store, sessions };
            let mut rates = LOOPS.map(|_| Vec::new());
            for _ in 0..rounds {
                for (at, loops) in LOOPS.into_iter().enumerate() {
                    rates[at].push(measurement.run(&server, loops, duration).await);
                }
            }
            for (loops, rates) in LOOPS.into_iter().zip(&mut rates) {
                rates.sort_by(f64::total_cmp);
                let median = rates[rates.len() / 2];
                println!("{measurement}, {loops} loops: {median:.0} tasks/s {rates:.0?}");
            }
        }
    }
}
