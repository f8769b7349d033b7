//! Turns of Gemini CLI.

use brigade_external::usage::UsageLedger;

use crate::support::{exit, play, play_with_ledger};

#[test]
fn tool_use() {
    let turn = play("gemini/tool_use");
    let expected = [
        "session 9e313100-0000-4000-8000-000000000001",
        "delta I cou",
        "delta nt.",
        "call shell-1 run_shell_command {\"command\":\"ls plates\"}",
        "result shell-1 12",
        "delta There are ",
        "delta 12 plates.",
        "usage 200/60/0/50 -",
        "closed with success",
    ];
    assert_eq!(turn.rendered_events(), expected);
    assert_eq!(turn.outcome(&exit(0), ""), "succeeded: There are 12 plates.");
}

#[test]
fn a_resumed_session_reports_the_usage_of_its_turn() {
    let mut ledger = UsageLedger::default();
    play_with_ledger("gemini/tool_use", 1, &mut ledger);
    let second = play_with_ledger("gemini/resume", 2, &mut ledger);
    assert_eq!(second.usage(), ["usage 100/0/0/20 -"]);
    assert_eq!(second.outcome(&exit(0), ""), "succeeded: Still 12.");
}

#[test]
fn a_refused_permission_is_not_a_failure() {
    let turn = play("gemini/permission_denied");
    assert!(turn.rendered_events().contains(&"failed write-1 the tool is not allowed".to_owned()));
    assert_eq!(turn.outcome(&exit(0), ""), "succeeded: I may not.");
}

#[test]
fn failures() {
    let api_error = "the agent reported an error: [API Error: the oven is off]";
    let cases = [
        ("gemini/api_error", exit(144), "", api_error),
        ("gemini/api_error", exit(0), "", api_error),
        ("gemini/sigint", exit(0), "", "its program ended without a closing event"),
        ("gemini/sigint", exit(1), "stopped", "its program exited with code 1: stopped"),
        (
            "gemini/sigint",
            exit(41),
            "log in first",
            "its program exited with code 41: log in first",
        ),
    ];
    for (fixture, program, stderr, expected) in cases {
        let outcome = play(fixture).outcome(&program, stderr);
        assert_eq!(outcome, format!("failed: {expected}"), "{fixture}");
    }
}

#[test]
fn other_lines_are_counted() {
    let turn = play("gemini/garbage");
    assert_eq!(turn.progress.text_lines(), 1);
    assert_eq!(turn.outcome(&exit(0), ""), "succeeded: Fine.");
}
