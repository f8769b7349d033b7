//! Measures the memory of waiting and finished tasks, and of the same work in plain tokio. Each
//! figure comes from a process of its own. `cargo xtask bench` runs this program.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::agent::{BoxFuture, ToolInvocation, ToolReply as Done};
use brigade::model::ConditionRequest;
use brigade::store::{MemoryOptions, MemoryStore};
use brigade::{
    AgentOptions, ExecutionHints, JobContext, JobError, NewTask, OneModel, RecoveryPolicy, Runtime,
    Script, ScriptedModel, Session, SqliteStore, ToolEffect, ToolError, ToolHandler, ToolSpec,
};
use tokio::sync::{mpsc, watch};

const TASKS: usize = 100_000;
const MANY_TASKS: usize = 1_000_000;

type MeasureResult = Result<(), JobError>;

fn main() -> MeasureResult {
    let mut tokio = tokio::runtime::Builder::new_multi_thread();
    tokio.worker_threads(2).enable_time();
    let Some(figure) = std::env::args().nth(1) else { return measure_all() };
    tokio.build()?.block_on(async {
        match figure.as_str() {
            "waiting" => measure_waiting(TASKS).await,
            "waiting-many" => measure_waiting(MANY_TASKS).await,
            "waiting-tokio" => measure_waiting_tokio(TASKS).await,
            "finished" => measure_finished(TASKS, false).await,
            "finished-keyed" => measure_finished(TASKS, true).await,
            "load" => measure_load(MANY_TASKS).await,
            "agents" => measure_agents(TASKS).await,
            other => Err(JobError::new(format!("unknown figure {other}"))),
        }
    })
}

/// Starts this program again for each figure.
fn measure_all() -> MeasureResult {
    println!("\n| memory | |\n|---|---|");
    let me = std::env::current_exe()?;
    let figures = [
        "waiting",
        "waiting-many",
        "waiting-tokio",
        "finished",
        "finished-keyed",
        "load",
        "agents",
    ];
    for figure in figures {
        if !std::process::Command::new(&me).arg(figure).status()?.success() {
            return Err(JobError::new(format!("{figure} failed")));
        }
    }
    Ok(())
}

/// Returns the resident bytes of this process.
fn resident_bytes() -> Result<usize, JobError> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = text.split_whitespace().nth(1).unwrap_or("0").parse()?;
    Ok(pages * 4096)
}

async fn start_runtime() -> Result<(Runtime, Session), JobError> {
    let options = MemoryOptions {
        max_events: 1_000,
        max_finished_tasks: 1_000,
        max_processed_messages: 1_000,
    };
    let builder = Runtime::builder().store(MemoryStore::with_options(options));
    let runtime = builder
        .job_named("wait", RecoveryPolicy::resume_max_crashes(1), wait_for_message)
        .start()
        .await?;
    let session = runtime.session("footprint").await?;
    Ok((runtime, session))
}

async fn wait_for_message(ctx: JobContext, (): ()) -> Result<(), JobError> {
    Ok(ctx.receive().await.map(|_| ())?)
}

fn job() -> NewTask {
    NewTask::job("wait", ()).erase()
}

