//! How much memory tasks need: waiting ones, and finished ones. Each figure comes from a process
//! of its own, beside plain tokio doing the same. Run by `cargo xtask bench`.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::agent::{BoxFuture, ToolInvocation, ToolReply as Done};
use brigade::model::call::ConditionRequest;
use brigade::store::memory::{MemoryOptions, MemoryStore};
use brigade::{
    AgentOptions, ExecutionHints, JobContext, JobError, NewTask, OneModel, RecoveryPolicy, Runtime,
    Script, ScriptedModel, Session, SqliteStore, Tool, ToolEffect, ToolError, ToolSpec,
};
use tokio::sync::{mpsc, watch};

const FEW: usize = 100_000;
const MANY: usize = 1_000_000;

type Measured = Result<(), JobError>;

fn main() -> Measured {
    let mut tokio = tokio::runtime::Builder::new_multi_thread();
    tokio.worker_threads(2).enable_time();
    let Some(what) = std::env::args().nth(1) else { return all() };
    tokio.build()?.block_on(async {
        match what.as_str() {
            "waiting" => waiting(FEW).await,
            "waiting-many" => waiting(MANY).await,
            "waiting-tokio" => waiting_tokio(FEW).await,
            "finished" => finished(FEW, false).await,
            "finished-keyed" => finished(FEW, true).await,
            "load" => load(MANY).await,
            "agents" => agents(FEW).await,
            other => Err(JobError::new(format!("nothing is called {other}"))),
        }
    })
}

/// Starts this program again for each figure.
fn all() -> Measured {
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

/// Resident bytes of this process.
fn resident() -> Result<usize, JobError> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = text.split_whitespace().nth(1).unwrap_or("0").parse()?;
    Ok(pages * 4096)
}

async fn kitchen() -> Result<(Runtime, Session), JobError> {
    let options = MemoryOptions {
        max_events: 1_000,
        max_finished_tasks: 1_000,
        max_processed_messages: 1_000,
    };
    let builder = Runtime::builder().store(MemoryStore::with_options(options));
    let runtime = builder.job("rest", RecoveryPolicy::resume(1), rest).start().await?;
    let session = runtime.session("footprint").await?;
    Ok((runtime, session))
}

async fn rest(ctx: JobContext, (): ()) -> Result<(), JobError> {
    Ok(ctx.receive().await.map(|_| ())?)
}

fn job() -> NewTask {
    NewTask::job("rest", ())
}

