//! `brigade acp` after a loss: of the daemon, of the server, and of the name of its agent.

use std::fs;

use serde_json::{Value, json};

use crate::acp::{Editor, select};
use crate::story_env::{StoryEnv, poll};

fn session_of(story: &StoryEnv, session: &str) -> Value {
    json!({"sessionId": session, "cwd": story.project(), "mcpServers": []})
}

/// Returns words that are streamed one by one.
fn words(count: usize) -> String {
    let words: Vec<String> = (1..=count).map(|number| format!("word{number}")).collect();
    words.join(" ")
}

#[test]
fn another_task_with_the_name_of_the_session_is_not_its_agent() {
    let story = StoryEnv::new();
    story.script(
        "agent acp-*\nturn\n  when Again\n  say Again soup.\nturn\n  when More\n  say More.\n\
         turn\n  say Soup.\n",
    );
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    assert_eq!(editor.prompt(&session, "Go"), "end_turn");
    story.ok(["run", "--name", &session, "--detach", "Go elsewhere"]);
    story.until_state("agent:2", "succeeded");
    assert_eq!(editor.prompt(&session, "Again"), "end_turn");
    assert_eq!(editor.text("agent_message_chunk"), "Soup.Again soup.");
    editor.kill();
    let mut editor = Editor::open(&story);
    let loaded = editor.call("session/load", session_of(&story, &session));
    assert!(loaded["error"].is_null(), "{loaded}");
    assert_eq!(editor.text("agent_message_chunk"), "Soup.Again soup.");
    assert_eq!(editor.prompt(&session, "More"), "end_turn");
    assert_eq!(story.json(["show", "agent:1"])["run"], 3);
    assert_eq!(story.json(["show", "agent:2"])["run"], 1);
}

#[test]
fn a_prompt_continues_after_a_time_in_which_no_daemon_could_start() {
    let story = StoryEnv::new();
    let text = words(40);
    story.script(&format!("agent acp-*\nturn\n  pace 30ms\n  say {text}\n"));
    let config = story.home().join(".config/brigade/config.toml");
    let right = fs::read_to_string(&config).unwrap();
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    let prompt = editor.send_prompt(&session, "Count");
    while !editor.text("agent_message_chunk").contains("word3") {
        editor.read();
    }
    let log = story.state().join("daemon.log");
    let pid = story.daemon_pid();
    // Every start fails from here on.
    fs::write(&config, "model = [").unwrap();
    let before = fs::read_to_string(&log).unwrap_or_default().len();
    crate::story_env::kill(pid, rustix::process::Signal::KILL);
    poll("several starts have failed", || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        (log[before..].matches("config.toml").count() >= 5).then_some(())
    });
    fs::write(&config, right).unwrap();
    let response = editor.response(prompt);
    assert_eq!(response["result"]["stopReason"], "end_turn", "{response}");
    assert_eq!(editor.text("agent_message_chunk"), text);
}

#[test]
fn a_session_whose_server_was_killed_has_everything_once() {
    let story = StoryEnv::new();
    let text = words(60);
    story.script(&format!(
        "agent acp-*\nturn\n  when Carry on\n  say Nothing left.\n\
         turn\n  say I write.\n  call run_process {{\"command\": \"echo done >> made\"}}\n\
         turn\n  pace 30ms\n  say {text}\n"
    ));
    let mut editor = Editor::open(&story);
    let session = editor.new_session(&story);
    editor.send_prompt(&session, "Go");
    let request = editor.request("session/request_permission");
    editor.reply(&request, select("allow_once"));
    while !editor.text("agent_message_chunk").contains("word3") {
        editor.read();
    }
    let daemon = story.daemon_pid();
    editor.kill();
    let mut editor = Editor::open(&story);
    let loaded = editor.call("session/load", session_of(&story, &session));
    assert!(loaded["error"].is_null(), "{loaded}");
    assert_eq!(editor.text("user_message_chunk"), "Go");
    // The rest of the run is sent without a prompt.
    while !editor.text("agent_message_chunk").ends_with("word60") {
        editor.read();
    }
    story.until_state("agent:1", "succeeded");
    assert_eq!(editor.prompt(&session, "Carry on"), "end_turn");
    let sent = editor.text("agent_message_chunk");
    assert_eq!(sent, format!("I write.{text}Nothing left."));
    assert_eq!(editor.text("user_message_chunk"), "Go");
    assert_eq!(editor.statuses("call-1.1.1"), ["in_progress", "completed"]);
    assert_eq!(editor.requests_of("session/request_permission"), 0);
    assert_eq!(story.file("made"), "done\n");
    assert_eq!(story.json(["show", "agent:1"])["run"], 2);
    assert_eq!(story.daemon_pid(), daemon, "only the server was killed");
}
