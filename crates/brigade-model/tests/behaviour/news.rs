//! Work that hears of everything before it goes on, and does not end before that.

use brigade_model::action::Action;
use brigade_model::call::{CallCompletion, ConditionRequest, InboxBatch};
use brigade_model::command::{AttemptReport, CallRecord, Recipient, WorkResult};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{CallIndex, Owner, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::{Limits, Usage};
use brigade_model::refusal::RefusalKind;

use crate::support::{Env, With, hearing_agent, job, operator, process, refused};

fn tokens(tokens: u64) -> Usage {
    Usage { tokens, ..Usage::NONE }
}

fn proceed(index: u32) -> AttemptReport {
    AttemptReport::BeginStep { index: CallIndex(index), max: tokens(10), min: tokens(1) }
}

fn granted(reply: CommandReply) -> Usage {
    match reply {
        CommandReply::Reserved { amount, .. } => amount,
        other => panic!("no leave: {other:?}"),
    }
}

fn gathered(answer: Option<&CallCompletion>) -> (Vec<u64>, Vec<TaskNo>) {
    let Some(CallCompletion::Inbox(InboxBatch { messages, results: endings })) = answer else {
        panic!("no news: {answer:?}")
    };
    (messages.iter().map(|m| m.no.0).collect(), endings.iter().map(|e| e.no).collect())
}

#[test]
fn all_that_came_is_told_at_once_and_once() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    let [one, two] = [0; 2].map(|_| env.below(no, job()));
    env.send_to(no);
    env.send_to(no);
    env.succeed(one);
    env.fail(two);
    let CommandReply::InboxTaken(answer) = env.report(no, proceed(1)) else { panic!("no news") };
    assert_eq!(gathered(Some(&answer)), (vec![1, 2], vec![one, two]));
    assert_eq!(env.answer(no, 1), Some(&*answer), "it is in the journal");
    assert_eq!(env.unread(Owner::Task(no)), 0);
    assert_eq!(granted(env.report(no, proceed(2))), tokens(10));
    assert_eq!(env.answer(no, 2), None);
}

#[test]
fn very_much_is_told_in_parts_and_each_part_once() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    for _ in 0..300 {
        env.send_to(no);
    }
    let large = Json::of(&"x".repeat(200_000)).unwrap();
    let children = [0; 3].map(|_| env.below(no, job()));
    for child in children {
        env.report(child, AttemptReport::Ended(WorkResult::Returned(large.clone()).into()));
    }
    let mut heard = (Vec::new(), Vec::new());
    for index in 1.. {
        let CommandReply::InboxTaken(answer) = env.report(no, proceed(index)) else { break };
        let (messages, endings) = gathered(Some(&answer));
        assert!(messages.len() + endings.len() <= 256 && endings.len() <= 1);
        heard.0.extend(messages);
        heard.1.extend(endings);
        assert!(index < 10);
    }
    assert_eq!(heard, ((1..=300).collect(), children.to_vec()));
    // What waits for news is told as much at once, and does not end before it has heard the rest.
    for _ in 0..300 {
        env.send_to(no);
    }
    assert!(!env.park(no, 20, ConditionRequest::Inbox));
    assert_eq!(gathered(env.answer(no, 20)).0.len(), 256);
    let done = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
    refused(env.try_report(no, done), RefusalKind::Conflict, "heard of everything");
}

#[test]
fn with_nothing_new_it_is_told_what_it_may_spend() {
    let mut env = Env::new();
    let limits = Limits { tokens: Some(15), ..Limits::default() };
    let no = env.spawn(hearing_agent().limited(limits));
    assert_eq!(granted(env.report(no, proceed(1))), tokens(10));
    let said = AttemptReport::Record(written(1, Some(tokens(14))));
    env.report(no, said);
    assert_eq!(env.row(no).usage(), tokens(14));
    assert_eq!(granted(env.report(no, proceed(2))), tokens(1));
}

#[test]
fn it_does_not_end_while_a_child_lives() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    let child = env.below(no, job());
    let done = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
    refused(env.try_report(no, done.clone()), RefusalKind::Conflict, "heard of everything");
    assert!(env.park(no, 1, ConditionRequest::Inbox), "it rests");
    env.succeed(child);
    assert_eq!(env.state(no), "running");
    assert_eq!(gathered(env.answer(no, 1)), (vec![], vec![child]));
    env.report(no, done);
    assert_eq!(env.state(no), "succeeded");
}

