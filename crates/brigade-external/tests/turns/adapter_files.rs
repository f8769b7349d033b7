//! Adapter files, as users write them.

use brigade_external::adapter::{
    ARGUMENT_MAX, AccessLevel, CliAdapter, PermissionDecision, SessionStart, TurnStart,
    TurnStartError,
};
use brigade_external::built_in::parse_built_in_adapters;
use brigade_external::external_agent::ExternalAgent;
use serde_json::Value;

/// The smallest adapter.
const SMALL: &str = r#"
name = "echo-agent"
title = "Echo"
format = "json_lines"
program = "echo-agent"
start = ["run", "{access}", "{prompt}"]
resume = ["run", "--in", "{session_id}", "{access}", "{prompt}"]
session_id = "reported"
prompt = "argument"
closing = "event"

[access]
full = []

[[events]]
match = { type = "hello" }
session = { id = "id" }

[[events]]
match = { type = "bye" }
closed = { success = { ok = true } }
"#;

fn turn(prompt: &str) -> TurnStart<'_> {
    let session = SessionStart::New { id: "" };
    TurnStart {
        prompt,
        session,
        model: None,
        access: AccessLevel::Full,
        directory: "/",
        brigade: None,
        budget: None,
    }
}

#[test]
fn the_built_in_adapters_are_valid() {
    let adapters = parse_built_in_adapters().unwrap();
    let names: Vec<&str> = adapters.iter().map(CliAdapter::name).collect();
    assert_eq!(names, ["claude", "codex", "gemini", "opencode", "qwen"]);
    for adapter in &adapters {
        for session in [SessionStart::New { id: "s-1" }, SessionStart::Resumed { id: "s-1" }] {
            let turn = TurnStart { session, ..turn("count the plates") };
            let spec = adapter.program_spec(&turn, &|_| true).unwrap();
            assert_eq!(spec.command_line[0], adapter.program());
            assert!(
                !spec.command_line.iter().any(|word| word.contains('{')),
                "{:?}",
                spec.command_line
            );
            let is_resumed = matches!(session, SessionStart::Resumed { .. });
            assert!(
                !is_resumed || spec.command_line.contains(&"s-1".to_owned()),
                "{:?}",
                spec.command_line
            );
        }
    }
}

#[test]
fn a_small_adapter_is_enough() {
    let adapter = CliAdapter::parse(SMALL).unwrap();
    assert_eq!(adapter.title(), "Echo");
    let spec = adapter.program_spec(&turn("hi"), &|_| true).unwrap();
    assert_eq!(spec.command_line, ["echo-agent", "run", "hi"]);
    assert_eq!(adapter.permission_answer("1", PermissionDecision::Deny { reason: "" }), None);
    assert_eq!(adapter.refuse_request("1"), None);
    assert_eq!(adapter.read_event(&Value::Null), []);
}

#[test]
fn a_prompt_on_the_standard_input_ends() {
    let text = SMALL.replace("\"argument\"", "\"stdin_text\"").replace(", \"{prompt}\"]", "]");
    let adapter = CliAdapter::parse(&text).unwrap();
    let input = adapter.turn_input("hi\n");
    assert_eq!(input.bytes, b"hi\n");
    assert!(input.ends);
}

#[test]
fn a_prompt_that_is_no_argument_is_refused() {
    let adapter = CliAdapter::parse(SMALL).unwrap();
    let whole = "x".repeat(ARGUMENT_MAX);
    assert!(adapter.program_spec(&turn(&whole), &|_| true).is_ok());
    let long = "x".repeat(ARGUMENT_MAX + 1);
    let error = adapter.program_spec(&turn(&long), &|_| true).unwrap_err();
    assert!(matches!(error, TurnStartError::PromptTooLong { .. }), "{error}");
    let error = adapter.program_spec(&turn("a\0b"), &|_| true).unwrap_err();
    assert_eq!(error, TurnStartError::PromptWithNul);
}

