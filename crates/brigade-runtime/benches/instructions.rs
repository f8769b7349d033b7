//! The hottest paths, each repeated a fixed number of times, for counting instructions.
//!
//! `cargo xtask test --only instructions` runs this program under valgrind. It takes the name of a
//! path and a number of repetitions. The preparation is the same for any number, so the difference
//! of two runs is the cost of the repetitions alone. One thread and a clock that stands still keep
//! the counts steady.

use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;

use brigade_agent::{
    BoxFuture, ExecutionHints, ToolEffect, ToolError, ToolHandler, ToolInvocation, ToolReply,
};
use brigade_llm::{Script, ScriptedModel, ToolSpec};
use brigade_model::address::TaskRef;
use brigade_model::command::{Caller, Command, SpawnCommand};
use brigade_model::event::EventRecord;
use brigade_model::ids::{Epoch, SessionId, Time};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_model::spec::TaskSpec;
use brigade_model::task_tree::TaskTree;
use brigade_model::transition::{SessionOpening, handle_command, open_session};
use brigade_model::work::{JobWork, RecoveryPolicy, Work};
use brigade_runtime::{
    AgentOptions, Job, JobContext, JobError, JobTask, NewTask, OneModel, Runtime, Session,
    TaskHandle,
};
use brigade_sqlite::SqliteStore;
use brigade_store::{MemoryOptions, MemoryStore, codec};
use brigade_testkit::ManualClock;
use tokio::sync::{mpsc, watch};

/// The tasks that a path prepares: the largest number of repetitions.
const REPEATS_MAX: usize = 300;
/// The messages that are received together.
const MESSAGES: usize = 100;
/// The children of the root of a stopped tree, and the tasks of each child's chain.
const CHAINS: usize = 10;
const CHAIN_DEPTH: usize = 10;
const NOW: Time = Time(1_000_000);

/// A job that records this number of steps.
const RECORD_STEPS: Job<usize, ()> = Job::new("record_steps");
/// A job that sleeps until it is stopped.
const SLEEP: Job<(), ()> = Job::new("sleep");

type PathResult = Result<(), Box<dyn std::error::Error>>;

fn main() -> PathResult {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let (Some(path), Some(repeats)) = (args.next(), args.next()) else {
        println!("usage: instructions PATH REPEATS");
        return Ok(());
    };
    let repeats: usize = repeats.parse()?;
    if repeats > REPEATS_MAX {
        return Err(format!("at most {REPEATS_MAX} repetitions are prepared").into());
    }
    let tokio = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    tokio.block_on(run_path(&path, repeats))?;
    // The cleanup of the prepared tasks is not part of a path.
    std::process::exit(0);
}

async fn run_path(path: &str, repeats: usize) -> PathResult {
    match path {
        "job_on_memory" => run_jobs(start_runtime().await?, repeats).await,
        "job_on_sqlite" => run_jobs_on_sqlite(repeats).await,
        "wait" => wait_for_tasks(repeats).await,
        "send_and_receive" => send_and_receive(repeats).await,
        "receive_all_100" => receive_all(repeats).await,
        "stop_one" => stop_tasks(repeats).await,
        "stop_tree_101" => stop_trees(repeats).await,
        "recorded_step" => record_steps(repeats).await,
        "agent_with_one_tool_call" => run_agents(repeats).await,
        "decide_and_apply_spawn" => decide_spawns(repeats),
        "encode_event" => encode_events(repeats),
        other => Err(format!("unknown path {other}").into()),
    }
}

fn memory_store() -> MemoryStore {
    MemoryStore::with_options(MemoryOptions {
        max_events: 10_000,
        max_finished_tasks: 1_000,
        max_processed_messages: 1_000,
    })
}

async fn start_runtime() -> Result<Runtime, Refusal> {
    let builder = Runtime::builder().store(memory_store()).clock(Arc::new(ManualClock::at(NOW)));
    builder.job(RECORD_STEPS, record_steps_job).job(SLEEP, sleep_long).start().await
}

async fn record_steps_job(ctx: JobContext, count: usize) -> Result<(), JobError> {
    for n in 0..count {
        ctx.step("count", || async move { Ok::<_, JobError>(n) }).await?;
    }
    Ok(())
}

async fn sleep_long(ctx: JobContext, (): ()) -> Result<(), JobError> {
    Ok(ctx.sleep(std::time::Duration::from_secs(1_000_000)).await?)
}