/// Spawns tasks in batches. Each batch begins when all tasks of the last one wait, so that the
/// figure does not include the futures of a burst.
async fn spawn_waiting(session: &Session, count: usize, task: fn() -> NewTask) -> MeasureResult {
    for _ in 0..count / 1_000 {
        let tasks = (0..1_000).map(|_| task());
        for task in session.spawn_all(tasks).await? {
            let task = task?;
            while task.get().await?.state.label() != "waiting" {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    Ok(())
}

async fn measure_waiting(count: usize) -> MeasureResult {
    let (_runtime, session) = start_runtime().await?;
    spawn_waiting(&session, 1_000, job).await?;
    let before = resident_bytes()?;
    spawn_waiting(&session, count, job).await?;
    let each = (resident_bytes()? - before) / count;
    println!("| bytes per waiting task, {count} of them | {each} |");
    Ok(())
}

async fn measure_waiting_tokio(count: usize) -> MeasureResult {
    let before = resident_bytes()?;
    let mut table = HashMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    for id in 0..count {
        let (sender, mut receiver) = watch::channel(false);
        table.insert(id, sender);
        tasks.spawn(async move { receiver.changed().await.is_ok() });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let each = (resident_bytes()? - before) / count;
    println!("| the same in plain tokio (task, watch, map entry), {count} of them | {each} |");
    drop(table);
    Ok(())
}

async fn measure_finished(count: usize, keyed: bool) -> MeasureResult {
    let (_runtime, session) = start_runtime().await?;
    let task = |n: usize| {
        let task = NewTask::closure("nothing", |_| async { Ok::<_, JobError>(()) });
        if keyed { task.key(&format!("key {n}")) } else { task }
    };
    let one_after_another = async |from: usize, to: usize| -> MeasureResult {
        for n in from..to {
            session.spawn(task(n)).await?.wait().await?;
        }
        Ok(())
    };
    one_after_another(0, count / 10).await?;
    let before = resident_bytes()?;
    one_after_another(count / 10, count + count / 10).await?;
    let grown = resident_bytes()?.saturating_sub(before);
    let which = if keyed { "finished, collected, keyed" } else { "finished and collected" };
    println!("| bytes per {which} task, {count} of them | {:.1} |", grown as f64 / count as f64);
    Ok(())
}

/// Measures a restart with this number of waiting tasks in a SQLite file.
async fn measure_load(count: usize) -> MeasureResult {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("load.db");
    let open = async || -> Result<Runtime, JobError> {
        let store = SqliteStore::open(&path)?;
        Ok(Runtime::builder()
            .store(store)
            .job_named("wait", RecoveryPolicy::resume_max_crashes(1), wait_for_message)
            .start()
            .await?)
    };
    let runtime = open().await?;
    spawn_waiting(&runtime.session("load").await?, count, job).await?;
    runtime.shutdown().await?;
    let started_at = Instant::now();
    let runtime = open().await?;
    let took = started_at.elapsed();
    let listed = runtime.session("load").await?.list().len();
    println!("| start with {listed} waiting tasks in SQLite | {took:.2?} |");
    runtime.shutdown().await?;
    Ok(())
}

/// A tool that waits for a message. It reports the time at which the call resumes.
#[derive(Debug)]
struct WaitTool {
    spec: ToolSpec,
    resumed_at: mpsc::UnboundedSender<Instant>,
}

impl ToolHandler for WaitTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Recorded)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<Done, ToolError>> {
        Box::pin(async move {
            if call.completion.is_none() {
                return Ok(Done::Park {
                    condition: ConditionRequest::Message { timeout: None, name: None },
                    effect: None,
                });
            }
            let _ = self.resumed_at.send(Instant::now());
            Ok(Done::text("awake"))
        })
    }
}

/// Measures the memory of waiting agents, and the time to wake one of them. The time runs from the
/// message until the agent is rebuilt from its transcript and its parked call resumes.
async fn measure_agents(count: usize) -> MeasureResult {
    const WAKES: usize = 2_000;
    let script = Script::parse("footprint", "agent *\nturn\n  repeat\n  call wait {}\n")?;
    let (resumed_at, mut wakes) = mpsc::unbounded_channel();
    let spec = ToolSpec {
        name: "wait".into(),
        description: "Waits for a message.".into(),
        parameters: Arc::new(serde_json::json!({ "type": "object" })),
    };
    let agents = AgentOptions::new(OneModel(Arc::new(ScriptedModel::new(script))))
        .model("scripted")
        .tool(WaitTool { spec, resumed_at });
    let options = MemoryOptions {
        max_events: 1_000,
        max_finished_tasks: 1_000,
        max_processed_messages: 1_000,
    };
    let store = MemoryStore::with_options(options);
    let runtime = Runtime::builder().store(store).agents(agents).start().await?;
    let session = runtime.session("footprint").await?;
    let agent = || NewTask::agent("Wait for a message.").erase();
    spawn_waiting(&session, 1_000, agent).await?;
    let before = resident_bytes()?;
    spawn_waiting(&session, count, agent).await?;
    let each = (resident_bytes()? - before) / count;
    println!("| bytes per waiting agent, {count} of them | {each} |");
    let tasks = session.list();
    let mut took = Vec::with_capacity(WAKES);
    for n in 0..WAKES {
        let no = tasks[n * 7_919 % tasks.len()].no;
        let sent_at = Instant::now();
        session.send(no, "wake up").await?;
        let woke_at = wakes.recv().await.ok_or_else(|| JobError::new("no agent wakes"))?;
        took.push(woke_at.duration_since(sent_at));
        while session.get(no).await?.row.state.label() != "waiting" {
            tokio::task::yield_now().await;
        }
    }
    took.sort_unstable();
    let p50 = took[WAKES / 2];
    let p99 = took[WAKES * 99 / 100];
    println!("| waking one of {count} waiting agents, p50 and p99 | {p50:.1?}, {p99:.1?} |");
    Ok(())
}
