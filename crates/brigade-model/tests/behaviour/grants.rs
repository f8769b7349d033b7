//! Who may say yes, what is allowed for good, and what that answers.

use std::sync::Arc;

use brigade_model::approval::{
    ApprovalRequest, ApprovalVerdict, CallDigest, GRANTS_MAX, REASON_MAX, TextExcerpt,
};
use brigade_model::call::{CallCompletion, Condition, ConditionRequest};
use brigade_model::command::{
    AfterPark, AnswerCommand, Caller, Command, GivenAnswer, RevokeCommand, SpawnCommand,
};
use brigade_model::decide::CommandReply;
use brigade_model::event::Event;
use brigade_model::ids::{CallIndex, TaskNo};
use brigade_model::permission::PermissionSubject;
use brigade_model::refusal::RefusalKind;

use crate::support::*;

fn always(rule: Option<&str>) -> ApprovalVerdict {
    ApprovalVerdict::AllowAlways { rule: rule.map(|rule| rule.parse().expect("a rule")) }
}

fn once() -> ApprovalVerdict {
    ApprovalVerdict::AllowOnce
}

fn deny(reason: &str) -> ApprovalVerdict {
    ApprovalVerdict::Deny { reason: reason.into() }
}

fn say(
    env: &mut Env,
    caller: Caller,
    (no, call): (TaskNo, u32),
    verdict: ApprovalVerdict,
) -> Asking<CommandReply> {
    let (task, call) = (no.into(), Some(CallIndex(call)));
    let answer = GivenAnswer::Verdict(verdict);
    env.submit(&Command::Answer(AnswerCommand { caller, task, call, answer, caller_call: None }))
}

fn revoke(env: &mut Env, caller: Caller, grant: u32) -> Asking<CommandReply> {
    env.submit(&Command::Revoke(RevokeCommand { caller, grant }))
}

fn told(env: &Env, no: TaskNo, call: u32) -> Option<ApprovalVerdict> {
    env.answer(no, call).map(|answer| match answer {
        CallCompletion::Verdict(verdict) => verdict.clone(),
        other => panic!("an approval was answered with {other:?}"),
    })
}

fn started_by(env: &mut Env, caller: Caller) -> TaskNo {
    let spawn = SpawnCommand { caller, spec: agent().into(), call: None };
    match env.submit(&Command::Spawn(spawn)).expect("it can be started") {
        CommandReply::Spawned(spawned) => spawned.no,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_allowed_for_good_is_not_asked_again_in_the_whole_tree() {
    let mut env = Env::new();
    let (one, other) = (env.spawn(agent()), env.spawn(agent()));
    env.park(one, 1, asks_for("make soup"));
    say(&mut env, operator(), (one, 1), always(None)).unwrap();
    assert_eq!(told(&env, one, 1), Some(always(None)));
    assert!(!env.park(other, 1, asks_for("make soup")), "there is nothing to wait for");
    assert_eq!(told(&env, other, 1), Some(always(None)));
    assert!(env.park(other, 2, asks_for("make  soup")), "the very same, and nothing like it");
    assert_eq!(told(&env, other, 2), None);
}

#[test]
fn allowing_for_good_answers_all_that_waits_for_it() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.below(parent, agent());
    let far = env.spawn(agent());
    let calls =
        vec![(1, asks_for("cargo test")), (2, asks_for("cargo publish")), (3, asks_for("rm x"))];
    env.park_all(child, calls, AfterPark::Suspend { parked_count: 3 }).unwrap();
    env.park(far, 1, asks_for("cargo build"));
    env.park(parent, 1, asks_for("cargo test; rm x"));
    let rule = Some("run_process(cargo *)");
    say(&mut env, operator(), (child, 2), always(rule)).unwrap();
    for (no, call, expect) in [
        (child, 1, Some(always(rule))),
        (child, 2, Some(always(rule))),
        (child, 3, None),
        (far, 1, Some(always(rule))),
        (parent, 1, None),
    ] {
        assert_eq!(told(&env, no, call), expect, "{no:?} {call}");
    }
    env.states(&[(child, "waiting"), (far, "running"), (parent, "waiting")]);
    let granted = env.events.iter().filter(|record| matches!(record.event, Event::GrantAdded(_)));
    assert_eq!(granted.count(), 1);
}

#[test]
fn a_rule_must_allow_what_is_asked() {
    for (command, rule, fits) in [
        ("cargo test", "run_process(cargo *)", true),
        ("cargo test", "run_process", true),
        ("cargo test", "*", true),
        ("cargo test", "run_process(git *)", false),
        ("cargo test", "read_file", false),
        ("cargo test; rm x", "run_process(cargo *)", false),
        ("cargo test; rm x", "run_process", true),
    ] {
        let mut env = Env::new();
        let no = env.spawn(agent());
        env.park(no, 1, asks_for(command));
        let said = say(&mut env, operator(), (no, 1), always(Some(rule)));
        assert_eq!(said.is_ok(), fits, "{command} {rule}");
        assert_eq!(env.tree.row().grants.all.len(), usize::from(fits), "{command} {rule}");
    }
}

#[test]
fn what_is_long_is_allowed_like_all_else() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let long = format!("echo {}", "x".repeat(10_000));
    env.park(no, 1, asks_for(&format!("{long} one")));
    say(&mut env, operator(), (no, 1), always(None)).unwrap();
    assert!(env.park(no, 2, asks_for(&format!("{long} two"))), "it is another one");
    say(&mut env, operator(), (no, 2), always(Some("run_process(echo *)"))).unwrap();
    assert!(!env.park(no, 3, asks_for(&format!("{long} three"))));
}

