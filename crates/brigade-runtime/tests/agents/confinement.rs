//! Agents whose commands are confined, and those of all below them.

use std::fs;
use std::path::PathBuf;

use brigade_agent::definition::Definition;
use brigade_model::enclosure::{Confine, Enclosure, Resources, Tcp};
use brigade_model::work::Kind;
use brigade_process::Landlock;
use brigade_runtime::{AgentOptions, NewTask, ProcessOptions, Runtime, Session};
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
    let processes = ProcessOptions::new(root.join("state"));
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
    async fn enclosures(&self) -> Vec<Enclosure> {
        let all = everything(&self.runtime, &self.session).await;
        let commands = all.iter().filter(|(_, row)| row.spec.work.kind() == Kind::Process);
        commands.map(|(_, row)| row.spec.work.enclosure().unwrap().clone()).collect()
    }
}

fn can_confine() -> bool {
    let can = Landlock::here().check().is_ok();
    if !can {
        eprintln!("not tested: this kernel cannot confine commands ({:?})", Landlock::here());
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
    let resources = Resources { open_files: Some(77), ..Resources::default() };
    let task = NewTask::agent("go").confine(Confine::default()).resources(resources);
    assert_eq!(place.run(task).await, "Both are shut in.");
    assert!(place.work.join("own").exists());
    assert!(!place.work.join("../new").exists());
    let enclosures = place.enclosures().await;
    assert_eq!((enclosures.len(), &enclosures[0]), (2, &enclosures[1]));
    assert_eq!(*enclosures[0].confinement[0].write, [place.work.to_str().unwrap().into()]);
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
        .confine(Confine { write, tcp: Tcp::Denied, ..Confine::default() })
        .resources(Resources { open_files: Some(900), cpu_secs: Some(30), memory: None });
    let place = place(script(text).definition(loose).unwrap()).await;
    let resources = Resources { open_files: Some(60), cpu_secs: Some(300), ..Resources::default() };
    let task = NewTask::agent("go").confine(Confine::default()).resources(resources);
    assert_eq!(place.run(task).await, "It is shut in.");
    let [kept] = place.enclosures().await.try_into().unwrap();
    let least = Resources { open_files: Some(60), cpu_secs: Some(30), memory: None };
    assert_eq!((kept.confinement.len(), kept.resources), (2, least));
    assert_eq!((kept.confinement[0].tcp, kept.confinement[1].tcp), (Tcp::Allowed, Tcp::Denied));
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
    let confine = Confine { write: vec![place.work.display().to_string()], ..Confine::default() };
    let task = NewTask::agent("go").name("A").cwd(&inner).confine(confine);
    let task = place.session.spawn(task).await.unwrap();
    while task.get().await.unwrap().state.word() != "waiting" {
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

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_a_directory_cannot_be_confined_to_it() {
    let place = place(script("agent A\nturn\n  say Done.\n")).await;
    let task = NewTask::agent("go").confine(Confine::default());
    let refusal = place.session.spawn(task).await.unwrap_err();
    assert!(refusal.message.contains("needs a working directory"), "{}", refusal.message);
}
