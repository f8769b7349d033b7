//! Agents with sandboxed processes, also of their descendants.

use std::fs;
use std::path::{Path, PathBuf};

use brigade_agent::definition::{Definition, DefinitionDir};
use brigade_model::limits::Limits;
use brigade_model::refusal::RefusalKind;
use brigade_model::sandbox::{ResourceLimits, Sandbox, SandboxRequest, TcpPolicy};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::work::{TaskKind, Work};
use brigade_process::{LandlockSupport, NamespaceSupport};
use brigade_runtime::{
    AgentOptions, AgentTask, NewTask, ProcessOptions, Runtime, Session, TaskHandle,
};
use tempfile::TempDir;

use crate::support::{everything, final_message, reply, script};

struct Fixture {
    _folder: TempDir,
    runtime: Runtime,
    session: Session,
    work: PathBuf,
}

async fn fixture(options: AgentOptions) -> Fixture {
    let dir = TempDir::new().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let work = root.join("work");
    fs::create_dir(&work).unwrap();
    fs::write(root.join("secret"), "soup\n").unwrap();
    // Without mount namespaces, so that denied paths are refused and not hidden.
    let processes = ProcessOptions::new(root.join("state")).namespaces(NamespaceSupport::UNKNOWN);
    let runtime = Runtime::builder().processes(processes).agents(options).start().await.unwrap();
    let session = runtime.session("test").await.unwrap();
    Fixture { _folder: dir, runtime, session, work }
}

impl Fixture {
    async fn run(&self, task: NewTask<AgentTask<String>>) -> String {
        let task = self.session.spawn(task.name("A").cwd(&self.work)).await.unwrap();
        final_message(&task.wait().await.unwrap())
    }

    /// Returns the sandbox of each process.
    async fn sandboxes(&self) -> Vec<Sandbox> {
        let all = everything(&self.runtime, &self.session).await;
        let commands =
            all.iter().filter(|StoredTask { row, .. }| row.spec.work.kind() == TaskKind::Process);
        commands.map(|StoredTask { row, .. }| row.spec.work.sandbox().unwrap().clone()).collect()
    }
}

fn can_sandbox() -> bool {
    let can = LandlockSupport::detect().check().is_ok();
    if !can {
        eprintln!(
            "not tested: this kernel cannot sandbox processes ({:?})",
            LandlockSupport::detect()
        );
    }
    can
}

