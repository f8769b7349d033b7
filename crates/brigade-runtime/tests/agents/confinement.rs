//! Agents whose commands are confined, and those of all below them.

use std::fs;
use std::path::{Path, PathBuf};

use brigade_agent::definition::{Definition, DefinitionFolder};
use brigade_model::limits::Limits;
use brigade_model::refusal::RefusalKind;
use brigade_model::sandbox::{ResourceLimits, Sandbox, SandboxRequest, TcpPolicy};
use brigade_model::task::TaskRow;
use brigade_model::work::{TaskKind, Work};
use brigade_process::{LandlockSupport, NamespaceSupport};
use brigade_runtime::{AgentOptions, NewTask, ProcessOptions, Runtime, Session, TaskHandle};
use tempfile::TempDir;

use crate::support::{everything, reply, script, words};

struct Place {
    _folder: TempDir,
    runtime: Runtime,
    session: Session,
    work: PathBuf,
}

async fn place(options: AgentOptions) -> Place {
    let folder = TempDir::new().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let work = root.join("work");
    fs::create_dir(&work).unwrap();
    fs::write(root.join("secret"), "soup\n").unwrap();
    // Without mounts of their own, so that what is kept out is refused and not hidden.
    let processes = ProcessOptions::new(root.join("state")).namespaces(NamespaceSupport::UNKNOWN);
    let runtime = Runtime::builder().processes(processes).agents(options).start().await.unwrap();
    let session = runtime.session("test").await.unwrap();
    Place { _folder: folder, runtime, session, work }
}

impl Place {
    async fn run(&self, task: NewTask) -> String {
        let task = self.session.spawn(task.name("A").cwd(&self.work)).await.unwrap();
        words(&task.wait().await.unwrap())
    }

    /// What each command was kept to.
    async fn enclosures(&self) -> Vec<Sandbox> {
        let all = everything(&self.runtime, &self.session).await;
        let commands = all.iter().filter(|(_, row)| row.spec.work.kind() == TaskKind::Process);
        commands.map(|(_, row)| row.spec.work.sandbox().unwrap().clone()).collect()
    }
}

