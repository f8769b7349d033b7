//! Coding agents of other vendors as MCP clients: the real programs, offline, with a scripted
//! model. `cargo xtask test --only clients` installs them.

mod endpoint;
mod programs;
mod wire;

use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::story_env::{Ran, StoryEnv};
use endpoint::{ModelEndpoint, ScriptedCall};

/// One sub-agent needs approval for a process; the other asks a question.
const SUB_AGENTS: &str = r#"
agent Cook
turn
  call run_process {"command": "echo salted"}
turn
  say Salted.

agent *
turn
  call ask_parent {"question": "Red or green?"}
turn
  when The answer: green
  say Green it is.
"#;

fn script() -> Vec<ScriptedCall> {
    let call = |tool, arguments| ScriptedCall { tool, arguments };
    vec![
        call("run_process", json!({"command": "echo cooked; echo burnt >&2; exit 3"})),
        call(
            "run_process",
            json!({"command": "sleep 1; echo baked", "name": "Baker", "background": true}),
        ),
        call("wait_tasks", json!({"tasks": ["Baker"]})),
        call("spawn_agent", json!({"task": "Paint.", "name": "Painter", "wait": true})),
        call("send_message", json!({"to": "Painter", "message": "green"})),
        call("wait_tasks", json!({})),
        call("spawn_agent", json!({"task": "Cook.", "name": "Cook", "wait": true})),
    ]
}

/// Runs a client with the script, and checks the results that its model reads.
fn play_script(program: impl FnOnce(&StoryEnv, u16) -> Command) {
    let story = StoryEnv::new();
    story.script(SUB_AGENTS);
    let endpoint = ModelEndpoint::start(script());
    let ran = Ran::from(program(&story, endpoint.port).output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("All done."), "{ran:?}");
    assert_result(&endpoint, 0, &["cooked", "burnt", "failed", "3"]);
    assert_result(&endpoint, 1, &["Baker", "wait_tasks"]);
    assert_result(&endpoint, 2, &["baked", "succeeded"]);
    assert_result(&endpoint, 3, &["Red or green?", "send_message", "Painter"]);
    assert_result(&endpoint, 4, &["answered"]);
    assert_result(&endpoint, 5, &["Green it is.", "succeeded"]);
    assert_result(&endpoint, 6, &["Only the user can", "brigade approve agent:", "echo salted"]);
}

#[track_caller]
fn assert_result(endpoint: &ModelEndpoint, call: usize, parts: &[&str]) {
    let result = endpoint.result(call);
    for part in parts {
        assert!(result.contains(part), "{part:?} is not in the result of call {call}:\n{result}");
    }
}

#[test]
#[ignore = "needs the program: cargo xtask test --only clients"]
fn claude_code_delegates() {
    play_script(programs::claude);
}

#[test]
#[ignore = "needs the program: cargo xtask test --only clients"]
fn codex_delegates() {
    let home = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    play_script(|story, port| programs::codex(story, home.path(), port));
}

#[test]
#[ignore = "needs the program: cargo xtask test --only clients"]
fn opencode_delegates() {
    play_script(programs::opencode);
}

#[test]
#[ignore = "needs the program: cargo xtask test --only clients"]
fn gemini_delegates() {
    play_script(programs::gemini);
}
