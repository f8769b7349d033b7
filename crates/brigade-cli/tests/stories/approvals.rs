//! Agents that ask for leave, and whoever gives it from the command line.

use crate::kitchen::{BRIGADE, Kitchen, poll};

/// Runs two commands at once, and says what came of them.
const TWO: &str = r#"
agent *
turn
  call run_process {"command": "echo a >> one"}
  call run_process {"command": "echo b >> two"}
turn
  when asks about
  say Not all of it.
turn
  say Both are done.
"#;

/// What waits, as `brigade approve --json` lists it.
fn pending(kitchen: &Kitchen, count: usize) -> Vec<serde_json::Value> {
    poll("approvals", || {
        let listed = kitchen.json(["approve"]);
        let pending = listed["pending"].as_array().unwrap().clone();
        (pending.len() == count).then_some(pending)
    })
}

fn call(pending: &serde_json::Value) -> String {
    pending["call"].to_string()
}

fn digest(pending: &serde_json::Value) -> String {
    pending["digest"].as_str().unwrap().to_owned()
}

#[test]
fn what_is_asked_is_listed_shown_and_answered_also_after_the_daemon_was_killed() {
    let kitchen = Kitchen::new();
    kitchen.script(TWO);
    kitchen.ok(["run", "-d", "--ask", "run_process", "--name", "Cook", "Go"]);
    let before = pending(&kitchen, 2);
    assert_eq!(before[0]["text"], "run_process(echo a >> one)");
    kitchen.until_state("Cook", "waiting");
    kitchen.kill_daemon();
    let asked = pending(&kitchen, 2);
    assert_eq!(asked, before, "a crash changes nothing");
    let listed = kitchen.ok(["approve", "--list"]);
    assert!(listed.contains("agent:1 (Cook), call "), "{listed}");
    assert!(listed.contains("\n  command │ echo b >> two\n"), "{listed}");
    let ps = kitchen.ok(["ps"]);
    assert!(ps.contains("asks for leave: run_process(echo a >> one)"), "{ps}");
    let shown = kitchen.ok(["show", "Cook"]);
    assert!(shown.contains("whoever started it asks about run_process"), "{shown}");
    let waited = kitchen.run(["wait", "--timeout", "50ms", "Cook"]);
    assert_eq!(waited.code, 123, "{waited:?}");
    assert!(waited.err.contains("`brigade approve agent:1"), "{waited:?}");
    let which = kitchen.run(["approve", "Cook"]);
    assert_eq!(which.code, 120, "{which:?}");
    assert!(which.err.contains("say which call"), "{which:?}");
    let two = call(&asked[1]);
    let unseen = kitchen.run(["approve", "Cook", &two]);
    assert_eq!(unseen.code, 2, "{unseen:?}");
    assert!(unseen.err.contains("nothing is allowed that was not shown"), "{unseen:?}");
    let other = kitchen.run(["approve", "Cook", &two, "--digest", &digest(&asked[0])]);
    assert_eq!(other.code, 120, "{other:?}");
    assert!(other.err.contains("another approval than the one that was shown"), "{other:?}");
    let shown = kitchen.ok(["approve", "Cook", &two, "--show"]);
    let how = format!("brigade approve agent:1 {two} --digest {}", digest(&asked[1]));
    assert!(shown.contains("\n  command │ echo b >> two\n") && shown.contains(&how), "{shown}");
    let seen = ["approve", "Cook", &two, "--digest", &digest(&asked[1])];
    assert_eq!(kitchen.ok(seen), "run_process(echo b >> two): allowed once\n");
    assert_eq!(kitchen.ok(seen), "allowed once\n", "once more is the same");
    assert_eq!(kitchen.run(["approve", "Cook", &two, "--deny"]).code, 120, "but not the contrary");
    let denied = ["approve", "Cook", "--deny", "--reason", "the oven is cold"];
    let expect = "run_process(echo a >> one): denied: the oven is cold\n";
    assert_eq!(kitchen.ok(denied), expect, "it is said what that was");
    kitchen.ok(["wait", "Cook"]);
    assert!(kitchen.ok(["show", "Cook"]).contains("Not all of it."));
    assert_eq!(kitchen.file("two"), "b\n");
    assert!(!kitchen.project().join("one").exists());
    let logs = kitchen.ok(["logs", "Cook"]);
    assert!(logs.contains("it was denied: the oven is cold"), "{logs}");
    let events = kitchen.ok(["events"]);
    assert!(events.contains("ruled: denied: the oven is cold"), "{events}");
    assert_eq!(kitchen.run(["approve", "Cook"]).code, 120, "it has ended");
    assert_eq!(kitchen.run(["approve", "agent:9"]).code, 127);
}

