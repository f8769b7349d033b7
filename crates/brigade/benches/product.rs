//! The benchmarks of Brigade. `cargo xtask bench` runs them and `baseline` in separate processes:
//! in one process, our heap would slow the baseline down.

use std::future::Future;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use brigade::agent::{BoxFuture, ToolInvocation, ToolReply as Done};
use brigade::store::{MemoryOptions, MemoryStore};
use brigade::{
    AgentOptions, ChildTask, ExecutionHints, JobContext, JobError, JobTask, Limits, NewTask,
    OneModel, RecoveryPolicy, Runtime, Script, ScriptedModel, Session, SqliteStore, TaskNo,
    TaskRef, ToolEffect, ToolError, ToolHandler, ToolSpec, WaitMode,
};
use divan::Bencher;
use divan::counter::ItemsCount;
use tokio::runtime::Runtime as Tokio;

const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];
const ALIVE_TASKS: usize = 10_000;

fn main() {
    divan::main();
}

fn tokio() -> Tokio {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .expect("a tokio runtime")
}

/// Runs a future on a worker, as a program does. Each call from outside of the pool would cost two
/// thread switches.
fn run_on_worker<T: Send + 'static>(
    tokio: &Tokio,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    tokio.block_on(async { tokio.spawn(future).await.expect("no panic") })
}

async fn start_runtime(session: &str) -> (Runtime, Session) {
    let options = MemoryOptions {
        max_events: 10_000,
        max_finished_tasks: 1_000,
        max_processed_messages: 1_000,
    };
    let runtime = Runtime::builder()
        .store(MemoryStore::with_options(options))
        .job_named("sleep", RecoveryPolicy::Lost, sleep_long)
        .start()
        .await
        .expect("a runtime");
    let limits = Limits { inbox: Some(u32::MAX), ..Limits::default() };
    let session = runtime.session_with(session, limits).await.expect("a session");
    (runtime, session)
}

async fn sleep_long(ctx: JobContext, (): ()) -> Result<(), JobError> {
    Ok(ctx.sleep(std::time::Duration::from_secs(1_000_000)).await?)
}

fn nothing() -> NewTask<JobTask<()>> {
    NewTask::closure("nothing", |_| async { Ok::<_, JobError>(()) })
}

#[divan::bench(args = SIZES, sample_count = 10, sample_size = 1)]
fn spawn_to_end_in_batches(bencher: Bencher, count: usize) {
    let tokio = tokio();
    let (_runtime, session) = tokio.block_on(start_runtime("bench"));
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        let session = session.clone();
        run_on_worker(&tokio, async move {
            let mut remaining = count;
            while remaining > 0 {
                let batch = remaining.min(1_000);
                let spawned = session.spawn_all((0..batch).map(|_| nothing())).await;
                black_box(spawned.expect("spawned"));
                remaining -= batch;
            }
            black_box(session.wait_uncollected(WaitMode::All).await.expect("ended"));
        });
    });
}

#[divan::bench(args = SIZES, sample_count = 5, sample_size = 1)]
fn spawn_to_end_each_awaited(bencher: Bencher, count: usize) {
    let tokio = tokio();
    let (_runtime, session) = tokio.block_on(start_runtime("bench"));
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        let session = session.clone();
        run_on_worker(&tokio, async move {
            for _ in 0..count {
                black_box(session.spawn(nothing()).await.expect("spawned"));
            }
            black_box(session.wait_uncollected(WaitMode::All).await.expect("ended"));
        });
    });
}

/// Returns a session with many waiting tasks.
fn waiting_tasks(tokio: &Tokio) -> (Runtime, Session) {
    tokio.block_on(async {
        let (runtime, session) = start_runtime("crowd").await;
        let tasks = (0..ALIVE_TASKS).map(|_| NewTask::job("sleep", ()));
        session.spawn_all(tasks).await.expect("spawned");
        while session.list().iter().any(|task| task.row.state.label() != "waiting") {
            tokio::task::yield_now().await;
        }
        (runtime, session)
    })
}

fn number(n: u32) -> TaskNo {
    TaskNo::new(n).expect("a number")
}

#[divan::bench(sample_count = 100, sample_size = 1000)]
fn get_at_10k_alive(bencher: Bencher) {
    let tokio = tokio();
    let (_runtime, session) = waiting_tasks(&tokio);
    let next = AtomicU32::new(0);
    let _entered = tokio.enter();
    bencher.bench_local(|| {
        let no = number(next.fetch_add(7919, Ordering::Relaxed) % ALIVE_TASKS as u32 + 1);
        futures_util::FutureExt::now_or_never(session.get(no)).expect("in memory").expect("there")
    });
}

