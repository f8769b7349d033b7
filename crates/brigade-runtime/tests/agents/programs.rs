//! Backends whose work is a program: it is a part of the agent, and outlives the runtime.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brigade_agent::agent_program::{
    AgentProgram, OutputPiece, ProgramEnd, ProgramOutput, ProgramSpec, ProgramStart, ProgramStream,
};
use brigade_agent::permission::PermissionRules;
use brigade_agent::{AgentExit, AgentOverrides, Backend, BackendRun, BoxFuture, JournalRecord};
use brigade_model::call::{CallCompletion, JournalEntry};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{Attempt, CallIndex, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::outcome::Outcome;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::sandbox::SandboxRequest;
use brigade_model::task::{StoredTask, TaskState};
use brigade_model::work::EnvValue;
use brigade_process::LandlockSupport;
use brigade_runtime::{InputPiece, NewTask, ProcessOptions, Runtime, Session, TaskHandle};
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
    env: BTreeMap<String, EnvValue>,
    /// Holds the backend after the first line was written and read, before that is recorded.
    hold: Option<Arc<Notify>>,
    first_line: Arc<Notify>,
    asks_permission: bool,
}

impl Backend for Lines {
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async move { self.converse(&run).await.unwrap_or_else(AgentExit::Refused) })
    }

    fn asks_permission(&self) -> bool {
        self.asks_permission
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
        let spec = ProgramSpec { command_line, cwd: None, env: self.env.clone(), grace: None };
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

async fn open(dir: TempDir, store: Arc<dyn Store>, lines: Lines, slots: u32) -> World {
    let options = script("agent A\nturn\n say Never.\n").backend("lines", lines);
    let builder = Runtime::builder().shared_store(store.clone());
    let builder = builder.processes(ProcessOptions::new(dir.path())).agents(options);
    let builder = builder.max_running(slots);
    let runtime = builder.start().await.unwrap();
    let session = runtime.session("test").await.unwrap();
    World { dir, store, runtime, session }
}

async fn open_new(lines: Lines) -> World {
    open_with_slots(lines, 1).await
}

async fn open_with_slots(lines: Lines, slots: u32) -> World {
    open(TempDir::new().unwrap(), Arc::new(MemoryStore::default()), lines, slots).await
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
    let lines = Lines { command: "cat", hold, first_line: first_line.clone(), ..Lines::default() };
    let world = open_new(lines).await;
    let agent = spawn(&world, Limits::default()).await;
    first_line.notified().await;
    let no = agent.no();
    drop(agent);
    let World { dir, store, runtime, session } = world;
    drop(session);
    runtime.shutdown().await.unwrap();
    let world = open(dir, store, Lines { command: "cat", ..Lines::default() }, 1).await;
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
        ..Lines::default()
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

#[tokio::test(flavor = "multi_thread")]
async fn a_program_acts_as_its_agent() {
    let first_line = Arc::new(Notify::new());
    let hold = Arc::new(Notify::new());
    let lines = Lines {
        command: "cat",
        hold: Some(hold.clone()),
        first_line: first_line.clone(),
        ..Lines::default()
    };
    let world = open_with_slots(lines, 2).await;
    let agent = spawn(&world, Limits::default()).await;
    first_line.notified().await;
    let program = program_task(&world).await;
    let id = brigade_runtime::TaskId { session: world.session.id(), no: program.no };
    let inside = world.runtime.task_session(id, program.row.attempt).await.unwrap();
    let child = inside.spawn(NewTask::shell("true")).await.unwrap();
    let operator = world.runtime.operator_session(world.session.id()).await.unwrap();
    let spawned = operator.get(child.no()).await.unwrap();
    assert_eq!(spawned.row.owner.task(), Some(agent.no()), "the child of the agent");
    inside.wait_all([child.no()]).await.unwrap();
    let stale = Attempt(program.row.attempt.0 + 1);
    let stale = world.runtime.task_session(id, stale).await.unwrap();
    let refusal = stale.spawn(NewTask::shell("true")).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Ended, "{}", refusal.message);
    hold.notify_one();
    assert_eq!(final_message(&agent.wait().await.unwrap()), "one\ntwo\n succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_of_an_agent_hold_for_its_program() {
    let first_line = Arc::new(Notify::new());
    let hold = Arc::new(Notify::new());
    let lines = Lines {
        command: "cat",
        hold: Some(hold.clone()),
        first_line: first_line.clone(),
        ..Lines::default()
    };
    let world = open_with_slots(lines, 9).await;
    let overrides = AgentOverrides { backend: Some("lines".into()), ..AgentOverrides::default() };
    let rules = PermissionRules {
        deny: vec!["run_process(touch *)".parse().unwrap(), "spawn_agent".parse().unwrap()],
        ask: vec!["run_process(git *)".parse().unwrap()],
        ..PermissionRules::all()
    };
    let task = NewTask::agent("talk").overrides(&overrides).permissions(rules);
    let agent = world.session.spawn(task).await.unwrap();
    first_line.notified().await;
    let program = program_task(&world).await;
    let id = brigade_runtime::TaskId { session: world.session.id(), no: program.no };
    let inside = world.runtime.task_session(id, program.row.attempt).await.unwrap();
    for refused in ["touch x", "git push"] {
        let refusal = inside.spawn(NewTask::shell(refused)).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Forbidden, "{refused}: {}", refusal.message);
    }
    let refusal = inside.spawn(NewTask::agent("talk")).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Forbidden, "{}", refusal.message);
    inside.spawn(NewTask::shell("true")).await.unwrap();
    // Only the agent itself writes to its program.
    for session in [&inside, &world.session] {
        let piece = InputPiece { writer: 7, offset: 0, bytes: Arc::default(), closes_input: true };
        let refusal = session.write_input(program.no, piece).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Forbidden, "{}", refusal.message);
        assert!(session.send(program.no, "two").await.is_err());
    }
    hold.notify_one();
    agent.wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_an_unattended_agent_needs_a_rule_that_allows_its_processes() {
    for is_unattended in [false, true] {
        let first_line = Arc::new(Notify::new());
        let hold = Arc::new(Notify::new());
        let lines = Lines {
            command: "cat",
            hold: Some(hold.clone()),
            first_line: first_line.clone(),
            asks_permission: true,
            ..Lines::default()
        };
        let world = open_with_slots(lines, 9).await;
        let backend = Some("lines".into());
        let overrides = AgentOverrides { backend, ..AgentOverrides::default() };
        let ask = vec!["run_process".parse().unwrap()];
        let rules = PermissionRules { ask, ..PermissionRules::all() };
        let task = NewTask::agent("talk").overrides(&overrides).permissions(rules);
        let task = if is_unattended { task.unattended() } else { task };
        let agent = world.session.spawn(task).await.unwrap();
        first_line.notified().await;
        let program = program_task(&world).await;
        let id = brigade_runtime::TaskId { session: world.session.id(), no: program.no };
        let inside = world.runtime.task_session(id, program.row.attempt).await.unwrap();
        let spawned = inside.spawn(NewTask::shell("true")).await;
        let refusal = spawned.err().map(|refusal| refusal.kind);
        assert_eq!(refusal, is_unattended.then_some(RefusalKind::Forbidden));
        hold.notify_one();
        agent.wait().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxed_program_gets_the_variables_that_its_backend_passes() {
    if let Err(problem) = LandlockSupport::detect().check() {
        eprintln!("not tested: this kernel cannot sandbox processes ({problem:?})");
        return;
    }
    let first_line = Arc::new(Notify::new());
    let hold = Arc::new(Notify::new());
    // Cargo sets this variable for every test.
    let passed = EnvValue::FromEnv("CARGO_PKG_NAME".into());
    let lines = Lines {
        command: "read line; echo $NAME; cat",
        env: BTreeMap::from([("NAME".to_owned(), passed.clone())]),
        hold: Some(hold.clone()),
        first_line: first_line.clone(),
        ..Lines::default()
    };
    let world = open_with_slots(lines, 2).await;
    let work = TempDir::new().unwrap();
    let overrides = AgentOverrides { backend: Some("lines".into()), ..AgentOverrides::default() };
    let task = NewTask::agent("talk").overrides(&overrides).cwd(work.path());
    let agent = world.session.spawn(task.sandbox(SandboxRequest::default())).await.unwrap();
    tokio::select! {
        () = first_line.notified() => {}
        ended = agent.wait() => panic!("it ended: {}", ended.unwrap().outcome),
    }
    let program = program_task(&world).await;
    assert_eq!(program.row.spec.work.sandbox().unwrap().layers.len(), 1);
    // The program itself cannot read other variables of the runtime in this way.
    let id = brigade_runtime::TaskId { session: world.session.id(), no: program.no };
    let inside = world.runtime.task_session(id, program.row.attempt).await.unwrap();
    let refusal = inside.spawn(NewTask::shell("true").env("NAME", passed)).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Forbidden, "{}", refusal.message);
    assert!(refusal.message.contains("NAME refers to a variable"), "{}", refusal.message);
    hold.notify_one();
    let printed = final_message(&agent.wait().await.unwrap());
    assert_eq!(printed, "brigade-runtime\ntwo\n succeeded");
}

/// Returns the output of a program in a sandbox whose backend passes a variable of the runtime.
async fn printed_variable(by_sandboxed_task: bool, withholds: bool) -> String {
    let passed = EnvValue::FromEnv("CARGO_PKG_NAME".into());
    let lines = Lines {
        command: "read line; echo ${NAME-unset} $FIXED; cat",
        env: BTreeMap::from([("NAME".to_owned(), passed), ("FIXED".to_owned(), "fixed".into())]),
        ..Lines::default()
    };
    let world = open_with_slots(lines, 9).await;
    let work = TempDir::new().unwrap();
    let overrides = AgentOverrides { backend: Some("lines".into()), ..AgentOverrides::default() };
    let task = NewTask::agent("talk").overrides(&overrides).cwd(work.path());
    let task = if withholds { task.withhold_variables() } else { task };
    let limits = Limits { tokens: Some(1000), ..Limits::default() };
    let sandbox = SandboxRequest { agents: true, ..SandboxRequest::default() };
    match by_sandboxed_task {
        false => {
            let agent = world.session.spawn(task.sandbox(sandbox)).await.unwrap();
            final_message(&agent.wait().await.unwrap())
        }
        true => {
            let bot = NewTask::shell("sleep 1000").cwd(work.path()).sandbox(sandbox).limits(limits);
            let bot = world.session.spawn(bot).await.unwrap();
            let operator = world.runtime.operator_session(world.session.id()).await.unwrap();
            let attempt = operator.get(bot.no()).await.unwrap().row.attempt;
            let id = brigade_runtime::TaskId { session: world.session.id(), no: bot.no() };
            let inside = world.runtime.task_session(id, attempt).await.unwrap();
            let agent = inside.spawn(task).await.unwrap();
            let row = loop {
                let row = operator.get(agent.no()).await.unwrap().row;
                if !row.is_alive() {
                    break row;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            bot.stop(None).await.unwrap();
            bot.wait().await.unwrap();
            let TaskState::Ended(ended) = &row.state else { panic!("it has not ended") };
            match &*ended.outcome {
                Outcome::Succeeded { result } => result.decode().unwrap(),
                other => panic!("it ended as {other}"),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn confined_callers_get_no_variables_of_the_runtime_by_a_program() {
    if let Err(problem) = LandlockSupport::detect().check() {
        eprintln!("not tested: this kernel cannot sandbox processes ({problem:?})");
        return;
    }
    let end = "two\n succeeded";
    assert_eq!(printed_variable(false, false).await, format!("brigade-runtime fixed\n{end}"));
    assert_eq!(printed_variable(true, false).await, format!("unset fixed\n{end}"));
    assert_eq!(printed_variable(false, true).await, format!("unset fixed\n{end}"));
}