fn can_confine() -> bool {
    let can = LandlockSupport::detect().check().is_ok();
    if !can {
        eprintln!(
            "not tested: this kernel cannot confine commands ({:?})",
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
async fn the_commands_of_an_agent_and_of_its_children_are_confined() {
    if !can_confine() {
        return;
    }
    let place = place(script(TWO_LEVELS)).await;
    let resources = ResourceLimits { open_files: Some(77), ..ResourceLimits::default() };
    let task = NewTask::agent("go").sandbox(SandboxRequest::default()).resources(resources);
    assert_eq!(place.run(task).await, "Both are shut in.");
    assert!(place.work.join("own").exists());
    assert!(!place.work.join("../new").exists());
    let enclosures = place.enclosures().await;
    assert_eq!((enclosures.len(), &enclosures[0]), (2, &enclosures[1]));
    assert_eq!(*enclosures[0].layers[0].write, [place.work.to_str().unwrap().into()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_is_never_less_confined_than_its_parent() {
    if !can_confine() {
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
    // It asks for more of the files than whoever starts it has, and for less of the rest.
    let write = vec!["..".to_owned()];
    let loose = Definition::new("loose")
        .prompt("Look.")
        .sandbox(SandboxRequest { write, tcp: TcpPolicy::Denied, ..SandboxRequest::default() })
        .resources(ResourceLimits { open_files: Some(900), cpu_secs: Some(30), memory: None });
    let place = place(script(text).definition(loose).unwrap()).await;
    let resources =
        ResourceLimits { open_files: Some(60), cpu_secs: Some(300), ..ResourceLimits::default() };
    let task = NewTask::agent("go").sandbox(SandboxRequest::default()).resources(resources);
    assert_eq!(place.run(task).await, "It is shut in.");
    let [kept] = place.enclosures().await.try_into().unwrap();
    let least = ResourceLimits { open_files: Some(60), cpu_secs: Some(30), memory: None };
    assert_eq!((kept.layers.len(), kept.resources), (2, least));
    assert_eq!((kept.layers[0].tcp, kept.layers[1].tcp), (TcpPolicy::Allowed, TcpPolicy::Denied));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_becomes_a_link_leads_the_file_tools_nowhere() {
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
    let place = place(script(text)).await;
    let (inner, outside) = (place.work.join("sub"), place.work.parent().unwrap());
    fs::create_dir(&inner).unwrap();
    fs::write(inner.join("inner"), "").unwrap();
    // What it is confined to is wider, so that a command of its could do this.
    let confine = SandboxRequest {
        write: vec![place.work.display().to_string()],
        ..SandboxRequest::default()
    };
    let task = NewTask::agent("go").name("A").cwd(&inner).sandbox(confine);
    let task = place.session.spawn(task).await.unwrap();
    while task.get().await.unwrap().state.label() != "waiting" {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    fs::rename(&inner, place.work.join("moved")).unwrap();
    std::os::unix::fs::symlink(outside, &inner).unwrap();
    place.session.answer(task.no(), reply("Go on.")).await.unwrap();
    assert_eq!(words(&task.wait().await.unwrap()), "Done.");
    let said = place.session.transcript((&task).into()).await.unwrap().unwrap();
    assert_eq!(said.matches("cannot be used").count(), 3, "{said}");
    assert!(!said.contains("soup") && !outside.join("new").exists(), "{said}");
}

/// An agent that has a server, and a command that goes on.
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

impl Place {
    /// Acts as the newest command, when it runs.
    async fn inside(&self) -> Session {
        self.acting(|_| true).await
    }

    /// The same for one that is confined.
    async fn confined(&self) -> Session {
        self.acting(|row| row.spec.work.sandbox().is_some()).await
    }

    async fn acting(&self, is_meant: impl Fn(&TaskRow) -> bool) -> Session {
        let (no, row) = loop {
            let all = everything(&self.runtime, &self.session).await;
            let mut commands = all.into_iter().filter(|(_, row)| {
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

    /// Whether an agent has the server.
    async fn has_server(&self, agent: &TaskHandle) -> bool {
        let all = everything(&self.runtime, &self.session).await;
        let (_, row) = all.into_iter().find(|(no, _)| *no == agent.no()).unwrap();
        let Work::Agent(work) = &row.spec.work else { panic!("{row:?}") };
        work.blueprint.to_string().contains("\"mcp_servers\":[\"pantry\"],\"counts")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confined_command_starts_no_agent_with_servers() {
    if !can_confine() {
        return;
    }
    let place = place(with_server()).await;
    let command = NewTask::shell("sleep 60").cwd(&place.work);
    let allowed = SandboxRequest { agents: true, ..SandboxRequest::default() };
    let budget = Limits { tokens: Some(1_000_000), ..Limits::default() };
    let task = command.clone().sandbox(allowed).limits(budget);
    let confined = place.session.spawn(task).await.unwrap();
    let inside = place.inside().await;
    let asked = || NewTask::agent("go").name("B").cwd(&place.work);
    for agent in [asked().mcp_server("pantry"), asked().definition("keeper")] {
        let refusal = inside.spawn(agent).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Forbidden, "{}", refusal.message);
        assert!(refusal.message.contains("uses MCP servers"), "{}", refusal.message);
    }
    assert!(!place.has_server(&inside.spawn(asked()).await.unwrap()).await);
    confined.stop(None).await.unwrap();
    confined.wait().await.unwrap();
    // A terminal and limits confine nobody.
    let limits = ResourceLimits { open_files: Some(100), ..ResourceLimits::default() };
    let limited = place.session.spawn(command.resources(limits)).await.unwrap();
    let inside = place.inside().await;
    assert!(place.has_server(&inside.spawn(asked().mcp_server("pantry")).await.unwrap()).await);
    limited.stop(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confined_command_starts_no_agent_that_reads_elsewhere() {
    if !can_confine() {
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
    let place = place(script(text)).await;
    let agent = place.session.spawn(NewTask::agent("go").name("A").cwd(&place.work)).await.unwrap();
    // The agent is not confined, and neither is its command; but what that starts is.
    let command = NewTask::shell("sleep 60").cwd(&place.work).sandbox(SandboxRequest::default());
    place.inside().await.spawn(command).await.unwrap();
    let operator = place.runtime.operator_session(place.session.id()).await.unwrap();
    let inside = place.confined().await;
    let outside = place.work.parent().unwrap();
    let refused = inside.spawn(NewTask::agent("go").name("B").cwd(outside)).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Forbidden);
    assert!(refused.message.contains("outside of what"), "{refused}");
    assert!(inside.definitions(outside.to_str().unwrap()).is_err());
    assert!(inside.definitions(place.work.to_str().unwrap()).is_ok());
    let child = inside.spawn(NewTask::agent("go").name("B").cwd(&place.work)).await.unwrap();
    let mut endings = operator.wait_all([child.no().into()]).await.unwrap();
    assert_eq!(words(&endings.pop().unwrap()), "I see what it sees.");
    agent.stop(None).await.unwrap();
}

/// Its definitions are those that it could read itself, and its agents are paid out of its budget.
#[tokio::test(flavor = "multi_thread")]
async fn a_confined_command_starts_agents_only_out_of_a_budget() {
    if !can_confine() {
        return;
    }
    let options = script("agent *\nturn\n  say Done.\n").definition_folders(|cwd| {
        let work = cwd.map(DefinitionFolder::of_workspace);
        let users = cwd.and_then(Path::parent).map(DefinitionFolder::of_user);
        work.into_iter().chain(users).collect()
    });
    let place = place(options).await;
    let users = place.work.parent().unwrap().join("brigade/agents");
    fs::create_dir_all(&users).unwrap();
    fs::write(users.join("mine.md"), "---\nname: mine\ndescription: M.\n---\nMine.\n").unwrap();
    let command = NewTask::shell("sleep 60").cwd(&place.work);
    let asked = || NewTask::agent("go").cwd(&place.work);
    let budget = Limits { tokens: Some(1_000_000), ..Limits::default() };
    let allowed = SandboxRequest { agents: true, ..SandboxRequest::default() };
    let no_tcp = SandboxRequest { tcp: TcpPolicy::Denied, ..allowed.clone() };
    for (confine, limits, told) in [
        (SandboxRequest::default(), Limits::default(), "--agent-budget"),
        (SandboxRequest::default(), budget, "--agent-budget"),
        (no_tcp, budget, "without TCP"),
    ] {
        let task = command.clone().sandbox(confine).limits(limits);
        let confined = place.session.spawn(task).await.unwrap();
        let inside = place.inside().await;
        let refused = inside.spawn(asked()).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Forbidden);
        assert!(refused.message.contains(told), "{refused}");
        // It cannot allow itself what it is not allowed.
        let nested = command.clone().name("Nested").sandbox(allowed.clone()).limits(budget);
        inside.spawn(nested).await.unwrap();
        let deeper = place.acting(|row| row.spec.name.is_some()).await;
        let refused = deeper.spawn(asked()).await.unwrap_err();
        assert!(refused.message.contains(told), "{refused}");
        confined.stop(None).await.unwrap();
        confined.wait().await.unwrap();
    }
    let refused = place.session.spawn(command.clone().sandbox(allowed.clone())).await.unwrap_err();
    assert!(refused.message.contains("only with a budget"), "{refused}");
    let task = command.clone().sandbox(allowed).limits(budget);
    let confined = place.session.spawn(task).await.unwrap();
    let inside = place.inside().await;
    inside.spawn(asked()).await.unwrap();
    let refused = inside.spawn(asked().definition("mine")).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::NotFound, "the user's are outside: {refused}");
    let seen = inside.definitions(place.work.to_str().unwrap()).unwrap();
    assert!(seen.find("mine").is_err() && seen.find("general").is_ok());
    confined.stop(None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_does_one_of_an_agent_that_has_some() {
    if !can_confine() {
        return;
    }
    let place = place(with_server()).await;
    for (confined, expect) in [(true, false), (false, true)] {
        let task = NewTask::agent("go").name("A").cwd(&place.work).mcp_server("pantry");
        let task = if confined { task.sandbox(SandboxRequest::default()) } else { task };
        let agent = place.session.spawn(task).await.unwrap();
        let inside = place.inside().await;
        let child = NewTask::agent("go").name("B").cwd(&place.work);
        let child = inside.spawn(child.mcp_server("pantry")).await.unwrap();
        assert!(place.has_server(&agent).await);
        assert_eq!(place.has_server(&child).await, expect);
        agent.stop(None).await.unwrap();
        agent.wait().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_a_directory_cannot_be_confined_to_it() {
    let place = place(script("agent A\nturn\n  say Done.\n")).await;
    let task = NewTask::agent("go").sandbox(SandboxRequest::default());
    let refusal = place.session.spawn(task).await.unwrap_err();
    assert!(refusal.message.contains("needs a working directory"), "{}", refusal.message);
}
