//! Turns of Claude Code.

use brigade_external::adapter::{
    AccessLevel, PermissionDecision, SessionIdSource, SessionStart, TurnStart,
};
use brigade_external::external_agent::ExternalAgent;
use brigade_external::usage::UsageLedger;
use serde_json::{Value, json};

use crate::support::{adapter, exit, killed, play, play_with_ledger};

const SESSION: &str = "5f0c1d9e-0000-4000-8000-00000000000a";

#[test]
fn tool_use() {
    let turn = play("claude/tool_use");
    let expected = [
        &format!("session {SESSION}"),
        "reasoning Count first.",
        "usage 90/0/0/1 -",
        "text I count the plates.",
        "call toolu_1 Bash {\"command\":\"ls plates | wc -l\"}",
        "result toolu_1 12",
        "call toolu_2 ToolSearch {\"query\":\"plates\"}",
        "result toolu_2 {\"type\":\"tool_reference\",\"tool_name\":\"plates\"}\nfound",
        "text There are 12 plates.",
        &format!("session {SESSION}"),
        "usage 160/40/10/39 $0.0016",
        "closed with success",
    ];
    assert_eq!(turn.rendered_events(), expected);
    assert_eq!(turn.outcome(&exit(0), ""), "succeeded: There are 12 plates.");
}

#[test]
fn a_resumed_session_counts_only_its_new_usage() {
    let mut ledger = UsageLedger::default();
    let first = play_with_ledger("claude/tool_use", 1, &mut ledger);
    assert_eq!(first.usage(), ["usage 90/0/0/1 -", "usage 160/40/10/39 $0.0016"]);
    let lost = play_with_ledger("claude/unknown_session", 2, &mut ledger);
    assert_eq!(lost.usage(), ["usage - $0.00"]);
    let second = play_with_ledger("claude/resume", 3, &mut ledger);
    assert_eq!(second.usage(), ["usage 90/0/0/1 -", "usage 10/20/0/19 $0.0008"]);
    let again = play_with_ledger("claude/resume", 3, &mut ledger);
    assert_eq!(again.usage(), ["usage 0/0/0/0 $0.00"]);
}

#[test]
fn requests_of_the_program_are_answered_by_lines() {
    let turn = play("claude/two_way");
    let expected = [
        &format!("session {SESSION}"),
        "call toolu_1 Bash {\"command\":\"rm soup\"}",
        "usage 90/0/0/1 -",
        "permission req-1 Bash {\"command\":\"rm soup\"} [AllowOnce, RejectOnce]",
        "request req-2",
        "result toolu_1 removed",
        "text The soup is removed.",
        &format!("session {SESSION}"),
        "usage 10/0/0/19 $0.001",
        "closed with success",
    ];
    assert_eq!(turn.rendered_events(), expected);
    let claude = adapter("claude");
    let parse = |line: Option<Vec<u8>>| -> Value {
        let line = line.unwrap();
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        serde_json::from_slice(&line).unwrap()
    };
    let arguments = json!({"command": "rm soup"});
    let allow =
        claude.permission_answer("req-1", PermissionDecision::Allow { arguments: &arguments });
    let response = json!({"behavior": "allow", "updatedInput": arguments});
    assert_eq!(
        parse(allow)["response"],
        json!({"subtype": "success", "request_id": "req-1", "response": response})
    );
    let deny = claude.permission_answer("req-1", PermissionDecision::Deny { reason: "no\nsoup" });
    let response = json!({"behavior": "deny", "message": "no\nsoup"});
    assert_eq!(
        parse(deny)["response"],
        json!({"subtype": "success", "request_id": "req-1", "response": response})
    );
    let refused = parse(claude.refuse_request("req-2"));
    assert_eq!(refused["response"]["subtype"], "error");
    assert_eq!(refused["response"]["request_id"], "req-2");
}

#[test]
fn the_prompt_is_a_line_of_the_input() {
    let claude = adapter("claude");
    let input = claude.turn_input("say \"{prompt}\"\n-x\u{0}");
    assert!(!input.ends);
    let text = String::from_utf8(input.bytes).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["request"]["subtype"], "initialize");
    assert_eq!(lines[1]["message"]["content"][0]["text"], "say \"{prompt}\"\n-x\u{0}");
}

#[test]
fn the_session_is_chosen_before_the_start() {
    let claude = adapter("claude");
    assert_eq!(claude.session_id_source(), SessionIdSource::Chosen);
    assert!(claude.asks_permission());
    let mut turn = TurnStart {
        prompt: "count",
        session: SessionStart::New { id: SESSION },
        model: Some("large"),
        access: AccessLevel::Read,
        directory: "/",
        brigade: None,
        budget: None,
    };
    let spec = claude.program_spec(&turn, &|name| name == "ANTHROPIC_API_KEY").unwrap();
    assert_eq!(spec.command_line[0], "claude");
    assert!(
        spec.command_line
            .ends_with(&["--model", "large", "--session-id", SESSION].map(str::to_owned))
    );
    let names: Vec<&str> = spec.env.keys().map(String::as_str).collect();
    assert_eq!(names, ["ANTHROPIC_API_KEY", "DISABLE_AUTOUPDATER"]);
    turn.session = SessionStart::Resumed { id: SESSION };
    turn.model = None;
    let spec = claude.program_spec(&turn, &|_| false).unwrap();
    assert!(spec.command_line.ends_with(&["stdio", "--resume", SESSION].map(str::to_owned)));
}

#[test]
fn a_refused_permission_is_not_a_failure() {
    let turn = play("claude/permission_denied");
    let events = turn.rendered_events();
    assert!(events.contains(&"Warning Bash was not allowed to remove the soup.".to_owned()));
    assert!(events.contains(&"failed toolu_1 Bash was not allowed to remove the soup.".to_owned()));
    assert_eq!(turn.outcome(&exit(0), ""), "succeeded: I may not remove it.");
}

#[test]
fn failures() {
    let cases = [
        (
            "claude/api_error",
            exit(1),
            "",
            "the agent reported an error: API Error: 400 the oven is off",
        ),
        (
            "claude/api_error",
            exit(0),
            "",
            "the agent reported an error: API Error: 400 the oven is off",
        ),
        ("claude/retries", exit(1), "", "the agent reported an error: Failed to authenticate."),
        (
            "claude/retries_cut",
            killed(9),
            "",
            "its program was killed by signal 9: a model call failed: unknown",
        ),
        (
            "claude/sigint",
            exit(0),
            "",
            "its program ended without a closing event: [Request interrupted by user]",
        ),
        ("claude/sigint_in_tool", exit(0), "", "the agent reported an error: stopped in a tool"),
        ("claude/sigterm", exit(143), "", "its program exited with code 143"),
        (
            "claude/unknown_session",
            exit(1),
            "No conversation",
            "the agent reported an error: No conversation found with session ID: 5f0c",
        ),
        ("claude/tool_use", exit(1), "EPIPE", "its program exited with code 1: EPIPE"),
    ];
    for (fixture, program, stderr, expected) in cases {
        let outcome = play(fixture).outcome(&program, stderr);
        assert_eq!(outcome, format!("failed: {expected}"), "{fixture}");
    }
}

#[test]
fn events_after_the_closing_event_change_nothing() {
    let turn = play("claude/background");
    assert_eq!(turn.outcome(&exit(0), ""), "succeeded: It runs in the background.");
}

#[test]
fn other_lines_are_counted() {
    let turn = play("claude/garbage");
    assert_eq!(turn.progress.text_lines(), 2);
    assert_eq!(turn.outcome(&exit(0), ""), "succeeded: Fine.");
}
