//! Measures the runtime under bad conditions, and prints a table. Each measurement has a process of
//! its own.
//!
//! `cargo xtask bench load`, or `cargo bench -p brigade --bench load -- MEASUREMENT [COUNT]`

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use brigade::store::{MemoryOptions, MemoryStore};
use brigade::{
    Job, JobContext, JobError, JobTask, NewTask, Refusal, RefusalKind, Runtime, Session, Store,
    TaskHandle, TaskNo, TaskRow, WaitMode,
};
use brigade_testkit::SlowStore;
use futures_util::future::{join_all, try_join_all};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

type LoadResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

const MEASUREMENTS: [&str; 4] = ["slow-disk", "outage", "burst", "neighbour"];

/// Clients that each await their task before they start the next one.
const CLIENTS: usize = 1_000;
const COMMIT_DELAY: Duration = Duration::from_millis(20);
const OUTAGE_ROUNDS: usize = 100;
const OUTAGE: Duration = Duration::from_secs(2);
const BURST: usize = 100_000;
const SMALL_SESSIONS: usize = 1_000;
const NEIGHBOUR_TASKS: usize = 1_000_000;
const NEIGHBOUR_BATCH: usize = 1_000;
/// Each small session starts a task once in this time.
const SMALL_PERIOD: Duration = Duration::from_secs(1);
/// The duration of a phase in which only the small sessions act.
const QUIET_PHASE: Duration = Duration::from_secs(5);

/// A job that waits for a message.
const WAIT: Job<(), ()> = Job::new("wait");

fn main() -> LoadResult<()> {
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let Some(measurement) = words.next() else { return measure_all() };
    // Cargo runs every benchmark with `--list`.
    if measurement == "--list" {
        return Ok(());
    }
    let count = words.next().map(|count| count.parse()).transpose()?;
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    // The clients run on a worker, as those of a program do.
    tokio.block_on(run_on_worker(async move { measure(&measurement, count).await }))
}

async fn run_on_worker<T: Send + 'static>(
    work: impl Future<Output = LoadResult<T>> + Send + 'static,
) -> LoadResult<T> {
    let mut worker = JoinSet::new();
    worker.spawn(work);
    worker.join_next().await.ok_or("no work")??
}

async fn measure(measurement: &str, count: Option<usize>) -> LoadResult<()> {
    match measurement {
        "slow-disk" => measure_slow_disk().await,
        "outage" => measure_outage().await,
        "burst" => measure_burst(count.unwrap_or(BURST)).await,
        "neighbour" => measure_neighbour(count.unwrap_or(NEIGHBOUR_TASKS)).await,
        other => Err(format!("unknown measurement {other}").into()),
    }
}

/// Starts this program again for each measurement.
fn measure_all() -> LoadResult<()> {
    println!("| load | p50 | p99 | max | |\n|---|---|---|---|---|");
    let me = std::env::current_exe()?;
    for measurement in MEASUREMENTS {
        if !std::process::Command::new(&me).arg(measurement).status()?.success() {
            return Err(format!("{measurement} failed").into());
        }
    }
    Ok(())
}

/// The latencies of one phase.
#[derive(Debug, Default)]
struct Latencies(Vec<Duration>);

impl Latencies {
    fn of(parts: impl IntoIterator<Item = Vec<Duration>>) -> Self {
        let mut all: Vec<Duration> = parts.into_iter().flatten().collect();
        all.sort_unstable();
        Self(all)
    }

    fn percentile(&self, percent: usize) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get(last * percent / 100).copied().unwrap_or_default()
    }

    fn print(&self, name: &str, note: &str) {
        let [p50, p99, max] = [50, 99, 100].map(|percent| self.percentile(percent));
        println!("| {name} | {p50:.1?} | {p99:.1?} | {max:.1?} | {note} |");
    }
}

fn memory_store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_options(MemoryOptions {
        max_events: 10_000,
        max_finished_tasks: 1_000,
        max_processed_messages: 1_000,
    }))
}

async fn start_runtime(store: Arc<dyn Store>) -> LoadResult<Runtime> {
    Ok(Runtime::builder().shared_store(store).job(WAIT, wait_for_message).start().await?)
}

async fn wait_for_message(ctx: JobContext, (): ()) -> Result<(), JobError> {
    Ok(ctx.receive().await.map(|_| ())?)
}

fn nothing() -> NewTask<JobTask<()>> {
    NewTask::closure("nothing", |_| async { Ok::<_, JobError>(()) })
}

/// Starts a task and collects its result. Returns the time that it took.
async fn run_one(session: &Session) -> LoadResult<Duration> {
    let started_at = Instant::now();
    session.spawn(nothing()).await?.wait().await?;
    Ok(started_at.elapsed())
}