fn nothing() -> NewTask<JobTask<()>> {
    NewTask::closure("nothing", |_| async { Ok::<_, JobError>(()) })
}

/// Spawns jobs one after another, each until its result is collected.
async fn run_jobs(runtime: Runtime, repeats: usize) -> PathResult {
    let session = runtime.session("jobs").await?;
    for _ in 0..repeats {
        black_box(session.spawn(nothing()).await?.wait().await?);
    }
    Ok(())
}

async fn run_jobs_on_sqlite(repeats: usize) -> PathResult {
    let dir = tempfile::tempdir()?;
    let store = SqliteStore::open(dir.path().join("instructions.db"))?;
    let builder = Runtime::builder().store(store).clock(Arc::new(ManualClock::at(NOW)));
    run_jobs(builder.start().await?, repeats).await
}

/// Waits for tasks that run until their waiter waits. Includes the end of the task.
async fn wait_for_tasks(repeats: usize) -> PathResult {
    let runtime = start_runtime().await?;
    let session = runtime.session("waits").await?;
    let mut tasks = Vec::with_capacity(REPEATS_MAX);
    for _ in 0..REPEATS_MAX {
        let (release, mut released) = watch::channel(false);
        let task = NewTask::closure("released", move |_| async move {
            Ok::<_, JobError>(released.wait_for(|released| *released).await.map(|_| ())?)
        });
        tasks.push((session.spawn(task).await?, release));
    }
    for (task, release) in tasks.iter().take(repeats) {
        let mut wait = pin!(task.wait());
        // The wait is parked in the loop when the loop has had its turn.
        tokio::select! {
            biased;
            _ = &mut wait => return Err("the task ended before its release".into()),
            () = let_loop_run() => {}
        }
        release.send_replace(true);
        black_box(wait.await?);
    }
    Ok(())
}

/// Returns when the loop and everything that it has woken have had their turns.
async fn let_loop_run() {
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

/// Sends messages to a job one by one, and waits until it has received each.
async fn send_and_receive(repeats: usize) -> PathResult {
    let runtime = start_runtime().await?;
    let session = runtime.session("messages").await?;
    let (received, mut receipts) = mpsc::unbounded_channel();
    let receiver = NewTask::closure("receiver", move |ctx: JobContext| async move {
        loop {
            received.send(ctx.receive().await?)?;
        }
        #[expect(unreachable_code, reason = "it names the type of the result")]
        Ok::<(), JobError>(())
    });
    let receiver = session.spawn(receiver).await?;
    for n in 0..repeats {
        session.send(receiver.no(), n).await?;
        black_box(receipts.recv().await.ok_or("the receiver has ended")?);
    }
    Ok(())
}

/// Sends messages in batches, and waits until a job has received each batch.
async fn receive_all(repeats: usize) -> PathResult {
    let runtime = start_runtime().await?;
    let limits = Limits { inbox: Some(u32::MAX), ..Limits::default() };
    let session = runtime.session_with("messages", limits).await?;
    let (received, mut receipts) = mpsc::unbounded_channel();
    let receiver = NewTask::closure("receiver", move |ctx: JobContext| async move {
        loop {
            received.send(ctx.receive_all().await?.len())?;
        }
        #[expect(unreachable_code, reason = "it names the type of the result")]
        Ok::<(), JobError>(())
    });
    let to = TaskRef::from(session.spawn(receiver).await?.no());
    for _ in 0..repeats {
        session.send_all((0..MESSAGES).map(|n| (to.clone(), n))).await?;
        let mut count = 0;
        while count < MESSAGES {
            count += receipts.recv().await.ok_or("the receiver has ended")?;
        }
    }
    Ok(())
}

/// Stops suspended tasks one by one.
async fn stop_tasks(repeats: usize) -> PathResult {
    let runtime = start_runtime().await?;
    let session = runtime.session("stops").await?;
    let tasks = spawn_all(&session, (0..REPEATS_MAX).map(|_| SLEEP.with(()))).await?;
    wait_until_waiting(&session).await;
    for task in tasks.iter().take(repeats) {
        black_box(task.stop(None).await?);
    }
    Ok(())
}

async fn spawn_all(
    session: &Session,
    tasks: impl Iterator<Item = NewTask<JobTask<()>>>,
) -> Result<Vec<TaskHandle<()>>, Refusal> {
    session.spawn_all(tasks).await?.into_iter().collect()
}

async fn wait_until_waiting(session: &Session) {
    while session.list().iter().any(|task| task.row.state.label() != "waiting") {
        tokio::task::yield_now().await;
    }
}

/// Returns a closure that spawns the rest of a chain, and runs until it is stopped.
fn chain(depth: usize, built: mpsc::UnboundedSender<()>) -> NewTask<JobTask<()>> {
    NewTask::closure("link", move |ctx: JobContext| async move {
        match depth {
            1 => built.send(())?,
            _ => ctx.spawn(chain(depth - 1, built)).await.map(|_| ())?,
        }
        ctx.stop_token().cancelled().await;
        Ok::<_, JobError>(())
    })
}

/// Stops trees of running tasks, each to the end of its last task.
async fn stop_trees(repeats: usize) -> PathResult {
    let runtime = start_runtime().await?;
    let session = runtime.session("trees").await?;
    let mut roots = Vec::new();
    for _ in 0..REPEATS_MAX / 10 {
        let (built, mut chains) = mpsc::unbounded_channel();
        let root = NewTask::closure("root", move |ctx: JobContext| async move {
            for _ in 0..CHAINS {
                ctx.spawn(chain(CHAIN_DEPTH, built.clone())).await?;
            }
            ctx.stop_token().cancelled().await;
            Ok::<_, JobError>(())
        });
        roots.push(session.spawn(root).await?);
        for _ in 0..CHAINS {
            chains.recv().await.ok_or("a chain has ended")?;
        }
    }
    for root in roots.iter().take(repeats) {
        root.stop(None).await?;
        black_box(root.wait().await?);
    }
    Ok(())
}

/// Runs one job with this number of recorded steps.
async fn record_steps(repeats: usize) -> PathResult {
    let runtime = start_runtime().await?;
    let session = runtime.session("steps").await?;
    Ok(session.spawn(RECORD_STEPS.with(repeats)).await?.result().await?)
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

    fn call(&self, _call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async { Ok(ToolReply::text("It is hot.")) })
    }
}

