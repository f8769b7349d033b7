//! `brigade run` with scripted agents.

use rustix::process::Signal;

use crate::story_env::{Ran, StoryEnv, kill, poll};

/// One message, after a moment.
const PARROT: &str = "
agent *
turn
  delay 50ms
  say Soup is ready.
";

/// A boss with two helpers. One of them waits for a file.
const FAMILY: &str = r#"
agent Boss
turn
  say I send two.
  call spawn_agent {"name": "North", "task": "Look in the north."}
  call spawn_agent {"name": "South", "task": "Look in the south."}
turn
  when has started
  call wait_tasks {"mode": "all"}
turn
  say Both are back.

agent North
turn
  call run_process {"command": "until [ -e go ]; do sleep 0.02; done"}
turn
  say Nothing in the north.

agent South
turn
  say Mushrooms in the south.
"#;

/// Asks one question, and reports the answer.
const ASKING: &str = r#"
agent *
turn
  call ask_parent {"question": "Red or blue?"}
turn
  when The answer: red
  say Red it is.
turn
  when The answer
  say Not red, then.
"#;

fn go(story: &StoryEnv) {
    std::fs::write(story.project().join("go"), "").unwrap();
}

#[test]
fn the_result_goes_to_stdout_and_progress_to_stderr() {
    let story = StoryEnv::new();
    story.script(PARROT);
    let ran = story.run(["run", "--name", "Cook", "Make soup"]);
    assert_eq!((ran.code, &*ran.out), (0, "Soup is ready.\n"), "{}", ran.err);
    let last = ran.err.lines().last().unwrap();
    assert_eq!(last, "brigade: agent:1 (Cook) succeeded", "{}", ran.err);
    assert!(!ran.err.contains('\u{1b}'), "{}", ran.err);
}

#[test]
fn a_prompt_is_read_from_stdin() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  when of leeks\n  say Leek soup.\n");
    let ran = story.run_with_input(["run", "-"], "Make soup\nof leeks\n");
    assert_eq!((ran.code, &*ran.out), (0, "Leek soup.\n"), "{}", ran.err);
    let ran = story.run_with_input(["run", "-"], " \n");
    assert_eq!(ran.code, 2, "{}", ran.err);
    assert_eq!(story.json(["ps", "--ended"]).as_array().unwrap().len(), 1, "{}", ran.err);
}

#[test]
fn json_is_one_value() {
    let story = StoryEnv::new();
    story.script(PARROT);
    let started = story.json(["run", "Make soup"]);
    assert_eq!(started["existed"], false);
    let task = &started["task"];
    assert_eq!((&task["state"], &task["result"]), (&"succeeded".into(), &"Soup is ready.".into()));
    let ran = story.run(["run", "--json", "Make more"]);
    assert_eq!(ran.err, "");
}

#[test]
fn a_detached_run_prints_the_address_at_once() {
    let story = StoryEnv::new();
    story.script(PARROT);
    assert_eq!(story.ok(["run", "-d", "--name", "Cook", "Make soup"]), "agent:1\n");
    assert_eq!(story.ok(["wait", "Cook"]), "agent:1 (Cook) succeeded\n");
}

#[test]
fn the_same_key_is_the_same_agent() {
    let story = StoryEnv::new();
    story.script(PARROT);
    let run = ["run", "--key", "once", "Make soup"];
    assert_eq!(story.ok(run), "Soup is ready.\n");
    assert_eq!(story.ok(run), "Soup is ready.\n");
    let again = story.run(["run", "-d", "--key", "once", "Make soup"]);
    assert_eq!((again.code, &*again.out), (0, "agent:1\n"));
    assert!(again.err.contains("agent:1 was there already"), "{}", again.err);
    assert_eq!(story.json(["ps", "--ended"]).as_array().unwrap().len(), 1);
    let other = story.run(["run", "--key", "once", "Make bread"]);
    assert_eq!(other.code, 120, "{}", other.err);
}

#[test]
fn exit_codes_follow_the_outcome() {
    let story = StoryEnv::new();
    story.script(
        "agent Fine\nturn\n  say Fine.\n\
         agent Broken\nturn\n  fault 400 always\n  say Never.\n\
         agent Slow\nturn\n  delay 60s\n  say Never.\n",
    );
    let fine = story.run(["run", "--name", "Fine", "x"]);
    assert_eq!((fine.code, &*fine.out), (0, "Fine.\n"));
    let broken = story.run(["run", "--name", "Broken", "x"]);
    assert_eq!((broken.code, &*broken.out), (120, ""), "{}", broken.err);
    assert!(broken.err.contains("400"), "{}", broken.err);
    let late = story.run(["run", "--name", "Slow", "--deadline", "200ms", "x"]);
    assert_eq!(late.code, 124, "{}", late.err);
    let timed_out = story.run(["run", "--name", "Slow", "--timeout", "200ms", "x"]);
    assert_eq!(timed_out.code, 124, "{}", timed_out.err);
    assert!(timed_out.err.ends_with("`brigade wait agent:4` waits for it\n"), "{}", timed_out.err);
    assert_eq!(story.ok(["stop", "--wait", "agent:4"]), "agent:4 cancelled\n");
    assert_eq!(story.run(["wait", "agent:4"]).code, 121);
}

