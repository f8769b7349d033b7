//! Repositories after the end of a task: nothing that it made there acts later.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::Path;
use std::process::Command;

use brigade_model::sandbox::SandboxRequest;
use brigade_model::worktree::WorktreeState;
use brigade_process::LandlockSupport;
use brigade_runtime::NewTask;

use crate::support::*;
use crate::worktrees::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_and_pipes_among_the_objects_do_not_outlive_their_task() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let objects = pantry.root.join(".git/objects");
    let mine = pantry.root.parent().unwrap().join("mine");
    fs::write(&mine, "mine\n").unwrap();
    let earlier = objects.join("info/earlier");
    symlink(&mine, &earlier).unwrap();
    let script = format!(
        "cd {objects}; mkdir -p info/commit-graphs ee; ln -s {mine} info/commit-graph; \
         ln -s {mine} info/commit-graphs/commit-graph-chain; mkfifo info/alternates; \
         mkfifo pack/pack-1.idx ee/pipe pipe; ln -s / aa",
        objects = objects.display(),
        mine = mine.display()
    );
    let (worktree, _) = run(&kitchen, pantry.task(&script)).await;
    assert_eq!(worktree.state, WorktreeState::Removed);
    assert!(fs::symlink_metadata(&earlier).is_ok(), "it was there before the task");
    git(&pantry.root, &["commit-graph", "write", "--reachable"]);
    git(&pantry.root, &["gc", "-q"]);
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine\n");
    assert!(fs::symlink_metadata(objects.join("info/alternates")).is_err());
    assert!(!fs::symlink_metadata(objects.join("pipe")).is_ok_and(|it| it.file_type().is_fifo()));
    assert!(fs::symlink_metadata(objects.join("ee/pipe")).is_err());
    git(&pantry.root, &["fsck"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandboxed_task_makes_no_links_pipes_or_alternates_for_others() {
    if LandlockSupport::detect().check().is_err() {
        eprintln!("not tested: this kernel cannot sandbox processes");
        return;
    }
    let kitchen = kitchen().await;
    let pantry = visible_pantry();
    let root = pantry.root.display();
    let script = format!(
        "{IDENTITY} export HOME=$TMPDIR; d=$(git rev-parse --absolute-git-dir); cd {root}/.git; \
         exec 2>/dev/null; ln -s / objects/info/commit-graph || echo no link; mkfifo objects/info/x || echo no pipe; \
         ln -s / refs/heads/brigade/kitchen/1/x || echo no ref; \
         ln -s / logs/refs/heads/brigade/kitchen/1/x || echo no reflog; \
         ln -s / $d/x || echo no own; \
         echo /elsewhere > objects/info/alternates && echo listed; \
         cd $OLDPWD; echo stew > menu; git commit -q -a -m stew 2>&1; git log --format=%s -1"
    );
    let task = pantry.task(&script).sandbox(SandboxRequest::default());
    let (worktree, tail) = run(&kitchen, task).await;
    for expect in ["no link", "no pipe", "no ref", "no reflog", "no own", "listed", "stew"] {
        assert!(tail.lines().any(|line| line == expect), "{expect:?} is not in {tail}");
    }
    assert_eq!(worktree.state, WorktreeState::Kept);
    assert!(!pantry.root.join(".git/objects/info/alternates").exists());
    git(&pantry.root, &["gc", "-q"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kept_worktree_executes_nothing_in_the_git_of_its_user() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    git(&pantry.root, &["config", "extensions.worktreeConfig", "true"]);
    let mark = pantry.root.parent().unwrap().join("executed");
    let command = format!("echo x >> {}; false", mark.display());
    let own = format!("git config --worktree core.fsmonitor '{command}'; echo new > untracked");
    let fake = format!(
        "d=$(git rev-parse --absolute-git-dir); \
         git clone -q \"$(git rev-parse --git-common-dir)\" ../fake-$$; \
         f=$(cd ../fake-$$/.git && pwd); git -C ../fake-$$ config core.fsmonitor '{command}'; \
         echo new > untracked; "
    );
    let common = format!("{fake} rm $d/commondir; echo $f > $d/commondir");
    let named = format!("{fake} echo $f > $d/gitdir; echo \"gitdir: $f\" > .git");
    let link = format!("{fake} echo $f > $d/other; ln -sf $d/other $d/commondir; chmod 0 $d");
    for script in [own, common, named, link] {
        let (worktree, _) = run(&kitchen, pantry.task(&script)).await;
        assert_eq!(worktree.state, WorktreeState::Kept, "{script}");
        let _ = fs::remove_file(&mark);
        let removed = Command::new("git")
            .args(["worktree", "remove", &worktree.path])
            .current_dir(&pantry.root)
            .output()
            .unwrap();
        let problem = String::from_utf8_lossy(&removed.stderr);
        assert!(problem.contains("contains modified or untracked files"), "{script}: {problem}");
        assert!(!mark.exists(), "{script}");
        fs::remove_file(Path::new(&*worktree.path).join("untracked")).unwrap();
        git(&pantry.root, &["worktree", "remove", &worktree.path]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filters_that_would_damage_files_are_refused() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let attributes = pantry.root.join("sauces/.gitattributes");
    fs::write(&attributes, "red filter=crypt\n").unwrap();
    git(&pantry.root, &["add", "."]);
    git(&pantry.root, &["commit", "-q", "-m", "attributes"]);
    let (_, tail) = run(&kitchen, pantry.task("cat menu")).await;
    assert_eq!(tail, "soup\n", "a filter that is not set up changes nothing");
    git(&pantry.root, &["config", "filter.crypt.clean", "rev"]);
    let refuse = async || {
        let task = kitchen.session.spawn(pantry.task("true")).await.unwrap();
        let outcome = kitchen.task(&task).await.to_string();
        assert!(outcome.contains("the filter \"crypt\""), "{outcome}");
        assert_eq!((pantry.worktrees(), pantry.branches()), (0, String::new()));
    };
    refuse().await;
    fs::write(&attributes, "red filter=lfs\n").unwrap();
    git(&pantry.root, &["commit", "-q", "-a", "-m", "lfs"]);
    git(&pantry.root, &["config", "filter.lfs.clean", "cat"]);
    let (worktree, _) = run(&kitchen, pantry.task("touch sauces/red")).await;
    assert_eq!(worktree.state, WorktreeState::Removed);
    fs::write(pantry.root.join(".git/info/attributes"), "* text filter=crypt\n").unwrap();
    refuse().await;
    fs::remove_file(pantry.root.join(".git/info/attributes")).unwrap();
    let own = pantry.root.parent().unwrap().join("own");
    fs::write(&own, "* filter=crypt\n").unwrap();
    git(&pantry.root, &["config", "core.attributesFile", own.to_str().unwrap()]);
    refuse().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packed_refs_do_not_take_the_branch_folder_of_a_sandboxed_task() {
    if LandlockSupport::detect().check().is_err() {
        eprintln!("not tested: this kernel cannot sandbox processes");
        return;
    }
    let kitchen = kitchen().await;
    let pantry = visible_pantry();
    let script = format!(
        "{IDENTITY} export HOME=$TMPDIR; echo begun; until test -e go; do sleep 0.02; done; \
         rm go; git commit -q --allow-empty -m stew 2>&1; git log --format=%s -1"
    );
    let task = pantry.task(&script).sandbox(SandboxRequest::default());
    let task = kitchen.session.spawn(task).await.unwrap();
    until_output(&task, "begun").await;
    git(&pantry.root, &["pack-refs", "--all", "--prune"]);
    git(&pantry.root, &["gc", "-q", "--prune=now"]);
    let worktree = worktree_of(&kitchen.session, &task).await;
    assert!(!pantry.root.join(".git/refs/heads").join(&*worktree.branch).exists());
    fs::write(Path::new(&*worktree.path).join("go"), "").unwrap();
    let worktree = released(&kitchen.session, &task).await;
    assert_eq!(worktree.state, WorktreeState::Kept);
    assert_eq!(git(&pantry.root, &["log", "--format=%s", "-1", &worktree.branch]), "stew");
    // Nothing of Brigade is in the way of git any more.
    git(&pantry.root, &["worktree", "remove", &worktree.path]);
    git(&pantry.root, &["branch", "-q", "-D", &worktree.branch]);
    assert!(!pantry.root.join(".git/refs/heads/brigade").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pipe_among_the_refs_of_another_task_blocks_nobody() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    // Old versions of git open it when they list refs.
    let folder = pantry.root.join(".git/refs/heads/brigade/other/1");
    fs::create_dir_all(&folder).unwrap();
    let made = Command::new("mkfifo").arg(folder.join("pipe")).status().unwrap();
    assert!(made.success());
    let (worktree, tail) = run(&kitchen, pantry.task("cat menu")).await;
    assert_eq!((&*tail, worktree.state), ("soup\n", WorktreeState::Removed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_submodules_and_skipped_files_are_no_work() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let from = pantry.root.parent().unwrap().join("from");
    git(&pantry.root, &["clone", "-q", ".", from.to_str().unwrap()]);
    let allow = ["-c", "protocol.file.allow=always"];
    git(
        &pantry.root,
        &[allow[0], allow[1], "submodule", "--quiet", "add", from.to_str().unwrap(), "sub"],
    );
    git(&pantry.root, &["commit", "-q", "-m", "submodule"]);
    let skipped = "git update-index --skip-worktree menu; rm menu";
    for script in ["ls -d sub", skipped] {
        let (worktree, _) = run(&kitchen, pantry.task(script)).await;
        assert_eq!(worktree.state, WorktreeState::Removed, "{script}");
    }
    let hidden = "git update-index --skip-worktree menu; echo stew > menu";
    for script in ["echo x > sub/x", "mkdir -p $(git rev-parse --git-dir)/modules/sub", hidden] {
        let (worktree, _) = run(&kitchen, pantry.task(script)).await;
        assert_eq!(worktree.state, WorktreeState::Kept, "{script}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sparse_checkout_is_taken_over_also_in_a_partial_clone() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    fs::create_dir(pantry.root.join("far")).unwrap();
    fs::write(pantry.root.join("far/away"), "rare\n").unwrap();
    git(&pantry.root, &["add", "."]);
    git(&pantry.root, &["commit", "-q", "-m", "far"]);
    git(&pantry.root, &["config", "uploadpack.allowFilter", "true"]);
    let from = format!("file://{}", pantry.root.display());
    for filter in ["--no-tags", "--filter=blob:none"] {
        let folder = tempfile::tempdir().unwrap();
        let clone = folder.path().canonicalize().unwrap().join("clone");
        let args = ["clone", "-q", filter, "--sparse", &from, clone.to_str().unwrap()];
        git(&pantry.root, &args);
        git(&clone, &["sparse-checkout", "set", "sauces"]);
        let script = "ls; git sparse-checkout list; git status --porcelain";
        let task = NewTask::shell(script).cwd(&clone).worktree();
        let (worktree, tail) = run(&kitchen, task).await;
        assert_eq!((&*tail, worktree.state), ("menu\nsauces\nsauces\n", WorktreeState::Removed));
        let task = NewTask::shell("echo x > new").cwd(&clone).worktree();
        let (worktree, _) = run(&kitchen, task).await;
        assert_eq!(worktree.state, WorktreeState::Kept);
        let kept = Path::new(&*worktree.path);
        assert_eq!(git(kept, &["sparse-checkout", "list"]), "sauces");
        assert_eq!(git(kept, &["status", "--porcelain"]), "?? new");
    }
}