/// Runs agents one after another, each until its result is collected.
async fn run_agents(repeats: usize) -> PathResult {
    let look = Look(ToolSpec {
        name: "look".into(),
        description: "Looks at something.".into(),
        parameters: Arc::new(serde_json::json!({ "type": "object" })),
    });
    let model = ScriptedModel::new(Script::parse("instructions", SCRIPT)?);
    let agents = AgentOptions::new(OneModel(Arc::new(model))).model("scripted").tool(look);
    let builder = Runtime::builder().store(memory_store()).clock(Arc::new(ManualClock::at(NOW)));
    let runtime = builder.agents(agents).start().await?;
    let session = runtime.session("agents").await?;
    for _ in 0..repeats {
        let result = session.spawn(NewTask::agent("Look.")).await?.wait().await?;
        if !result.outcome.is_success() {
            return Err(result.outcome.to_string().into());
        }
    }
    Ok(())
}

fn spawn_command() -> Command {
    let recovery = RecoveryPolicy::resume_max_crashes(2);
    let work = JobWork::Named { handler: "cook".into(), args: Json::null(), recovery };
    let spec = Arc::new(TaskSpec::new(Work::Job(work)));
    Command::Spawn(SpawnCommand { caller: Caller::Operator, spec, call: None })
}

fn new_tree() -> (TaskTree, Arc<EventRecord>) {
    open_session(SessionOpening {
        id: SessionId::from_uuid(uuid::Uuid::from_u128(1)),
        name: "model".parse().expect("a name"),
        limits: Limits::default(),
        at: NOW,
        epoch: Epoch(1),
    })
}

/// Decides spawns and applies them, without a runtime.
fn decide_spawns(repeats: usize) -> PathResult {
    let (mut tree, _) = new_tree();
    for _ in 0..repeats {
        black_box(handle_command(&mut tree, &spawn_command(), NOW)?);
    }
    Ok(())
}

/// Encodes the event of a spawn, as a store on disk does.
fn encode_events(repeats: usize) -> PathResult {
    let (mut tree, _) = new_tree();
    let handled = handle_command(&mut tree, &spawn_command(), NOW)?;
    let record = handled.outputs.events.first().ok_or("a spawn has an event")?;
    let mut buffer = Vec::new();
    for _ in 0..repeats {
        buffer.clear();
        codec::encode_into(&mut buffer, black_box(&**record))?;
        black_box(&buffer);
    }
    Ok(())
}
