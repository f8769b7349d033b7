//! A real model, if a very small one: `cargo xtask test --only model` fetches it and asks for these.
//!
//! What such a model makes of a result is up to it, and not the same each time. What is seen here is that
//! a conversation with one goes all the way: a call held to the tool's schema, its result, an answer or the
//! truth about there being none, a crash in the middle, a result held to a schema.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::kitchen::{Kitchen, poll};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/real_model.py");

const ASKED: [&str; 7] =
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

    /// A kitchen whose agents have this model; `extra` goes into each request.
    fn kitchen(&self, extra: &str) -> Kitchen {
        let kitchen = Kitchen::new();
        kitchen.configure(&format!(
            "model = \"tiny/smollm2\"\n[providers.tiny]\nkind = \"openai-chat\"\n\
             base_url = \"{}/v1\"\nkey = \"none\"\nextra = {{ {extra} }}\n",
            self.url,
        ));
        kitchen.define(
            "reader",
            "---\nname: reader\ndescription: Reads files.\ntools: [read_file]\n---\nYou read files with the tool read_file.\n",
        );
        kitchen.trust();
        fs::write(kitchen.project().join("recipe.md"), "Two leeks, one onion.\n").unwrap();
        kitchen
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // It was started here and is nobody else's.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[track_caller]
fn read_it(kitchen: &Kitchen, task: &str) {
    let log = kitchen.ok(["logs", task]);
    let calls = log.matches("-> read_file {\"path\":\"recipe.md\"}").count();
    assert_eq!(calls, 1, "{log}");
    assert!(log.contains("1\tTwo leeks, one onion."), "{log}");
}

#[test]
#[ignore = "needs a model: cargo xtask test --only model"]
fn a_real_model_calls_a_tool_and_answers_and_is_replayed_without_it() {
    let model = Model::start();
    let kitchen = model.kitchen("");
    let run = |more: [&str; 2]| {
        let ran = kitchen.command([&["run"], &more[..], &ASKED[..]].concat()).output().unwrap();
        (ran.status.code(), String::from_utf8(ran.stdout).unwrap())
    };
    let recorded = run(["--record", "reading.jsonl"]);
    read_it(&kitchen, "agent:1");
    let shown = kitchen.json(["show", "agent:1"]);
    assert!(shown["usage"]["tokens"].as_u64().unwrap() > 0, "{shown}");
    drop(model);
    assert_eq!(run(["--model", "replay:reading.jsonl"]), recorded);
    read_it(&kitchen, "agent:2");
}

#[test]
#[ignore = "needs a model: cargo xtask test --only model"]
fn a_conversation_with_a_real_model_goes_on_after_a_crash() {
    let model = Model::start();
    let kitchen = model.kitchen("");
    let ran = kitchen.command([&["run", "--detach"], &ASKED[..]].concat()).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    poll("it asks the model", || {
        let shown = kitchen.json(["show", "agent:1"]).to_string();
        shown.contains("thinking").then_some(())
    });
    kitchen.kill_daemon();
    let code = kitchen.run(["wait", "agent:1"]).code;
    assert_eq!(code == 0, kitchen.state_of("agent:1") == "succeeded");
    read_it(&kitchen, "agent:1");
}

#[test]
#[ignore = "needs a model: cargo xtask test --only model"]
fn a_real_model_is_held_to_the_schema_of_a_result() {
    let schema = r#"{"type":"object","properties":{"vegetable":{"type":"string","maxLength":20}},"required":["vegetable"],"additionalProperties":false}"#;
    let model = Model::start();
    let kitchen = model.kitchen(
        "response_format = { type = \"json_schema\", json_schema = { name = \"answer\", schema = { \
         type = \"object\", properties = { vegetable = { type = \"string\", maxLength = 20 } }, \
         required = [\"vegetable\"], additionalProperties = false } } }",
    );
    fs::write(kitchen.project().join("schema.json"), schema).unwrap();
    kitchen.define("cook", "---\nname: cook\ndescription: Cooks.\ntools: []\n---\nYou cook.\n");
    kitchen.trust();
    let args = ["run", "--agent", "cook", "--result-schema", "schema.json", "Name a vegetable."];
    let said: Value = serde_json::from_str(&kitchen.ok(args)).unwrap();
    assert!(said["vegetable"].is_string(), "{said}");
}