#[test]
fn a_fault_names_its_field() {
    let answers = r#"[answers]
allow = { id = "{request_id}" }
deny = { id = "{request_id}" }
unsupported = { id = "{request_id}" }

[[events]]
match = { type = "hello" }"#;
    let cases = [
        ("name = \"echo-agent\"", "name = \"Echo Agent\"", "name"),
        ("title = \"Echo\"", "title = \" \"", "title"),
        ("title = \"Echo\"", "title = \"Echo\"\ncolour = \"red\"", "colour"),
        ("title = \"Echo\"", "title = ", "."),
        ("program = \"echo-agent\"", "program = \"\"", "program"),
        ("program = \"echo-agent\"", "program = 3", "program"),
        ("\"json_lines\"", "\"xml\"", "format"),
        ("\"run\", \"{access}\", \"{prompt}\"", "\"{access}\"", "start"),
        ("\"run\", \"{access}\"", "\"{colour}\", \"{access}\"", "start"),
        ("\"run\", \"{access}\"", "\"run\"", "start"),
        ("\"run\", \"{access}\"", "3, \"{access}\"", "start[0]"),
        ("\"--in\", \"{session_id}\"", "\"--last\"", "resume"),
        ("\"reported\"", "\"chosen\"", "start"),
        ("session = { id = \"id\" }", "text = { text = \"id\" }", "events"),
        ("session = { id = \"id\" }", "session = { id = \"a..b\" }", "events[0].session.id"),
        ("session = { id = \"id\" }", "session = { name = \"id\" }", "events[0].session.name"),
        ("[[events]]", "[[events]]\nmatch = { type = \"x\" }\n\n[[events]]", "events[0]"),
        ("closed = { success", "closed = { succes", "events[1].closed.succes"),
        ("closing = \"event\"", "closing = \"end_of_output\"", "closing"),
        ("closing = \"event\"", "closing = \"event\"\ninput = [{ text = \"{prompt}\" }]", "input"),
        ("full = []", "full = []\nmost = []", "access.most"),
        ("\"run\", \"{access}\"", "\"--access={access}\"", "start"),
        ("\"run\", \"{access}\"", "\"run\", [\"{access}\"]", "start"),
        ("[[events]]\nmatch = { type = \"hello\" }", answers, "answers"),
        ("[access]", "[environment]\nset = { \"A=B\" = \"1\" }\n\n[access]", "environment"),
        (
            "session = { id = \"id\" }",
            "session = { id = \"id\" }\nusage = { call = \"c\", input = \"i\", output = \"o\" }",
            "events[0].usage.call",
        ),
        (
            "session = { id = \"id\" }",
            "session = { id = \"id\" }\nusage = { call = \"c\", input = \"i\", output = \"o\", \
             cumulative = true }",
            "events[0].usage.call",
        ),
        (
            "session = { id = \"id\" }",
            "session = { id = \"id\" }\nusage = { call = \"c\", input = \"i\", output = \"o\", \
             cost = \"d\" }",
            "events[0].usage.call",
        ),
        (
            "session = { id = \"id\" }",
            "session = { id = \"id\" }\npermission = { id = \"a\", tool = \"b\", arguments = \"c\" }",
            "answers",
        ),
    ];
    for (before, after, field) in cases {
        assert!(SMALL.contains(before), "{before}");
        let fault = CliAdapter::parse(&SMALL.replacen(before, after, 1)).unwrap_err();
        assert_eq!(fault.field, field, "{after}: {fault}");
        assert!(!fault.problem.is_empty());
    }
}

#[test]
fn a_program_that_asks_for_nothing_needs_an_access() {
    let text = SMALL.replace(" \"{access}\",", "").replace("[access]\nfull = []\n", "");
    assert_eq!(CliAdapter::parse(&text).unwrap_err().field, "access");
}

#[test]
fn brigade_is_a_server_whose_tools_the_programs_do_not_ask_about() {
    let codex = r#"mcp_servers.brigade={command="/bin/brigade",args=["mcp"],default_tools_approval_mode="approve"}"#;
    let qwen =
        r#"{"mcpServers":{"brigade":{"command":"/bin/brigade","args":["mcp"],"trust":true}}}"#;
    for (name, expected) in [("codex", codex), ("qwen", qwen)] {
        for session in [SessionStart::New { id: "s" }, SessionStart::Resumed { id: "s" }] {
            let brigade = Some("/bin/brigade");
            let turn = TurnStart { session, brigade, ..crate::acp_support::new_turn("count") };
            let spec = crate::support::adapter(name).program_spec(&turn, &|_| false).unwrap();
            assert!(spec.command_line.iter().any(|word| word == expected), "{spec:?}");
        }
    }
}
