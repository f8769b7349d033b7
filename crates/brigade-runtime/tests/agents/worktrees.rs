//! Agents in git worktrees of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use brigade_agent::definition::Definition;
use brigade_model::refusal::RefusalKind;
use brigade_model::sandbox::SandboxRequest;
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::worktree::{Worktree, WorktreeState};
use brigade_runtime::{AgentOptions, NewTask, ProcessOptions, Runtime, Session};
use brigade_store::{MemoryStore, Store};
use tempfile::TempDir;

use crate::support::{everything, final_message, script};

fn git(dir: &Path, args: &[&str]) -> String {
    let identity = ["-c", "user.name=Cook", "-c", "user.email=cook@example.com"];
    let output = Command::new("git").args(identity).args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

struct Fixture {
    _folder: TempDir,
    runtime: Runtime,
    session: Session,
    repository: PathBuf,
}

fn make_repository(root: &Path) -> PathBuf {
    let repository = root.join("soup");
    fs::create_dir(&repository).unwrap();
    fs::write(repository.join("menu"), "soup\n").unwrap();
    git(&repository, &["init", "-q"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "-q", "-m", "first"]);
    repository
}

async fn fixture(options: AgentOptions) -> Fixture {
    let dir = TempDir::new().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let repository = make_repository(&root);
    let processes = ProcessOptions::new(root.join("state"));
    let runtime = Runtime::builder().processes(processes).agents(options).start().await.unwrap();
    let session = runtime.session("test").await.unwrap();
    Fixture { _folder: dir, runtime, session, repository }
}

impl Fixture {
    /// Returns the rows of all tasks after the worktrees of ended ones are released.
    async fn released_rows(&self) -> Vec<TaskRow> {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let all = everything(&self.runtime, &self.session).await;
            let in_use = |row: &TaskRow| {
                row.worktree().is_some_and(|worktree| worktree.state == WorktreeState::InUse)
            };
            if !all.iter().any(|StoredTask { row, .. }| in_use(row)) {
                return all.iter().map(|task| TaskRow::clone(&task.row)).collect();
            }
            assert!(tokio::time::Instant::now() < deadline, "a worktree was never released");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn worktrees(rows: &[TaskRow]) -> Vec<&Worktree> {
    rows.iter().filter_map(TaskRow::worktree).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_and_its_children_work_in_its_worktree() {
    let options = script(
        "agent A
turn
  call write_file {\"path\": \"dish\", \"content\": \"stew\"}
turn
  call spawn_agent {\"name\": \"B\", \"task\": \"Look.\", \"wait\": true}
turn
  when I saw stew
  say Done.

agent B
turn
  call run_process {\"command\": \"cat dish; pwd\"}
turn
  when stew
  say I saw stew.
",
    );
    let fixture = fixture(options).await;
    let task = NewTask::agent("go").name("A").cwd(&fixture.repository).worktree();
    let task = fixture.session.spawn(task).await.unwrap();
    assert_eq!(final_message(&task.wait().await.unwrap()), "Done.");
    let rows = fixture.released_rows().await;
    let [worktree] = worktrees(&rows)[..] else { panic!("one worktree") };
    assert_eq!(worktree.state, WorktreeState::Kept, "it has an untracked file");
    assert_eq!(fs::read_to_string(format!("{}/dish", worktree.path)).unwrap(), "stew");
    assert!(!fixture.repository.join("dish").exists());
    let process = rows.iter().find(|row| {
        row.spec.work.sandbox().is_none() && row.spec.work.cwd() == Some(&*worktree.path)
    });
    assert!(process.is_some(), "the process of the child ran in the worktree");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_with_a_worktree_begins_at_the_head_of_its_parent() {
    let commit = "git -c user.name=C -c user.email=c@example.com commit -q -a -m stew";
    let text = format!(
        "agent A
turn
  call run_process {{\"command\": \"echo stew > menu; {commit}\"}}
turn
  call run_process {{\"command\": \"cat menu; git rev-parse --abbrev-ref HEAD\", \"worktree\": true}}
turn
  when brigade/test/3/1
  say Done.
"
    );
    let fixture = fixture(script(&text)).await;
    let task = NewTask::agent("go").name("A").cwd(&fixture.repository).worktree();
    let task = fixture.session.spawn(task).await.unwrap();
    assert_eq!(final_message(&task.wait().await.unwrap()), "Done.");
    let rows = fixture.released_rows().await;
    let [parent, child] = worktrees(&rows)[..] else { panic!("two worktrees") };
    assert_eq!((parent.state, child.state), (WorktreeState::Kept, WorktreeState::Removed));
    assert_eq!(&*child.base, git(&fixture.repository, &["rev-parse", &parent.branch]));
    assert_eq!(git(&fixture.repository, &["show", &format!("{}:menu", parent.branch)]), "stew");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_run_continues_in_a_kept_worktree_and_else_gets_a_new_one() {
    let options = script(
        "agent A
turn
  call write_file {\"path\": \"dish\", \"content\": \"stew\"}
turn
  when digest
  say First.
turn
  when again
  call read_file {\"path\": \"dish\"}
turn
  when stew
  say Second.

agent Idle
turn
  say Nothing.
turn
  when again
  say Nothing again.
",
    );
    let fixture = fixture(options).await;
    for (name, kept) in [("A", true), ("Idle", false)] {
        let task = NewTask::agent("go").name(name).cwd(&fixture.repository).worktree();
        let task = fixture.session.spawn(task).await.unwrap();
        task.wait().await.unwrap();
        fixture.released_rows().await;
        let row = fixture.session.get(task.no()).await.unwrap().row;
        let first = row.worktree().unwrap().clone();
        assert_eq!(first.kept(), Some(kept), "{name}");
        fixture.session.send(task.no(), "again").await.unwrap();
        fixture.session.wait_all([task.no()]).await.unwrap();
        fixture.released_rows().await;
        let row = fixture.session.get(task.no()).await.unwrap().row;
        let second = row.worktree().unwrap();
        assert_eq!((second.path == first.path, second.kept()), (kept, Some(kept)), "{name}");
        assert_eq!(second.serial, if kept { 1 } else { 2 }, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worktree_of_a_resumed_task_is_locked_again() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let repository = make_repository(&root);
    let mine = root.join("mine");
    fs::write(&mine, "mine\n").unwrap();
    let lock = "$(git rev-parse --absolute-git-dir)/locked";
    let text = format!(
        "agent A
turn
  call run_process {{\"command\": \"rm {lock}; ln -s {root}/mine {lock}; touch {root}/begun; \
         until test -e {root}/go; do sleep 0.02; done\"}}
turn
  when exit
  call run_process {{\"command\": \"cat {lock}; touch dish\"}}
turn
  when Brigade task 1 of test
  say Done.
turn
  when again
  call run_process {{\"command\": \"cat {lock}\"}}
turn
  when Brigade task 1 of test
  say Done again.
",
        root = root.display()
    );
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let start = async || {
        let processes = ProcessOptions::new(root.join("state"));
        let builder = Runtime::builder().shared_store(store.clone()).processes(processes);
        let runtime = builder.agents(script(&text)).start().await.unwrap();
        let session = runtime.session("test").await.unwrap();
        Fixture {
            _folder: TempDir::new().unwrap(),
            runtime,
            session,
            repository: repository.clone(),
        }
    };
    let first = start().await;
    let task = NewTask::agent("go").name("A").cwd(&repository).worktree();
    let no = first.session.spawn(task).await.unwrap().no();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !root.join("begun").exists() {
        assert!(tokio::time::Instant::now() < deadline, "the process never began");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(first.session);
    first.runtime.shutdown().await.unwrap();
    let next = start().await;
    fs::write(root.join("go"), "").unwrap();
    let [run_result] = &next.session.wait_all([no]).await.unwrap()[..] else { panic!("one task") };
    assert_eq!(final_message(run_result), "Done.");
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine\n", "the lock follows no link");
    let rows = next.released_rows().await;
    let locked = format!("{}/locked", worktrees(&rows)[0].git_dir);
    assert!(!Path::new(&locked).exists());
    next.session.send(no, "again").await.unwrap();
    let [run_result] = &next.session.wait_all([no]).await.unwrap()[..] else { panic!("one task") };
    assert_eq!(final_message(run_result), "Done again.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_can_require_a_worktree() {
    let options = script("agent tidy\nturn\n  say Done.\n")
        .definition(Definition::new("tidy").description("Tidies up.").prompt("Tidy.").worktree())
        .unwrap();
    let fixture = fixture(options).await;
    let task = NewTask::agent("go").definition("tidy").name("tidy").cwd(&fixture.repository);
    let task = fixture.session.spawn(task).await.unwrap();
    task.wait().await.unwrap();
    let rows = fixture.released_rows().await;
    assert_eq!(worktrees(&rows).len(), 1);
    let task = NewTask::agent("go").definition("tidy").name("tidy").cwd("/");
    let refused = fixture.session.spawn(task).await.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandboxed_agent_starts_no_task_with_a_worktree() {
    let options = script(
        "agent A
turn
  call run_process {\"command\": \"true\", \"worktree\": true}
turn
  when git would run outside of its sandbox
  say Refused.
",
    );
    let fixture = fixture(options).await;
    let task = NewTask::agent("go").name("A").cwd(&fixture.repository);
    let task = fixture.session.spawn(task.sandbox(SandboxRequest::default())).await.unwrap();
    assert_eq!(final_message(&task.wait().await.unwrap()), "Refused.");
}
