//! Turns of the built-in ACP agents, and rules of the protocol that hold for all of them.

use brigade_external::acp::AcpAgent;
use brigade_external::adapter::{PermissionDecision, SessionStart, TurnStart};
use brigade_external::turn_events::{RequestedCall, SubjectKind, TurnEvent};
use brigade_external::usage::UsageScope;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::acp_support::{AcpTurn, Restart, SESSION, acp_agent, initialized, new_turn, play_acp};

/// Each fixture, and the agent that plays it.
const FIXTURES: [(&str, &str); 9] = [
    ("claude_permission", "claude-acp"),
    ("claude_resume", "claude-acp"),
    ("codex_permission", "codex-acp"),
    ("codex_resume", "codex-acp"),
    ("gemini_permission", "gemini-acp"),
    ("opencode_permission", "opencode-acp"),
    ("opencode_resume", "opencode-acp"),
    ("qwen_permission", "qwen-acp"),
    ("qwen_resume", "qwen-acp"),
];

/// The fixtures in which a session is loaded.
const LOADS: [&str; 4] = ["claude_load", "codex_load", "opencode_load", "qwen_load"];

fn loading_agent() -> AcpAgent {
    let file = "protocol = 'acp'\nname = 'loader'\ntitle = 'Loader'\nprogram = 'loader'\n\
                resume = 'load'";
    AcpAgent::parse(file).unwrap()
}

fn plain_agent() -> AcpAgent {
    AcpAgent::from_command_line(&["cook".to_owned()]).unwrap()
}

#[test]
fn a_permission_of_claude() {
    let turn = play_acp("claude_permission", acp_agent("claude-acp"), Restart::Never);
    let arguments = r#"{"command":"ls plates | wc -l","description":"count the plates"}"#;
    let expected = [
        "session 5e551011-0000-4000-8000-000000000001".to_owned(),
        format!("call toolu_1 Bash {arguments}"),
        format!("permission 0 Bash {arguments} [AllowOnce, RejectOnce]"),
        "result toolu_1 12".to_owned(),
        "delta There are ".to_owned(),
        "delta 12 plates.".to_owned(),
        "usage - $0.0016".to_owned(),
        "usage 200/0/0/40 $0.00".to_owned(),
        "closed with success".to_owned(),
    ];
    assert_eq!(turn.rendered_events(), expected);
    assert_eq!(turn.outcome(), "succeeded: There are 12 plates.");
}

#[test]
fn a_turn_of_codex() {
    let turn = play_acp("codex_permission", acp_agent("codex-acp"), Restart::Never);
    let expected = [
        "session 5e551011-0000-7000-8000-000000000002",
        "Warning Warning: nobody knows this oven.",
        "call call_1 exec_command {\"command\":\"ls plates | wc -l\",\"cwd\":\"/kitchen\"}",
        "result call_1 12\n",
        "delta There are 12 plates.",
        "usage 200/0/0/40 -",
        "closed with success",
    ];
    assert_eq!(turn.rendered_events(), expected);
    assert_eq!(turn.outcome(), "succeeded: There are 12 plates.");
}

#[test]
fn codex_calls_an_api_error_a_success() {
    let status = |status: &str| {
        let meta = json!({ "codex": { "threadStatus": { "type": status } } });
        json!({ "sessionUpdate": "session_info_update", "_meta": meta })
    };
    let text = |text: &str| {
        let content = json!({ "type": "text", "text": text });
        json!({ "sessionUpdate": "agent_message_chunk", "content": content })
    };
    let answer =
        json!({ "jsonrpc": "2.0", "id": 4, "result": { "stopReason": "end_turn", "usage": null } });
    let mut turn = AcpTurn::prompted(acp_agent("codex-acp"));
    for update in [status("active"), status("systemError"), text("the oven is cold\n\n")] {
        turn.update(update);
    }
    turn.read_value(&answer);
    assert!(turn.outcome().starts_with("failed"), "{}", turn.outcome());
    assert!(turn.outcome().contains("the oven is cold"), "{}", turn.outcome());
    let mut turn = AcpTurn::prompted(acp_agent("codex-acp"));
    for update in [status("systemError"), text("the oven is cold"), status("active")] {
        turn.update(update);
    }
    let content = json!({ "type": "text", "text": "There are 12 plates." });
    turn.update(
        json!({ "sessionUpdate": "agent_message_chunk", "messageId": "m", "content": content }),
    );
    turn.read_value(&answer);
    assert_eq!(turn.outcome(), "succeeded: There are 12 plates.");
}

