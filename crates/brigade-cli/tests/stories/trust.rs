//! Definitions that come with a repository somebody cloned.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::kitchen::{BRIGADE, Kitchen, Ran};

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

fn kitchen() -> Kitchen {
    let kitchen = Kitchen::new();
    kitchen.script(SCRIPT);
    std::fs::create_dir(kitchen.project().join(".git")).unwrap();
    kitchen.define("cook", COOK);
    kitchen
}

fn digest(kitchen: &Kitchen) -> String {
    let shown = kitchen.json(["trust", "show"]);
    shown["definitions"][0]["digest"].as_str().unwrap().to_owned()
}

/// Runs it on a terminal, with these lines typed.
fn typed(kitchen: &Kitchen, args: &str, lines: &str) -> String {
    let mut script = Command::new("script");
    kitchen.hermetic(&mut script);
    let line = format!("stty cols 100 rows 40; {BRIGADE} {args}");
    script.args(["-qec", &line, "/dev/null"]).env("TERM", "xterm");
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let shown = child.wait_with_output().unwrap();
    String::from_utf8(shown.stdout).unwrap().replace("\r\n", "\n")
}

#[test]
fn unattended_an_untrusted_definition_is_refused_with_the_command_to_run() {
    let kitchen = kitchen();
    let ran = kitchen.run(["run", "--agent", "cook", "cook"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    let digest = digest(&kitchen);
    assert!(ran.err.contains(&format!("brigade trust grant {digest}")), "{}", ran.err);
    assert!(kitchen.ok(["agents"]).contains("cook.md (not trusted)"));

    assert_eq!(kitchen.ok(["trust", "grant", &digest]), "trusted: cook\n");
    assert_eq!(kitchen.ok(["run", "--agent", "cook", "cook"]), "I wrote.\n");
    let listed = kitchen.ok(["trust", "list"]);
    let repository = kitchen.project().join(".git").display().to_string();
    assert_eq!(listed, format!("{repository}\n  {digest}  cook\n"));

    // Another daemon knows it too; another content is another definition.
    kitchen.ok(["daemon", "stop"]);
    assert!(!kitchen.ok(["agents"]).contains("not trusted"));
    kitchen.define("cook", &format!("{COOK}Season it.\n"));
    let ran = kitchen.run(["run", "--agent", "cook", "cook"]);
    assert_eq!(ran.code, 126, "{ran:?}");
    kitchen.define("cook", COOK);
    assert_eq!(kitchen.ok(["trust", "revoke", "--all"]), "1 definition not trusted any more\n");
    assert_eq!(kitchen.run(["run", "--agent", "cook", "cook"]).code, 126);
    assert_eq!(kitchen.ok(["trust", "list"]), "");
}

#[test]
fn a_worktree_shares_the_trust_of_its_repository_and_a_copy_does_not() {
    let kitchen = kitchen();
    kitchen.trust();
    let copy = |name: &str| {
        let folder = kitchen.folder(name);
        std::fs::create_dir_all(folder.join(".brigade/agents")).unwrap();
        std::fs::write(folder.join(".brigade/agents/cook.md"), COOK).unwrap();
        folder
    };
    let worktree = copy("worktree");
    let own = kitchen.project().join(".git/worktrees/one");
    std::fs::create_dir_all(&own).unwrap();
    std::fs::write(own.join("commondir"), "../..\n").unwrap();
    std::fs::write(worktree.join(".git"), format!("gitdir: {}\n", own.display())).unwrap();
    let other = copy("other");
    let run = |folder| kitchen.run_in(folder, ["run", "--agent", "cook", "cook"]);
    assert_eq!(run(&worktree).out, "I wrote.\n");
    assert_eq!(run(&other).code, 126);
}

#[test]
fn at_a_terminal_what_is_to_be_trusted_is_shown_whole() {
    let kitchen = kitchen();
    let text = format!("{COOK}\u{1b}[2JLast line.\u{200b}\n");
    kitchen.define("cook", &text);
    let shown = typed(&kitchen, "run --agent cook cook", "n\n");
    let digest = digest(&kitchen);
    for part in ["  │ tools: [write_file]⏎", &digest, r"  │ \u{1b}[2JLast line.\u{200b}⏎", "[y/N]"]
    {
        assert!(shown.contains(part), "{part:?}: {shown}");
    }
    assert!(shown.contains("I only read.") && shown.contains("not trusted"), "{shown}");
    assert!(!kitchen.project().join("menu.md").exists());
    let shown = typed(&kitchen, "run --agent cook cook", "y\n");
    assert!(shown.contains("I wrote."), "{shown}");
    let shown = typed(&kitchen, "run --agent cook cook", "");
    assert!(!shown.contains("[y/N]"), "it is asked once: {shown}");
}

#[test]
fn a_name_of_the_user_and_of_the_workspace_is_ambiguous() {
    let kitchen = kitchen();
    kitchen.trust();
    let users = kitchen.home().join(".config/brigade/agents");
    std::fs::create_dir_all(&users).unwrap();
    let own = COOK.replace("[write_file]", "[read_file]");
    std::fs::write(users.join("cook.md"), own).unwrap();
    let ran = kitchen.run(["run", "--agent", "cook", "cook"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("user:cook") && ran.err.contains("workspace:cook"), "{}", ran.err);
    assert_eq!(kitchen.ok(["run", "--agent", "user:cook", "cook"]), "I only read.\n");
    assert_eq!(kitchen.ok(["run", "--agent", "workspace:cook", "cook"]), "I wrote.\n");
}

#[test]
fn nothing_below_a_task_grants_trust() {
    let kitchen = kitchen();
    let digest = digest(&kitchen);
    let ran: Ran = kitchen.run(["exec", "--", BRIGADE, "trust", "grant", &digest]);
    assert_eq!(ran.code, 126, "{ran:?}");
    assert!(ran.err.contains("only the operator"), "{}", ran.err);
    for args in [["trust", "list"], ["trust", "show"]] {
        let ran = kitchen.run(["exec", "--", BRIGADE, args[0], args[1]]);
        assert_eq!(ran.code, 126, "{ran:?}");
    }
    assert_eq!(kitchen.ok(["trust", "list"]), "");
}
