//! Turns of Qwen Code.

use brigade_external::usage::UsageLedger;

use crate::support::{exit, killed, play, play_with_ledger};

#[test]
fn tool_use() {
    let turn = play("qwen/tool_use");
    let session = "session 90e90000-0000-4000-8000-000000000001";
    let expected = [
        session,
        "call call_1 run_shell_command {\"command\":\"ls plates\"}",
        "result call_1 12",
        "text There are 12 plates.",
        session,
        "usage 200/30/0/40 -",
        "closed with success",
    ];
    assert_eq!(turn.rendered_events(), expected);
    assert_eq!(turn.outcome(&exit(0), ""), "succeeded: There are 12 plates.");
}

#[test]
fn a_resumed_session_counts_only_its_new_usage() {
    let mut ledger = UsageLedger::default();
    let first = play_with_ledger("qwen/tool_use", 1, &mut ledger);
    assert_eq!(first.usage(), ["usage 200/30/0/40 -"]);
    let second = play_with_ledger("qwen/resume", 2, &mut ledger);
    assert_eq!(second.usage(), ["usage 100/30/0/20 -"]);
    assert_eq!(second.outcome(&exit(0), ""), "succeeded: Still 12.");
}

#[test]
fn failures() {
    let cases = [
        ("qwen/api_error", exit(1), "the agent reported an error: the oven is off"),
        ("qwen/sigterm", killed(15), "its program was killed by signal 15"),
        ("qwen/sigterm", exit(0), "its program ended without a closing event"),
        ("qwen/tool_use", exit(55), "its program exited with code 55"),
    ];
    for (fixture, program, expected) in cases {
        assert_eq!(play(fixture).outcome(&program, ""), format!("failed: {expected}"), "{fixture}");
    }
}
