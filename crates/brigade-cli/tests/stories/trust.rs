//! `brigade trust`: definitions that come with a repository.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::story_env::{BRIGADE, Ran, StoryEnv};

const COOK: &str = "---\nname: cook\ndescription: Cooks.\ntools: [write_file]\n---\nCook.\n";

const SCRIPT: &str = r#"
agent *
turn
  call write_file {"path": "menu.md", "content": "Leeks.\n"}
turn
  when no tool "write_file"
  say I only read.
turn
  when Created
  say I wrote.
"#;

fn story() -> StoryEnv {
    let story = StoryEnv::new();
    story.script(SCRIPT);
    std::fs::create_dir(story.project().join(".git")).unwrap();
    story.define("cook", COOK);
    story
}

fn digest(story: &StoryEnv) -> String {
    let shown = story.json(["trust", "show"]);
    shown["definitions"][0]["digest"].as_str().unwrap().to_owned()
}

/// Runs a subcommand on a terminal, with typed lines.
fn run_typed(story: &StoryEnv, args: &str, lines: &str) -> String {
    let mut script = Command::new("script");
    story.hermetic(&mut script);
    let line = format!("stty cols 100 rows 40; {BRIGADE} {args}");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let shown = child.wait_with_output().unwrap();
    String::from_utf8(shown.stdout).unwrap().replace("\r\n", "\n")
}

#[test]
fn an_unattended_run_refuses_an_untrusted_definition_with_a_hint() {
    let story = story();
    let ran = story.run(["run", "--agent", "cook", "cook"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    let digest = digest(&story);
    assert!(ran.err.contains(&format!("brigade trust grant {digest}")), "{}", ran.err);
    assert!(story.ok(["agents"]).contains("cook.md (not trusted)"));

    assert_eq!(story.ok(["trust", "grant", &digest]), "trusted: cook\n");
    assert_eq!(story.ok(["run", "--agent", "cook", "cook"]), "I wrote.\n");
    let listed = story.ok(["trust", "list"]);
    let repository = story.project().join(".git").display().to_string();
    assert_eq!(listed, format!("{repository}\n  {digest}  cook\n"));

    // The next daemon knows it too; a changed definition is untrusted.
    story.ok(["daemon", "stop"]);
    assert!(!story.ok(["agents"]).contains("not trusted"));
    story.define("cook", &format!("{COOK}Season it.\n"));
    let ran = story.run(["run", "--agent", "cook", "cook"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    story.define("cook", COOK);
    assert_eq!(story.ok(["trust", "revoke", "--all"]), "revoked trust in 1 definition\n");
    assert_eq!(story.run(["run", "--agent", "cook", "cook"]).code, 126);
    assert_eq!(story.ok(["trust", "list"]), "");
}

#[test]
fn a_worktree_shares_the_trust_of_its_repository_and_a_copy_does_not() {
    let story = story();
    story.trust();
    let copy = |name: &str| {
        let directory = story.directory(name);
        std::fs::create_dir_all(directory.join(".brigade/agents")).unwrap();
        std::fs::write(directory.join(".brigade/agents/cook.md"), COOK).unwrap();
        directory
    };
    let worktree = copy("worktree");
    let own = story.project().join(".git/worktrees/one");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("commondir"), "../..\n").unwrap();
    std::fs::write(worktree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
    let other = copy("other");
    let run = |directory| story.run_in(directory, ["run", "--agent", "cook", "cook"]);
    assert_eq!(run(&worktree).out, "I wrote.\n");
    assert_eq!(run(&other).code, 126);
}

#[test]
fn a_terminal_shows_the_whole_definition_before_it_asks() {
    let story = story();
    let text = format!("{COOK}\u{1b}[2JLast line.\u{200b}\n");
    story.define("cook", &text);
    let shown = run_typed(&story, "run --agent cook cook", "n\n");
    let digest = digest(&story);
    for part in ["  │ tools: [write_file]⏎", &digest, r"  │ \u{1b}[2JLast line.\u{200b}⏎", "[y/N]"]
    {
        assert!(shown.contains(part), "{part:?}: {shown}");
    }
    assert!(shown.contains("I only read.") && shown.contains("not trusted"), "{shown}");
    assert!(!story.project().join("menu.md").exists());
    let shown = run_typed(&story, "run --agent cook cook", "y\n");
    assert!(shown.contains("I wrote."), "{shown}");
    let shown = run_typed(&story, "run --agent cook cook", "");
    assert!(!shown.contains("[y/N]"), "asked only once: {shown}");
}

#[test]
fn a_name_of_the_user_and_of_the_workspace_is_ambiguous() {
    let story = story();
    story.trust();
    let users = story.home().join(".config/brigade/agents");
    std::fs::create_dir_all(&users).unwrap();
    let own = COOK.replace("[write_file]", "[read_file]");
    std::fs::write(users.join("cook.md"), own).unwrap();
    let ran = story.run(["run", "--agent", "cook", "cook"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("user:cook") && ran.err.contains("workspace:cook"), "{}", ran.err);
    assert_eq!(story.ok(["run", "--agent", "user:cook", "cook"]), "I only read.\n");
    assert_eq!(story.ok(["run", "--agent", "workspace:cook", "cook"]), "I wrote.\n");
}

#[test]
fn a_process_of_a_task_cannot_grant_trust() {
    let story = story();
    let digest = digest(&story);
    let ran: Ran = story.run(["exec", "--", BRIGADE, "trust", "grant", &digest]);
    assert_eq!(ran.code, 126, "{ran:?}");
    assert!(ran.err.contains("only the operator"), "{}", ran.err);
    for args in [["trust", "list"], ["trust", "show"]] {
        let ran = story.run(["exec", "--", BRIGADE, args[0], args[1]]);
        assert_eq!(ran.code, 126, "{ran:?}");
    }
    assert_eq!(story.ok(["trust", "list"]), "");
}