#[test]
fn a_permission_of_gemini() {
    let turn = play_acp("gemini_permission", acp_agent("gemini-acp"), Restart::Never);
    let expected = [
        "session 5e551011-0000-4000-8000-000000000003",
        "call shell-1 execute {\"title\":\"ls plates | wc -l\"}",
        "permission 0 execute {\"title\":\"ls plates | wc -l\"} \
         [AllowAlways, AllowOnce, RejectOnce]",
        "result shell-1 ",
        "delta There are 12 plates.",
        "usage 200/0/0/40 -",
        "closed with success",
    ];
    assert_eq!(turn.rendered_events(), expected);
    assert_eq!(turn.outcome(), "succeeded: There are 12 plates.");
}

#[test]
fn a_permission_of_opencode() {
    let turn = play_acp("opencode_permission", acp_agent("opencode-acp"), Restart::Never);
    let call = "{\"command\":\"ls plates | wc -l\",\"description\":\"count the plates\",\
                \"cwd\":\"/kitchen\"}";
    let expected = [
        "session ses_plates".to_owned(),
        format!("call call_1 execute {call}"),
        "permission 0 execute {\"command\":\"ls plates | wc -l\"} \
         [AllowOnce, AllowAlways, RejectOnce]"
            .to_owned(),
        "result call_1 12\n".to_owned(),
        "delta There are 12 plates.".to_owned(),
        "usage - $0.00028".to_owned(),
        "usage 100/0/0/20 $0.00".to_owned(),
        "closed with success".to_owned(),
    ];
    assert_eq!(turn.rendered_events(), expected);
}

#[test]
fn a_permission_of_qwen() {
    let turn = play_acp("qwen_permission", acp_agent("qwen-acp"), Restart::Never);
    let arguments = r#"{"command":"ls plates | wc -l","description":"count the plates"}"#;
    let output = "Command: ls plates | wc -l\nDirectory: (root)\nOutput: 12\nError: (none)\n\
                  Exit Code: 0\nSignal: (none)";
    let expected = [
        "session 5e551011-0000-4000-8000-000000000005".to_owned(),
        "usage 100/0/0/20 -".to_owned(),
        format!("call call_1 run_shell_command {arguments}"),
        format!(
            "permission 0 run_shell_command {arguments} \
             [AllowAlways, AllowAlways, AllowOnce, RejectOnce]"
        ),
        format!("result call_1 {output}"),
        "delta There are 12 plates.".to_owned(),
        "usage 100/0/0/20 -".to_owned(),
        "closed with success".to_owned(),
    ];
    assert_eq!(turn.rendered_events(), expected);
}

#[test]
fn a_resumed_session_is_stored_before_its_prompt() {
    for (fixture, agent) in FIXTURES.into_iter().filter(|(name, _)| name.ends_with("_resume")) {
        let turn = play_acp(fixture, acp_agent(agent), Restart::Never);
        let Some(TurnEvent::SessionStarted { id }) = turn.events.first() else {
            panic!("{fixture}: {:?}", turn.events)
        };
        assert_eq!(turn.written()[2]["params"]["sessionId"], *id);
        assert!(turn.outcome().ends_with("There are 12 plates."), "{}", turn.outcome());
    }
}

#[test]
fn the_replay_of_a_loaded_session_is_not_a_part_of_the_turn() {
    for fixture in LOADS {
        let turn = play_acp(fixture, loading_agent(), Restart::Never);
        let is_replayed = |event: &TurnEvent| matches!(event, TurnEvent::ToolCall { .. });
        assert!(!turn.events.iter().any(is_replayed), "{fixture}: {:?}", turn.events);
        assert!(turn.outcome().ends_with("There are 12 plates."), "{}", turn.outcome());
    }
    let turn = play_acp("gemini_load", loading_agent(), Restart::Never);
    let expected = "failed: the agent reported an error: Internal error: nobody knows this session";
    assert_eq!(turn.outcome(), expected);
}