#[test]
fn an_agent_that_is_stopped_elsewhere_is_cancelled() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  delay 60s\n  say Never.\n");
    let run = story.start(["run", "x"]);
    poll("it runs", || story.ok(["ps"]).contains("agent:1").then_some(()));
    story.ok(["stop", "agent:1"]);
    let ran: Ran = run.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (121, ""), "{}", ran.err);
}

#[test]
fn an_interrupt_names_the_tasks_that_it_stops() {
    let story = StoryEnv::new();
    story.script(FAMILY);
    let run = story.start(["run", "--name", "Boss", "--allow", "run_process", "Look"]);
    poll("the command runs", || story.ok(["ps"]).contains("process:").then_some(()));
    poll("south is back", || story.ok(["ps", "--ended"]).contains("succeeded").then_some(()));
    // The live view polls, so give it time to see them too.
    std::thread::sleep(std::time::Duration::from_millis(600));
    kill(run.id(), Signal::INT);
    let ran: Ran = run.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (121, ""), "{}", ran.err);
    // North may have started its command before South was started.
    let named = "brigade: stopping agent:1 (Boss), agent:2 (North) and process:";
    assert!(ran.err.contains(named), "{}", ran.err);
    assert!(ran.err.ends_with("brigade: agent:1 cancelled\n"), "{}", ran.err);
    assert!(ran.err.contains("brigade: agent:2 (North) cancelled\n"), "{}", ran.err);
    assert_eq!(story.json(["ps"]), serde_json::json!([]));
}

#[test]
fn an_exhausted_budget_can_be_raised() {
    let story = StoryEnv::new();
    story.script(
        "agent *\nusage input=400 output=100\nturn\n  say One step.\n  call list_tasks {}\n\
         turn\n  say Two steps.\n  call list_tasks {}\nturn\n  say Done.\n",
    );
    let ran = story.run(["run", "--budget", "600", "x"]);
    assert_eq!(ran.code, 122, "{}", ran.err);
    assert!(ran.err.contains("brigade resume agent:1 --budget"), "{}", ran.err);
    let raised = story.run(["resume", "agent:1", "--budget", "500k"]);
    assert_eq!((raised.code, &*raised.out), (0, "agent:1 resumed, run 2\n"), "{}", raised.err);
    assert_eq!(story.ok(["wait", "agent:1"]), "agent:1 succeeded\n");
    assert_eq!(story.json(["show", "agent:1"])["result"], "Done.");
    for bad in ["", "2 euros", "$"] {
        assert_eq!(story.run(["run", "--budget", bad, "x"]).code, 2, "{bad}");
    }
}

#[test]
fn processes_need_permission() {
    let story = StoryEnv::new();
    story.script(
        "agent *\nturn\n  call run_process {\"command\": \"echo made > made\"}\n\
         turn\n  when exit code 0\n  say It ran.\nturn\n  say It was refused.\n",
    );
    let made = || story.project().join("made").exists();
    assert_eq!(story.ok(["run", "x"]), "It was refused.\n");
    assert_eq!(story.ok(["run", "--allow", "run_process(cargo *)", "x"]), "It was refused.\n");
    let denied = ["run", "--allow", "run_process", "--deny", "run_process(echo *)", "x"];
    assert_eq!(story.ok(denied), "It was refused.\n");
    assert!(!made());
    assert_eq!(story.ok(["run", "--allow", "run_process", "x"]), "It ran.\n");
    assert!(made());
    let wrong = story.run(["run", "--allow", "run_process(", "x"]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
}

#[test]
fn a_pattern_allows_some_processes() {
    let story = StoryEnv::new();
    story.script(
        "agent *\nturn\n  call run_process {\"command\": \"touch allowed\"}\n\
         \x20 call run_process {\"command\": \"rm allowed\"}\nturn\n  say Done.\n",
    );
    assert_eq!(story.ok(["run", "--allow", "run_process(touch *)", "x"]), "Done.\n");
    assert!(story.project().join("allowed").exists());
}

#[test]
fn a_run_ends_after_all_its_descendants() {
    let story = StoryEnv::new();
    story.script(FAMILY);
    let run = story.start(["run", "--name", "Boss", "--allow", "run_process", "Look"]);
    poll("south is back", || story.ok(["ps", "--ended"]).contains("succeeded").then_some(()));
    assert_eq!(story.state_of("Boss"), "waiting");
    go(&story);
    let ran: Ran = run.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "Both are back.\n"), "{}", ran.err);
    assert_eq!(story.json(["ps"]), serde_json::json!([]));
    assert!(ran.err.contains(" (South) succeeded\n"), "{}", ran.err);
}

