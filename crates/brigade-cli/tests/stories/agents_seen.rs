//! Agents in what lists, shows and reads.

use crate::kitchen::{Kitchen, Ran, poll};

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

fn begun() -> Kitchen {
    let kitchen = Kitchen::new();
    kitchen.script(WORKER);
    kitchen.ok(["run", "-d", "--name", "Boss", "--allow", "run_process", "Go"]);
    poll("the command runs", || kitchen.ok(["ps"]).contains("process:3").then_some(()));
    poll("the boss waits", || (kitchen.state_of("Boss") == "waiting").then_some(()));
    kitchen
}

fn go(kitchen: &Kitchen) {
    std::fs::write(kitchen.project().join("go"), "").unwrap();
    assert_eq!(kitchen.ok(["wait", "Boss"]), "agent:1 (Boss) succeeded\n");
}

/// Without ages, which are never the same.
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
fn lists_have_agents_beside_commands() {
    let kitchen = begun();
    assert_eq!(
        ageless(&kitchen.ok(["ps"])),
        "TASK NAME STATE AGE MOVED COMMAND\n\
         agent:1 Boss waiting Go\n\
         agent:2 Helper waiting Wait for the file.\n\
         process:3 - running - until [ -e go ]; do sleep 0.02; done; echo gone\n"
    );
    let tree = ageless(&kitchen.ok(["tree"]));
    let tree: Vec<&str> = tree.lines().skip(1).collect();
    assert_eq!(
        tree,
        [
            "└── agent:1 Boss waiting 2000 tokens Go",
            "└── agent:2 Helper waiting Wait for the file.",
            "└── process:3 running until [ -e go ]; do sleep 0.02; done; echo gone",
        ]
    );
    go(&kitchen);
}

#[test]
fn show_has_the_conversation() {
    let kitchen = begun();
    go(&kitchen);
    let shown = kitchen.ok(["show", "Boss"]);
    let (head, said) = shown.split_once("\n\n").unwrap();
    let head = ageless(head);
    assert!(head.contains("does Go\n") && head.contains("result The helper is back.\n"), "{head}");
    assert!(head.contains("used 3000 tokens\n"), "{head}");
    assert_eq!(
        said,
        "[task]\n  Go\n\n\
         [assistant]\n  One helper will do.\n  -> spawn_agent {\"name\":\"Helper\",\"task\":\"Wait for the file.\"}\n\n\
         [spawn_agent]\n  agent:2 has started.\n\n\
         [assistant]\n  -> wait_tasks {}\n\n\
         [wait_tasks]\n  <result task=\"agent:2\" name=\"Helper\" outcome=\"succeeded\">\n    Gone.\n  </result>\n\n\
         [assistant]\n  The helper is back.\n"
    );
    assert_eq!(kitchen.json(["show", "Boss"])["result"], "The helper is back.");
}

#[test]
fn logs_of_an_agent_are_its_conversation() {
    let kitchen = begun();
    assert!(kitchen.ok(["logs", "Helper"]).starts_with("[task]\n  Wait for the file.\n"));
    let following = kitchen.start(["logs", "-f", "Boss"]);
    go(&kitchen);
    let ran: Ran = following.wait_with_output().unwrap().into();
    let whole = kitchen.ok(["logs", "Boss"]);
    assert_eq!((ran.code, &ran.out), (0, &whole), "{}", ran.err);
    assert_eq!(kitchen.ok(["logs", "--tail", "2", "Boss"]), "[assistant]\n  The helper is back.\n");
    assert_eq!(
        kitchen.ok(["logs", "--grep", "^ *THE HELPER", "-i", "Boss"]),
        "  The helper is back.\n"
    );
    assert_eq!(kitchen.run(["logs", "--grep", "nothing of the kind", "Boss"]).code, 1);
    assert_eq!(kitchen.run(["logs", "--grep", "(", "Boss"]).code, 2);
}

#[test]
fn a_stop_reaches_all_below() {
    let kitchen = begun();
    let ran = kitchen.run(["stop", "--wait", "Boss"]);
    assert_eq!((ran.code, &*ran.out), (0, "agent:1 cancelled with 2 below it\n"), "{}", ran.err);
    assert_eq!(kitchen.json(["ps"]), serde_json::json!([]));
    let ended = ageless(&kitchen.ok(["ps", "--ended"]));
    assert_eq!(ended.matches(" cancelled ").count(), 3, "{ended}");
}

#[test]
fn the_operator_steers_and_stops_whomever_he_names() {
    let kitchen = Kitchen::new();
    kitchen.script(
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
    kitchen.ok(["run", "-d", "--name", "Boss", "Go"]);
    poll("the boss waits", || (kitchen.state_of("Boss") == "waiting").then_some(()));
    assert_eq!(kitchen.ok(["send", "Boss", "But not on Sundays."]), "");
    poll("it is heard", || kitchen.ok(["logs", "Boss"]).contains("I heard it.").then_some(()));
    assert_eq!(kitchen.ok(["stop", "--wait", "Helper"]), "agent:2 cancelled\n");
    assert_eq!(kitchen.ok(["wait", "Boss"]), "agent:1 (Boss) succeeded\n");
    assert_eq!(kitchen.json(["show", "Boss"])["result"], "The helper was stopped.");
    let said = kitchen.ok(["logs", "Boss"]);
    assert_eq!(said.matches("But not on Sundays.").count(), 1, "{said}");
}