const TWO_LEVELS: &str = "agent A
turn
  call run_process {\"command\": \"cat ../secret; echo own > own && echo fine\"}
turn
  when ermission denied
  when fine
  call spawn_agent {\"name\": \"B\", \"task\": \"Look.\", \"wait\": true}
turn
  when It is shut
  say Both are shut in.

agent B
turn
  call run_process {\"command\": \"ulimit -n; cat secret; echo gone > new\", \"cwd\": \"..\"}
turn
  when 77
  when ermission denied
  say It is shut.
";

#[tokio::test(flavor = "multi_thread")]
async fn the_processes_of_an_agent_and_of_its_children_are_sandboxed() {
    if !can_sandbox() {
        return;
    }
    let fixture = fixture(script(TWO_LEVELS)).await;
    let resources = ResourceLimits { open_files: Some(77), ..ResourceLimits::default() };
    let task = NewTask::agent("go").sandbox(SandboxRequest::default()).resources(resources);
    assert_eq!(fixture.run(task).await, "Both are shut in.");
    assert!(fixture.work.join("own").exists());
    assert!(!fixture.work.join("../new").exists());
    let sandboxes = fixture.sandboxes().await;
    assert_eq!((sandboxes.len(), &sandboxes[0]), (2, &sandboxes[1]));
    assert_eq!(*sandboxes[0].layers[0].write, [fixture.work.to_str().unwrap().into()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_never_has_a_weaker_sandbox_than_its_parent() {
    if !can_sandbox() {
        return;
    }
    let text = "agent A
turn
  call spawn_agent {\"name\": \"B\", \"agent\": \"loose\", \"task\": \"Look.\", \"wait\": true}
turn
  when It is shut
  say It is shut in.

agent B
turn
  call run_process {\"command\": \"ulimit -n; cat ../secret\"}
turn
  when 60
  when ermission denied
  say It is shut.
";
    // The definition asks for more files than its parent has, and for less of the rest.
    let write = vec!["..".to_owned()];
    let loose = Definition::new("loose")
        .prompt("Look.")
        .sandbox(SandboxRequest { write, tcp: TcpPolicy::Denied, ..SandboxRequest::default() })
        .resources(ResourceLimits { open_files: Some(900), cpu_secs: Some(30), memory: None });
    let fixture = fixture(script(text).definition(loose).unwrap()).await;
    let resources =
        ResourceLimits { open_files: Some(60), cpu_secs: Some(300), ..ResourceLimits::default() };
    let task = NewTask::agent("go").sandbox(SandboxRequest::default()).resources(resources);
    assert_eq!(fixture.run(task).await, "It is shut in.");
    let [kept] = fixture.sandboxes().await.try_into().unwrap();
    let least = ResourceLimits { open_files: Some(60), cpu_secs: Some(30), memory: None };
    assert_eq!((kept.layers.len(), kept.resources), (2, least));
    assert_eq!((kept.layers[0].tcp, kept.layers[1].tcp), (TcpPolicy::Allowed, TcpPolicy::Denied));
}

#[tokio::test(flavor = "multi_thread")]
async fn file_tools_do_not_follow_a_directory_that_becomes_a_link() {
    let text = "agent A
turn
  call list_files {}
  call ask_parent {\"question\": \"What now?\"}
turn
  when inner
  when The answer
  call read_file {\"path\": \"secret\"}
  call list_files {}
  call write_file {\"path\": \"new\", \"content\": \"x\"}
turn
  say Done.
";
    let fixture = fixture(script(text)).await;
    let inner = fixture.work.join("sub");
    let outside = fixture.work.parent().unwrap();
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("inner"), "").unwrap();
    // The sandbox is wider, so that a process of the agent could do this.
    let request = SandboxRequest {
        write: vec![fixture.work.display().to_string()],
        ..SandboxRequest::default()
    };
    let task = NewTask::agent("go").name("A").cwd(&inner).sandbox(request);
    let task = fixture.session.spawn(task).await.unwrap();
    while task.get().await.unwrap().state.label() != "waiting" {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    fs::rename(&inner, fixture.work.join("moved")).unwrap();
    std::os::unix::fs::symlink(outside, &inner).unwrap();
    fixture.session.answer(task.no(), reply("Go on.")).await.unwrap();
    assert_eq!(final_message(&task.wait().await.unwrap()), "Done.");
    let transcript_text = fixture.session.transcript((&task).into()).await.unwrap().unwrap();
    assert_eq!(transcript_text.matches("cannot be used").count(), 3, "{transcript_text}");
    assert!(
        !transcript_text.contains("soup") && !outside.join("new").exists(),
        "{transcript_text}"
    );
}

/// An agent that has a server, and a process that keeps running.
const WITH_SERVER: &str = "agent A
turn
  call run_process {\"command\": \"sleep 60\", \"background\": true}
turn
  say I wait for it.

agent B
turn
  say Done.
";

fn with_server() -> AgentOptions {
    let pantry = serde_json::json!({ "command": ["false"] });
    let pantry = serde_json::from_value(pantry).unwrap();
    let keeper = Definition::new("keeper").prompt("Keep.").mcp_servers(["pantry"]);
    script(WITH_SERVER).mcp_server("pantry", pantry).unwrap().definition(keeper).unwrap()
}

impl Fixture {
    /// Returns the session of the newest running process.
    async fn inside(&self) -> Session {
        self.acting(|_| true).await
    }

    /// Returns the session of the newest running process with a sandbox.
    async fn sandboxed(&self) -> Session {
        self.acting(|row| row.spec.work.sandbox().is_some()).await
    }

    async fn acting(&self, is_meant: impl Fn(&TaskRow) -> bool) -> Session {
        let StoredTask { no, row } = loop {
            let all = everything(&self.runtime, &self.session).await;
            let mut commands = all.into_iter().filter(|StoredTask { row, .. }| {
                let is_command = row.spec.work.kind() == TaskKind::Process;
                is_command && row.state.label() == "running" && is_meant(row)
            });
            match commands.next_back() {
                Some(found) => break found,
                None => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
            }
        };
        let id = brigade_runtime::TaskId { session: self.session.id(), no };
        self.runtime.task_session(id, row.attempt).await.unwrap()
    }

    /// Returns true if an agent has the server.
    async fn has_server<T>(&self, agent: &TaskHandle<T>) -> bool {
        let all = everything(&self.runtime, &self.session).await;
        let StoredTask { row, .. } =
            all.into_iter().find(|StoredTask { no, .. }| *no == agent.no()).unwrap();
        let Work::Agent(work) = &row.spec.work else { panic!("{row:?}") };
        work.blueprint.to_string().contains("\"mcp_servers\":[\"pantry\"],\"has_money_budget")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxed_process_starts_no_agent_with_servers() {
    if !can_sandbox() {
        return;
    }
    let fixture = fixture(with_server()).await;
    let command = NewTask::shell("sleep 60").cwd(&fixture.work);
    let allowed = SandboxRequest { agents: true, ..SandboxRequest::default() };
    let budget = Limits { tokens: Some(1_000_000), ..Limits::default() };
    let task = command.clone().sandbox(allowed).limits(budget);
    let sandboxed = fixture.session.spawn(task).await.unwrap();
    let inside = fixture.inside().await;
    let asked = || NewTask::agent("go").name("B").cwd(&fixture.work);
    for agent in [asked().mcp_server("pantry"), asked().definition("keeper")] {
        let refusal = inside.spawn(agent).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Forbidden, "{}", refusal.message);
        assert!(refusal.message.contains("uses MCP servers"), "{}", refusal.message);
    }
    assert!(!fixture.has_server(&inside.spawn(asked()).await.unwrap()).await);
    sandboxed.stop(None).await.unwrap();
    sandboxed.wait().await.unwrap();
    // A terminal and limits are no sandbox.
    let limits = ResourceLimits { open_files: Some(100), ..ResourceLimits::default() };
    let limited = fixture.session.spawn(command.resources(limits)).await.unwrap();
    let inside = fixture.inside().await;
    assert!(fixture.has_server(&inside.spawn(asked().mcp_server("pantry")).await.unwrap()).await);
    limited.stop(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxed_process_starts_no_agent_outside_of_its_sandbox() {
    if !can_sandbox() {
        return;
    }
    let text = "agent A
turn
  call run_process {\"command\": \"sleep 60\", \"background\": true}
turn
  say I wait for it.

agent B
turn
  say I see what it sees.
";
    let fixture = fixture(script(text)).await;
    let agent =
        fixture.session.spawn(NewTask::agent("go").name("A").cwd(&fixture.work)).await.unwrap();
    // The agent and its process have no sandbox, but the process that it starts has.
    let command = NewTask::shell("sleep 60").cwd(&fixture.work).sandbox(SandboxRequest::default());
    fixture.inside().await.spawn(command).await.unwrap();
    let operator = fixture.runtime.operator_session(fixture.session.id()).await.unwrap();
    let inside = fixture.sandboxed().await;
    let outside = fixture.work.parent().unwrap();
    let refused = inside.spawn(NewTask::agent("go").name("B").cwd(outside)).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Forbidden);
    assert!(refused.message.contains("outside of the caller's sandbox"), "{refused}");
    assert!(inside.definitions(outside.to_str().unwrap()).is_err());
    assert!(inside.definitions(fixture.work.to_str().unwrap()).is_ok());
    let child = inside.spawn(NewTask::agent("go").name("B").cwd(&fixture.work)).await.unwrap();
    let mut run_results = operator.wait_all([child.no()]).await.unwrap();
    assert_eq!(final_message(&run_results.pop().unwrap()), "I see what it sees.");
    agent.stop(None).await.unwrap();
}

/// The definitions are those that the process could read itself, and its budget pays for its
/// agents.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxed_process_starts_agents_only_with_a_budget() {
    if !can_sandbox() {
        return;
    }
    let options = script("agent *\nturn\n  say Done.\n").definition_dirs(|cwd| {
        let work = cwd.map(DefinitionDir::of_workspace);
        let users = cwd.and_then(Path::parent).map(DefinitionDir::of_user);
        work.into_iter().chain(users).collect()
    });
    let fixture = fixture(options).await;
    let users = fixture.work.parent().unwrap().join("brigade/agents");
    fs::create_dir_all(&users).unwrap();
    fs::write(users.join("mine.md"), "---\nname: mine\ndescription: M.\n---\nMine.\n").unwrap();
    let command = NewTask::shell("sleep 60").cwd(&fixture.work);
    let asked = || NewTask::agent("go").cwd(&fixture.work);
    let budget = Limits { tokens: Some(1_000_000), ..Limits::default() };
    let allowed = SandboxRequest { agents: true, ..SandboxRequest::default() };
    let no_tcp = SandboxRequest { tcp: TcpPolicy::Denied, ..allowed.clone() };
    for (request, limits, expect) in [
        (SandboxRequest::default(), Limits::default(), "--agent-budget"),
        (SandboxRequest::default(), budget, "--agent-budget"),
        (no_tcp, budget, "without TCP"),
    ] {
        let task = command.clone().sandbox(request).limits(limits);
        let sandboxed = fixture.session.spawn(task).await.unwrap();
        let inside = fixture.inside().await;
        let refused = inside.spawn(asked()).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Forbidden);
        assert!(refused.message.contains(expect), "{refused}");
        // A process cannot grant itself agents.
        let nested = command.clone().name("Nested").sandbox(allowed.clone()).limits(budget);
        inside.spawn(nested).await.unwrap();
        let deeper = fixture.acting(|row| row.spec.name.is_some()).await;
        let refused = deeper.spawn(asked()).await.unwrap_err();
        assert!(refused.message.contains(expect), "{refused}");
        sandboxed.stop(None).await.unwrap();
        sandboxed.wait().await.unwrap();
    }
    let refused =
        fixture.session.spawn(command.clone().sandbox(allowed.clone())).await.unwrap_err();
    assert!(refused.message.contains("only with a budget"), "{refused}");
    let task = command.clone().sandbox(allowed).limits(budget);
    let sandboxed = fixture.session.spawn(task).await.unwrap();
    let inside = fixture.inside().await;
    inside.spawn(asked()).await.unwrap();
    let refused = inside.spawn(asked().definition("mine")).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotFound, "the user's are outside: {refused}");
    let seen = inside.definitions(fixture.work.to_str().unwrap()).unwrap();
    assert!(seen.find("mine").is_err() && seen.find("general").is_ok());
    sandboxed.stop(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxed_process_of_an_agent_with_servers_starts_no_agent_with_servers() {
    if !can_sandbox() {
        return;
    }
    let fixture = fixture(with_server()).await;
    for (sandboxed, expect) in [(true, false), (false, true)] {
        let task = NewTask::agent("go").name("A").cwd(&fixture.work).mcp_server("pantry");
        let task = if sandboxed { task.sandbox(SandboxRequest::default()) } else { task };
        let agent = fixture.session.spawn(task).await.unwrap();
        let inside = fixture.inside().await;
        let child = NewTask::agent("go").name("B").cwd(&fixture.work);
        let child = inside.spawn(child.mcp_server("pantry")).await.unwrap();
        assert!(fixture.has_server(&agent).await);
        assert_eq!(fixture.has_server(&child).await, expect);
        agent.stop(None).await.unwrap();
        agent.wait().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_a_directory_cannot_have_a_sandbox() {
    let fixture = fixture(script("agent A\nturn\n  say Done.\n")).await;
    let task = NewTask::agent("go").sandbox(SandboxRequest::default());
    let refusal = fixture.session.spawn(task).await.unwrap_err();
    assert!(refusal.message.contains("needs a working directory"), "{}", refusal.message);
}