/// Spawns batch by batch, each when the one before is at rest, so that what is measured is what
/// waiting tasks need and not the futures of a burst.
async fn spawn_waiting(session: &Session, count: usize, task: fn() -> NewTask) -> Measured {
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

async fn waiting(count: usize) -> Measured {
    let (_runtime, session) = kitchen().await?;
    spawn_waiting(&session, 1_000, job).await?;
    let before = resident()?;
    spawn_waiting(&session, count, job).await?;
    let each = (resident()? - before) / count;
    println!("| bytes per waiting task, {count} of them | {each} |");
    Ok(())
}

async fn waiting_tokio(count: usize) -> Measured {
    let before = resident()?;
    let mut table = HashMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    for id in 0..count {
        let (sender, mut receiver) = watch::channel(false);
        table.insert(id, sender);
        tasks.spawn(async move { receiver.changed().await.is_ok() });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    let each = (resident()? - before) / count;
    println!("| the same in plain tokio (task, watch, map entry), {count} of them | {each} |");
    drop(table);
    Ok(())
}

async fn finished(count: usize, keyed: bool) -> Measured {
    let (_runtime, session) = kitchen().await?;
    let task = |n: usize| {
        let task = NewTask::closure("nothing", |_| async { Ok::<_, JobError>(()) });
        if keyed { task.key(&format!("key {n}")) } else { task }
    };
    let one_after_another = async |from: usize, to: usize| -> Measured {
        for n in from..to {
            session.spawn(task(n)).await?.wait().await?;
        }
        Ok(())
    };
    one_after_another(0, count / 10).await?;
    let before = resident()?;
    one_after_another(count / 10, count + count / 10).await?;
    let grown = resident()?.saturating_sub(before);
    let which = if keyed { "finished, collected, keyed" } else { "finished and collected" };
    println!("| bytes per {which} task, {count} of them | {:.1} |", grown as f64 / count as f64);
    Ok(())
}

/// How long a restart takes with so many waiting tasks in a SQLite file.
async fn load(count: usize) -> Measured {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("load.db");
    let open = async || -> Result<Runtime, JobError> {
        let store = SqliteStore::open(&path, Default::default())?;
        Ok(Runtime::builder()
            .store(store)
            .job("rest", RecoveryPolicy::resume(1), rest)
            .start()
            .await?)
    };
    let runtime = open().await?;
    spawn_waiting(&runtime.session("load").await?, count, job).await?;
    runtime.shutdown().await?;
    let began = Instant::now();
    let runtime = open().await?;
    let took = began.elapsed();
    let listed = runtime.session("load").await?.list().len();
    println!("| start with {listed} waiting tasks in SQLite | {took:.2?} |");
    runtime.shutdown().await?;
    Ok(())
}

/// An agent's way to wait for a message. It notes when the agent is back in the call.
#[derive(Debug)]
struct Rest(ToolSpec, mpsc::UnboundedSender<Instant>);

impl Tool for Rest {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Recorded)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<Done, ToolError>> {
        Box::pin(async move {
            if call.completion.is_none() {
                return Ok(Done::Park {
                    asked: ConditionRequest::Message { patience: None },
                    effect: None,
                });
            }
            let _ = self.1.send(Instant::now());
            Ok(Done::text("awake"))
        })
    }
}

/// How much memory waiting agents need, and how long one of them takes to wake: from the message
/// until it is built again from its conversation and goes on in the call that waited.
async fn agents(count: usize) -> Measured {
    const WAKES: usize = 2_000;
    let script = Script::parse("footprint", "agent *\nturn\n  repeat\n  call rest {}\n")?;
    let (woken, mut wakes) = mpsc::unbounded_channel();
    let spec = ToolSpec {
        name: "rest".into(),
        description: "Waits for a message.".into(),
        parameters: Arc::new(serde_json::json!({ "type": "object" })),
    };
    let agents = AgentOptions::new(OneModel(Arc::new(ScriptedModel::new(script))))
        .model("scripted")
        .tool(Rest(spec, woken));
    let options = MemoryOptions {
        max_events: 1_000,
        max_finished_tasks: 1_000,
        max_processed_messages: 1_000,
    };
    let store = MemoryStore::with_options(options);
    let runtime = Runtime::builder().store(store).agents(agents).start().await?;
    let session = runtime.session("footprint").await?;
    let agent = || NewTask::agent("Rest until somebody calls.");
    spawn_waiting(&session, 1_000, agent).await?;
    let before = resident()?;
    spawn_waiting(&session, count, agent).await?;
    let each = (resident()? - before) / count;
    println!("| bytes per waiting agent, {count} of them | {each} |");
    let tasks = session.list();
    let mut took = Vec::with_capacity(WAKES);
    for n in 0..WAKES {
        let no = tasks[n * 7_919 % tasks.len()].0;
        let sent = Instant::now();
        session.send(no, "wake up").await?;
        let woke = wakes.recv().await.ok_or_else(|| JobError::new("nobody wakes"))?;
        took.push(woke.duration_since(sent));
        while session.get(no).await?.1.state.label() != "waiting" {
            tokio::task::yield_now().await;
        }
    }
    took.sort_unstable();
    let (half, most) = (took[WAKES / 2], took[WAKES * 99 / 100]);
    println!("| waking one of {count} waiting agents, p50 and p99 | {half:.1?}, {most:.1?} |");
    Ok(())
}