#[test]
fn a_restart_after_each_step_changes_nothing() {
    let built_in = FIXTURES.map(|(fixture, agent)| (fixture, acp_agent(agent)));
    let loads = LOADS.map(|fixture| (fixture, loading_agent()));
    for (fixture, agent) in built_in.into_iter().chain(loads) {
        let whole = play_acp(fixture, agent.clone(), Restart::Never);
        let restarted = play_acp(fixture, agent, Restart::AfterEachStep);
        assert_eq!(restarted.events, whole.events, "{fixture}");
        assert_eq!(restarted.input, whole.input, "{fixture}");
    }
}

#[test]
fn brigades_tools_and_the_directory_are_part_of_the_session() {
    let start = TurnStart { brigade: Some("/bin/brigade"), ..new_turn("hi") };
    for session in [SessionStart::New { id: "" }, SessionStart::Resumed { id: "s-1" }] {
        let start = TurnStart { session, ..start.clone() };
        let mut turn = AcpTurn::begin(plain_agent(), &start, Restart::Never);
        turn.read_value(&initialized());
        let params = &turn.written()[1]["params"];
        assert_eq!(params["cwd"], "/kitchen");
        let server =
            json!([{ "name": "brigade", "command": "/bin/brigade", "args": ["mcp"], "env": [] }]);
        assert_eq!(params["mcpServers"], server);
    }
}

#[test]
fn the_client_declares_no_files_and_no_terminals() {
    let turn = AcpTurn::begin(plain_agent(), &new_turn("hi"), Restart::Never);
    let request = &turn.written()[0];
    assert_eq!(request["method"], "initialize");
    assert_eq!(request["params"]["protocolVersion"], 1);
    let capabilities = &request["params"]["clientCapabilities"];
    assert_eq!(capabilities["fs"], json!({ "readTextFile": false, "writeTextFile": false }));
    assert_eq!(capabilities["terminal"], false);
}

#[test]
fn a_session_is_continued_only_if_the_agent_declares_it() {
    let bare = json!({ "jsonrpc": "2.0", "id": 1, "result": { "protocolVersion": 1 } });
    let start = TurnStart { session: SessionStart::Resumed { id: "s-1" }, ..new_turn("hi") };
    for agent in [acp_agent("claude-acp"), loading_agent(), plain_agent()] {
        let mut turn = AcpTurn::begin(agent, &start, Restart::Never);
        turn.read_value(&bare);
        assert!(turn.has_ended);
        assert!(turn.outcome().contains("does not declare"), "{}", turn.outcome());
    }
    let mut turn = AcpTurn::begin(plain_agent(), &start, Restart::Never);
    turn.read_value(&initialized());
    assert_eq!(turn.written()[1]["method"], "session/resume");
}

#[test]
fn a_session_that_cannot_be_continued_has_no_id() {
    let bare = json!({ "jsonrpc": "2.0", "id": 1, "result": { "protocolVersion": 1 } });
    let mut turn = AcpTurn::begin(plain_agent(), &new_turn("hi"), Restart::AfterEachStep);
    turn.read_value(&bare);
    turn.read_value(&json!({ "jsonrpc": "2.0", "id": 2, "result": { "sessionId": SESSION } }));
    assert_eq!(turn.written()[2]["method"], "session/prompt");
    for amount in [0.5, 0.75, 0.25] {
        let cost = json!({ "amount": amount, "currency": "USD" });
        turn.update(json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost }));
    }
    let amounts = ["usage - $0.50", "usage - $0.25", "usage - $0.25"];
    assert_eq!(turn.rendered_events(), amounts, "a smaller total is a counter that was reset");
    let total = UsageScope::SessionTotal;
    let is_total =
        |event: &TurnEvent| matches!(event, TurnEvent::Usage(usage) if usage.scope == total);
    assert!(!turn.events.iter().any(is_total));
}