#[test]
fn what_cannot_be_shown_whole_is_denied_without_asking_unless_its_tool_is_allowed() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let large = format!("echo {}", "x".repeat(TextExcerpt::MAX));
    assert!(!env.park(no, 1, asks_for(&large)), "nobody can be asked");
    let Some(ApprovalVerdict::Deny { reason }) = told(&env, no, 1) else {
        panic!("it was not denied")
    };
    assert!(reason.contains("more than 65536 bytes cannot be shown whole"), "{reason}");
    env.park(no, 2, asks_for("echo x"));
    say(&mut env, operator(), (no, 2), always(Some("run_process(echo *)"))).unwrap();
    assert!(!env.park(no, 3, asks_for(&large)));
    assert!(
        matches!(told(&env, no, 3), Some(ApprovalVerdict::Deny { .. })),
        "what is left out may be anything"
    );
    env.park(no, 4, asks_for("ls"));
    say(&mut env, operator(), (no, 4), always(Some("run_process"))).unwrap();
    assert!(!env.park(no, 5, asks_for(&large)));
    assert_eq!(told(&env, no, 5), Some(always(Some("run_process"))));
}

#[test]
fn a_verdict_is_for_the_call_that_was_shown() {
    let mut env = Env::new();
    let (one, other) = (env.spawn(agent()), env.spawn(agent()));
    env.park(one, 4, asks_for("make soup"));
    env.park(other, 4, asks_for("make soup"));
    let digest = |env: &Env, no: TaskNo, call: u32| {
        let row = env.tree.get(no).expect("it is there");
        let calls = row.parked_calls.iter().find_map(|open| match &open.condition {
            Condition::Approval { request, .. } => {
                Some(CallDigest::of(no, CallIndex(call), request))
            }
            _ => None,
        });
        calls.expect("it waits for leave")
    };
    let shown = digest(&env, one, 4);
    let approve = |env: &mut Env, no: TaskNo, call: Option<u32>| {
        let (caller, task, call) = (operator(), no.into(), call.map(CallIndex));
        let answer = GivenAnswer::ShownVerdict { shown, verdict: once() };
        env.submit(&Command::Answer(AnswerCommand {
            caller,
            task,
            call,
            answer,
            caller_call: None,
        }))
    };
    // The other one asks for the same, but it is not what was shown.
    let hit = approve(&mut env, other, Some(4));
    refused(hit, RefusalKind::Conflict, "waits for another approval than the one that was shown");
    refused(approve(&mut env, other, None), RefusalKind::Conflict, "than the one that was shown");
    assert_eq!((told(&env, one, 4), told(&env, other, 4)), (None, None));
    approve(&mut env, one, Some(4)).unwrap();
    assert_eq!(told(&env, one, 4), Some(once()));
    approve(&mut env, one, Some(4)).unwrap();
    env.park(one, 8, asks_for("make stew"));
    refused(approve(&mut env, one, None), RefusalKind::Conflict, "than the one that was shown");
    assert_ne!(shown.to_string(), digest(&env, one, 8).to_string());
}