#[divan::bench(sample_count = 100, sample_size = 1)]
fn list_at_10k_alive(bencher: Bencher) {
    let tokio = tokio();
    let (_runtime, session) = waiting_tasks(&tokio);
    bencher.bench_local(|| black_box(session.list()).len());
}

#[divan::bench(sample_count = 50, sample_size = 1)]
fn stop_100_one_by_one_at_10k_alive(bencher: Bencher) {
    let tokio = tokio();
    let (_runtime, session) = waiting_tasks(&tokio);
    let next = AtomicU32::new(1);
    bencher.counter(ItemsCount::new(100_usize)).bench_local(|| {
        let session = session.clone();
        let first = next.fetch_add(100, Ordering::Relaxed);
        run_on_worker(&tokio, async move {
            for no in first..first + 100 {
                session.stop(number(no), None).await.expect("stopped");
            }
        });
    });
}

/// Returns a closure that spawns the rest of a chain and waits until it is stopped.
fn chain(depth: usize) -> NewTask<JobTask<()>> {
    NewTask::closure("link", move |ctx: JobContext| async move {
        if depth > 1 {
            ctx.spawn(chain(depth - 1)).await?;
        } else {
            ctx.send_parent("built").await.ok();
        }
        ctx.stop_token().cancelled().await;
        Ok::<_, JobError>(())
    })
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn stop_of_a_10k_tree_ten_deep(bencher: Bencher) {
    let tokio = tokio();
    let (_runtime, session) = tokio.block_on(start_runtime("tree"));
    bencher
        .with_inputs(|| {
            tokio.block_on(async {
                let root = NewTask::closure("root", |ctx: JobContext| async move {
                    let chains = (0..1_111).map(|_| ctx.spawn(chain(9)));
                    let _chains: Vec<ChildTask<()>> =
                        futures_util::future::try_join_all(chains).await?;
                    ctx.stop_token().cancelled().await;
                    Ok::<_, JobError>(())
                });
                let root = session.spawn(root).await.expect("spawned");
                let operator = _runtime.operator_session(session.id()).await.expect("an operator");
                while operator.list().iter().filter(|task| task.row.is_alive()).count()
                    < ALIVE_TASKS
                {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
                root
            })
        })
        .bench_local_values(|root| {
            tokio.block_on(async {
                root.stop(None).await.expect("stopped");
                root.wait().await.expect("ended")
            })
        });
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn messages_100k_in_batches(bencher: Bencher) {
    let tokio = tokio();
    let (_runtime, session) = waiting_tasks(&tokio);
    let to = TaskRef::from(number(5_000));
    bencher.counter(ItemsCount::new(100_000_usize)).bench_local(|| {
        let session = session.clone();
        let to = to.clone();
        run_on_worker(&tokio, async move {
            for _ in 0..100 {
                let batch = (0..1_000).map(|n| (to.clone(), n));
                black_box(session.send_all(batch).await.expect("sent"));
            }
        });
    });
}

/// Receives 100,000 messages, all that are there at a time.
async fn receive_all_100k(ctx: JobContext) -> Result<(), JobError> {
    let mut received = 0;
    while received < 100_000 {
        received += black_box(ctx.receive_all().await?).len();
    }
    Ok(())
}

/// Receives 100,000 messages, each in a call of its own.
async fn receive_each_of_100k(ctx: JobContext) -> Result<(), JobError> {
    for _ in 0..100_000 {
        black_box(ctx.receive().await?);
    }
    Ok(())
}

/// Measures sending and receiving, until the receiver has ended.
fn bench_received<F>(bencher: Bencher, receive: fn(JobContext) -> F)
where
    F: Future<Output = Result<(), JobError>> + Send + 'static,
{
    let tokio = tokio();
    let (_runtime, session) = tokio.block_on(start_runtime("bench"));
    bencher.counter(ItemsCount::new(100_000_usize)).bench_local(|| {
        let session = session.clone();
        run_on_worker(&tokio, async move {
            let receiver = NewTask::closure("receiver", receive);
            let receiver = session.spawn(receiver).await.expect("spawned");
            let to = TaskRef::from(receiver.no());
            for _ in 0..100 {
                let batch = (0..1_000).map(|n| (to.clone(), n));
                black_box(session.send_all(batch).await.expect("sent"));
            }
            receiver.wait().await.expect("received");
        });
    });
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn messages_100k_received_together(bencher: Bencher) {
    bench_received(bencher, receive_all_100k);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn messages_100k_received_one_by_one(bencher: Bencher) {
    bench_received(bencher, receive_each_of_100k);
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn messages_100k_each_awaited(bencher: Bencher) {
    let tokio = tokio();
    let (_runtime, session) = waiting_tasks(&tokio);
    let to = TaskRef::from(number(5_000));
    bencher.counter(ItemsCount::new(100_000_usize)).bench_local(|| {
        let session = session.clone();
        let to = to.clone();
        run_on_worker(&tokio, async move {
            for n in 0..100_000 {
                black_box(session.send(to.clone(), n).await.expect("sent"));
            }
        });
    });
}

#[divan::bench(sample_count = 5, sample_size = 1)]
fn sqlite_10k_spawn_to_end_64_in_flight(bencher: Bencher) {
    let tokio = tokio();
    let dir = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(dir.path().join("bench.db"));
    let (session, _runtime) = tokio.block_on(async {
        let runtime = Runtime::builder().store(store.expect("a store")).start().await;
        let runtime = runtime.expect("a runtime");
        (runtime.session("sqlite").await.expect("a session"), runtime)
    });
    bencher.counter(ItemsCount::new(10_000_usize)).bench_local(|| {
        let session = session.clone();
        run_on_worker(&tokio, async move {
            let rounds = (0..64).map(|_| async {
                for _ in 0..10_000 / 64 {
                    let task = session.spawn(nothing()).await.expect("spawned");
                    black_box(task.wait().await.expect("ended"));
                }
            });
            futures_util::future::join_all(rounds).await;
        });
    });
}

/// One tool call and a final message.
const SCRIPT: &str = "agent *\nturn\n  call look {\"at\": \"stove\"}\nturn\n  say Done.\n";

#[derive(Debug)]
struct Look(ToolSpec);

impl ToolHandler for Look {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Pure)
    }

    fn call(&self, _call: ToolInvocation) -> BoxFuture<'_, Result<Done, ToolError>> {
        Box::pin(async { Ok(Done::text("It is hot.")) })
    }
}

fn agents(tokio: &Tokio) -> (Runtime, Session) {
    let look = Look(ToolSpec {
        name: "look".into(),
        description: "Looks at something.".into(),
        parameters: Arc::new(serde_json::json!({ "type": "object" })),
    });
    let model = ScriptedModel::new(Script::parse("bench", SCRIPT).expect("a script"));
    let agents = AgentOptions::new(OneModel(Arc::new(model))).model("scripted").tool(look);
    let options = MemoryOptions {
        max_events: 10_000,
        max_finished_tasks: 1_000,
        max_processed_messages: 1_000,
    };
    tokio.block_on(async {
        let builder = Runtime::builder().store(MemoryStore::with_options(options)).agents(agents);
        let runtime = builder.start().await.expect("a runtime");
        let session = runtime.session("agents").await.expect("a session");
        (runtime, session)
    })
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn agents_200_one_after_another(bencher: Bencher) {
    let tokio = tokio();
    let (_runtime, session) = agents(&tokio);
    bencher.counter(ItemsCount::new(200_usize)).bench_local(|| {
        let session = session.clone();
        run_on_worker(&tokio, async move {
            for _ in 0..200 {
                let agent = session.spawn(NewTask::agent("Look.")).await.expect("spawned");
                let result = agent.wait().await.expect("ended");
                assert!(result.outcome.is_success(), "{}", result.outcome);
            }
        });
    });
}

#[divan::bench(sample_count = 20, sample_size = 1)]
fn agents_1000_at_once(bencher: Bencher) {
    let tokio = tokio();
    let (_runtime, session) = agents(&tokio);
    bencher.counter(ItemsCount::new(1_000_usize)).bench_local(|| {
        let session = session.clone();
        run_on_worker(&tokio, async move {
            let tasks = (0..1_000).map(|_| NewTask::agent("Look."));
            black_box(session.spawn_all(tasks).await.expect("spawned"));
            let results = session.wait_uncollected(WaitMode::All).await.expect("ended");
            assert!(results.iter().all(|result| result.outcome.is_success()));
        });
    });
}
