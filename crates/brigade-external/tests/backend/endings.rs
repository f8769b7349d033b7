//! Programs that end badly, lie about it, or do not end.

use brigade_agent::permission::{PermissionRule, PermissionRules};
use brigade_model::refusal::RefusalKind;

use crate::support::{World, answer, eventually, failure};

#[tokio::test(flavor = "multi_thread")]
async fn an_error_that_a_program_calls_a_success_is_a_failure() {
    let world = World::open().await;
    let cases = [
        ("claude", "API error", "API Error: 529 overloaded"),
        ("codex", "API error", "unexpected status 400"),
        ("gemini", "API error", "400 bad request"),
        ("opencode", "API error", "bad request"),
        ("claude", "vanish", "without a closing event"),
        ("opencode", "vanish", "before its last step"),
        ("claude", "garbage", "not JSON at all"),
        ("claude", "kill yourself", "killed by signal 9"),
        ("claude", "long line", "a line of more than"),
    ];
    for (vendor, task, expected) in cases {
        let text = failure(&world.run(vendor, task).await);
        assert!(text.contains(expected), "{vendor}, {task}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_words_are_the_partial_result() {
    let world = World::open().await;
    let result = world.run("claude", "vanish").await;
    let brigade_model::outcome::Outcome::Failed(failed) = &*result.outcome else {
        panic!("{}", result.outcome)
    };
    let partial: String = failed.partial.as_ref().unwrap().decode().unwrap();
    assert_eq!(partial, "Half of it.");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_the_program_forked_ends_with_the_turn() {
    let world = World::open().await;
    assert_eq!(answer(&world.run("claude", "fork a daemon").await), "Forked.");
    eventually(async || world.is_ended(2).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_missing_fails_with_its_name() {
    let world = World::open().await;
    let text = failure(&world.run("missing", "begin").await);
    assert!(text.contains("no-such-agent"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_cannot_be_limited_to_the_rules_is_refused_at_once() {
    let world = World::open().await;
    let cases = [
        ("read_file", "only to read files"),
        ("edit_file, write_file", "only to read and edit files"),
    ];
    for (allowed, expected) in cases {
        let allow: Vec<PermissionRule> =
            allowed.split(", ").map(|rule| rule.parse().unwrap()).collect();
        let rules = PermissionRules { allow: Some(allow), ..PermissionRules::default() };
        let limited = |vendor| world.agent(vendor, "count").permissions(rules.clone());
        let refusal = world.session.spawn(limited("opencode")).await.unwrap_err();
        assert_eq!(refusal.kind, RefusalKind::Invalid);
        assert!(refusal.message.contains(expected), "{}", refusal.message);
        assert!(refusal.message.contains("allow `run_process`"), "{}", refusal.message);
        world.session.spawn(limited("codex")).await.unwrap().wait().await.unwrap();
    }
}
