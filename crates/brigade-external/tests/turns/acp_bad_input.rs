//! Programs that do not keep to the Agent Client Protocol.

use brigade_external::acp::AcpAgent;
use brigade_external::adapter::PermissionDecision;
use brigade_external::external_agent::ExternalAgent;
use serde_json::{Value, json};

use crate::acp::ask;
use crate::acp_support::{AcpTurn, Restart, SESSION, acp_agent, initialized, new_turn};

const ALLOW: PermissionDecision<'_> = PermissionDecision::Allow { arguments: &Value::Null };

fn agent() -> AcpAgent {
    AcpAgent::from_command_line(&["cook".to_owned()]).unwrap()
}

fn begin() -> AcpTurn {
    AcpTurn::begin(agent(), &new_turn("hi"), Restart::AfterEachStep)
}

fn once() -> Value {
    json!([{ "optionId": "yes", "name": "Yes", "kind": "allow_once" }])
}

/// Returns the error code of the last message that was written.
fn last_error(turn: &AcpTurn) -> Value {
    turn.written().last().unwrap()["error"]["code"].clone()
}

#[test]
fn lines_that_are_no_messages_are_ignored() {
    let deep = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}", "[".repeat(100_000));
    let lines = [
        "hello",
        "[]",
        "[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":1}}]",
        "{}",
        "{\"id\":1,\"result\":{\"protocolVersion\":1}}",
        "{\"jsonrpc\":\"1.0\",\"id\":1,\"result\":{\"protocolVersion\":1}}",
        "{\"jsonrpc\":\"2.0\"}",
        "{\"jsonrpc\":\"2.0\",\"result\":{}}",
        "{\"jsonrpc\":\"2.0\",\"method\":7}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"from/the_future\"}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\"}",
        "{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":[1]}",
        &deep,
    ];
    for line in lines {
        let mut turn = begin();
        let input = turn.input.clone();
        turn.read(line);
        assert_eq!(turn.events, [], "{}", &line[..line.len().min(80)]);
        assert_eq!(turn.input, input);
        turn.read_value(&initialized());
        assert_eq!(turn.written()[1]["method"], "session/new");
    }
}