fn in_directory(asked: ConditionRequest, directory: &str) -> ConditionRequest {
    let ConditionRequest::Approval { request } = asked else { panic!("{asked:?}") };
    let request = (*request).clone().in_directory(Some(directory.into()));
    ConditionRequest::Approval { request: request.into() }
}

#[test]
fn what_is_allowed_for_good_is_for_its_directory() {
    for rule in [None, Some("run_process(make *)")] {
        let mut env = Env::new();
        let no = env.spawn(agent());
        env.park(no, 1, in_directory(asks_for("make soup"), "/soup"));
        say(&mut env, operator(), (no, 1), always(rule)).unwrap();
        assert!(!env.park(no, 2, in_directory(asks_for("make soup"), "/soup")));
        assert!(env.park(no, 3, in_directory(asks_for("make soup"), "/tmp/evil")), "{rule:?}");
        say(&mut env, operator(), (no, 3), always(rule)).unwrap();
        assert!(!env.park(no, 4, in_directory(asks_for("make soup"), "/tmp/evil")));
        let grants = &env.tree.row().grants.all;
        let directories: Vec<_> = grants.iter().map(|grant| grant.directory.as_deref()).collect();
        assert_eq!(directories, [Some("/soup"), Some("/tmp/evil")]);
        assert!(env.park(no, 5, asks_for("make soup")), "nobody knows where that is");
        say(&mut env, operator(), (no, 5), always(Some("run_process"))).unwrap();
        assert!(!env.park(no, 6, in_directory(asks_for("ls"), "/elsewhere")), "every call of it");
    }
}

#[test]
fn what_is_allowed_for_good_is_for_the_very_same_call() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    // What is longer begins like it, and the middle of both is left out where they are listed.
    let longest = "x".repeat(TextExcerpt::MAX - 100);
    env.park(no, 1, asks_for(&longest));
    say(&mut env, operator(), (no, 1), always(None)).unwrap();
    assert!(!env.park(no, 2, asks_for(&longest)));
    assert!(env.park(no, 3, asks_for(&format!("{longest}; rm x"))));
    say(&mut env, operator(), (no, 3), once()).unwrap();
    let mut other = asks_for(&longest);
    if let ConditionRequest::Approval { request } = &mut other {
        Arc::make_mut(request).tool = "run_elsewhere".into();
    }
    assert!(env.park(no, 4, other), "the same of another tool");
}

fn calls(tool: &str, text: Option<&str>, arguments: &str) -> ConditionRequest {
    let subject = PermissionSubject { tool, text, is_shell: false };
    let rule = tool.parse().expect("a rule");
    let request = ApprovalRequest::new(&subject, arguments, (rule, "the session".into()));
    ConditionRequest::Approval { request: Arc::new(request) }
}

