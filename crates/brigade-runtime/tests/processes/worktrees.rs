//! Tasks in git worktrees of their own, with real repositories.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::ids::TaskNo;
use brigade_model::outcome::Outcome;
use brigade_model::refusal::RefusalKind;
use brigade_model::worktree::{Worktree, WorktreeState};
use brigade_runtime::{NewTask, ProcessOptions, ProcessTask, Runtime, Session, TaskHandle};
use brigade_store::{MemoryStore, Store};
use brigade_testkit::{CrashStore, CutMode, CutPoint};
use tempfile::TempDir;

use crate::support::*;

/// Runs git in a directory, with an identity, and returns what it printed.
pub(crate) fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=Cook", "-c", "user.email=cook@example.com"])
        .args(["-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap();
    let problem = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "git {args:?}: {problem}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// A repository with one commit: `menu`, `sauces/red` and an ignored name.
pub(crate) struct Pantry {
    _folder: TempDir,
    pub(crate) root: PathBuf,
}

pub(crate) fn pantry() -> Pantry {
    pantry_in(tempfile::tempdir().unwrap())
}

/// A repository in a directory that a sandbox does not hide. In `/tmp`, which is the scratch
/// directory of a sandboxed task, Landlock allows more than the repository's own rules.
pub(crate) fn visible_pantry() -> Pantry {
    pantry_in(tempfile::tempdir_in("/var/tmp").unwrap())
}

fn pantry_in(folder: TempDir) -> Pantry {
    let root = folder.path().canonicalize().unwrap().join("soup");
    fs::create_dir_all(root.join("sauces")).unwrap();
    fs::write(root.join("menu"), "soup\n").unwrap();
    fs::write(root.join("sauces/red"), "tomato\n").unwrap();
    fs::write(root.join(".gitignore"), "built\n").unwrap();
    git(&root, &["init", "-q"]);
    git(&root, &["add", "."]);
    git(&root, &["commit", "-q", "-m", "first"]);
    Pantry { _folder: folder, root }
}

impl Pantry {
    pub(crate) fn head(&self) -> String {
        git(&self.root, &["rev-parse", "HEAD"])
    }

    pub(crate) fn branches(&self) -> String {
        git(&self.root, &["for-each-ref", "--format=%(refname:short)", "refs/heads/brigade"])
    }

    pub(crate) fn worktrees(&self) -> usize {
        git(&self.root, &["worktree", "list"]).lines().count() - 1
    }

    pub(crate) fn task(&self, script: &str) -> NewTask<ProcessTask> {
        NewTask::shell(script).cwd(&self.root).worktree()
    }
}

/// The identity for commits of tasks, whose environment has none.
pub(crate) const IDENTITY: &str = "export GIT_AUTHOR_NAME=Cook GIT_AUTHOR_EMAIL=c@example.com \
    GIT_COMMITTER_NAME=Cook GIT_COMMITTER_EMAIL=c@example.com; ";

pub(crate) async fn worktree_of<T>(session: &Session, task: &TaskHandle<T>) -> Worktree {
    session.get(task.no()).await.unwrap().row.worktree().unwrap().clone()
}

/// Waits until the worktree of an ended task is released.
pub(crate) async fn released<T>(session: &Session, task: &TaskHandle<T>) -> Worktree {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let worktree = worktree_of(session, task).await;
        if worktree.state != WorktreeState::InUse {
            return worktree;
        }
        assert!(tokio::time::Instant::now() < deadline, "{} was never released", worktree.path);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn run(kitchen: &Kitchen, task: NewTask<ProcessTask>) -> (Worktree, String) {
    let task = kitchen.session.spawn(task).await.unwrap();
    let outcome = kitchen.task(&task).await;
    let tail = match &outcome {
        Outcome::Succeeded { .. } => report(&outcome).tail,
        other => panic!("{other:?}"),
    };
    (released(&kitchen.session, &task).await, tail)
}

fn records(kitchen: &Kitchen) -> Vec<PathBuf> {
    files_in(&kitchen.dir.path().join("worktree_records"))
}

fn files_in(dir: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(dir).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_works_in_its_own_worktree_and_an_unused_one_is_removed() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let script = "pwd; git rev-parse --abbrev-ref HEAD; cat menu; touch built; git worktree list --porcelain";
    let (worktree, tail) = run(&kitchen, pantry.task(script)).await;
    assert_eq!(worktree.state, WorktreeState::Removed);
    assert_eq!((&*worktree.base, &*worktree.branch), (&*pantry.head(), "brigade/kitchen/1/1"));
    let expect = format!("{}\nbrigade/kitchen/1/1\nsoup\n", worktree.path);
    assert!(tail.starts_with(&expect), "{tail}");
    assert!(tail.contains("locked Brigade task 1 of kitchen"), "{tail}");
    assert!(Path::new(&*worktree.path).starts_with(kitchen.dir.path().canonicalize().unwrap()));
    assert!(!Path::new(&*worktree.path).exists());
    assert_eq!((pantry.worktrees(), pantry.branches()), (0, String::new()));
    until("the record is removed", || records(&kitchen).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_kept_and_the_folder_is_unlocked() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let base = pantry.head();
    let commit = format!("{IDENTITY} echo stew > menu; git commit -q -a -m stew");
    let hidden = "git update-index --assume-unchanged menu; echo stew > menu";
    let detached = format!("{IDENTITY} git checkout -q --detach; git commit -q --allow-empty -m x");
    let nested = "git init -q inner && echo x > inner/x";
    for script in [&*commit, "echo new > untracked", "echo stew > menu", hidden, &detached, nested]
    {
        let (worktree, _) = run(&kitchen, pantry.task(script)).await;
        assert_eq!(worktree.state, WorktreeState::Kept, "{script}");
        assert!(Path::new(&*worktree.path).join("menu").exists(), "{script}");
        let locked = Path::new(&*worktree.git_dir).join("locked");
        assert!(!locked.exists(), "{script}");
    }
    assert_eq!(pantry.branches().lines().count(), 6);
    assert_eq!(git(&pantry.root, &["show", "brigade/kitchen/1/1:menu"]), "stew");
    assert_eq!(
        (pantry.head(), git(&pantry.root, &["status", "--porcelain"])),
        (base, String::new())
    );
    // To git it is a worktree like any other.
    let first = kitchen.session.task(TaskNo::new(1).unwrap()).await.unwrap();
    let first = worktree_of(&kitchen.session, &first).await;
    git(&pantry.root, &["worktree", "remove", &first.path]);
    git(&pantry.root, &["branch", "-q", "-D", &first.branch]);
    assert_eq!((pantry.worktrees(), pantry.branches().lines().count()), (5, 5));
    git(&pantry.root, &["fsck"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_exist_are_not_taken() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    // A branch of an earlier version, a folder of another session, and an empty one.
    git(&pantry.root, &["branch", "brigade/kitchen/1"]);
    git(&pantry.root, &["branch", "brigade/kitchen/1-2/7"]);
    git(&pantry.root, &["pack-refs", "--all"]);
    fs::create_dir_all(pantry.root.join(".git/refs/heads/brigade/kitchen/1-3")).unwrap();
    let session = kitchen.session.id().to_string();
    let folder = kitchen.dir.path().join("worktrees").join(session).join("1");
    fs::create_dir_all(&folder).unwrap();
    let (worktree, tail) = run(&kitchen, pantry.task("git rev-parse --abbrev-ref HEAD")).await;
    assert_eq!((tail.trim_end(), worktree.serial), ("brigade/kitchen/1-4/2", 2));
    assert!(worktree.path.ends_with("/1-2"), "{}", worktree.path);
    let others = "brigade/kitchen/1\nbrigade/kitchen/1-2/7";
    assert_eq!(pantry.branches(), others, "the branches of others stay");
    assert!(!pantry.root.join(".git/refs/heads/brigade/kitchen/1-4").exists());
    assert!(folder.is_dir());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subfolder_of_the_repository_is_the_same_subfolder_of_the_worktree() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let task = || NewTask::shell("pwd; ls").worktree();
    let (worktree, tail) = run(&kitchen, task().cwd(pantry.root.join("sauces"))).await;
    assert_eq!(tail, format!("{}/sauces\nred\n", worktree.path));
    // A folder that the commit does not have is created.
    fs::create_dir_all(pantry.root.join("new/deep")).unwrap();
    let (worktree, tail) = run(&kitchen, task().cwd(pantry.root.join("new/deep"))).await;
    assert_eq!(tail, format!("{}/new/deep\n", worktree.path));
    assert_eq!(worktree.state, WorktreeState::Removed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_of_the_commit_does_not_lead_out_of_the_worktree() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    symlink("/etc", pantry.root.join("way")).unwrap();
    git(&pantry.root, &["add", "."]);
    git(&pantry.root, &["commit", "-q", "-m", "link"]);
    fs::remove_file(pantry.root.join("way")).unwrap();
    fs::create_dir(pantry.root.join("way")).unwrap();
    let task = NewTask::shell("pwd").cwd(pantry.root.join("way")).worktree();
    let task = kitchen.session.spawn(task).await.unwrap();
    let outcome = kitchen.task(&task).await.to_string();
    assert!(outcome.contains("leads out of the worktree"), "{outcome}");
    assert_eq!((pantry.worktrees(), pantry.branches()), (0, String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_without_a_usable_repository_is_refused_before_the_start() {
    let kitchen = kitchen().await;
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    let empty = dir.path().join("empty");
    let bare = dir.path().join("bare");
    for folder in [&plain, &empty, &bare] {
        fs::create_dir(folder).unwrap();
    }
    git(&empty, &["init", "-q"]);
    git(&bare, &["init", "-q", "--bare"]);
    let pantry = pantry();
    for (cwd, expect) in [
        (&plain, "not a git repository"),
        (&empty, "no commit yet"),
        (&bare, "bare"),
        (&pantry.root.join(".git"), "not in the work tree"),
        (&dir.path().join("missing"), "No such file"),
    ] {
        let task = NewTask::shell("true").cwd(cwd).worktree();
        let refused = kitchen.session.spawn(task).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Invalid, "{refused}");
        assert!(refused.message.contains(expect), "{refused}");
    }
    let refused = kitchen.session.spawn(NewTask::shell("true").worktree()).await.unwrap_err();
    assert!(refused.message.contains("working directory"), "{refused}");
    assert!(kitchen.session.list().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_checkout_fails_the_task_and_leaves_nothing() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    // The tree of the commit is gone, so that nothing can be checked out.
    let tree = git(&pantry.root, &["rev-parse", "HEAD:sauces"]);
    let object = pantry.root.join(".git/objects").join(&tree[..2]).join(&tree[2..]);
    fs::remove_file(object).unwrap();
    let task = kitchen.session.spawn(pantry.task("echo ran")).await.unwrap();
    let outcome = kitchen.task(&task).await.to_string();
    assert!(outcome.contains("no worktree can be made"), "{outcome}");
    assert_eq!((pantry.worktrees(), pantry.branches()), (0, String::new()));
    until("the record is removed", || records(&kitchen).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worktree_outlives_the_runtime_with_its_process() {
    let first = kitchen().await;
    let pantry = pantry();
    let go = pantry.root.join("go");
    let script = format!(
        "echo begun; while ! test -e {}; do sleep 0.02; done; echo new > untracked",
        go.display()
    );
    let task = first.session.spawn(pantry.task(&script)).await.unwrap();
    until_output(&task, "begun").await;
    let before = worktree_of(&first.session, &task).await;
    let no = task.no();
    drop(task);
    let next = first.reopened().await;
    assert_eq!(pantry.worktrees(), 1);
    fs::write(&go, "").unwrap();
    let task = next.session.task(no).await.unwrap();
    let after = released(&next.session, &task).await;
    assert_eq!((after.path, after.state), (before.path, WorktreeState::Kept));
}

/// Runs a task with a key to its end, and returns its worktree.
async fn run_keyed(dir: &Path, store: Arc<dyn Store>, root: &Path) -> (Worktree, String) {
    let options = ProcessOptions::new(dir);
    let builder = Runtime::builder().shared_store(store).max_batch(1).processes(options);
    let runtime = builder.start().await.unwrap();
    let session = runtime.session("kitchen").await.unwrap();
    let task = NewTask::shell("cat menu").cwd(root).worktree().key("order");
    let task = session.spawn(task).await.unwrap();
    let tail = task.result().await.unwrap().tail;
    let worktree = released(&session, &task).await;
    // The record is removed after the release is stored.
    let records = dir.join("worktree_records");
    until("the record is removed", || files_in(&records).is_empty()).await;
    drop(task);
    drop(session);
    runtime.shutdown().await.unwrap();
    (worktree, tail)
}

#[test]
fn no_worktree_is_left_or_lost_wherever_the_runtime_dies() {
    let life = || tokio::runtime::Runtime::new().unwrap();
    let pantry = pantry();
    let dir = tempfile::tempdir().unwrap();
    let uncut = CrashStore::new(Arc::new(MemoryStore::new()), None);
    life().block_on(run_keyed(dir.path(), uncut.clone(), &pantry.root));
    let commits = uncut.commits();
    assert!(commits >= 5, "a story of {commits} commits has not much to cut");
    for commit in 0..commits {
        for durable in [false, true] {
            let cut = CutPoint { commit, durable, mode: CutMode::Crash };
            let dir = tempfile::tempdir().unwrap();
            let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let store = CrashStore::new(memory.clone(), Some(cut));
            life().block_on(async {
                tokio::select! {
                    biased;
                    () = store.wait_crashed() => {}
                    _ = run_keyed(dir.path(), store.clone(), &pantry.root) => {}
                }
            });
            let (worktree, tail) = life().block_on(run_keyed(dir.path(), memory, &pantry.root));
            assert_eq!((&*tail, worktree.state), ("soup\n", WorktreeState::Removed), "{cut:?}");
            assert_eq!((pantry.worktrees(), &*pantry.branches()), (0, ""), "after {cut:?}");
            let found = files_in(&dir.path().join("worktrees"));
            assert!(found.is_empty(), "after {cut:?}: {found:?}");
        }
    }
}