#[test]
fn answers_to_no_request_are_ignored() {
    let mut turn = begin();
    let end = json!({ "jsonrpc": "2.0", "id": 4, "result": { "stopReason": "end_turn" } });
    let opened = json!({ "jsonrpc": "2.0", "id": 2, "result": { "sessionId": "s-1" } });
    // The session and the end of the turn are reported before anybody asked.
    turn.read_value(&end);
    turn.read_value(&opened);
    for id in [json!("1"), json!(1.5), json!(null), json!(99), json!(-1), json!([1])] {
        let result = json!({ "protocolVersion": 1 });
        turn.read_value(&json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    }
    assert_eq!(turn.events, []);
    assert_eq!(turn.written().len(), 1);
    turn.read_value(&initialized());
    turn.read_value(&initialized());
    turn.read_value(&end);
    assert_eq!(turn.written().len(), 2);
    turn.read_value(&opened);
    turn.read_value(&json!({ "jsonrpc": "2.0", "id": 2, "result": { "sessionId": "s-2" } }));
    turn.read_value(&json!({ "jsonrpc": "2.0", "id": 2, "error": { "code": 1, "message": "x" } }));
    assert_eq!(turn.rendered_events(), ["session s-1"]);
    assert_eq!(turn.written().len(), 3);
    turn.read_value(&end);
    turn.read_value(&end);
    turn.read_value(&ask(json!(0), json!({ "toolCallId": "c" }), once()));
    assert_eq!(turn.rendered_events(), ["session s-1", "closed with success"]);
    assert!(turn.has_ended);
}

#[test]
fn another_version_of_the_protocol_fails_the_turn() {
    for (version, text) in [
        (json!(2), "cook speaks version 2 of the Agent Client Protocol; Brigade needs version 1"),
        (json!(0), "cook speaks version 0 of the Agent Client Protocol; Brigade needs version 1"),
        (json!("1"), "cook sent an unreadable answer to `initialize`"),
        (json!(70_000), "cook sent an unreadable answer to `initialize`"),
        (json!(null), "cook sent an unreadable answer to `initialize`"),
    ] {
        let mut turn = begin();
        let result = json!({ "protocolVersion": version });
        turn.read_value(&json!({ "jsonrpc": "2.0", "id": 1, "result": result }));
        assert_eq!(turn.outcome(), format!("failed: the agent reported an error: {text}"));
        assert!(turn.has_ended);
        assert_eq!(turn.written().len(), 1);
    }
}

#[test]
fn unreadable_answers_fail_the_turn() {
    let long = "x".repeat(10_000);
    let answers = [
        json!({}),
        json!({ "result": {} }),
        json!({ "result": null }),
        json!({ "result": { "sessionId": 7 } }),
        json!({ "result": { "sessionId": "" } }),
        json!({ "result": { "sessionId": long } }),
        json!({ "error": "no" }),
        json!({ "error": { "code": "x" } }),
    ];
    for mut answer in answers {
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = json!(2);
        let mut turn = begin();
        turn.read_value(&initialized());
        turn.read_value(&answer);
        let expected =
            "failed: the agent reported an error: cook sent an unreadable answer to `session/new`";
        assert_eq!(turn.outcome(), expected);
        assert_eq!(turn.written().len(), 2);
    }
}

#[test]
fn an_error_is_the_failure_of_the_turn() {
    let cases = [
        (json!({ "code": -32603, "message": "the oven is off" }), "the oven is off"),
        (json!({ "code": 7, "message": "a", "data": "b" }), "a: b"),
        (json!({ "code": 7, "message": "a", "data": { "details": "b" } }), "a: b"),
        (json!({ "code": 7, "message": "a", "data": { "x": 1 } }), "a"),
        (json!({ "code": 7, "message": "a", "data": "a" }), "a"),
    ];
    for (error, text) in cases {
        let mut turn = AcpTurn::prompted(agent());
        // A result beside an error is not a success.
        let result = json!({ "stopReason": "end_turn" });
        let answer = json!({ "jsonrpc": "2.0", "id": 4, "result": result, "error": error });
        turn.read_value(&answer);
        assert_eq!(turn.outcome(), format!("failed: the agent reported an error: {text}"));
    }
}

#[test]
fn unknown_requests_are_refused() {
    let mut turn = AcpTurn::prompted(agent());
    for method in [
        "fs/read_text_file",
        "fs/write_text_file",
        "terminal/create",
        "terminal/output",
        "session/prompt",
        "craft/drainMidTurnQueue",
    ] {
        let params = json!({ "sessionId": SESSION, "path": "/etc/passwd" });
        let request = json!({ "jsonrpc": "2.0", "id": method, "method": method, "params": params });
        turn.read_value(&request);
        assert_eq!(last_error(&turn), -32601);
        assert_eq!(turn.written().last().unwrap()["id"], method);
    }
    for id in [json!(null), json!([1]), json!("x".repeat(10_000))] {
        turn.read_value(&json!({ "jsonrpc": "2.0", "id": id, "method": "fs/read_text_file" }));
        assert_eq!(last_error(&turn), -32600);
        assert_eq!(turn.written().last().unwrap()["id"], Value::Null);
    }
    assert_eq!(turn.events, []);
}

#[test]
fn questions_that_cannot_be_answered_are_declined() {
    let mut turn = AcpTurn::prompted(agent());
    let schema = json!({ "type": "object", "properties": {} });
    let params = json!({
        "sessionId": SESSION, "mode": "form", "message": "Which plates?", "requestedSchema": schema,
    });
    let request = |params: &Value| {
        let method = "elicitation/create";
        json!({ "jsonrpc": "2.0", "id": 3, "method": method, "params": params })
    };
    turn.read_value(&request(&params));
    assert_eq!(turn.rendered_events(), ["Warning its question was declined: Which plates?"]);
    turn.read_value(&request(&json!({ "mode": "from the future" })));
    let declined = json!({ "jsonrpc": "2.0", "id": 3, "result": { "action": "decline" } });
    assert_eq!(turn.written(), [declined.clone(), declined]);
}

#[test]
fn permission_requests_that_cannot_be_asked_are_refused() {
    let call = json!({ "toolCallId": "c", "title": "Cut" });
    let mut other = ask(json!(1), call.clone(), once());
    other["params"]["sessionId"] = json!("s-2");
    let mut turn = AcpTurn::prompted(agent());
    turn.read_value(&other);
    assert_eq!(last_error(&turn), -32002);
    for params in [json!(null), json!({ "sessionId": SESSION }), json!([])] {
        let mut bad = ask(json!(1), call.clone(), once());
        bad["params"] = params;
        turn.read_value(&bad);
        assert_eq!(last_error(&turn), -32602);
    }
    turn.read_value(&ask(json!(1), json!({ "toolCallId": "x".repeat(10_000) }), once()));
    assert_eq!(last_error(&turn), -32602);
    assert_eq!(turn.events, []);
    let mut early = begin();
    early.read_value(&ask(json!(1), call, once()));
    assert_eq!(last_error(&early), -32600);
    assert_eq!(early.events, []);
}

#[test]
fn options_are_never_chosen_by_position() {
    let option = |id: &str, kind: &str| json!({ "optionId": id, "name": id, "kind": kind });
    let call = json!({ "toolCallId": "c", "title": "Cut" });
    let answer = |options: Value, decision: PermissionDecision<'_>| {
        let mut turn = AcpTurn::prompted(agent());
        turn.read_value(&ask(json!(1), call.clone(), options));
        turn.decide("1", decision);
        turn.written()[0]["result"]["outcome"].clone()
    };
    let deny = PermissionDecision::Deny { reason: "no" };
    let selected = |id: &str| json!({ "outcome": "selected", "optionId": id });
    let cancelled = json!({ "outcome": "cancelled" });
    // Nothing rejects, so the question is cancelled.
    assert_eq!(answer(json!([option("a", "allow_once")]), deny), cancelled);
    assert_eq!(
        answer(json!([option("n", "reject_always"), option("a", "allow_once")]), deny),
        selected("n")
    );
    let strange = json!([7, option("x", "allow_twice"), option("a", "allow_once")]);
    assert_eq!(answer(strange, ALLOW), selected("a"));
    // Nothing allows this call only, so it is denied without a question.
    let always = json!([option("a", "allow_always"), option("n", "reject_once")]);
    assert_eq!(answer(always.clone(), ALLOW), selected("n"));
    assert_eq!(answer(json!([option("a", "allow_always")]), ALLOW), cancelled);
    assert_eq!(answer(json!([]), ALLOW), cancelled);
    let mut turn = AcpTurn::prompted(agent());
    turn.read_value(&ask(json!(1), call, always));
    assert_eq!(
        turn.rendered_events(),
        [
            "call c Cut {\"title\":\"Cut\"}",
            "Warning the call of `Cut` was denied, since it cannot be allowed only once"
        ]
    );
}

