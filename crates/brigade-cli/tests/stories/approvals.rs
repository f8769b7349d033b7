//! `brigade approve`.

use crate::story_env::{BRIGADE, StoryEnv, poll};

/// Runs two processes at once, and reports the result.
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

/// Waits for a number of pending approvals, and returns them as `brigade approve --json` lists
/// them.
fn pending(story: &StoryEnv, count: usize) -> Vec<serde_json::Value> {
    poll("approvals", || {
        let listed = story.json(["approve"]);
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
fn approvals_are_listed_shown_and_decided_after_a_killed_daemon() {
    let story = StoryEnv::new();
    story.script(TWO);
    story.ok(["run", "-d", "--ask", "run_process", "--name", "Cook", "Go"]);
    let before = pending(&story, 2);
    assert_eq!(before[0]["text"], "run_process(echo a >> one)");
    story.until_state("Cook", "waiting");
    story.kill_daemon();
    let approvals = pending(&story, 2);
    assert_eq!(approvals, before, "a crash changes nothing");
    let listed = story.ok(["approve", "--list"]);
    assert!(listed.contains("agent:1 (Cook), call "), "{listed}");
    assert!(listed.contains("\n  command │ echo b >> two\n"), "{listed}");
    let ps = story.ok(["ps"]);
    assert!(ps.contains("needs approval: run_process(echo a >> one)"), "{ps}");
    let shown = story.ok(["show", "Cook"]);
    assert!(shown.contains("the caller asks about run_process"), "{shown}");
    let waited = story.run(["wait", "--timeout", "50ms", "Cook"]);
    assert_eq!(waited.code, 123, "{waited:?}");
    assert!(waited.err.contains("`brigade approve agent:1"), "{waited:?}");
    let ambiguous = story.run(["approve", "Cook"]);
    assert_eq!(ambiguous.code, 120, "{ambiguous:?}");
    assert!(ambiguous.err.contains("name the call"), "{ambiguous:?}");
    let two = call(&approvals[1]);
    let unseen = story.run(["approve", "Cook", &two]);
    assert_eq!(unseen.code, 2, "{unseen:?}");
    assert!(unseen.err.contains("the call was not shown"), "{unseen:?}");
    let other = story.run(["approve", "Cook", &two, "--digest", &digest(&approvals[0])]);
    assert_eq!(other.code, 120, "{other:?}");
    assert!(other.err.contains("another approval than the one that was shown"), "{other:?}");
    let shown = story.ok(["approve", "Cook", &two, "--show"]);
    let how = format!("brigade approve agent:1 {two} --digest {}", digest(&approvals[1]));
    assert!(shown.contains("\n  command │ echo b >> two\n") && shown.contains(&how), "{shown}");
    let seen = ["approve", "Cook", &two, "--digest", &digest(&approvals[1])];
    assert_eq!(story.ok(seen), "run_process(echo b >> two): allowed once\n");
    assert_eq!(story.ok(seen), "allowed once\n", "the same verdict again is accepted");
    assert_eq!(
        story.run(["approve", "Cook", &two, "--deny"]).code,
        120,
        "the opposite verdict is refused"
    );
    let denied = ["approve", "Cook", "--deny", "--reason", "the oven is cold"];
    let expect = "run_process(echo a >> one): denied: the oven is cold\n";
    assert_eq!(story.ok(denied), expect, "the output names the call");
    story.ok(["wait", "Cook"]);
    assert!(story.ok(["show", "Cook"]).contains("Not all of it."));
    assert_eq!(story.file("two"), "b\n");
    assert!(!story.project().join("one").exists());
    let logs = story.ok(["logs", "Cook"]);
    assert!(logs.contains("it was denied: the oven is cold"), "{logs}");
    let events = story.ok(["events"]);
    assert!(events.contains("approval decided: denied: the oven is cold"), "{events}");
    assert_eq!(story.run(["approve", "Cook"]).code, 120, "the agent has ended");
    assert_eq!(story.run(["approve", "agent:9"]).code, 127);
}

#[test]
fn a_call_that_is_allowed_always_needs_no_approval_until_it_is_revoked() {
    let story = StoryEnv::new();
    story.script(TWO);
    let run = ["run", "-d", "--ask", "run_process", "Go"];
    story.ok(run);
    let approvals = pending(&story, 2);
    let seen = digest(&approvals[0]);
    let wrong = ["approve", "1", "--digest", &seen, "--always", "--rule", "run_process(ls *)"];
    assert_eq!(story.run(wrong).code, 2);
    story.ok(["approve", "1", "--digest", &seen, "--always", "--rule", "run_process"]);
    story.ok(["wait", "1"]);
    assert_eq!(story.ok(["run", "--ask", "run_process", "Again"]), "Both are done.\n");
    assert_eq!(story.file("one"), "a\na\n", "a granted call needs no approval");
    let listed = story.json(["approve"]);
    assert_eq!(listed["grants"][0]["rule"], "run_process");
    let text = story.ok(["approve", "--list"]);
    assert!(text.contains("ALLOWED ALWAYS"), "{text}");
    story.ok(["approve", "--revoke", "1"]);
    assert_eq!(story.run(["approve", "--revoke", "1"]).code, 127);
    story.ok(run);
    pending(&story, 2);
}

#[test]
fn without_a_terminal_calls_are_denied_with_a_reason() {
    let story = StoryEnv::new();
    story.script(TWO);
    for run in [
        &["run", "--ask", "run_process", "Go"][..],
        &["run", "--json", "--ask", "run_process", "Go"],
        &["run", "-d", "--unattended", "--ask", "run_process", "--name", "Alone", "Go"],
    ] {
        assert!(story.command(run).output().unwrap().status.success(), "{run:?}");
    }
    story.ok(["wait", "Alone"]);
    for task in ["1", "2", "3"] {
        let logs = story.ok(["logs", task]);
        assert!(logs.contains("nobody is there to be asked"), "{logs}");
    }
    assert!(!story.project().join("one").exists());
    let allowed = ["run", "--allow", "run_process", "--ask", "run_process(echo a*)", "Go"];
    assert_eq!(story.ok(allowed), "Not all of it.\n", "`ask` overrides `allow`");
    assert_eq!(story.file("two"), "b\n");
}

/// A process of an agent starts an agent with more permissions and tries to approve its calls.
#[test]
fn a_process_of_an_agent_cannot_approve_or_start_an_agent_with_more_permissions() {
    let story = StoryEnv::new();
    let inner = format!(
        "{BRIGADE} run -d --allow run_process --name Sly Go > output 2>&1; \
         {BRIGADE} wait Sly >> output 2>&1; \
         {BRIGADE} approve 1 >> output 2>&1; echo $? >> codes; \
         {BRIGADE} approve --revoke 1 >> output 2>&1; echo $? >> codes"
    );
    story.script(&format!(
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
    story.ok(run);
    let approvals = pending(&story, 1);
    assert_eq!(approvals[0]["name"], "Sly");
    assert_eq!(approvals[0]["top_task"], "1", "the operator sees it");
    story.ok(["approve", "Sly", "--deny"]);
    story.ok(["wait", "Boss"]);
    let sly = story.ok(["show", approvals[0]["address"].as_str().unwrap()]);
    assert!(sly.contains("I may not."), "{sly} {}", story.file("output"));
    assert_eq!(story.file("codes"), "126\n126\n");
    assert!(!story.project().join("stolen").exists());
}

#[test]
fn a_grant_applies_to_its_directory_only() {
    let story = StoryEnv::new();
    story.script(
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
    story.directory("project/elsewhere");
    story.ok(["run", "-d", "--ask", "run_process", "Go"]);
    let approvals = pending(&story, 1);
    let here = story.project().display().to_string();
    assert_eq!(approvals[0]["directory"], here);
    story.ok(["approve", "1", "--digest", &digest(&approvals[0]), "--always"]);
    let approval = poll("the other directory", || {
        pending(&story, 1).pop().filter(|approval| approval["directory"] != *here)
    });
    assert_eq!(approval["directory"], format!("{here}/elsewhere"));
    let listed = story.json(["approve"]);
    assert_eq!(listed["grants"][0]["directory"], here);
    story.ok(["approve", "1", "--deny"]);
    story.ok(["wait", "1"]);
}

#[test]
fn a_grant_applies_to_the_shown_call_only() {
    let story = StoryEnv::new();
    story.script(
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
    story.ok(["run", "-d", "--ask", "write_file", "Go"]);
    let approvals = pending(&story, 1);
    let printed = story.ok(["approve", "1", "--digest", &digest(&approvals[0]), "--always"]);
    let here = story.project().display().to_string();
    let grant = r#"write_file {"path":"w.sh","content":"ls"} exactly"#;
    assert_eq!(printed, format!("{grant} in {here}: allowed always\n"));
    let other = poll("the other call", || {
        pending(&story, 1).pop().filter(|other| other["call"] != approvals[0]["call"])
    });
    assert_ne!(
        other["arguments"], approvals[0]["arguments"],
        "the same call was not asked about again"
    );
    assert_eq!(story.json(["approve"])["grants"][0]["rule"], grant);
    story.ok(["approve", "1", "--deny"]);
    story.ok(["wait", "1"]);
}

/// One call hides its command behind a long variable. The other one forges a prompt.
#[test]
fn the_shown_call_is_the_approved_call() {
    let story = StoryEnv::new();
    let long = "x".repeat(9_000);
    let forged = "echo a >> one\\n\\n\\u001b[2J  (the operator asks about nothing)\\n> y";
    story.script(&format!(
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
    story.ok(["run", "-d", "--ask", "run_process", "Go"]);
    let approvals = pending(&story, 2);
    let listed = story.ok(["approve"]);
    assert!(listed.contains("\n  command │ rm -rf soup\n"), "the command comes first: {listed}");
    assert!(listed.contains(" bytes]… "), "{listed}");
    assert!(
        !listed.contains(&digest(&approvals[0])),
        "a call that is not shown whole has no digest here"
    );
    assert!(listed.contains(&format!(
        "too long for a list: brigade approve agent:1 {} --show",
        call(&approvals[0])
    )));
    let foreign = listed.lines().filter(|line| line.contains("the operator asks about nothing"));
    for line in foreign {
        assert!(line.starts_with("          │ \\u{1b}[2J··("), "{line}");
    }
    let shown = story.ok(["approve", "1", &call(&approvals[0]), "--show"]);
    assert!(
        shown.contains(&long) && shown.contains(&digest(&approvals[0])),
        "the whole call, then the digest"
    );
    let ps = story.ok(["ps"]);
    assert!(ps.contains("run_process(rm -rf soup) with A"), "{ps}");
    story.ok(["stop", "1"]);
}

#[test]
fn a_task_that_would_outlive_its_agent_needs_approval() {
    let story = StoryEnv::new();
    story.script(
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
    story.ok(["run", "-d", "--ask", "keep", "--allow", "run_process", "--name", "Boss", "Go"]);
    let approvals = pending(&story, 1);
    assert!(
        story.project().join("brief").exists(),
        "a task that ends with its agent needs no approval"
    );
    let shown = story.ok(["approve", "Boss", &call(&approvals[0]), "--show"]);
    assert!(shown.contains("\n  command │ sleep 600\n"), "{shown}");
    assert!(shown.contains("\n  with    │ keep = true\n"), "{shown}");
    story.ok(["approve", "Boss", &call(&approvals[0]), "--digest", &digest(&approvals[0])]);
    assert_eq!(story.run(["wait", "Boss"]).code, 0);
    assert_eq!(story.state_of("Server"), "running");
    story.ok(["stop", "--wait", "Server"]);
}