#[test]
fn a_model_is_chosen_before_the_prompt() {
    let values = json!([{ "value": "small", "name": "Small" }]);
    let grouped = json!([{ "group": "g", "name": "Group", "options": values }]);
    for options in [values, grouped] {
        let option = json!({
            "id": "which", "name": "Model", "category": "model", "type": "select",
            "currentValue": "large", "options": options,
        });
        let result = json!({ "sessionId": SESSION, "configOptions": [{ "id": 7 }, option] });
        let opened = json!({ "jsonrpc": "2.0", "id": 2, "result": result });
        let start = TurnStart { model: Some("small"), ..new_turn("hi") };
        let mut turn = AcpTurn::begin(plain_agent(), &start, Restart::AfterEachStep);
        turn.read_value(&initialized());
        turn.read_value(&opened);
        assert_eq!(turn.rendered_events(), ["session s-1"]);
        let params = json!({ "sessionId": SESSION, "configId": "which", "value": "small" });
        assert_eq!(turn.written()[2]["method"], "session/set_config_option");
        assert_eq!(turn.written()[2]["params"], params);
        assert_eq!(turn.written().len(), 3);
        turn.read_value(&json!({ "jsonrpc": "2.0", "id": 3, "result": { "configOptions": [] } }));
        assert_eq!(turn.written()[3]["method"], "session/prompt");

        let start = TurnStart { model: Some("huge"), ..new_turn("hi") };
        let mut turn = AcpTurn::begin(plain_agent(), &start, Restart::Never);
        turn.read_value(&initialized());
        turn.read_value(&opened);
        assert!(turn.has_ended);
        assert!(turn.outcome().contains("does not offer the model `huge`"), "{}", turn.outcome());
    }
}

#[test]
fn stop_reasons() {
    let cases = [
        ("end_turn", "succeeded: "),
        ("max_tokens", "failed: the agent reported an error: it reached its limit of tokens"),
        (
            "max_turn_requests",
            "failed: the agent reported an error: it reached its limit of model calls",
        ),
        ("refusal", "failed: the agent reported an error: it refused to go on"),
        ("cancelled", "failed: the agent reported an error: it cancelled the turn"),
        (
            "bored",
            "failed: the agent reported an error: cook sent an unreadable answer to \
             `session/prompt`",
        ),
    ];
    for (reason, expected) in cases {
        let mut turn = AcpTurn::prompted(plain_agent());
        turn.read_value(&json!({ "jsonrpc": "2.0", "id": 4, "result": { "stopReason": reason } }));
        assert_eq!(turn.outcome(), expected);
        assert!(turn.has_ended);
        assert_eq!(turn.written(), Vec::<Value>::new());
    }
}

#[test]
fn an_agent_that_is_not_logged_in_says_so() {
    let error = json!({ "code": -32000, "message": "Authentication required" });
    for id in [1, 2] {
        let mut turn = AcpTurn::begin(acp_agent("opencode-acp"), &new_turn("hi"), Restart::Never);
        if id == 2 {
            turn.read_value(&initialized());
        }
        turn.read_value(&json!({ "jsonrpc": "2.0", "id": id, "error": error }));
        let expected = "failed: the agent reported an error: opencode (ACP) is not logged in; run \
                        `opencode auth login`, then try again: Authentication required";
        assert_eq!(turn.outcome(), expected);
    }
}

