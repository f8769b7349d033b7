//! Approvals: the deciders, the grants, and the calls that a grant covers.

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

fn decide(
    env: &mut Env,
    caller: Caller,
    no: TaskNo,
    call: u32,
    verdict: ApprovalVerdict,
) -> SubmitResult<CommandReply> {
    let task = no.into();
    let call = Some(CallIndex(call));
    let answer = GivenAnswer::Verdict(verdict);
    env.submit(&Command::Answer(AnswerCommand { caller, task, call, answer, caller_call: None }))
}

fn revoke(env: &mut Env, caller: Caller, grant: u32) -> SubmitResult<CommandReply> {
    env.submit(&Command::Revoke(RevokeCommand { caller, grant }))
}

fn verdict_of(env: &Env, no: TaskNo, call: u32) -> Option<ApprovalVerdict> {
    env.completion(no, call).map(|completion| match completion {
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
fn a_grant_covers_the_same_call_in_the_whole_session() {
    let mut env = Env::new();
    let one = env.spawn(agent());
    let other = env.spawn(agent());
    env.park(one, 1, approval_of("make soup"));
    decide(&mut env, operator(), one, 1, always(None)).unwrap();
    assert_eq!(verdict_of(&env, one, 1), Some(always(None)));
    assert!(!env.park(other, 1, approval_of("make soup")), "there is nothing to wait for");
    assert_eq!(verdict_of(&env, other, 1), Some(always(None)));
    assert!(env.park(other, 2, approval_of("make  soup")), "only the same call is covered");
    assert_eq!(verdict_of(&env, other, 2), None);
}

#[test]
fn a_new_grant_completes_all_pending_calls_that_it_covers() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, agent());
    let far = env.spawn(agent());
    let calls = vec![
        (1, approval_of("cargo test")),
        (2, approval_of("cargo publish")),
        (3, approval_of("rm x")),
    ];
    env.park_all(child, calls, AfterPark::Suspend { parked_count: 3 }).unwrap();
    env.park(far, 1, approval_of("cargo build"));
    env.park(parent, 1, approval_of("cargo test; rm x"));
    let rule = Some("run_process(cargo *)");
    decide(&mut env, operator(), child, 2, always(rule)).unwrap();
    for (no, call, expect) in [
        (child, 1, Some(always(rule))),
        (child, 2, Some(always(rule))),
        (child, 3, None),
        (far, 1, Some(always(rule))),
        (parent, 1, None),
    ] {
        assert_eq!(verdict_of(&env, no, call), expect, "{no:?} {call}");
    }
    env.states(&[(child, "waiting"), (far, "running"), (parent, "waiting")]);
    let granted = env.events.iter().filter(|record| matches!(record.event, Event::GrantAdded(_)));
    assert_eq!(granted.count(), 1);
}

#[test]
fn the_rule_of_a_grant_must_allow_the_call() {
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
        env.park(no, 1, approval_of(command));
        let decided = decide(&mut env, operator(), no, 1, always(Some(rule)));
        assert_eq!(decided.is_ok(), fits, "{command} {rule}");
        assert_eq!(env.tree.row().grants.all.len(), usize::from(fits), "{command} {rule}");
    }
}

#[test]
fn a_long_call_can_be_allowed() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let long = format!("echo {}", "x".repeat(10_000));
    env.park(no, 1, approval_of(&format!("{long} one")));
    decide(&mut env, operator(), no, 1, always(None)).unwrap();
    assert!(env.park(no, 2, approval_of(&format!("{long} two"))), "it is another call");
    decide(&mut env, operator(), no, 2, always(Some("run_process(echo *)"))).unwrap();
    assert!(!env.park(no, 3, approval_of(&format!("{long} three"))));
}

#[test]
fn a_call_that_cannot_be_shown_whole_is_denied_unless_its_tool_is_allowed() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let large = format!("echo {}", "x".repeat(TextExcerpt::MAX));
    assert!(!env.park(no, 1, approval_of(&large)), "nobody can be asked");
    let Some(ApprovalVerdict::Deny { reason }) = verdict_of(&env, no, 1) else {
        panic!("it was not denied")
    };
    assert!(reason.contains("more than 65536 bytes cannot be shown whole"), "{reason}");
    env.park(no, 2, approval_of("echo x"));
    decide(&mut env, operator(), no, 2, always(Some("run_process(echo *)"))).unwrap();
    assert!(!env.park(no, 3, approval_of(&large)));
    assert!(
        matches!(verdict_of(&env, no, 3), Some(ApprovalVerdict::Deny { .. })),
        "the truncated part may be anything"
    );
    env.park(no, 4, approval_of("ls"));
    decide(&mut env, operator(), no, 4, always(Some("run_process"))).unwrap();
    assert!(!env.park(no, 5, approval_of(&large)));
    assert_eq!(verdict_of(&env, no, 5), Some(always(Some("run_process"))));
}

