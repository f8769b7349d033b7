//! A real, very small model. `cargo xtask test --only model` downloads it and runs these tests.
//!
//! The text of such a model varies. The tests check that a conversation works from start to end: a
//! tool call that follows the schema, its result, an outcome, a crash in between, and a result that
//! follows a schema.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::story_env::{StoryEnv, poll};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/real_model.py");

const RUN_ARGS: [&str; 7] =
    ["--agent", "reader", "--temperature", "0", "--max-output", "100", "Read the file recipe.md."];

struct Model {
    server: Child,
    url: String,
}

impl Model {
    fn start() -> Self {
        let python = env::var_os("BRIGADE_MODEL_PYTHON").expect("a Python that has the model");
        let mut command = Command::new(python);
        command.arg(SERVER).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut url).unwrap();
        assert!(url.starts_with("http://127.0.0.1:"), "{SERVER} does not run: {url:?}");
        Self { server, url: url.trim().to_owned() }
    }

    /// Returns an environment whose agents use this model; `extra` is part of each request.
    fn story(&self, extra: &str) -> StoryEnv {
        let story = StoryEnv::new();
        story.configure(&format!(
            "model = \"tiny/smollm2\"\n[providers.tiny]\nkind = \"openai-chat\"\n\
             base_url = \"{}/v1\"\nkey = \"none\"\nextra = {{ {extra} }}\n",
            self.url,
        ));
        story.define(
            "reader",
            "---\nname: reader\ndescription: Reads files.\ntools: [read_file]\n---\nYou read files with the tool read_file.\n",
        );
        story.trust();
        fs::write(story.project().join("recipe.md"), "Two leeks, one onion.\n").unwrap();
        story
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // This test started the server.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[track_caller]
fn assert_file_read(story: &StoryEnv, task: &str) {
    let log = story.ok(["logs", task]);
    let calls = log.matches("-> read_file {\"path\":\"recipe.md\"}").count();
    assert_eq!(calls, 1, "{log}");
    assert!(log.contains("1\tTwo leeks, one onion."), "{log}");
}

#[test]
#[ignore = "needs a model: cargo xtask test --only model"]
fn a_real_model_calls_a_tool_and_is_replayed() {
    let model = Model::start();
    let story = model.story("");
    let run = |options: [&str; 2]| {
        let ran = story.command([&["run"], &options[..], &RUN_ARGS[..]].concat()).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stdout).unwrap())
    };
    let recorded = run(["--record", "reading.jsonl"]);
    assert_file_read(&story, "agent:1");
    let shown = story.json(["show", "agent:1"]);
    assert!(shown["usage"]["tokens"].as_u64().unwrap() > 0, "{shown}");
    drop(model);
    assert_eq!(run(["--model", "replay:reading.jsonl"]), recorded);
    assert_file_read(&story, "agent:2");
}

#[test]
#[ignore = "needs a model: cargo xtask test --only model"]
fn a_run_with_a_real_model_continues_after_a_crash() {
    let model = Model::start();
    let story = model.story("");
    let ran = story.command([&["run", "--detach"], &RUN_ARGS[..]].concat()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    poll("a model call", || {
        let shown = story.json(["show", "agent:1"]).to_string();
        shown.contains("thinking").then_some(())
    });
    story.kill_daemon();
    let code = story.run(["wait", "agent:1"]).code;
    assert_eq!(code == 0, story.state_of("agent:1") == "succeeded");
    assert_file_read(&story, "agent:1");
}

#[test]
#[ignore = "needs a model: cargo xtask test --only model"]
fn a_real_model_follows_the_schema_of_a_result() {
    let schema = r#"{"type":"object","properties":{"vegetable":{"type":"string","maxLength":20}},"required":["vegetable"],"additionalProperties":false}"#;
    let model = Model::start();
    let story = model.story(
        "response_format = { type = \"json_schema\", json_schema = { name = \"answer\", schema = { \
         type = \"object\", properties = { vegetable = { type = \"string\", maxLength = 20 } }, \
         required = [\"vegetable\"], additionalProperties = false } } }",
    );
    fs::write(story.project().join("schema.json"), schema).unwrap();
    story.define("cook", "---\nname: cook\ndescription: Cooks.\ntools: []\n---\nYou cook.\n");
    story.trust();
    let args = ["run", "--agent", "cook", "--result-schema", "schema.json", "Name a vegetable."];
    let result: Value = serde_json::from_str(&story.ok(args)).unwrap();
    assert!(result["vegetable"].is_string(), "{result}");
}