#[test]
fn messages_plans_and_reasoning() {
    let mut turn = AcpTurn::prompted(plain_agent());
    let chunk = |kind: &str, message: &str, text: &str| {
        let content = json!({ "type": "text", "text": text });
        json!({ "sessionUpdate": kind, "messageId": message, "content": content })
    };
    turn.update(chunk("agent_thought_chunk", "t", "Plates "));
    turn.update(chunk("agent_thought_chunk", "t", "first."));
    turn.update(chunk("agent_message_chunk", "a", "I "));
    turn.update(chunk("agent_message_chunk", "a", "count."));
    turn.update(chunk("agent_message_chunk", "b", "Twelve."));
    let entry = |content: &str, status: &str| {
        let priority = "high";
        json!({ "content": content, "priority": priority, "status": status })
    };
    let entries =
        [entry("Count", "completed"), entry("Wash", "in_progress"), entry("Dry", "pending")];
    turn.update(json!({ "sessionUpdate": "plan", "entries": entries }));
    turn.update(json!({ "sessionUpdate": "current_mode_update", "currentModeId": "x" }));
    turn.update(json!({ "sessionUpdate": "from_the_future", "x": 1 }));
    let cost = json!({ "amount": 2.0, "currency": "EUR" });
    turn.update(json!({ "sessionUpdate": "usage_update", "used": 1, "size": 2, "cost": cost }));
    turn.update(chunk("agent_thought_chunk", "t", "Done."));
    turn.read_value(&json!({ "jsonrpc": "2.0", "id": 4, "result": { "stopReason": "end_turn" } }));
    let expected = [
        "reasoning Plates first.",
        "delta I ",
        "delta count.",
        "delta \n\nTwelve.",
        "Info plan:\n[x] Count\n[>] Wash\n[ ] Dry",
        "reasoning Done.",
        "closed with success",
    ];
    assert_eq!(turn.rendered_events(), expected);
    assert_eq!(turn.outcome(), "succeeded: I count.\n\nTwelve.");
}

#[test]
fn a_denied_call_fails() {
    let mut turn = AcpTurn::prompted(plain_agent());
    let options = json!([
        { "optionId": "1", "name": "Always", "kind": "allow_always" },
        { "optionId": "2", "name": "Once", "kind": "allow_once" },
        { "optionId": "3", "name": "Never", "kind": "reject_always" },
        { "optionId": "4", "name": "Not now", "kind": "reject_once" },
    ]);
    turn.read_value(&ask(json!("q"), json!({ "toolCallId": "c" }), options));
    turn.decide("\"q\"", PermissionDecision::Deny { reason: "no" });
    let outcome = json!({ "outcome": { "outcome": "selected", "optionId": "4" } });
    assert_eq!(turn.written(), [json!({ "jsonrpc": "2.0", "id": "q", "result": outcome })]);
    turn.update(
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "failed" }),
    );
    assert_eq!(turn.rendered_events().last().unwrap(), "failed c ");
}

