//! Coding agents of others as MCP clients: the real programs, offline, with a model that plays a script.
//! They are installed by `cargo xtask test --only clients`.

mod endpoint;
mod programs;
mod wire;

use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use crate::kitchen::{Kitchen, Ran};
use endpoint::{ModelEndpoint, ScriptedCall};

/// A sub-agent that asks before it paints, and one that needs the user.
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

/// Has a client play the script, and looks at what its model got to read.
fn plays_the_script(program: impl FnOnce(&Kitchen, u16) -> Command) {
    let kitchen = Kitchen::new();
    kitchen.script(SUB_AGENTS);
    let endpoint = ModelEndpoint::start(script());
    let ran = Ran::from(program(&kitchen, endpoint.port).output().unwrap());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("All done."), "{ran:?}");
    reads(&endpoint, 0, &["cooked", "burnt", "failed", "3"]);
    reads(&endpoint, 1, &["Baker", "wait_tasks"]);
    reads(&endpoint, 2, &["baked", "succeeded"]);
    reads(&endpoint, 3, &["Red or green?", "send_message", "Painter"]);
    reads(&endpoint, 4, &["answered"]);
    reads(&endpoint, 5, &["Green it is.", "succeeded"]);
    reads(&endpoint, 6, &["Only the user can", "brigade approve agent:", "echo salted"]);
}

#[track_caller]
fn reads(endpoint: &ModelEndpoint, call: usize, words: &[&str]) {
    let result = endpoint.result(call);
    for word in words {
        assert!(result.contains(word), "{word:?} is not in the result of call {call}:\n{result}");
    }
}

#[test]
#[ignore = "needs the program: cargo xtask test --only clients"]
fn claude_code_delegates() {
    plays_the_script(programs::claude);
}

#[test]
#[ignore = "needs the program: cargo xtask test --only clients"]
fn codex_delegates() {
    let home = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    plays_the_script(|kitchen, port| programs::codex(kitchen, home.path(), port));
}

#[test]
#[ignore = "needs the program: cargo xtask test --only clients"]
fn opencode_delegates() {
    plays_the_script(programs::opencode);
}

#[test]
#[ignore = "needs the program: cargo xtask test --only clients"]
fn gemini_delegates() {
    plays_the_script(programs::gemini);
}