#[test]
fn a_permission_is_answered_once() {
    let mut turn = AcpTurn::prompted(agent());
    let call = json!({ "toolCallId": "c", "title": "Cut" });
    turn.read_value(&ask(json!(1), call.clone(), once()));
    // The same id again, and the same digits as a text.
    turn.read_value(&ask(json!(1), call.clone(), once()));
    turn.read_value(&ask(json!("1"), call, once()));
    let asked = turn.rendered_events();
    assert_eq!(asked.iter().filter(|event| event.starts_with("permission")).count(), 2);
    turn.decide("2", ALLOW);
    assert_eq!(turn.written(), Vec::<Value>::new());
    turn.decide("1", ALLOW);
    turn.decide("1", ALLOW);
    assert_eq!(turn.written().len(), 1);
    assert_eq!(turn.written()[0]["id"], 1);
    turn.decide("\"1\"", ALLOW);
    assert_eq!(turn.written()[1]["id"], "1");
}

#[test]
fn updates_of_other_sessions_are_ignored() {
    let mut turn = AcpTurn::prompted(agent());
    let content = json!({ "type": "text", "text": "other" });
    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
    let params = json!({ "sessionId": "s-2", "update": update });
    turn.read_value(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    assert_eq!(turn.events, []);
}

#[test]
fn the_saved_state_is_bounded() {
    let mut turn = AcpTurn::prompted(acp_agent("claude-acp"));
    let long = "x".repeat(1_000_000);
    for index in 0..500 {
        let call = json!({
            "sessionUpdate": "tool_call", "toolCallId": format!("c-{index}"), "title": "Cut",
            "kind": "edit", "rawInput": { "text": if index < 3 { &long } else { "y" } },
        });
        turn.update(call);
        let content = json!({ "type": "text", "text": if index < 3 { &long } else { "y" } });
        turn.update(json!({ "sessionUpdate": "agent_thought_chunk", "content": content }));
        let call = json!({ "toolCallId": format!("c-{index}"), "rawInput": { "text": "z" } });
        turn.read_value(&ask(json!(index), call, once()));
    }
    assert!(turn.saved_size() < 200_000, "{}", turn.saved_size());
    assert_eq!(last_error(&turn), -32603, "too many questions wait");
    assert!(turn.rendered_events().iter().any(|event| event.contains(&long)));
}

#[test]
fn updates_of_a_call_that_ended_are_ignored() {
    let mut turn = AcpTurn::prompted(agent());
    let update = |status: &str| {
        let kind = "tool_call_update";
        json!({ "sessionUpdate": kind, "toolCallId": "c", "status": status })
    };
    for status in ["in_progress", "completed", "completed", "in_progress", "failed"] {
        turn.update(update(status));
    }
    assert_eq!(turn.rendered_events(), ["call c tool {\"title\":\"\"}", "result c "]);
}

#[test]
fn an_unreadable_state_is_refused() {
    for saved in [json!(null), json!({}), json!({ "phase": "from_the_future" })] {
        assert!(agent().restore_conversation(&saved).is_err(), "{saved}");
    }
}