/// Measures clients on a disk that takes 20 ms for each commit.
async fn measure_slow_disk() -> LoadResult<()> {
    const ROUNDS: usize = 10;
    let store = SlowStore::new(memory_store());
    let runtime = start_runtime(store.clone()).await?;
    let session = runtime.session("slow").await?;
    store.slow_after(0, COMMIT_DELAY);
    let before = resident_bytes("VmRSS")?;
    let started_at = Instant::now();
    let clients = (0..CLIENTS).map(|_| async {
        let mut latencies = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            latencies.push(run_one(&session).await?);
        }
        LoadResult::Ok(latencies)
    });
    let latencies = Latencies::of(try_join_all(clients).await?);
    let rate = latencies.0.len() as f64 / started_at.elapsed().as_secs_f64();
    let note = format!("{rate:.0} tasks/s, {}", grown(before)?);
    latencies.print("a task on a disk with 20 ms per commit, 1,000 clients", &note);
    Ok(())
}

/// Measures clients while the store fails for two seconds. A refused request is repeated with its
/// key.
async fn measure_outage() -> LoadResult<()> {
    let store = SlowStore::new(memory_store());
    let runtime = start_runtime(store.clone()).await?;
    let session = runtime.session("outage").await?;
    let refused = AtomicUsize::new(0);
    let before = resident_bytes("VmRSS")?;
    let began_at = Instant::now();
    let clients =
        join_all((0..CLIENTS).map(|client| run_through_outage(&session, client, &refused)));
    let outage = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        store.set_away(true);
        tokio::time::sleep(OUTAGE).await;
        store.set_away(false);
        Instant::now()
    };
    let (rounds, back_at) = tokio::join!(clients, outage);
    let mut latencies = Vec::new();
    let mut tasks = HashSet::new();
    let mut recovered_at = None::<Instant>;
    for rounds in rounds {
        for round in rounds? {
            latencies.push(round.took);
            tasks.insert(round.task);
            if round.ended_at >= back_at {
                let first = recovered_at.get_or_insert(round.ended_at);
                *first = round.ended_at.min(*first);
            }
        }
    }
    let expected = CLIENTS * OUTAGE_ROUNDS;
    if tasks.len() != expected {
        return Err(format!("{} tasks instead of {expected}", tasks.len()).into());
    }
    let recovered = recovered_at.map(|at| at.duration_since(back_at)).unwrap_or_default();
    let note = format!(
        "{} tasks in {:.1?}, {} requests refused and repeated, first result {recovered:.0?} after \
         the outage, {}",
        tasks.len(),
        began_at.elapsed(),
        refused.into_inner(),
        grown(before)?
    );
    let latencies = Latencies::of([latencies]);
    latencies.print("a task while the store fails for 2 s, 1,000 clients", &note);
    Ok(())
}

/// One task of a client, with the repetitions of its request.
#[derive(Debug)]
struct ClientRound {
    task: TaskNo,
    took: Duration,
    ended_at: Instant,
}

async fn run_through_outage(
    session: &Session,
    client: usize,
    refused: &AtomicUsize,
) -> LoadResult<Vec<ClientRound>> {
    let mut rounds = Vec::with_capacity(OUTAGE_ROUNDS);
    for round in 0..OUTAGE_ROUNDS {
        let key = format!("{client}/{round}");
        let started_at = Instant::now();
        let task = repeat_refused(refused, || session.spawn(nothing().key(&key))).await?;
        repeat_refused(refused, || task.wait()).await?;
        let ended_at = Instant::now();
        let took = ended_at.duration_since(started_at);
        rounds.push(ClientRound { task: task.no(), took, ended_at });
    }
    Ok(rounds)
}

