//! Turns of Codex.

use brigade_external::adapter::{AccessLevel, SessionIdSource, SessionStart, TurnStart};
use brigade_external::external_agent::ExternalAgent;
use brigade_external::usage::UsageLedger;

use crate::support::{adapter, exit, killed, play, play_with_ledger};

const SESSION: &str = "0c0dec00-0000-7000-8000-000000000001";

#[test]
fn tool_use() {
    let turn = play("codex/tool_use");
    let expected = [
        &format!("session {SESSION}"),
        "Warning No metadata for this model.",
        "reasoning Count first.",
        "text I count.",
        "call item_3 command_execution \"ls plates\"",
        "result item_3 12\n",
        "call item_4 list_tasks {\"all\":true}",
        "result item_4 no tasks",
        "call item_5 file_change [{\"path\":\"menu.md\",\"kind\":\"add\"}]",
        "result item_5 completed",
        "text There are 12 plates.",
        "usage 200/50/0/40 -",
        "closed with success",
    ];
    assert_eq!(turn.rendered_events(), expected);
    assert_eq!(turn.outcome(&exit(0), ""), "succeeded: There are 12 plates.");
}

#[test]
fn a_resumed_thread_counts_only_its_new_usage() {
    let mut ledger = UsageLedger::default();
    let first = play_with_ledger("codex/tool_use", 1, &mut ledger);
    assert_eq!(first.usage(), ["usage 200/50/0/40 -"]);
    let second = play_with_ledger("codex/resume", 2, &mut ledger);
    assert_eq!(second.usage(), ["usage 100/30/0/20 -"]);
    assert_eq!(second.outcome(&exit(0), ""), "succeeded: Still 12.");
}

#[test]
fn the_command_line_has_the_access_and_the_prompt() {
    let codex = adapter("codex");
    assert_eq!(codex.session_id_source(), SessionIdSource::Reported);
    assert!(!codex.asks_permission());
    let mut turn = TurnStart {
        prompt: "-count {session_id}",
        session: SessionStart::New { id: "" },
        model: None,
        access: AccessLevel::Edit,
        directory: "/",
        brigade: None,
        budget: None,
    };
    let access = ["codex", "-c", "sandbox_mode=\"workspace-write\"", "exec"];
    let spec = codex.program_spec(&turn, &|_| false).unwrap();
    let rest = ["--json", "--skip-git-repo-check", " -count {session_id}"];
    assert_eq!(spec.command_line, [access.as_slice(), &rest].concat());
    turn.session = SessionStart::Resumed { id: SESSION };
    turn.model = Some("large");
    let spec = codex.program_spec(&turn, &|_| false).unwrap();
    let rest = [
        "resume",
        "--json",
        "--skip-git-repo-check",
        "--model",
        "large",
        SESSION,
        " -count {session_id}",
    ];
    assert_eq!(spec.command_line, [access.as_slice(), &rest].concat());
    let input = codex.turn_input("count");
    assert!(input.ends && input.bytes.is_empty());
}

#[test]
fn successes() {
    let cases = [
        ("codex/permission_denied", "succeeded: I may not."),
        ("codex/retries", "succeeded: Done after all."),
        ("codex/garbage", "succeeded: Fine."),
    ];
    for (fixture, expected) in cases {
        assert_eq!(play(fixture).outcome(&exit(0), ""), expected, "{fixture}");
    }
    let denied = play("codex/permission_denied").rendered_events();
    assert!(denied.contains(&"failed item_1 the call needs an approval".to_owned()));
    assert_eq!(play("codex/garbage").progress.text_lines(), 1);
}

#[test]
fn failures() {
    let cases = [
        ("codex/api_error", exit(1), "", "the agent reported an error: the oven is off"),
        (
            "codex/retries_cut",
            killed(15),
            "",
            "its program was killed by signal 15: Reconnecting... waiting for network",
        ),
        ("codex/sigint", exit(1), "", "its program exited with code 1"),
        ("codex/sigint", exit(0), "", "its program ended without a closing event"),
        ("codex/sigint", killed(15), "", "its program was killed by signal 15"),
        ("codex/sigint_in_tool", exit(1), "stopped", "its program exited with code 1: stopped"),
        (
            "codex/unknown_session",
            exit(1),
            "no thread with this id",
            "its program exited with code 1: no thread with this id",
        ),
    ];
    for (fixture, program, stderr, expected) in cases {
        let outcome = play(fixture).outcome(&program, stderr);
        assert_eq!(outcome, format!("failed: {expected}"), "{fixture}");
    }
}