#[test]
fn a_verdict_applies_to_the_call_that_was_shown() {
    let mut env = Env::new();
    let one = env.spawn(agent());
    let other = env.spawn(agent());
    env.park(one, 4, approval_of("make soup"));
    env.park(other, 4, approval_of("make soup"));
    let digest = |env: &Env, no: TaskNo, call: u32| {
        let row = env.tree.get(no).expect("it is there");
        let calls = row.parked_calls.iter().find_map(|open| match &open.condition {
            Condition::Approval { request, .. } => {
                Some(CallDigest::of(no, CallIndex(call), request))
            }
            _ => None,
        });
        calls.expect("it waits for an approval")
    };
    let shown = digest(&env, one, 4);
    let approve = |env: &mut Env, no: TaskNo, call: Option<u32>| {
        let caller = operator();
        let task = no.into();
        let call = call.map(CallIndex);
        let answer = GivenAnswer::ShownVerdict { shown, verdict: once() };
        env.submit(&Command::Answer(AnswerCommand {
            caller,
            task,
            call,
            answer,
            caller_call: None,
        }))
    };
    // The other task requests the same, but its call was not shown.
    let hit = approve(&mut env, other, Some(4));
    refused(hit, RefusalKind::Conflict, "waits for another approval than the one that was shown");
    refused(approve(&mut env, other, None), RefusalKind::Conflict, "than the one that was shown");
    assert_eq!((verdict_of(&env, one, 4), verdict_of(&env, other, 4)), (None, None));
    approve(&mut env, one, Some(4)).unwrap();
    assert_eq!(verdict_of(&env, one, 4), Some(once()));
    approve(&mut env, one, Some(4)).unwrap();
    env.park(one, 8, approval_of("make stew"));
    refused(approve(&mut env, one, None), RefusalKind::Conflict, "than the one that was shown");
    assert_ne!(shown.to_string(), digest(&env, one, 8).to_string());
}

fn in_directory(requested: ConditionRequest, directory: &str) -> ConditionRequest {
    let ConditionRequest::Approval { request } = requested else { panic!("{requested:?}") };
    let request = (*request).clone().in_directory(Some(directory.into()));
    ConditionRequest::Approval { request: request.into() }
}

#[test]
fn a_grant_applies_to_its_directory() {
    for rule in [None, Some("run_process(make *)")] {
        let mut env = Env::new();
        let no = env.spawn(agent());
        env.park(no, 1, in_directory(approval_of("make soup"), "/soup"));
        decide(&mut env, operator(), no, 1, always(rule)).unwrap();
        assert!(!env.park(no, 2, in_directory(approval_of("make soup"), "/soup")));
        assert!(env.park(no, 3, in_directory(approval_of("make soup"), "/tmp/evil")), "{rule:?}");
        decide(&mut env, operator(), no, 3, always(rule)).unwrap();
        assert!(!env.park(no, 4, in_directory(approval_of("make soup"), "/tmp/evil")));
        let grants = &env.tree.row().grants.all;
        let directories: Vec<_> = grants.iter().map(|grant| grant.directory.as_deref()).collect();
        assert_eq!(directories, [Some("/soup"), Some("/tmp/evil")]);
        assert!(env.park(no, 5, approval_of("make soup")), "its directory is unknown");
        decide(&mut env, operator(), no, 5, always(Some("run_process"))).unwrap();
        assert!(
            !env.park(no, 6, in_directory(approval_of("ls"), "/elsewhere")),
            "every call of the tool"
        );
    }
}

#[test]
fn a_grant_without_a_rule_covers_only_the_same_call() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    // The longer call has the same beginning, and lists show both truncated in the middle.
    let longest = "x".repeat(TextExcerpt::MAX - 100);
    env.park(no, 1, approval_of(&longest));
    decide(&mut env, operator(), no, 1, always(None)).unwrap();
    assert!(!env.park(no, 2, approval_of(&longest)));
    assert!(env.park(no, 3, approval_of(&format!("{longest}; rm x"))));
    decide(&mut env, operator(), no, 3, once()).unwrap();
    let mut other = approval_of(&longest);
    if let ConditionRequest::Approval { request } = &mut other {
        Arc::make_mut(request).tool = "run_elsewhere".into();
    }
    assert!(env.park(no, 4, other), "the same text of another tool");
}

