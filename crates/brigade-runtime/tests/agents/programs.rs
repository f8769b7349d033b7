//! Backends whose work is a program: it is a part of the agent, and outlives the runtime.

use std::sync::Arc;
use std::time::Duration;

use brigade_agent::agent_program::{
    AgentProgram, OutputPiece, ProgramEnd, ProgramOutput, ProgramSpec, ProgramStart, ProgramStream,
};
use brigade_agent::{AgentExit, AgentOverrides, Backend, BackendRun, BoxFuture, JournalRecord};
use brigade_model::call::{CallCompletion, JournalEntry};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{CallIndex, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::outcome::Outcome;
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;
use brigade_runtime::{NewTask, ProcessOptions, Runtime, Session, TaskHandle};
use brigade_store::{MemoryStore, Store};
use tempfile::TempDir;
use tokio::sync::Notify;

use crate::support::{final_message, script};

const PROGRAM_INDEX: CallIndex = CallIndex(1);
const FIRST_LINE_INDEX: CallIndex = CallIndex(2);
const END_INDEX: CallIndex = CallIndex(3);

/// A backend that writes two lines to a program, and ends with what the program printed.
#[derive(Debug, Default)]
struct Lines {
    command: &'static str,
    /// Holds the backend after the first line was written and read, before that is recorded.
    hold: Option<Arc<Notify>>,
    first_line: Arc<Notify>,
}

impl Backend for Lines {
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async move { self.converse(&run).await.unwrap_or_else(AgentExit::Refused) })
    }
}

impl Lines {
    async fn converse(&self, run: &BackendRun<'_>) -> Result<AgentExit, Refusal> {
        let recorded = |index| find_entry(&run.input.journal, index);
        let program = self.start(run, recorded(PROGRAM_INDEX)).await?;
        let mut output = program.read_output(0).await?;
        let mut printed = Vec::new();
        program.write(0, b"one\n".as_slice().into()).await?;
        read_line(&mut *output, &mut printed).await?;
        self.first_line.notify_one();
        if recorded(FIRST_LINE_INDEX).is_none() {
            if let Some(hold) = &self.hold {
                hold.notified().await;
            }
            let value = Arc::new(CallCompletion::Value(Json::of("one")?));
            run.host
                .record(vec![JournalRecord::new(FIRST_LINE_INDEX, EntryLabel::Note, value)])
                .await?;
        }
        program.write(4, b"two\n".as_slice().into()).await?;
        program.close_input(8).await?;
        while output.next().await?.is_some_and(|piece| {
            printed.extend(piece.bytes);
            true
        }) {}
        run.host.park(END_INDEX, program.end_condition()).await?;
        let (_, completion) = run.host.next_completion().await;
        let end = ProgramEnd::of(&completion).expect("the end of a program");
        let result = format!("{} {}", String::from_utf8_lossy(&printed), end.outcome);
        match run.host.finish(Vec::new(), Json::of(&result)?).await? {
            true => Ok(AgentExit::Finished),
            false => Err(Refusal::internal("its inbox is not empty")),
        }
    }

    async fn start(
        &self,
        run: &BackendRun<'_>,
        recorded: Option<Arc<CallCompletion>>,
    ) -> Result<Arc<dyn AgentProgram>, Refusal> {
        let command_line = ["sh", "-c", self.command].map(str::to_owned).to_vec();
        let spec = ProgramSpec { command_line, cwd: None, env: Default::default(), grace: None };
        let start = ProgramStart { index: PROGRAM_INDEX, recorded, spec };
        run.host.programs().expect("a runtime has programs").start_program(start).await
    }
}

fn find_entry(journal: &[JournalEntry], index: CallIndex) -> Option<Arc<CallCompletion>> {
    journal.iter().find(|entry| entry.index == index).map(|entry| entry.completion.clone())
}

async fn read_line(output: &mut dyn ProgramOutput, printed: &mut Vec<u8>) -> Result<(), Refusal> {
    while !printed.ends_with(b"\n") {
        let Some(OutputPiece { stream: ProgramStream::Stdout, bytes, .. }) = output.next().await?
        else {
            return Err(Refusal::internal("there is no line"));
        };
        printed.extend(bytes);
    }
    Ok(())
}

struct World {
    dir: TempDir,
    store: Arc<dyn Store>,
    runtime: Runtime,
    session: Session,
}

async fn open(dir: TempDir, store: Arc<dyn Store>, lines: Lines) -> World {
    let options = script("agent A\nturn\n say Never.\n").backend("lines", lines);
    let builder = Runtime::builder().shared_store(store.clone());
    let builder = builder.processes(ProcessOptions::new(dir.path())).agents(options);
    let builder = builder.max_running(1);
    let runtime = builder.start().await.unwrap();
    let session = runtime.session("test").await.unwrap();
    World { dir, store, runtime, session }
}

async fn open_new(lines: Lines) -> World {
    open(TempDir::new().unwrap(), Arc::new(MemoryStore::default()), lines).await
}

async fn spawn(world: &World, limits: Limits) -> TaskHandle<String> {
    let overrides = AgentOverrides { backend: Some("lines".into()), ..AgentOverrides::default() };
    let task = NewTask::agent("talk").overrides(&overrides).limits(limits);
    world.session.spawn(task).await.unwrap()
}

async fn program_task(world: &World) -> StoredTask {
    let operator = world.runtime.operator_session(world.session.id()).await.unwrap();
    operator.get(TaskNo::new(2).unwrap()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_talks_to_a_program_within_all_limits() {
    let world = open_new(Lines { command: "cat", ..Lines::default() }).await;
    let limits = Limits {
        running: Some(1),
        width: Some(1),
        total: Some(1),
        depth: Some(1),
        ..Limits::default()
    };
    let agent = spawn(&world, limits).await;
    assert_eq!(final_message(&agent.wait().await.unwrap()), "one\ntwo\n succeeded");
    let program = program_task(&world).await;
    assert!(program.row.spec.part_of_parent);
    assert!(program.row.is_collected());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_runtime_goes_on_with_the_program_and_writes_nothing_twice() {
    let first_line = Arc::new(Notify::new());
    let hold = Some(Arc::new(Notify::new()));
    let lines = Lines { command: "cat", hold, first_line: first_line.clone() };
    let world = open_new(lines).await;
    let agent = spawn(&world, Limits::default()).await;
    first_line.notified().await;
    let no = agent.no();
    drop(agent);
    let World { dir, store, runtime, session } = world;
    drop(session);
    runtime.shutdown().await.unwrap();
    let world = open(dir, store, Lines { command: "cat", ..Lines::default() }).await;
    let result = world.session.wait_all([no]).await.unwrap();
    assert_eq!(final_message(&result[0]), "one\ntwo\n succeeded");
    assert_eq!(program_task(&world).await.row.attempt.0, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_of_the_agent_ends_its_program() {
    let first_line = Arc::new(Notify::new());
    let hold = Some(Arc::new(Notify::new()));
    let lines = Lines {
        command: "read line; echo $line; exec sleep 1000",
        hold,
        first_line: first_line.clone(),
    };
    let world = open_new(lines).await;
    let agent = spawn(&world, Limits::default()).await;
    first_line.notified().await;
    agent.stop(None).await.unwrap();
    let ended = agent.wait_within(Duration::from_secs(60)).await.unwrap().expect("it ends");
    assert!(matches!(*ended.outcome, Outcome::Cancelled(_)), "{}", ended.outcome);
    let program = program_task(&world).await;
    assert_eq!(program.row.state.label(), "cancelled");
}
