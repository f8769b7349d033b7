//! Worktrees of a user who has filters of their own, such as Git LFS.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::story_env::{StoryEnv, poll};

#[test]
fn a_filter_of_the_user_runs_in_a_task_and_not_in_the_daemon() {
    let story = StoryEnv::new();
    let mark = story.home().join("executed");
    let filter = story.home().join("filter");
    fs::write(&filter, format!("#!/bin/sh\necho $* >> {}\nsed s/pointer/soup/\n", mark.display()))
        .unwrap();
    fs::set_permissions(&filter, fs::Permissions::from_mode(0o755)).unwrap();
    let git = |words: &[&str]| {
        let mut git = Command::new("git");
        story.hermetic(&mut git);
        let ran = git.args(["-c", "user.name=cook", "-c", "user.email=c@localhost"]).args(words);
        let ran = ran.output().unwrap();
        assert!(ran.status.success(), "git {words:?}: {ran:?}");
    };
    git(&["init", "-q"]);
    fs::write(story.project().join(".gitattributes"), "menu filter=lfs\n").unwrap();
    fs::write(story.project().join(".lfsconfig"), "[lfs]\n\turl = ext::evil\n").unwrap();
    fs::write(story.project().join("menu"), "pointer\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "first"]);
    git(&["config", "lfs.customtransfer.evil.path", filter.to_str().unwrap()]);
    let filter = filter.display();
    let config = format!(
        "[filter \"lfs\"]\n\tsmudge = {filter} smudge\n\tclean = {filter} clean\n\
         \trequired = true\n[core]\n\texcludesFile = ~/ignored\n"
    );
    fs::write(story.home().join(".gitconfig"), config).unwrap();
    fs::write(story.home().join("ignored"), "*.swp\n").unwrap();

    let script = "cat menu; touch menu note.swp";
    let printed = story.ok(["exec", "--worktree", "--name", "plain", "--shell", script]);
    assert_eq!(printed, "pointer\n");
    let kept = |task: &str| {
        poll("it is examined", || story.json(["show", task])["worktree"]["kept"].as_bool())
    };
    assert!(!kept("plain"), "files that the user ignores are no work");
    assert!(!mark.exists(), "{}", fs::read_to_string(&mark).unwrap());

    let script = "rm menu; git checkout -q menu; cat menu";
    let printed = story.ok(["exec", "--worktree", "--name", "filtered", "--shell", script]);
    assert_eq!(printed, "soup\n");
    kept("filtered");
    assert_eq!(fs::read_to_string(&mark).unwrap(), "smudge\n");
}