/// Returns a permission request.
pub(crate) fn ask(id: Value, call: Value, options: Value) -> Value {
    let params = json!({ "sessionId": SESSION, "toolCall": call, "options": options });
    json!({ "jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params })
}

#[test]
fn calls_have_the_terms_of_permission_rules() {
    let call = |tool: &str, subject: Option<&str>, kind| RequestedCall {
        tool: tool.into(),
        subject: subject.map(Into::into),
        kind,
    };
    let shell = SubjectKind::Shell;
    let file = SubjectKind::File;
    let text = SubjectKind::Text;
    let at = |path: &str| json!([{ "path": path }]);
    let diff = json!([{ "type": "diff", "path": "/kitchen/new", "newText": "x" }]);
    let cases = [
        (
            json!({ "kind": "execute", "rawInput": { "command": "ls" } }),
            call("run_process", Some("ls"), shell),
        ),
        (
            json!({ "kind": "execute", "rawInput": { "command": ["sh", "-c", "ls"] } }),
            call("run_process", None, shell),
        ),
        (json!({ "kind": "execute", "title": "ls" }), call("run_process", None, shell)),
        (
            json!({ "kind": "read", "rawInput": { "path": "a" } }),
            call("read_file", Some("/kitchen/a"), file),
        ),
        (
            json!({ "kind": "read", "rawInput": { "path": "a" }, "locations": at("/kitchen/a") }),
            call("read_file", Some("/kitchen/a"), file),
        ),
        (
            json!({ "kind": "read", "rawInput": { "path": "a" }, "locations": at("/etc/a") }),
            call("read_file", None, file),
        ),
        (
            json!({ "kind": "edit", "locations": at("/kitchen/b") }),
            call("edit_file", Some("/kitchen/b"), file),
        ),
        (
            json!({ "kind": "edit", "content": diff }),
            call("write_file", Some("/kitchen/new"), file),
        ),
        (
            json!({ "kind": "search", "rawInput": { "path": "/kitchen" } }),
            call("search_files", Some("/kitchen"), file),
        ),
        (
            json!({ "kind": "delete", "locations": at("/kitchen/c") }),
            call("delete", Some("/kitchen/c"), file),
        ),
        (json!({ "kind": "fetch", "name": "get" }), call("get", None, text)),
        (json!({ "title": "Some tool" }), call("Some tool", None, text)),
        (json!({ "kind": "from_the_future" }), call("tool", None, text)),
    ];
    for (mut fields, expected) in cases {
        fields["toolCallId"] = json!("c");
        let options = json!([{ "optionId": "1", "name": "Once", "kind": "allow_once" }]);
        let mut turn = AcpTurn::prompted(plain_agent());
        turn.read_value(&ask(json!(1), fields.clone(), options));
        let Some(TurnEvent::PermissionRequest(request)) = turn.events.last() else {
            panic!("{fields}: {:?}", turn.events)
        };
        assert_eq!(request.call, expected, "{fields}");
    }
}

#[test]
fn known_tools_and_titles_are_translated() {
    let options = json!([{ "optionId": "1", "name": "Once", "kind": "allow_once" }]);
    let request = |agent: &str, call: Value| {
        let mut turn = AcpTurn::prompted(acp_agent(agent));
        turn.read_value(&ask(json!(1), call, options.clone()));
        match turn.events.pop() {
            Some(TurnEvent::PermissionRequest(request)) => request.call,
            other => panic!("{other:?}"),
        }
    };
    let call = json!({ "toolCallId": "c", "name": "mcp__brigade__spawn_agent", "rawInput": {} });
    let call = request("claude-acp", call);
    assert_eq!(call.tool, "spawn_agent");
    assert_eq!(call.kind, SubjectKind::Text);
    let call = json!({ "toolCallId": "c", "kind": "execute", "title": "ls plates" });
    assert_eq!(request("gemini-acp", call).subject.as_deref(), Some("ls plates"));
    let title = "x".repeat(100_000);
    let call = json!({ "toolCallId": "c", "kind": "execute", "title": title });
    assert_eq!(request("gemini-acp", call).subject, None, "a part of a command is not a subject");
}

/// Replaces the value at this position of a message, counted in depth-first order. Returns the number
/// of positions that are left to count.
fn replace_value(value: &mut Value, at: usize, replacement: &Value) -> Option<usize> {
    let Some(mut at) = at.checked_sub(1) else {
        *value = replacement.clone();
        return None;
    };
    let children: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    for child in children {
        at = replace_value(child, at, replacement)?;
    }
    Some(at)
}

/// A value that a program may send instead of the right one.
fn wrong_value() -> impl Strategy<Value = Value> {
    let values = [
        json!(null),
        json!(true),
        json!(-1),
        json!(4),
        json!(1e300),
        json!(""),
        json!("s-1"),
        json!([]),
        json!([[{}]]),
        json!({}),
        json!({ "id": 1, "result": {} }),
    ];
    prop::sample::select(values.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_restart_after_each_line_of_any_order_changes_nothing(
        order in prop::collection::vec(0usize..24, 0..40),
        faults in prop::collection::vec((0usize..40, 1usize..60, wrong_value()), 0..8),
    ) {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/acp/claude_permission.txt");
        let text = std::fs::read_to_string(dir).unwrap();
        let lines = text.lines().filter_map(|line| line.strip_prefix("< "));
        let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        // The beginning gives most orders a session.
        let mut messages = vec![lines[0].clone(), lines[2].clone()];
        messages.extend(order.iter().map(|index| lines[index % lines.len()].clone()));
        for (index, at, replacement) in &faults {
            let index = index % messages.len();
            replace_value(&mut messages[index], *at, replacement);
        }
        let play = |restart| {
            let mut turn = AcpTurn::begin(acp_agent("claude-acp"), &new_turn("hi"), restart);
            for (index, message) in messages.iter().enumerate() {
                turn.read_value(message);
                if index % 5 == 4 {
                    turn.decide("0", PermissionDecision::Deny { reason: "" });
                }
            }
            turn
        };
        let whole = play(Restart::Never);
        let restarted = play(Restart::AfterEachStep);
        prop_assert_eq!(&restarted.events, &whole.events);
        prop_assert_eq!(&restarted.input, &whole.input);
        prop_assert_eq!(restarted.has_ended, whole.has_ended);
    }
}