/// Makes a request until the store is available, and counts the refusals.
async fn repeat_refused<T, F: Future<Output = Result<T, Refusal>>>(
    refused: &AtomicUsize,
    request: impl Fn() -> F,
) -> Result<T, Refusal> {
    loop {
        match request().await {
            Err(refusal) if refusal.kind == RefusalKind::Unavailable => {
                refused.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            result => return result,
        }
    }
}

/// Measures requests that all begin at once. The loop's queue is bounded, and the rest wait in their
/// own futures.
async fn measure_burst(count: usize) -> LoadResult<()> {
    let runtime = start_runtime(memory_store()).await?;
    let session = runtime.session("burst").await?;
    let before = resident_bytes("VmRSS")?;
    let started_at = Instant::now();
    let requests = (0..count).map(|_| async {
        let task = session.spawn(nothing()).await?;
        LoadResult::Ok((task, started_at.elapsed()))
    });
    let spawned: Vec<(TaskHandle<()>, Duration)> = try_join_all(requests).await?;
    let results = session.wait_uncollected(WaitMode::All).await?;
    let tasks: HashSet<_> = spawned.iter().map(|(task, _)| task.no()).collect();
    if tasks.len() != count {
        return Err(format!("{} tasks instead of {count}", tasks.len()).into());
    }
    let peak = resident_bytes("VmHWM")?.saturating_sub(before) / 1_000_000;
    let note = format!(
        "all ended after {:.2?}, {} results collected at the end, {peak} MB more at the peak",
        started_at.elapsed(),
        results.len()
    );
    let latencies = Latencies::of([spawned.into_iter().map(|(_, took)| took).collect()]);
    latencies.print(&format!("a reply to one of {count} requests at once"), &note);
    Ok(())
}

/// Measures a thousand small sessions alone, and beside a session that starts, has, stops and
/// collects many tasks.
async fn measure_neighbour(count: usize) -> LoadResult<()> {
    let runtime = start_runtime(memory_store()).await?;
    let mut small = Vec::with_capacity(SMALL_SESSIONS);
    for n in 0..SMALL_SESSIONS {
        small.push(runtime.session(&format!("small-{n}")).await?);
    }
    let large = runtime.session("large").await?;
    let before = resident_bytes("VmRSS")?;
    let quiet = || async {
        tokio::time::sleep(QUIET_PHASE).await;
        LoadResult::Ok(())
    };
    let run = "a task of one of 1,000 small sessions, 1,000/s";
    run_small_beside(&small, quiet()).await?.print(&format!("{run}, alone"), "");
    let started_at = Instant::now();
    let latencies = run_small_beside(&small, start_waiting(large.clone(), count)).await?;
    let note = format!("{:.1?}, {}", started_at.elapsed(), grown(before)?);
    latencies.print(&format!("the same while another session starts {count} tasks"), &note);
    let latencies = run_small_beside(&small, quiet()).await?;
    latencies.print(&format!("the same while {count} tasks of it wait"), &grown(before)?);
    let stopped = large.clone();
    let stop = async move {
        stopped.stop_all(None).await?;
        wait_for_all(&stopped, count, |row| !row.is_alive()).await
    };
    let started_at = Instant::now();
    let latencies = run_small_beside(&small, stop).await?;
    let note = format!("{:.1?}, {}", started_at.elapsed(), grown(before)?);
    latencies.print(&format!("the same while {count} tasks of it are stopped"), &note);
    let collect = async move {
        let results = large.wait_uncollected(WaitMode::All).await?;
        if results.len() == count { Ok(()) } else { Err("results are missing".into()) }
    };
    let started_at = Instant::now();
    let latencies = run_small_beside(&small, collect).await?;
    let note = format!("{:.1?}, {}", started_at.elapsed(), grown(before)?);
    latencies.print(&format!("the same while it collects {count} results at once"), &note);
    Ok(())
}

/// Starts tasks that wait, in batches.
async fn start_waiting(session: Session, count: usize) -> LoadResult<()> {
    let mut started = 0;
    while started < count {
        let batch = NEIGHBOUR_BATCH.min(count - started);
        for task in session.spawn_all((0..batch).map(|_| WAIT.with(()))).await? {
            task?;
        }
        started += batch;
    }
    wait_for_all(&session, count, |row| row.state.label() == "waiting").await
}

/// Waits until all tasks of a session are so. It reads one task at a time, since a list of all would
/// hold up the loop.
async fn wait_for_all(
    session: &Session,
    count: usize,
    is_so: impl Fn(&TaskRow) -> bool,
) -> LoadResult<()> {
    for no in (1..=u32::try_from(count)?).filter_map(TaskNo::new) {
        while !is_so(&session.get(no).await?.row) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(())
}

/// Lets the small sessions start tasks until the other work is done. Returns their latencies.
async fn run_small_beside(
    small: &[Session],
    other: impl Future<Output = LoadResult<()>> + Send + 'static,
) -> LoadResult<Latencies> {
    let done = CancellationToken::new();
    let clients = small.iter().enumerate().map(|(n, session)| {
        let done = done.clone();
        async move {
            let mut latencies = Vec::new();
            tokio::time::sleep(SMALL_PERIOD / SMALL_SESSIONS as u32 * n as u32).await;
            while !done.is_cancelled() {
                let took = run_one(session).await?;
                latencies.push(took);
                tokio::time::sleep(SMALL_PERIOD.saturating_sub(took)).await;
            }
            LoadResult::Ok(latencies)
        }
    });
    let other = async {
        let result = run_on_worker(other).await;
        done.cancel();
        result
    };
    let (latencies, other) = tokio::join!(try_join_all(clients), other);
    other?;
    Ok(Latencies::of(latencies?))
}

/// Returns a field of this process's status, in bytes.
fn resident_bytes(field: &str) -> LoadResult<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(field)).ok_or("no such field")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).ok_or("no value")?.parse()?;
    Ok(kilobytes * 1024)
}

fn grown(before: u64) -> LoadResult<String> {
    let grown = resident_bytes("VmRSS")?.saturating_sub(before) / 1_000_000;
    Ok(format!("{grown} MB more"))
}
