//! Calls that wait for a person, a parent or a client.

use brigade_model::approval::ApprovalVerdict;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{AfterPark, AnswerCommand, Command, GivenAnswer};
use brigade_model::ids::{CallIndex, Owner};
use brigade_model::message::{MessagePurpose, MessageSender};
use brigade_model::refusal::RefusalKind;

use crate::support::*;

fn question() -> ConditionRequest {
    ConditionRequest::Question { question: json("how much salt?") }
}

fn approval() -> ConditionRequest {
    approval_of("rm -rf x")
}

fn yes() -> GivenAnswer {
    GivenAnswer::Reply(json("a pinch"))
}

fn allow() -> GivenAnswer {
    GivenAnswer::Verdict(ApprovalVerdict::AllowOnce)
}

#[test]
fn a_question_reaches_the_parent_and_its_answer_wakes_the_child() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, agent());
    assert!(env.park(child, 1, question()));
    let asked = env.tree.inbox(Owner::Task(parent)).next().cloned().unwrap();
    assert_eq!(asked.from, MessageSender::Child(child));
    assert_eq!(asked.purpose, MessagePurpose::Question(CallIndex(1)));
    let caller = env.by(parent);
    env.answer(caller, child, yes()).unwrap();
    assert_eq!(env.completion(child, 1), Some(&CallCompletion::Reply(json("a pinch"))));
    assert_eq!(env.state(child), "running");
    assert_eq!(env.unread(Owner::Task(parent)), 0, "the question was read by answering it");
}

#[test]
fn a_question_interrupts_the_wait_of_its_parent() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, agent());
    let wait = ConditionRequest::Tasks {
        tasks: vec![child],
        mode: brigade_model::call::WaitMode::All,
        timeout: None,
        interruptible: true,
    };
    assert!(env.park(parent, 1, wait));
    env.park(child, 1, question());
    assert_eq!(env.completion(parent, 1), Some(&CallCompletion::Interrupted));
    assert_eq!(env.state(parent), "running");
}

#[test]
fn the_operator_may_answer_instead_of_the_parent() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, agent());
    env.park(child, 1, question());
    env.answer(operator(), child, yes()).unwrap();
    assert_eq!(env.state(child), "running");
    refused(env.answer(operator(), child, yes()), RefusalKind::NotFound, "no such question open");
}

#[test]
fn a_task_cannot_approve() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let child = env.spawn_child(parent, agent());
    env.park(child, 1, approval());
    let caller = env.by(parent);
    refused(env.answer(caller, child, allow()), RefusalKind::Forbidden, "ask the operator");
    assert_eq!(env.state(child), "waiting");
    env.answer(operator(), child, allow()).unwrap();
    assert_eq!(
        env.completion(child, 1),
        Some(&CallCompletion::Verdict(ApprovalVerdict::AllowOnce))
    );
}

#[test]
fn a_reply_is_no_verdict_and_a_verdict_no_reply() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.park(no, 1, approval());
    refused(env.answer(operator(), no, yes()), RefusalKind::NotFound, "no such question open");
    assert_eq!(env.state(no), "waiting");
    let other = env.spawn(agent());
    env.park(other, 1, question());
    refused(env.answer(operator(), other, allow()), RefusalKind::NotFound, "no such approval");
}

#[test]
fn with_several_open_questions_the_answer_must_name_one() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let calls = vec![(1, question()), (2, question())];
    env.park_all(no, calls, AfterPark::Suspend { parked_count: 2 }).unwrap();
    refused(env.answer(operator(), no, yes()), RefusalKind::Conflict, "name the one");
    let given = |call| AnswerCommand {
        caller: operator(),
        task: no.into(),
        call: Some(CallIndex(call)),
        answer: yes(),
        caller_call: None,
    };
    env.submit(&Command::Answer(given(2))).unwrap();
    assert_eq!(
        (env.completion(no, 1), env.state(no)),
        (None, "waiting"),
        "an agent wakes on all completions"
    );
    env.submit(&Command::Answer(given(1))).unwrap();
    assert_eq!(env.state(no), "running");
}

#[test]
fn a_client_answers_a_tool_that_it_runs() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.park(no, 1, ConditionRequest::ClientTool { request: json("open the editor") });
    env.answer(client("me"), no, yes()).unwrap();
    assert_eq!(env.completion(no, 1), Some(&CallCompletion::Reply(json("a pinch"))));
}

#[test]
fn answers_after_the_stop_are_refused() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.park_all(no, vec![(1, approval())], AfterPark::Continue).unwrap();
    env.stop_task(no);
    refused(env.answer(operator(), no, allow()), RefusalKind::Ended, "is stopping");
}

#[test]
fn a_task_that_waits_for_a_person_holds_no_slot() {
    let limits = brigade_model::limits::Limits { running: Some(1), ..Default::default() };
    let mut env = Env::limited(limits);
    let no = env.spawn(agent());
    let next = env.spawn(agent());
    env.park(no, 1, approval());
    env.states(&[(no, "waiting"), (next, "running")]);
    env.advance(1_000_000_000);
    assert_eq!(env.state(no), "waiting");
}