#[test]
fn a_resumed_child_brings_the_result_that_an_earlier_run_left() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    let child = env.below(no, job());
    env.fail(no);
    env.succeed(child);
    env.resume(operator(), no).expect("it goes on");
    assert!(env.park(no, 1, ConditionRequest::Inbox), "the result is of an earlier run");
    env.resume(operator(), child).expect("it goes on");
    assert_eq!(gathered(env.answer(no, 1)), (vec![], vec![child]));
    env.states(&[(no, "running"), (child, "running")]);
}

#[test]
fn it_does_not_end_with_a_message_unread() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    env.send_to(no);
    let done = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
    refused(env.try_report(no, done.clone()), RefusalKind::Conflict, "heard of everything");
    assert!(!env.park(no, 1, ConditionRequest::Inbox), "there is news at once");
    assert_eq!(gathered(env.answer(no, 1)).0, [1]);
    env.report(no, done);
    assert_eq!(env.state(no), "succeeded");
}

#[test]
fn a_kept_child_does_not_hold_it_up() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    let kept = env.below(no, job().kept());
    env.succeed(no);
    env.states(&[(no, "succeeded"), (kept, "running")]);
}

#[test]
fn failing_does_not_wait_for_news() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    env.send_to(no);
    env.fail(no);
    assert_eq!(env.state(no), "failed");
}

#[test]
fn a_message_that_is_to_be_heard_now_interrupts_what_runs() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    env.send(operator(), Recipient::Task(no.into())).unwrap();
    assert_eq!(env.acted(|action| matches!(action, Action::Interrupt { .. })), 0);
    env.interrupt(no);
    assert_eq!(env.acted(|action| matches!(action, Action::Interrupt { .. })), 1);
}

#[test]
fn work_that_is_handed_its_messages_has_no_news() {
    let mut env = Env::new();
    let no = env.spawn(process());
    refused(env.try_report(no, proceed(1)), RefusalKind::Invalid, "handed to it");
}

fn written(index: u32, spent: Option<Usage>) -> CallRecord {
    let answer = CallCompletion::Value(Json::null()).into();
    CallRecord { spent, ..CallRecord::new(CallIndex(index), "step", answer) }
}

fn after(records: Vec<CallRecord>, what: AttemptReport) -> AttemptReport {
    AttemptReport::WithRecords { records, report: Box::new(what) }
}

#[test]
fn what_is_owed_is_written_down_with_what_is_said_next_or_not_at_all() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    let asked = after(vec![written(1, None), written(2, None)], proceed(3));
    assert_eq!(granted(env.report(no, asked)), tokens(10));
    assert!(env.answer(no, 1).is_some() && env.answer(no, 2).is_some());
    let done = || AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
    env.send_to(no);
    let early = after(vec![written(4, Some(tokens(5)))], done());
    refused(env.try_report(no, early.clone()), RefusalKind::Conflict, "heard of everything");
    assert_eq!((env.answer(no, 4), env.row(no).usage()), (None, Usage::NONE));
    env.report(no, proceed(5));
    env.report(no, early);
    assert_eq!((env.state(no), env.row(no).usage()), ("succeeded", tokens(5)));
    assert!(env.answer(no, 4).is_some());
}

#[test]
fn nothing_is_owed_that_would_change_what_is_asked_next() {
    let mut env = Env::new();
    let no = env.spawn(hearing_agent());
    let paid = after(vec![written(1, Some(tokens(5)))], proceed(2));
    refused(env.try_report(no, paid), RefusalKind::Invalid, "together");
    let same = after(vec![written(1, None)], proceed(1));
    refused(env.try_report(no, same), RefusalKind::Invalid, "together");
    let progress = after(vec![written(1, None)], AttemptReport::Progress(Json::null()));
    refused(env.try_report(no, progress), RefusalKind::Invalid, "together");
}

#[test]
fn the_first_step_needs_no_leave_where_nothing_is_new_and_nothing_is_limited() {
    let starts = |env: &Env| {
        let start = |action: &Action| match action {
            Action::Start(start) => Some(start.skip_first_gate),
            _ => None,
        };
        env.actions.iter().rev().find_map(start)
    };
    let mut env = Env::new();
    env.spawn(hearing_agent());
    assert_eq!(starts(&env), Some(true));
    let limits = Limits { tokens: Some(15), ..Limits::default() };
    let limited = env.spawn(hearing_agent().limited(limits));
    assert_eq!(starts(&env), Some(false));
    env.below(limited, hearing_agent());
    assert_eq!(starts(&env), Some(false));
}