fn calls(tool: &str, text: Option<&str>, arguments: &str) -> ConditionRequest {
    let subject = PermissionSubject { tool, text, is_shell: false };
    let rule = tool.parse().expect("a rule");
    let request = ApprovalRequest::new(&subject, arguments, rule, "the session".into());
    ConditionRequest::Approval { request: Arc::new(request) }
}

#[test]
fn a_grant_without_a_rule_compares_the_whole_call_and_not_its_subject() {
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
        decide(&mut env, operator(), no, 1, always(None)).unwrap();
        assert!(!env.park(no, 2, calls(tool, Some(subjects[0]), arguments[0])), "{tool}");
        assert!(env.park(no, 3, calls(tool, Some(subjects[1]), arguments[1])), "{arguments:?}");
        let grants = &env.tree.row().grants.all;
        assert_eq!(grants[0].scope.to_string(), format!("{tool} {} exactly", arguments[0]));
    }
}

#[test]
fn the_order_of_arguments_does_not_matter() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.park(no, 1, calls("write_file", Some("a"), r#"{"path":"a","content":"b"}"#));
    decide(&mut env, operator(), no, 1, always(None)).unwrap();
    assert!(!env.park(no, 2, calls("write_file", Some("a"), r#"{"content":"b","path":"a"}"#)));
    assert!(env.park(no, 3, calls("write_file", Some("a"), r#"{"content":"a","path":"b"}"#)));
}

#[test]
fn a_grant_is_small_however_long_its_call_is() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let long = format!(r#"{{"content":"{}"}}"#, "x".repeat(TextExcerpt::MAX - 100));
    env.park(no, 1, calls("write_file", Some("menu"), &long));
    decide(&mut env, operator(), no, 1, always(None)).unwrap();
    assert!(!env.park(no, 2, calls("write_file", Some("menu"), &long)));
    let stored = serde_json::to_string(&env.tree.row().grants).expect("grants are JSON");
    assert!(stored.len() < 1_500, "{stored}");
}

#[test]
fn a_call_that_is_allowed_once_adds_no_grant() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.park(no, 1, approval_of("make soup"));
    decide(&mut env, operator(), no, 1, once()).unwrap();
    assert!(env.park(no, 2, approval_of("make soup")));
    assert!(env.tree.row().grants.all.is_empty());
}

#[test]
fn the_same_verdict_again_changes_nothing_and_another_comes_too_late() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let calls = vec![(1, approval_of("a")), (2, approval_of("b"))];
    env.park_all(no, calls, AfterPark::Suspend { parked_count: 2 }).unwrap();
    let decide_one = |env: &mut Env, verdict| decide(env, operator(), no, 1, verdict);
    decide_one(&mut env, deny("too hot")).unwrap();
    let before = env.events.len();
    decide_one(&mut env, deny("too hot")).unwrap();
    assert_eq!(env.events.len(), before);
    refused(decide_one(&mut env, once()), RefusalKind::Conflict, "call 1 was denied: too hot");
    let other = decide(&mut env, operator(), no, 7, once());
    refused(other, RefusalKind::NotFound, "waits for no such approval");
    env.answer(operator(), no, GivenAnswer::Verdict(once())).unwrap();
    let again = env.answer(operator(), no, GivenAnswer::Verdict(once()));
    refused(again, RefusalKind::Conflict, "call 2 was allowed once");
}

#[test]
fn several_pending_approvals_are_named_by_their_calls() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let calls = vec![(4, approval_of("a")), (8, approval_of("b"))];
    env.park_all(no, calls, AfterPark::Suspend { parked_count: 2 }).unwrap();
    let which = env.answer(operator(), no, GivenAnswer::Verdict(once()));
    refused(which, RefusalKind::Conflict, "say which call: 4, 8");
    decide(&mut env, operator(), no, 8, deny("")).unwrap();
    assert_eq!(env.state(no), "waiting");
    decide(&mut env, operator(), no, 4, once()).unwrap();
    assert_eq!(env.state(no), "running");
    assert_eq!((verdict_of(&env, no, 4), verdict_of(&env, no, 8)), (Some(once()), Some(deny(""))));
}

#[test]
fn a_client_decides_only_for_tasks_that_it_started() {
    let mut env = Env::new();
    let mine = started_by(&mut env, client("me"));
    let child = env.spawn_child(mine, agent());
    let theirs = started_by(&mut env, client("them"));
    let nobodys = started_by(&mut env, operator());
    for no in [mine, child, theirs, nobodys] {
        env.park(no, 1, approval_of("make soup"));
    }
    for no in [theirs, nobodys] {
        let decided = decide(&mut env, client("me"), no, 1, once());
        refused(decided, RefusalKind::Forbidden, "ask the operator");
    }
    let nowhere = decide(&mut env, client("me"), TaskNo::new(99).unwrap(), 1, once());
    refused(nowhere, RefusalKind::NotFound, "no task 99");
    decide(&mut env, client("me"), child, 1, always(None)).unwrap();
    let allowed = Some(always(None));
    assert_eq!((verdict_of(&env, child, 1), verdict_of(&env, mine, 1)), (allowed.clone(), allowed));
    env.states(&[(theirs, "waiting"), (nobodys, "waiting")]);
    refused(revoke(&mut env, client("them"), 1), RefusalKind::Forbidden, "not yours");
    revoke(&mut env, client("me"), 1).unwrap();
}

#[test]
fn no_task_decides_for_itself_or_its_children() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, agent());
    let stranger = env.spawn(agent());
    env.park_all(child, vec![(1, approval_of("a"))], AfterPark::Continue).unwrap();
    for (no, reason) in [(child, "not yours"), (parent, "cannot approve"), (stranger, "not yours")]
    {
        let by = env.by(no);
        refused(decide(&mut env, by, child, 1, once()), RefusalKind::Forbidden, reason);
    }
    decide(&mut env, operator(), child, 1, always(None)).unwrap();
    let by = env.by(child);
    refused(revoke(&mut env, by, 1), RefusalKind::Forbidden, "a task cannot revoke");
}

#[test]
fn after_a_revocation_the_call_needs_an_approval_again() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.park(no, 1, approval_of("make soup"));
    decide(&mut env, operator(), no, 1, always(None)).unwrap();
    assert!(!env.park(no, 2, approval_of("make soup")));
    revoke(&mut env, operator(), 1).unwrap();
    refused(revoke(&mut env, operator(), 1), RefusalKind::NotFound, "there is no grant 1");
    assert!(env.park(no, 3, approval_of("make soup")));
    decide(&mut env, operator(), no, 3, always(None)).unwrap();
    let numbers: Vec<u32> = env.tree.row().grants.all.iter().map(|grant| grant.no).collect();
    assert_eq!(numbers, [2], "a number is never reused");
}

#[test]
fn an_unattended_call_is_denied_unless_a_grant_covers_it() {
    let unattended = |command: &str| match approval_of(command) {
        ConditionRequest::Approval { request } => {
            let mut request = (*request).clone();
            request.is_unattended = true;
            ConditionRequest::Approval { request: request.into() }
        }
        other => panic!("{other:?}"),
    };
    let mut env = Env::new();
    let no = env.spawn(agent());
    let attended = env.spawn(agent());
    assert!(!env.park(no, 1, unattended("make soup")));
    let Some(ApprovalVerdict::Deny { reason }) = verdict_of(&env, no, 1) else {
        panic!("it was not denied")
    };
    assert!(reason.contains("nobody is there to be asked"), "{reason}");
    env.park(attended, 1, approval_of("make soup"));
    decide(&mut env, operator(), attended, 1, always(None)).unwrap();
    assert!(!env.park(no, 2, unattended("make soup")));
    assert_eq!(verdict_of(&env, no, 2), Some(always(None)));
}

#[test]
fn grants_and_reasons_are_bounded() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    for at in 0..=GRANTS_MAX {
        let call = at as u32 + 1;
        env.park(no, call, approval_of(&format!("make {at}")));
        let decided = decide(&mut env, operator(), no, call, always(None));
        if at < GRANTS_MAX {
            decided.unwrap();
        } else {
            refused(decided, RefusalKind::Limit, "allow it once");
            let long = deny(&"x".repeat(REASON_MAX + 1));
            let decided = decide(&mut env, operator(), no, call, long);
            refused(decided, RefusalKind::Invalid, "the reason is longer");
        }
    }
}
