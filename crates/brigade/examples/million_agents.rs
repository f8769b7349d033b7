//! Starts a million agents that wait for a message, and wakes a thousand of them. Prints the resident memory and
//! the times.
//!
//! `cargo run --release -p brigade --example million_agents [COUNT]`

use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade::agent::{BoxFuture, ToolInvocation, ToolReply};
use brigade::model::ConditionRequest;
use brigade::store::{MemoryOptions, MemoryStore};
use brigade::{
    AgentOptions, ExecutionHints, JobError, NewTask, OneModel, Runtime, Script, ScriptedModel,
    Session, TaskNo, TaskRef, ToolEffect, ToolError, ToolHandler, ToolSpec,
};
use tokio::sync::mpsc;

const AGENTS: usize = 1_000_000;
const BATCH: usize = 1_000;
/// The agents that may run at once, so that the figure is the memory of waiting ones.
const IN_FLIGHT_MAX: usize = 2 * BATCH;
/// The program ends with an error after this time.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Each agent calls the tool, and calls it again after each message.
const SCRIPT: &str = "agent *\nturn\n  repeat\n  call wait {}\n";

type MeasureResult<T> = Result<T, JobError>;

fn main() -> MeasureResult<()> {
    let count = match std::env::args().nth(1) {
        Some(count) => count.parse()?,
        None => AGENTS,
    };
    let mut tokio = tokio::runtime::Builder::new_multi_thread();
    tokio.worker_threads(2).enable_time();
    tokio.build()?.block_on(async {
        match tokio::time::timeout(TIME_LIMIT, measure(count)).await {
            Ok(measured) => measured,
            Err(_) => Err(JobError::new(format!("not finished after {TIME_LIMIT:?}"))),
        }
    })
}

/// A call of the tool.
#[derive(Clone, Copy, Debug)]
enum WaitCall {
    /// The agent begins to wait.
    Parks,
    /// The message has arrived, and the agent is rebuilt from its transcript.
    Resumes,
}

/// A tool that waits for a message.
#[derive(Debug)]
struct WaitTool {
    spec: ToolSpec,
    calls: mpsc::UnboundedSender<WaitCall>,
}

impl ToolHandler for WaitTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints::of(ToolEffect::Recorded)
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            if call.completion.is_some() {
                let _ = self.calls.send(WaitCall::Resumes);
                return Ok(ToolReply::text("awake"));
            }
            let _ = self.calls.send(WaitCall::Parks);
            let condition = ConditionRequest::Message { timeout: None, name: None };
            Ok(ToolReply::Park { condition, effect: None })
        })
    }
}

async fn start_runtime(calls: mpsc::UnboundedSender<WaitCall>) -> MeasureResult<Runtime> {
    let spec = ToolSpec {
        name: "wait".into(),
        description: "Waits for a message.".into(),
        parameters: Arc::new(serde_json::json!({ "type": "object" })),
    };
    let model = ScriptedModel::new(Script::parse("million", SCRIPT)?);
    let agents = AgentOptions::new(OneModel(Arc::new(model))).model("scripted");
    let store = MemoryStore::with_options(MemoryOptions {
        max_events: 1_000,
        max_finished_tasks: 1_000,
        max_processed_messages: 1_000,
    });
    let agents = agents.tool(WaitTool { spec, calls });
    Ok(Runtime::builder().store(store).agents(agents).start().await?)
}

async fn measure(count: usize) -> MeasureResult<()> {
    let (calls, mut received) = mpsc::unbounded_channel();
    let runtime = start_runtime(calls).await?;
    let session = runtime.session("million").await?;
    let before = resident_bytes()?;
    let started_at = Instant::now();
    let numbers = start_agents(&session, count, &mut received).await?;
    let took = started_at.elapsed();
    let memory = resident_bytes()? - before;
    println!("| agents that wait for a message | {count} |\n|---|---|");
    println!("| start, until all wait | {took:.2?} |");
    println!("| resident memory | {:.2} GB |", memory as f64 / 1e9);
    println!("| resident memory of one | {} bytes |", memory / count);
    // A thousand of all, as few beside each other as possible.
    let step = (count / BATCH).max(1);
    let some: Vec<TaskNo> = numbers.iter().copied().step_by(step).take(BATCH).collect();
    let took = wake_agents(&session, &some, &mut received).await?;
    println!("| wake {} of them | {took:.2?} |", some.len());
    Ok(())
}

/// Starts agents in batches. Returns their numbers when all wait.
async fn start_agents(
    session: &Session,
    count: usize,
    calls: &mut mpsc::UnboundedReceiver<WaitCall>,
) -> MeasureResult<Vec<TaskNo>> {
    let mut numbers = Vec::with_capacity(count);
    let mut parked = 0;
    while numbers.len() < count {
        let batch = BATCH.min(count - numbers.len());
        let tasks = (0..batch).map(|_| NewTask::agent("Wait for a message."));
        for task in session.spawn_all(tasks).await? {
            numbers.push(task?.no());
        }
        while numbers.len() - parked > IN_FLIGHT_MAX {
            parked += count_parked(calls.recv().await);
        }
    }
    while parked < count {
        parked += count_parked(calls.recv().await);
    }
    wait_until_suspended(session).await;
    Ok(numbers)
}

fn count_parked(call: Option<WaitCall>) -> usize {
    usize::from(matches!(call, Some(WaitCall::Parks)))
}

/// Waits until the last agents are suspended: a call parks a moment before its agent is.
async fn wait_until_suspended(session: &Session) {
    while session.list().iter().any(|task| task.row.state.label() != "waiting") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends a message to each agent. Returns the time until all their calls have resumed.
async fn wake_agents(
    session: &Session,
    numbers: &[TaskNo],
    calls: &mut mpsc::UnboundedReceiver<WaitCall>,
) -> MeasureResult<Duration> {
    let started_at = Instant::now();
    let messages = numbers.iter().map(|no| (TaskRef::from(*no), "wake up"));
    for message in session.send_all(messages).await? {
        message?;
    }
    let mut resumed = 0;
    while resumed < numbers.len() {
        resumed += usize::from(matches!(calls.recv().await, Some(WaitCall::Resumes)));
    }
    Ok(started_at.elapsed())
}

/// Returns the resident bytes of this process.
fn resident_bytes() -> MeasureResult<usize> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: usize = text.split_whitespace().nth(1).unwrap_or("0").parse()?;
    Ok(pages * 4096)
}