#[test]
fn what_is_allowed_for_good_is_the_whole_call_and_not_its_subject() {
    for (tool, subjects, arguments) in [
        (
            "write_file",
            ["w.sh"; 2],
            [r#"{"content":"ls","path":"w.sh"}"#, r#"{"content":"rm x","path":"w.sh"}"#],
        ),
        ("spawn_agent", ["general"; 2], [r#"{"task":"Look."}"#, r#"{"task":"Push."}"#]),
        (
            "keep",
            ["run_process"; 2],
            [r#"{"command":"echo harmless","keep":true}"#, r#"{"command":"rm x","keep":true}"#],
        ),
        ("keep", ["run_process", "run_process(ls)"], [r#"{"command":"ls","keep":true}"#; 2]),
        (
            "run_process",
            ["A=1 true; env"; 2],
            [r#"{"command":"A=1 true; env"}"#, r#"{"command":"true; env","env":{"A":"1"}}"#],
        ),
    ] {
        let mut env = Env::new();
        let no = env.spawn(agent());
        env.park(no, 1, calls(tool, Some(subjects[0]), arguments[0]));
        say(&mut env, operator(), (no, 1), always(None)).unwrap();
        assert!(!env.park(no, 2, calls(tool, Some(subjects[0]), arguments[0])), "{tool}");
        assert!(env.park(no, 3, calls(tool, Some(subjects[1]), arguments[1])), "{arguments:?}");
        let grants = &env.tree.row().grants.all;
        assert_eq!(grants[0].scope.to_string(), format!("{tool} {} exactly", arguments[0]));
    }
}

#[test]
fn the_order_of_arguments_makes_no_other_call() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.park(no, 1, calls("write_file", Some("a"), r#"{"path":"a","content":"b"}"#));
    say(&mut env, operator(), (no, 1), always(None)).unwrap();
    assert!(!env.park(no, 2, calls("write_file", Some("a"), r#"{"content":"b","path":"a"}"#)));
    assert!(env.park(no, 3, calls("write_file", Some("a"), r#"{"content":"a","path":"b"}"#)));
}

#[test]
fn a_grant_is_small_however_long_its_call_is() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let long = format!(r#"{{"content":"{}"}}"#, "x".repeat(TextExcerpt::MAX - 100));
    env.park(no, 1, calls("write_file", Some("menu"), &long));
    say(&mut env, operator(), (no, 1), always(None)).unwrap();
    assert!(!env.park(no, 2, calls("write_file", Some("menu"), &long)));
    let stored = serde_json::to_string(&env.tree.row().grants).expect("grants are JSON");
    assert!(stored.len() < 1_500, "{stored}");
}

#[test]
fn once_is_for_one_call() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.park(no, 1, asks_for("make soup"));
    say(&mut env, operator(), (no, 1), once()).unwrap();
    assert!(env.park(no, 2, asks_for("make soup")));
    assert!(env.tree.row().grants.all.is_empty());
}

#[test]
fn the_same_verdict_again_changes_nothing_and_another_comes_too_late() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let calls = vec![(1, asks_for("a")), (2, asks_for("b"))];
    env.park_all(no, calls, AfterPark::Suspend { parked_count: 2 }).unwrap();
    let say_one = |env: &mut Env, verdict| say(env, operator(), (no, 1), verdict);
    say_one(&mut env, deny("too hot")).unwrap();
    let before = env.events.len();
    say_one(&mut env, deny("too hot")).unwrap();
    assert_eq!(env.events.len(), before);
    refused(say_one(&mut env, once()), RefusalKind::Conflict, "call 1 was denied: too hot");
    let other = say(&mut env, operator(), (no, 7), once());
    refused(other, RefusalKind::NotFound, "waits for no such approval");
    env.give(operator(), no, GivenAnswer::Verdict(once())).unwrap();
    let again = env.give(operator(), no, GivenAnswer::Verdict(once()));
    refused(again, RefusalKind::Conflict, "call 2 was allowed once");
}

#[test]
fn several_are_told_apart_by_their_calls() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let calls = vec![(4, asks_for("a")), (8, asks_for("b"))];
    env.park_all(no, calls, AfterPark::Suspend { parked_count: 2 }).unwrap();
    let which = env.give(operator(), no, GivenAnswer::Verdict(once()));
    refused(which, RefusalKind::Conflict, "say which call: 4, 8");
    say(&mut env, operator(), (no, 8), deny("")).unwrap();
    assert_eq!(env.state(no), "waiting");
    say(&mut env, operator(), (no, 4), once()).unwrap();
    assert_eq!(env.state(no), "running");
    assert_eq!((told(&env, no, 4), told(&env, no, 8)), (Some(once()), Some(deny(""))));
}

#[test]
fn a_client_decides_for_what_it_started_and_for_nothing_else() {
    let mut env = Env::new();
    let mine = started_by(&mut env, client("me"));
    let below = env.below(mine, agent());
    let theirs = started_by(&mut env, client("them"));
    let nobodys = started_by(&mut env, operator());
    for no in [mine, below, theirs, nobodys] {
        env.park(no, 1, asks_for("make soup"));
    }
    for no in [theirs, nobodys] {
        let said = say(&mut env, client("me"), (no, 1), once());
        refused(said, RefusalKind::Forbidden, "ask the operator");
    }
    let nowhere = say(&mut env, client("me"), (TaskNo::new(99).unwrap(), 1), once());
    refused(nowhere, RefusalKind::NotFound, "no task 99");
    say(&mut env, client("me"), (below, 1), always(None)).unwrap();
    let allowed = Some(always(None));
    assert_eq!((told(&env, below, 1), told(&env, mine, 1)), (allowed.clone(), allowed));
    env.states(&[(theirs, "waiting"), (nobodys, "waiting")]);
    refused(revoke(&mut env, client("them"), 1), RefusalKind::Forbidden, "not yours");
    revoke(&mut env, client("me"), 1).unwrap();
}

#[test]
fn no_task_decides_for_itself_or_below() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.below(parent, agent());
    let stranger = env.spawn(agent());
    env.park_all(child, vec![(1, asks_for("a"))], AfterPark::Continue).unwrap();
    for (no, why) in [(child, "not yours"), (parent, "cannot approve"), (stranger, "not yours")] {
        let by = env.by(no);
        refused(say(&mut env, by, (child, 1), once()), RefusalKind::Forbidden, why);
    }
    say(&mut env, operator(), (child, 1), always(None)).unwrap();
    let by = env.by(child);
    refused(revoke(&mut env, by, 1), RefusalKind::Forbidden, "a task cannot change");
}

#[test]
fn what_is_revoked_is_asked_again() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.park(no, 1, asks_for("make soup"));
    say(&mut env, operator(), (no, 1), always(None)).unwrap();
    assert!(!env.park(no, 2, asks_for("make soup")));
    revoke(&mut env, operator(), 1).unwrap();
    refused(revoke(&mut env, operator(), 1), RefusalKind::NotFound, "nothing is allowed here as 1");
    assert!(env.park(no, 3, asks_for("make soup")));
    say(&mut env, operator(), (no, 3), always(None)).unwrap();
    let numbers: Vec<u32> = env.tree.row().grants.all.iter().map(|grant| grant.no).collect();
    assert_eq!(numbers, [2], "a number is given out once");
}

#[test]
fn where_nobody_is_there_only_what_was_allowed_before_is_allowed() {
    let unattended = |command: &str| match asks_for(command) {
        ConditionRequest::Approval { request } => {
            let mut request = (*request).clone();
            request.is_unattended = true;
            ConditionRequest::Approval { request: request.into() }
        }
        other => panic!("{other:?}"),
    };
    let mut env = Env::new();
    let (no, attended) = (env.spawn(agent()), env.spawn(agent()));
    assert!(!env.park(no, 1, unattended("make soup")));
    let Some(ApprovalVerdict::Deny { reason }) = told(&env, no, 1) else {
        panic!("it was not denied")
    };
    assert!(reason.contains("nobody is there to be asked"), "{reason}");
    env.park(attended, 1, asks_for("make soup"));
    say(&mut env, operator(), (attended, 1), always(None)).unwrap();
    assert!(!env.park(no, 2, unattended("make soup")));
    assert_eq!(told(&env, no, 2), Some(always(None)));
}

#[test]
fn there_are_only_so_many_grants_and_so_long_reasons() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    for at in 0..=GRANTS_MAX {
        let call = at as u32 + 1;
        env.park(no, call, asks_for(&format!("make {at}")));
        let said = say(&mut env, operator(), (no, call), always(None));
        if at < GRANTS_MAX {
            said.unwrap();
        } else {
            refused(said, RefusalKind::Limit, "allow it once");
            let long = deny(&"x".repeat(REASON_MAX + 1));
            let said = say(&mut env, operator(), (no, call), long);
            refused(said, RefusalKind::Invalid, "the reason is longer");
        }
    }
}
