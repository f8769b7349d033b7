//! Turns of opencode, which has no closing event.

use brigade_external::adapter::{AccessLevel, SessionStart, TurnStart, TurnStartError};
use brigade_external::external_agent::ExternalAgent;
use brigade_model::work::EnvValue;

use crate::acp_support::{acp_agent, new_turn};
use crate::support::{adapter, exit, killed, play};

#[test]
fn tool_use() {
    let turn = play("opencode/tool_use");
    let expected = [
        "session ses_0pen",
        "step last=false",
        "text I count.",
        "call call_1 bash {\"command\":\"ls plates\"}",
        "result call_1 12\n",
        "usage 140/30/10/20 $0.0002",
        "step last=false",
        "session ses_0pen",
        "step last=false",
        "text There are 12 plates.",
        "usage 120/0/0/20 $0.0001",
        "step last=true",
    ];
    assert_eq!(turn.rendered_events(), expected);
    assert_eq!(turn.outcome(&exit(0), ""), "succeeded: There are 12 plates.");
}

#[test]
fn successes() {
    assert_eq!(play("opencode/resume").outcome(&exit(0), ""), "succeeded: Still 12.");
    let denied = play("opencode/permission_denied");
    assert!(
        denied.rendered_events().contains(&"failed call_1 the permission was rejected".to_owned())
    );
    assert_eq!(denied.outcome(&exit(0), ""), "succeeded: I may not.");
}

#[test]
fn failures() {
    let cases = [
        ("opencode/api_error", exit(1), "", "the agent reported an error: the oven is off"),
        ("opencode/api_error", exit(0), "", "the agent reported an error: the oven is off"),
        ("opencode/error_after_text", exit(0), "", "the agent reported an error: the oven is off"),
        ("opencode/mid_turn", exit(0), "", "its program ended before its last step"),
        ("opencode/truncated_reply", exit(0), "", "its program ended before its last step"),
        ("opencode/resume", exit(1), "oops", "its program exited with code 1: oops"),
        ("opencode/killed", killed(2), "", "its program was killed by signal 2"),
        ("opencode/killed", killed(15), "", "its program was killed by signal 15"),
        ("opencode/killed", exit(0), "", "its program printed no event"),
        ("opencode/killed", exit(1), "no session", "its program exited with code 1: no session"),
        (
            "opencode/garbage",
            exit(0),
            "",
            "its program printed no event: usage: opencode [command]\nrun   run a message",
        ),
    ];
    for (fixture, program, stderr, expected) in cases {
        let outcome = play(fixture).outcome(&program, stderr);
        assert_eq!(outcome, format!("failed: {expected}"), "{fixture}");
    }
}

#[test]
fn an_access_that_it_does_not_have_is_refused() {
    let opencode = adapter("opencode");
    let mut turn = TurnStart {
        prompt: "count",
        session: SessionStart::Resumed { id: "ses_0pen" },
        model: None,
        access: AccessLevel::Read,
        directory: "/",
        brigade: None,
        budget: None,
    };
    for access in [AccessLevel::Read, AccessLevel::Edit] {
        turn.access = access;
        let error = opencode.program_spec(&turn, &|_| false).unwrap_err();
        assert!(matches!(error, TurnStartError::NoSuchAccess { .. }), "{error}");
    }
    turn.access = AccessLevel::Full;
    let spec = opencode.program_spec(&turn, &|_| false).unwrap();
    let expected = ["opencode", "run", "--format", "json", "--auto", "-s", "ses_0pen", "count"];
    assert_eq!(spec.command_line, expected);
}

#[test]
fn over_acp_it_is_set_to_ask() {
    let spec = acp_agent("opencode-acp").program_spec(&new_turn("count"), &|_| false).unwrap();
    let EnvValue::Text(rules) = &spec.env["OPENCODE_PERMISSION"] else { panic!("{spec:?}") };
    let rules: serde_json::Value = serde_json::from_str(rules).unwrap();
    for tool in ["bash", "edit", "webfetch", "external_directory"] {
        assert_eq!(rules[tool], "ask");
    }
}
