//! Repositories and tasks that try to leave the worktree of a task.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use brigade_model::refusal::RefusalKind;
use brigade_model::sandbox::SandboxRequest;
use brigade_model::worktree::WorktreeState;
use brigade_process::LandlockSupport;
use brigade_runtime::NewTask;

use crate::support::*;
use crate::worktrees::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_the_repository_configures_is_executed() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let mark = pantry.root.parent().unwrap().join("executed");
    let program = pantry.root.parent().unwrap().join("program");
    fs::write(&program, format!("#!/bin/sh\necho $0 $* >> {}\ncat\n", mark.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(pantry.root.join("other"), "salt\n").unwrap();
    fs::write(pantry.root.join(".lfsconfig"), "[lfs]\n\turl = ext::evil\n").unwrap();
    fs::write(
        pantry.root.join(".gitattributes"),
        "menu filter=late\nsauces/* filter=a.b\nother filter=evil\n",
    )
    .unwrap();
    git(&pantry.root, &["add", "."]);
    git(&pantry.root, &["commit", "-q", "-m", "attributes"]);
    let program = program.to_str().unwrap();
    for key in [
        "filter.evil.smudge",
        "filter.a.b.smudge",
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "core.askPass",
        "core.editor",
        "core.gitProxy",
        "core.alternateRefsCommand",
        "credential.helper",
        "gpg.program",
        "diff.external",
        "lfs.standalonetransferagent",
        "lfs.customtransfer.evil.path",
        "submodule.evil.update",
        "hook.evil.command",
        "alias.status",
    ] {
        git(&pantry.root, &["config", key, program]);
    }
    git(&pantry.root, &["config", "filter.a.b.required", "true"]);
    git(&pantry.root, &["config", "hook.evil.event", "reference-transaction"]);
    git(&pantry.root, &["config", "status.submoduleSummary", "true"]);
    // These settings are in files of their own.
    let evil = |name: &str| format!("[filter \"{name}\"]\n\tsmudge = {program}\n");
    let info = "other filter=shared\n.gitignore filter=own\n";
    fs::write(pantry.root.join(".git/info/attributes"), info).unwrap();
    fs::write(pantry.root.join(".git/shared"), evil("shared")).unwrap();
    git(&pantry.root, &["config", "include.path", "shared"]);
    git(&pantry.root, &["config", "extensions.worktreeConfig", "true"]);
    fs::write(pantry.root.join(".git/config.worktree"), evil("own")).unwrap();
    // These settings hold for a worktree only.
    let late = format!("{}\tclean = {program}\n", evil("late"));
    fs::write(pantry.root.join(".git/included"), late).unwrap();
    git(&pantry.root, &["config", "includeIf.gitdir:**/worktrees/**.path", "included"]);
    let hooks = pantry.root.join("hooks");
    fs::create_dir(&hooks).unwrap();
    git(&pantry.root, &["config", "core.hooksPath", hooks.to_str().unwrap()]);
    for hook in ["post-checkout", "reference-transaction", "post-index-change"] {
        for dir in [&hooks, &pantry.root.join(".git/hooks")] {
            fs::create_dir_all(dir).unwrap();
            fs::copy(program, dir.join(hook)).unwrap();
        }
    }
    // The time of a changed file makes git compare its content, by its filter.
    let script = format!(
        "cat menu; touch menu other .gitignore sauces/red; \
         for name in evil shared own; do git config filter.$name.clean {program}; done; \
         git config filter.a.b.process {program}"
    );
    let (worktree, tail) = run(&kitchen, pantry.task(&script)).await;
    assert_eq!((tail.as_str(), worktree.state), ("soup\n", WorktreeState::Removed));
    assert!(!mark.exists(), "{}", fs::read_to_string(&mark).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_replaces_the_git_files_of_its_worktree_executes_nothing_later() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let mark = pantry.root.parent().unwrap().join("executed");
    let script = format!(
        "real=$(git rev-parse --git-dir); git clone -q \"$(git rev-parse --git-common-dir)\" fake; \
         printf '%s\\n' 'menu filter=evil' > fake/.git/info/attributes; \
         git -C fake config filter.evil.clean 'echo x > {mark}; cat'; \
         mv fake/.git ../fake-git; rm -rf fake; echo ../fake-git > /dev/null; \
         echo \"$(cd ../fake-git && pwd)\" > \"$real/commondir\"; touch menu",
        mark = mark.display()
    );
    let (worktree, _) = run(&kitchen, pantry.task(&script)).await;
    assert_eq!(worktree.state, WorktreeState::Kept);
    assert!(!mark.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_a_task_adds_to_its_worktree_is_not_read() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let mark = pantry.root.parent().unwrap().join("executed");
    git(&pantry.root, &["config", "extensions.worktreeConfig", "true"]);
    fs::write(pantry.root.join(".git/info/attributes"), "menu filter=evil\n").unwrap();
    let script = format!(
        "git config --worktree filter.evil.clean 'echo x >> {mark}; cat'; \
         git config --worktree core.fsmonitor 'echo x >> {mark}; false'; \
         git config --worktree core.worktree /; \
         cat $(git rev-parse --absolute-git-dir)/config.worktree; touch menu",
        mark = mark.display()
    );
    let (worktree, tail) = run(&kitchen, pantry.task(&script)).await;
    assert!(tail.contains("filter \"evil\""), "{tail}");
    assert!(!mark.exists(), "{}", fs::read_to_string(&mark).unwrap());
    assert_eq!(worktree.state, WorktreeState::Removed, "settings are no work");
    assert!(!Path::new(&*worktree.git_dir).exists());
    assert_eq!((pantry.worktrees(), pantry.branches()), (0, String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_takes_the_name_of_another_worktree_does_not_remove_it() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let other = pantry.root.parent().unwrap().join("other");
    git(&pantry.root, &["worktree", "add", "-q", other.to_str().unwrap()]);
    // The task's git directory says that it belongs to the other folder, or blocks its reader.
    let named =
        format!("d=$(git rev-parse --absolute-git-dir); echo {}/.git > $d/gitdir", other.display());
    let blocking =
        "d=$(git rev-parse --absolute-git-dir); rm .git $d/gitdir; mkfifo .git $d/gitdir";
    for script in [&*named, blocking] {
        let (worktree, _) = run(&kitchen, pantry.task(script)).await;
        assert_eq!(worktree.state, WorktreeState::Kept, "{script}");
        assert!(Path::new(&*worktree.path).join("menu").exists(), "{script}");
        assert!(other.join("menu").exists(), "{script}");
    }
    git(&other, &["status"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_with_links_in_it_is_refused() {
    let kitchen = kitchen().await;
    for part in ["objects", "refs", "logs", "worktrees", "refs/heads"] {
        let pantry = pantry();
        let elsewhere = pantry.root.parent().unwrap().join("elsewhere");
        let part = pantry.root.join(".git").join(part);
        fs::create_dir_all(&part).unwrap();
        fs::rename(&part, &elsewhere).unwrap();
        symlink(&elsewhere, &part).unwrap();
        let refused = kitchen.session.spawn(pantry.task("true")).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Invalid, "{refused}");
        assert!(refused.message.contains("is a link"), "{refused}");
    }
    for folder in ["refs/heads/brigade", "logs/refs/heads/brigade"] {
        let pantry = pantry();
        let elsewhere = pantry.root.parent().unwrap().join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        symlink(&elsewhere, pantry.root.join(".git").join(folder)).unwrap();
        let changed = || fs::metadata(&elsewhere).unwrap().modified().unwrap();
        let before = changed();
        let task = kitchen.session.spawn(pantry.task("true")).await.unwrap();
        let outcome = kitchen.task(&task).await.to_string();
        assert!(outcome.contains("is a link"), "{outcome}");
        assert_eq!(changed(), before, "nothing was ever in it: {folder}");
    }
    until("the records are removed", || {
        fs::read_dir(kitchen.dir.path().join("worktree_records")).unwrap().count() == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_leads_to_the_repository_of_others_is_refused() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let other = pantry.root.parent().unwrap().join("other");
    fs::create_dir(&other).unwrap();
    let named = other.join(".git");
    let refuse = async |case: &str| {
        let task = NewTask::shell("true").cwd(&other).worktree();
        let refused = kitchen.session.spawn(task).await.unwrap_err();
        assert!(refused.message.contains("does not know this directory"), "{case}: {refused}");
    };
    let real = pantry.root.join(".git");
    fs::write(&named, format!("gitdir: {}\n", real.display())).unwrap();
    refuse("a file").await;
    fs::remove_file(&named).unwrap();
    symlink(&real, &named).unwrap();
    refuse("a link").await;
    fs::remove_file(&named).unwrap();
    fs::create_dir(&named).unwrap();
    fs::write(named.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(named.join("commondir"), format!("{}\n", real.display())).unwrap();
    refuse("a common directory").await;
    // A worktree and a submodule belong to their repositories.
    let linked = pantry.root.parent().unwrap().join("linked");
    git(&pantry.root, &["worktree", "add", "-q", linked.to_str().unwrap()]);
    let from = pantry.root.to_str().unwrap();
    let allow = ["-c", "protocol.file.allow=always"];
    git(&linked, &[allow[0], allow[1], "submodule", "--quiet", "add", from, "sub"]);
    for cwd in [&linked, &linked.join("sub")] {
        let (worktree, tail) = run(&kitchen, NewTask::shell("cat menu").cwd(cwd).worktree()).await;
        assert_eq!((&*tail, worktree.state), ("soup\n", WorktreeState::Removed));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_in_place_of_the_folder_for_branches_is_named() {
    let kitchen = kitchen().await;
    for branch in ["brigade", "brigade/kitchen"] {
        let pantry = pantry();
        git(&pantry.root, &["branch", branch]);
        let task = kitchen.session.spawn(pantry.task("true")).await.unwrap();
        let outcome = kitchen.task(&task).await.to_string();
        assert!(outcome.contains(&format!("the branch {branch} has the name")), "{outcome}");
        assert_eq!((pantry.worktrees(), &*pantry.branches()), (0, branch));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_formats_of_repositories_work_or_are_refused() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let long = pantry.root.parent().unwrap().join("long");
    fs::create_dir(&long).unwrap();
    git(&long, &["init", "-q", "--object-format=sha256"]);
    git(&long, &["commit", "-q", "--allow-empty", "-m", "first"]);
    let script = format!("{IDENTITY} git commit -q --allow-empty -m x; git rev-parse HEAD");
    let (worktree, tail) = run(&kitchen, NewTask::shell(&script).cwd(&long).worktree()).await;
    assert_eq!((tail.trim_end().len(), worktree.state), (64, WorktreeState::Kept));
    // Line ends are those of the repository's settings.
    git(&pantry.root, &["config", "core.autocrlf", "true"]);
    let (worktree, tail) = run(&kitchen, pantry.task("cat menu; touch menu")).await;
    assert_eq!((&*tail, worktree.state), ("soup\r\n", WorktreeState::Removed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandboxed_task_commits_and_cannot_change_hooks_or_configuration() {
    if LandlockSupport::detect().check().is_err() {
        eprintln!("not tested: this kernel cannot sandbox processes");
        return;
    }
    let kitchen = kitchen().await;
    let pantry = pantry();
    let root = pantry.root.display();
    let script = format!(
        "{IDENTITY} export HOME=$TMPDIR; set -e; echo stew > menu; git commit -q -a -m stew 2>&1; \
         git log --format=%s -1; set +e; \
         echo evil > {root}/.git/hooks/post-checkout || echo no hook; \
         git config core.pager evil || echo no config; \
         echo x >> {root}/.git/config || echo no file; \
         echo x > {root}/.git/refs/heads/main || echo no main; \
         echo x > {root}/menu"
    );
    let task = pantry.task(&script).sandbox(SandboxRequest::default());
    let (worktree, tail) = run(&kitchen, task).await;
    for expect in ["stew", "no hook", "no config", "no file", "no main"] {
        assert!(tail.lines().any(|line| line == expect), "{expect:?} is not in {tail}");
    }
    assert_eq!(worktree.state, WorktreeState::Kept);
    assert_eq!(git(&pantry.root, &["show", "brigade/kitchen/1/1:menu"]), "stew");
    assert_eq!(git(&pantry.root, &["status", "--porcelain"]), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandboxed_task_cannot_write_the_branches_of_other_tasks() {
    if LandlockSupport::detect().check().is_err() {
        eprintln!("not tested: this kernel cannot sandbox processes");
        return;
    }
    let kitchen = kitchen().await;
    let pantry = pantry();
    let root = pantry.root.display();
    let (other, _) = run(&kitchen, pantry.task("echo new > untracked")).await;
    assert_eq!(&*other.branch, "brigade/kitchen/1/1");
    let branches = format!("{root}/.git/refs/heads/brigade/kitchen");
    let script = format!(
        "echo x > {branches}/1/1 || echo no branch; echo x > {branches}/1/2 || echo no new; \
         echo x > {branches}/9 || echo no sibling; mv {branches}/1 {branches}/8 || echo no move; \
         echo x >> {root}/.git/logs/refs/heads/brigade/kitchen/1/1 || echo no reflog; \
         echo x > {git_dir}/HEAD || echo no head; \
         {IDENTITY} export HOME=$TMPDIR; git commit -q --allow-empty -m stew 2>&1; \
         git log --format=%s -1; ls {branches}/2",
        git_dir = other.git_dir
    );
    let task = pantry.task(&script).sandbox(SandboxRequest::default());
    let (worktree, tail) = run(&kitchen, task).await;
    for expect in
        ["no branch", "no new", "no sibling", "no move", "no reflog", "no head", "stew", "1"]
    {
        assert!(tail.lines().any(|line| line == expect), "{expect:?} is not in {tail}");
    }
    assert_eq!((&*worktree.branch, worktree.state), ("brigade/kitchen/2/1", WorktreeState::Kept));
    assert_eq!(git(&pantry.root, &["log", "--format=%s", "-1", &worktree.branch]), "stew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_among_the_branches_of_a_task_do_not_outlive_it() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let root = pantry.root.display();
    let mine = pantry.root.parent().unwrap().join("mine");
    fs::write(&mine, "mine\n").unwrap();
    let script = format!(
        "{IDENTITY} git commit -q --allow-empty -m stew; cd {root}/.git; \
         ln -sf {mine} logs/refs/heads/brigade/kitchen/1/1; mkdir refs/heads/brigade/kitchen/1/x; \
         ln -s {mine} refs/heads/brigade/kitchen/1/x/y; \
         for d in worktrees/*; do mkfifo $d/pipe; done",
        mine = mine.display()
    );
    let (worktree, _) = run(&kitchen, pantry.task(&script)).await;
    assert_eq!(worktree.state, WorktreeState::Kept);
    // Git refuses to move a branch that is checked out.
    git(Path::new(&*worktree.path), &["checkout", "-q", "--detach"]);
    git(&pantry.root, &["branch", "-f", &worktree.branch, "main"]);
    assert_eq!(fs::read_to_string(&mine).unwrap(), "mine\n");
    assert!(
        fs::symlink_metadata(pantry.root.join(".git/refs/heads/brigade/kitchen/1/x/y")).is_err()
    );
    assert!(!Path::new(&*worktree.git_dir).join("pipe").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandboxed_task_gets_no_files_of_an_alternate_repository() {
    if LandlockSupport::detect().check().is_err() {
        eprintln!("not tested: this kernel cannot sandbox processes");
        return;
    }
    let kitchen = kitchen().await;
    let pantry = pantry();
    let shared = pantry.root.parent().unwrap().join("shared");
    git(&pantry.root, &["clone", "-q", "--shared", ".", shared.to_str().unwrap()]);
    let task = || NewTask::shell("cat menu").cwd(&shared).worktree();
    let sandboxed = task().sandbox(SandboxRequest::default());
    let sandboxed = kitchen.session.spawn(sandboxed).await.unwrap();
    let outcome = kitchen.task(&sandboxed).await.to_string();
    assert!(outcome.contains("objects of another one"), "{outcome}");
    let released = released(&kitchen.session, &sandboxed).await;
    assert_eq!(released.state, WorktreeState::Removed);
    let (_, tail) = run(&kitchen, task()).await;
    assert_eq!(tail, "soup\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipes_in_the_git_directory_of_a_task_block_nobody() {
    let kitchen = kitchen().await;
    let pantry = pantry();
    let go = pantry.root.join("go");
    for file in ["HEAD", "index"] {
        let script = format!(
            "d=$(git rev-parse --absolute-git-dir); rm $d/{file}; mkfifo $d/{file}; echo begun; \
             until test -e {go}; do sleep 0.02; done",
            go = go.display()
        );
        let blocking = kitchen.session.spawn(pantry.task(&script)).await.unwrap();
        until_output(&blocking, "begun").await;
        let (worktree, _) = run(&kitchen, pantry.task("true")).await;
        assert_eq!(worktree.state, WorktreeState::Removed, "{file}");
        fs::write(&go, "").unwrap();
        let blocking = released(&kitchen.session, &blocking).await;
        assert_eq!(blocking.state, WorktreeState::Kept, "{file}");
        fs::remove_file(&go).unwrap();
        git(&pantry.root, &["worktree", "list"]);
    }
}
