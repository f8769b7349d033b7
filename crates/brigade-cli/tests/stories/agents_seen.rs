//! Agents in `ps`, `tree`, `show` and `logs`.

use crate::story_env::{Ran, StoryEnv, poll};

const WORKER: &str = r#"
agent Boss
usage input=900 output=100
turn
  say One helper will do.
  call spawn_agent {"name": "Helper", "task": "Wait for the file."}
turn
  when has started
  call wait_tasks {}
turn
  say The helper is back.

agent Helper
turn
  call run_process {"command": "until [ -e go ]; do sleep 0.02; done; echo gone"}
turn
  say Gone.
"#;

fn start() -> StoryEnv {
    let story = StoryEnv::new();
    story.script(WORKER);
    story.ok(["run", "-d", "--name", "Boss", "--allow", "run_process", "Go"]);
    poll("the command runs", || story.ok(["ps"]).contains("process:3").then_some(()));
    poll("the boss waits", || (story.state_of("Boss") == "waiting").then_some(()));
    story
}

fn go(story: &StoryEnv) {
    std::fs::write(story.project().join("go"), "").unwrap();
    assert_eq!(story.ok(["wait", "Boss"]), "agent:1 (Boss) succeeded\n");
}

/// Returns a text without ages, which differ each time.
fn ageless(text: &str) -> String {
    let is_age = |word: &&str| {
        let digits = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
        !digits.is_empty()
            && digits.len() < word.len()
            && digits.chars().all(|c| c.is_ascii_digit())
    };
    let line = |line: &str| {
        line.split_whitespace().filter(|word| !is_age(word)).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(|text| line(text) + "\n").collect()
}

#[test]
fn lists_have_agents_and_processes() {
    let story = start();
    assert_eq!(
        ageless(&story.ok(["ps"])),
        "TASK NAME STATE AGE ACTIVE DESCRIPTION\n\
         agent:1 Boss waiting Go\n\
         agent:2 Helper waiting Wait for the file.\n\
         process:3 - running - until [ -e go ]; do sleep 0.02; done; echo gone\n"
    );
    let tree = ageless(&story.ok(["tree"]));
    let tree: Vec<&str> = tree.lines().skip(1).collect();
    assert_eq!(
        tree,
        [
            "└── agent:1 Boss waiting 2000 tokens Go",
            "└── agent:2 Helper waiting Wait for the file.",
            "└── process:3 running until [ -e go ]; do sleep 0.02; done; echo gone",
        ]
    );
    go(&story);
}

#[test]
fn show_prints_the_transcript() {
    let story = start();
    go(&story);
    let shown = story.ok(["show", "Boss"]);
    let (head, transcript) = shown.split_once("\n\n").unwrap();
    let head = ageless(head);
    assert!(head.contains("task Go\n") && head.contains("result The helper is back.\n"), "{head}");
    assert!(head.contains("used 3000 tokens\n"), "{head}");
    assert_eq!(
        transcript,
        "[task]\n  Go\n\n\
         [assistant]\n  One helper will do.\n  -> spawn_agent {\"name\":\"Helper\",\"task\":\"Wait for the file.\"}\n\n\
         [spawn_agent]\n  agent:2 has started.\n\n\
         [assistant]\n  -> wait_tasks {}\n\n\
         [wait_tasks]\n  <result task=\"agent:2\" name=\"Helper\" outcome=\"succeeded\">\n    Gone.\n  </result>\n\n\
         [assistant]\n  The helper is back.\n"
    );
    assert_eq!(story.json(["show", "Boss"])["result"], "The helper is back.");
}

#[test]
fn logs_of_an_agent_are_its_transcript() {
    let story = start();
    assert!(story.ok(["logs", "Helper"]).starts_with("[task]\n  Wait for the file.\n"));
    let following = story.start(["logs", "-f", "Boss"]);
    go(&story);
    let ran: Ran = following.wait_with_output().unwrap().into();
    let whole = story.ok(["logs", "Boss"]);
    assert_eq!((ran.code, &ran.out), (0, &whole), "{}", ran.err);
    assert_eq!(story.ok(["logs", "--tail", "2", "Boss"]), "[assistant]\n  The helper is back.\n");
    assert_eq!(
        story.ok(["logs", "--grep", "^ *THE HELPER", "-i", "Boss"]),
        "  The helper is back.\n"
    );
    assert_eq!(story.run(["logs", "--grep", "nothing of the kind", "Boss"]).code, 1);
    assert_eq!(story.run(["logs", "--grep", "(", "Boss"]).code, 2);
}

#[test]
fn a_stop_reaches_all_descendants() {
    let story = start();
    let ran = story.run(["stop", "--wait", "Boss"]);
    assert_eq!((ran.code, &*ran.out), (0, "agent:1 cancelled with 2 descendants\n"), "{}", ran.err);
    assert_eq!(story.json(["ps"]), serde_json::json!([]));
    let ended = ageless(&story.ok(["ps", "--ended"]));
    assert_eq!(ended.matches(" cancelled ").count(), 3, "{ended}");
}

#[test]
fn the_operator_sends_to_and_stops_any_task() {
    let story = StoryEnv::new();
    story.script(
        r#"
agent Boss
turn
  call spawn_agent {"name": "Helper", "task": "Wait."}
turn
  when has started
  call wait_tasks {}
turn
  when not on Sundays
  say I heard it.
  call wait_tasks {}
turn
  when cancelled
  say The helper was stopped.

agent Helper
turn
  delay 60s
  say Never.
"#,
    );
    story.ok(["run", "-d", "--name", "Boss", "Go"]);
    poll("the boss waits", || (story.state_of("Boss") == "waiting").then_some(()));
    assert_eq!(story.ok(["send", "Boss", "But not on Sundays."]), "");
    poll("the message is read", || {
        story.ok(["logs", "Boss"]).contains("I heard it.").then_some(())
    });
    assert_eq!(story.ok(["stop", "--wait", "Helper"]), "agent:2 cancelled\n");
    assert_eq!(story.ok(["wait", "Boss"]), "agent:1 (Boss) succeeded\n");
    assert_eq!(story.json(["show", "Boss"])["result"], "The helper was stopped.");
    let transcript = story.ok(["logs", "Boss"]);
    assert_eq!(transcript.matches("But not on Sundays.").count(), 1, "{transcript}");
}