#[test]
fn what_is_allowed_always_is_not_asked_again_until_it_is_revoked() {
    let kitchen = Kitchen::new();
    kitchen.script(TWO);
    let run = ["run", "-d", "--ask", "run_process", "Go"];
    kitchen.ok(run);
    let asked = pending(&kitchen, 2);
    let seen = digest(&asked[0]);
    let wrong = ["approve", "1", "--digest", &seen, "--always", "--rule", "run_process(ls *)"];
    assert_eq!(kitchen.run(wrong).code, 2);
    kitchen.ok(["approve", "1", "--digest", &seen, "--always", "--rule", "run_process"]);
    kitchen.ok(["wait", "1"]);
    assert_eq!(kitchen.ok(["run", "--ask", "run_process", "Again"]), "Both are done.\n");
    assert_eq!(kitchen.file("one"), "a\na\n", "allowed before, it needs nobody");
    let listed = kitchen.json(["approve"]);
    assert_eq!(listed["grants"][0]["allows"], "run_process");
    let text = kitchen.ok(["approve", "--list"]);
    assert!(text.contains("ALLOWED ALWAYS"), "{text}");
    kitchen.ok(["approve", "--revoke", "1"]);
    assert_eq!(kitchen.run(["approve", "--revoke", "1"]).code, 127);
    kitchen.ok(run);
    pending(&kitchen, 2);
}

#[test]
fn without_a_terminal_it_is_denied_and_says_so() {
    let kitchen = Kitchen::new();
    kitchen.script(TWO);
    for run in [
        &["run", "--ask", "run_process", "Go"][..],
        &["run", "--json", "--ask", "run_process", "Go"],
        &["run", "-d", "--unattended", "--ask", "run_process", "--name", "Alone", "Go"],
    ] {
        assert!(kitchen.command(run).output().unwrap().status.success(), "{run:?}");
    }
    kitchen.ok(["wait", "Alone"]);
    for task in ["1", "2", "3"] {
        let logs = kitchen.ok(["logs", task]);
        assert!(logs.contains("nobody is there to be asked"), "{logs}");
    }
    assert!(!kitchen.project().join("one").exists());
    let allowed = ["run", "--allow", "run_process", "--ask", "run_process(echo a*)", "Go"];
    assert_eq!(kitchen.ok(allowed), "Not all of it.\n", "an ask wins over an allow");
    assert_eq!(kitchen.file("two"), "b\n");
}

/// An agent whose command starts an agent that is allowed everything, and approves of itself.
#[test]
fn a_command_of_an_agent_gives_no_leave_and_starts_no_agent_that_may_more() {
    let kitchen = Kitchen::new();
    let inner = format!(
        "{BRIGADE} run -d --allow run_process --name Sly Go > said 2>&1; \
         {BRIGADE} wait Sly >> said 2>&1; \
         {BRIGADE} approve 1 >> said 2>&1; echo $? >> codes; \
         {BRIGADE} approve --revoke 1 >> said 2>&1; echo $? >> codes"
    );
    kitchen.script(&format!(
        r#"
agent Boss
turn
  call run_process {{"command": {inner:?}}}
turn
  say It tried.

agent Sly
turn
  call run_process {{"command": "touch stolen"}}
turn
  when asks about
  say I may not.
turn
  say I could.
"#
    ));
    let run = [
        "run",
        "-d",
        "--allow",
        "run_process",
        "--ask",
        "run_process(touch *)",
        "--name",
        "Boss",
        "Go",
    ];
    kitchen.ok(run);
    let asked = pending(&kitchen, 1);
    assert_eq!(asked[0]["name"], "Sly");
    assert_eq!(asked[0]["top"], "1", "it rises to the operator");
    kitchen.ok(["approve", "Sly", "--deny"]);
    kitchen.ok(["wait", "Boss"]);
    let sly = kitchen.ok(["show", asked[0]["address"].as_str().unwrap()]);
    assert!(sly.contains("I may not."), "{sly} {}", kitchen.file("said"));
    assert_eq!(kitchen.file("codes"), "126\n126\n");
    assert!(!kitchen.project().join("stolen").exists());
}

#[test]
fn what_is_allowed_always_is_so_in_its_directory_only() {
    let kitchen = Kitchen::new();
    kitchen.script(
        r#"
agent *
turn
  call run_process {"command": "echo a >> one"}
turn
  call run_process {"command": "echo a >> one", "cwd": "elsewhere"}
turn
  say Done.
"#,
    );
    kitchen.folder("project/elsewhere");
    kitchen.ok(["run", "-d", "--ask", "run_process", "Go"]);
    let asked = pending(&kitchen, 1);
    let here = kitchen.project().display().to_string();
    assert_eq!(asked[0]["directory"], here);
    kitchen.ok(["approve", "1", "--digest", &digest(&asked[0]), "--always"]);
    let asked = poll("the other directory", || {
        pending(&kitchen, 1).pop().filter(|asked| asked["directory"] != *here)
    });
    assert_eq!(asked["directory"], format!("{here}/elsewhere"));
    let listed = kitchen.json(["approve"]);
    assert_eq!(listed["grants"][0]["directory"], here);
    kitchen.ok(["approve", "1", "--deny"]);
    kitchen.ok(["wait", "1"]);
}