#[test]
fn a_run_survives_a_killed_daemon() {
    let story = StoryEnv::new();
    story.script(FAMILY);
    let run = story.start(["run", "--name", "Boss", "--allow", "run_process", "Look"]);
    poll("the command runs", || story.ok(["ps"]).contains("process:").then_some(()));
    for _ in 0..2 {
        story.kill_daemon();
        poll("the next", || (story.run(["ps"]).code == 0).then_some(()));
    }
    go(&story);
    let ran: Ran = run.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "Both are back.\n"), "{}", ran.err);
    assert!(ran.err.contains("lost the daemon"), "{}", ran.err);
    let transcript = story.ok(["logs", "Boss"]);
    for name in ["North", "South"] {
        assert_eq!(
            transcript.matches(&format!("name=\"{name}\" outcome=")).count(),
            1,
            "{transcript}"
        );
    }
    assert_eq!(story.json(["ps", "--ended"]).as_array().unwrap().len(), 4, "each once");
}

#[test]
fn a_question_waits_for_its_answer() {
    let story = StoryEnv::new();
    story.script(ASKING);
    let ran = story.run(["run", "Paint it"]);
    assert_eq!((ran.code, &*ran.out), (123, ""), "{}", ran.err);
    assert!(ran.err.contains("brigade: agent:1 asks: Red or blue?\n"), "{}", ran.err);
    assert!(ran.err.contains("`brigade answer agent:1 TEXT`"), "{}", ran.err);
    assert!(story.ok(["ps"]).contains("asks: Red or blue?"));
    assert!(story.ok(["tree"]).contains("asks: Red or blue?"));
    assert!(story.ok(["show", "agent:1"]).contains("asks       Red or blue? (question "));
    let late = story.run(["wait", "--timeout", "100ms", "agent:1"]);
    assert_eq!(late.code, 123, "{}", late.err);
    assert!(late.err.contains("agent:1 waits for an answer to: Red or blue?"), "{}", late.err);
    assert_eq!(story.ok(["answer", "agent:1", "red"]), "answered\n");
    assert_eq!(story.ok(["wait", "agent:1"]), "agent:1 succeeded\n");
    assert_eq!(story.json(["show", "agent:1"])["result"], "Red it is.");
    let nobody = story.run(["answer", "agent:1", "red"]);
    assert_eq!(nobody.code, 120, "{}", nobody.err);
    assert_eq!(story.run(["answer", "agent:9", "red"]).code, 127);
}

#[test]
fn with_a_timeout_a_question_may_be_answered_elsewhere() {
    let story = StoryEnv::new();
    story.script(ASKING);
    let run = story.start(["run", "--timeout", "30s", "Paint it"]);
    poll("it asks", || story.ok(["ps"]).contains("asks:").then_some(()));
    story.ok(["answer", "1", "green"]);
    let ran: Ran = run.wait_with_output().unwrap().into();
    assert_eq!((ran.code, &*ran.out), (0, "Not red, then.\n"), "{}", ran.err);
    let ran = story.run(["run", "--timeout", "600ms", "Paint it"]);
    assert_eq!(ran.code, 123, "{}", ran.err);
    let ran = story.run(["run", "--json", "Paint it"]);
    let json: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &json["task"]["state"]), (123, &"waiting".into()), "{}", ran.err);
    assert_eq!(json["task"]["questions"][0]["text"], "Red or blue?");
}

#[test]
fn a_message_starts_the_next_run_of_an_ended_agent() {
    let story = StoryEnv::new();
    story.script("agent *\nturn\n  say In English.\nturn\n  when French\n  say En français.\n");
    assert_eq!(story.ok(["run", "--name", "Poet", "Write"]), "In English.\n");
    assert_eq!(story.ok(["send", "Poet", "And in French?"]), "");
    assert_eq!(story.ok(["wait", "Poet"]), "agent:1 (Poet) succeeded\n");
    let poet = story.json(["show", "Poet"]);
    assert_eq!((&poet["result"], &poet["run"]), (&"En français.".into(), &2.into()));
    let earlier = story.run(["wait", "agent:1#1"]);
    assert_eq!((earlier.code, &*earlier.out), (0, "agent:1#1 (Poet) succeeded\n"));
    assert_eq!(story.run(["resume", "Poet"]).code, 0);
}