#[test]
fn what_is_allowed_always_is_the_call_that_was_shown_and_no_other() {
    let kitchen = Kitchen::new();
    kitchen.script(
        r#"
agent *
turn
  call write_file {"path": "w.sh", "content": "ls"}
turn
  call write_file {"path": "w.sh", "content": "ls"}
turn
  call write_file {"path": "w.sh", "content": "rm x"}
turn
  say Done.
"#,
    );
    kitchen.ok(["run", "-d", "--ask", "write_file", "Go"]);
    let asked = pending(&kitchen, 1);
    let said = kitchen.ok(["approve", "1", "--digest", &digest(&asked[0]), "--always"]);
    let here = kitchen.project().display().to_string();
    let remembers = r#"write_file {"path":"w.sh","content":"ls"} exactly"#;
    assert_eq!(said, format!("{remembers} in {here}: allowed always\n"));
    let other = poll("the other call", || {
        pending(&kitchen, 1).pop().filter(|other| other["call"] != asked[0]["call"])
    });
    assert_ne!(other["arguments"], asked[0]["arguments"], "the same was not asked about again");
    assert_eq!(kitchen.json(["approve"])["grants"][0]["allows"], remembers);
    kitchen.ok(["approve", "1", "--deny"]);
    kitchen.ok(["wait", "1"]);
}

/// A variable that hides the command, and a text that draws a prompt of its own.
#[test]
fn what_is_shown_is_what_is_approved_however_it_is_written() {
    let kitchen = Kitchen::new();
    let long = "x".repeat(9_000);
    let forged = "echo a >> one\\n\\n\\u001b[2J  (the operator asks about nothing)\\n> y";
    kitchen.script(&format!(
        r#"
agent *
turn
  call run_process {{"command": "rm -rf soup", "env": {{"A": "{long}"}}}}
  call run_process {{"command": "{forged}"}}
turn
  say Done.
"#,
        forged = forged.replace("\\\\", "\\")
    ));
    kitchen.ok(["run", "-d", "--ask", "run_process", "Go"]);
    let asked = pending(&kitchen, 2);
    let listed = kitchen.ok(["approve"]);
    assert!(listed.contains("\n  command │ rm -rf soup\n"), "the command comes first: {listed}");
    assert!(listed.contains(" bytes]… "), "{listed}");
    assert!(!listed.contains(&digest(&asked[0])), "what is not shown whole has no digest here");
    assert!(listed.contains(&format!(
        "too long for a list: brigade approve agent:1 {} --show",
        call(&asked[0])
    )));
    let foreign = listed.lines().filter(|line| line.contains("the operator asks about nothing"));
    for line in foreign {
        assert!(line.starts_with("          │ \\u{1b}[2J··("), "{line}");
    }
    let shown = kitchen.ok(["approve", "1", &call(&asked[0]), "--show"]);
    assert!(
        shown.contains(&long) && shown.contains(&digest(&asked[0])),
        "all of it, then the digest"
    );
    let ps = kitchen.ok(["ps"]);
    assert!(ps.contains("run_process(rm -rf soup) with A"), "{ps}");
    kitchen.ok(["stop", "1"]);
}

#[test]
fn what_would_outlive_its_agent_is_asked_about() {
    let kitchen = Kitchen::new();
    kitchen.script(
        r#"
agent Boss
turn
  call run_process {"name": "Brief", "command": "echo x >> brief"}
turn
  call run_process {"name": "Server", "command": "sleep 600", "background": true, "keep": true}
turn
  say Served.
"#,
    );
    kitchen.ok(["run", "-d", "--ask", "keep", "--allow", "run_process", "--name", "Boss", "Go"]);
    let asked = pending(&kitchen, 1);
    assert!(kitchen.project().join("brief").exists(), "nothing is asked about what ends with it");
    let shown = kitchen.ok(["approve", "Boss", &call(&asked[0]), "--show"]);
    assert!(shown.contains("\n  command │ sleep 600\n"), "{shown}");
    assert!(shown.contains("\n  with    │ keep = true\n"), "{shown}");
    kitchen.ok(["approve", "Boss", &call(&asked[0]), "--digest", &digest(&asked[0])]);
    assert_eq!(kitchen.run(["wait", "Boss"]).code, 0);
    assert_eq!(kitchen.state_of("Server"), "running");
    kitchen.ok(["stop", "--wait", "Server"]);
}
