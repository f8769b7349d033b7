//! Work that collects its inbox before it continues, and does not end before that.

use brigade_model::action::Action;
use brigade_model::call::{CallCompletion, ConditionRequest, InboxBatch};
use brigade_model::command::{AttemptReport, CallRecord, Recipient, WorkResult};
use brigade_model::decide::CommandReply;
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{CallIndex, Owner, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::{CostEstimate, Limits, Usage};
use brigade_model::refusal::RefusalKind;

use crate::support::{Env, With, collecting_agent, job, operator, process, refused};

fn tokens(tokens: u64) -> Usage {
    Usage { tokens, ..Usage::NONE }
}

fn begin_step(index: u32) -> AttemptReport {
    AttemptReport::BeginStep {
        index: CallIndex(index),
        cost: CostEstimate { max: tokens(10), min: tokens(1) },
    }
}

fn granted(reply: CommandReply) -> Usage {
    match reply {
        CommandReply::Reserved { amount, .. } => amount,
        other => panic!("nothing was reserved: {other:?}"),
    }
}

fn taken(completion: Option<&CallCompletion>) -> (Vec<u64>, Vec<TaskNo>) {
    let Some(CallCompletion::Inbox(InboxBatch { messages, results })) = completion else {
        panic!("no inbox: {completion:?}")
    };
    let messages = messages.iter().map(|message| message.no.0).collect();
    (messages, results.iter().map(|result| result.no).collect())
}

#[test]
fn the_whole_inbox_is_taken_at_once_and_once() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    let [one, two] = [0; 2].map(|_| env.spawn_child(no, job()));
    env.send_to(no);
    env.send_to(no);
    env.succeed(one);
    env.fail(two);
    let CommandReply::InboxTaken(taken_now) = env.report(no, begin_step(1)) else {
        panic!("no inbox")
    };
    assert_eq!(taken(Some(&taken_now)), (vec![1, 2], vec![one, two]));
    assert_eq!(env.completion(no, 1), Some(&*taken_now), "it is in the journal");
    assert_eq!(env.unread(Owner::Task(no)), 0);
    assert_eq!(granted(env.report(no, begin_step(2))), tokens(10));
    assert_eq!(env.completion(no, 2), None);
}

#[test]
fn a_very_large_inbox_is_taken_in_parts_and_each_part_once() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    for _ in 0..300 {
        env.send_to(no);
    }
    let large = Json::of(&"x".repeat(200_000)).unwrap();
    let children = [0; 3].map(|_| env.spawn_child(no, job()));
    for child in children {
        env.report(child, AttemptReport::Ended(WorkResult::Returned(large.clone()).into()));
    }
    let mut all = (Vec::new(), Vec::new());
    for index in 1.. {
        let CommandReply::InboxTaken(part) = env.report(no, begin_step(index)) else { break };
        let (messages, results) = taken(Some(&part));
        assert!(messages.len() + results.len() <= 256 && results.len() <= 1);
        all.0.extend(messages);
        all.1.extend(results);
        assert!(index < 10);
    }
    assert_eq!(all, ((1..=300).collect(), children.to_vec()));
    // A call that is parked on the inbox takes as much at once, and the work cannot end before it
    // has taken the rest.
    for _ in 0..300 {
        env.send_to(no);
    }
    assert!(!env.park(no, 20, ConditionRequest::Inbox));
    assert_eq!(taken(env.completion(no, 20)).0.len(), 256);
    let done = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
    refused(env.try_report(no, done), RefusalKind::Conflict, "unread messages");
}

#[test]
fn with_an_empty_inbox_budget_is_reserved() {
    let mut env = Env::new();
    let limits = Limits { tokens: Some(15), ..Limits::default() };
    let no = env.spawn(collecting_agent().limited(limits));
    assert_eq!(granted(env.report(no, begin_step(1))), tokens(10));
    let recorded = AttemptReport::Record(record(1, Some(tokens(14))));
    env.report(no, recorded);
    assert_eq!(env.row(no).usage(), tokens(14));
    assert_eq!(granted(env.report(no, begin_step(2))), tokens(1));
}

#[test]
fn it_does_not_end_while_a_child_is_alive() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    let child = env.spawn_child(no, job());
    let done = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
    refused(env.try_report(no, done.clone()), RefusalKind::Conflict, "running children");
    assert!(env.park(no, 1, ConditionRequest::Inbox), "it waits");
    env.succeed(child);
    assert_eq!(env.state(no), "running");
    assert_eq!(taken(env.completion(no, 1)), (vec![], vec![child]));
    env.report(no, done);
    assert_eq!(env.state(no), "succeeded");
}

#[test]
fn a_resumed_child_brings_its_uncollected_result() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    let child = env.spawn_child(no, job());
    env.fail(no);
    env.succeed(child);
    env.resume(operator(), no).expect("it is resumed");
    assert!(env.park(no, 1, ConditionRequest::Inbox), "the result is of an earlier run");
    env.resume(operator(), child).expect("it is resumed");
    assert_eq!(taken(env.completion(no, 1)), (vec![], vec![child]));
    env.states(&[(no, "running"), (child, "running")]);
}

#[test]
fn it_does_not_end_with_a_message_unread() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    env.send_to(no);
    let done = AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
    refused(env.try_report(no, done.clone()), RefusalKind::Conflict, "unread messages");
    assert!(!env.park(no, 1, ConditionRequest::Inbox), "the inbox holds an item");
    assert_eq!(taken(env.completion(no, 1)).0, [1]);
    env.report(no, done);
    assert_eq!(env.state(no), "succeeded");
}

#[test]
fn a_kept_child_does_not_delay_its_end() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    let kept = env.spawn_child(no, job().kept());
    env.succeed(no);
    env.states(&[(no, "succeeded"), (kept, "running")]);
}

#[test]
fn a_failure_does_not_wait_for_the_inbox() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    env.send_to(no);
    env.fail(no);
    assert_eq!(env.state(no), "failed");
}

#[test]
fn an_interrupting_message_interrupts_the_attempt() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    env.send(operator(), Recipient::Task(no.into())).unwrap();
    assert_eq!(env.acted(|action| matches!(action, Action::Interrupt { .. })), 0);
    env.interrupt(no);
    assert_eq!(env.acted(|action| matches!(action, Action::Interrupt { .. })), 1);
}

#[test]
fn work_with_a_pushed_inbox_cannot_take_it() {
    let mut env = Env::new();
    let no = env.spawn(process());
    refused(env.try_report(no, begin_step(1)), RefusalKind::Invalid, "are pushed to it");
}

fn record(index: u32, spent: Option<Usage>) -> CallRecord {
    let completion = CallCompletion::Value(Json::null()).into();
    CallRecord { spent, ..CallRecord::new(CallIndex(index), EntryLabel::step("step"), completion) }
}

fn after(records: Vec<CallRecord>, report: AttemptReport) -> AttemptReport {
    AttemptReport::WithRecords { records, report: Box::new(report) }
}

#[test]
fn unflushed_records_are_committed_with_the_next_report_or_not_at_all() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    let step = after(vec![record(1, None), record(2, None)], begin_step(3));
    assert_eq!(granted(env.report(no, step)), tokens(10));
    assert!(env.completion(no, 1).is_some() && env.completion(no, 2).is_some());
    let done = || AttemptReport::Ended(WorkResult::Returned(Json::null()).into());
    env.send_to(no);
    let early = after(vec![record(4, Some(tokens(5)))], done());
    refused(env.try_report(no, early.clone()), RefusalKind::Conflict, "unread messages");
    assert_eq!((env.completion(no, 4), env.row(no).usage()), (None, Usage::NONE));
    env.report(no, begin_step(5));
    env.report(no, early);
    assert_eq!((env.state(no), env.row(no).usage()), ("succeeded", tokens(5)));
    assert!(env.completion(no, 4).is_some());
}

#[test]
fn a_report_that_depends_on_its_records_is_refused() {
    let mut env = Env::new();
    let no = env.spawn(collecting_agent());
    let paid = after(vec![record(1, Some(tokens(5)))], begin_step(2));
    refused(env.try_report(no, paid), RefusalKind::Invalid, "together");
    let same = after(vec![record(1, None)], begin_step(1));
    refused(env.try_report(no, same), RefusalKind::Invalid, "together");
    let progress = after(vec![record(1, None)], AttemptReport::Progress(Json::null()));
    refused(env.try_report(no, progress), RefusalKind::Invalid, "together");
}

#[test]
fn the_first_step_skips_the_gate_with_an_empty_inbox_and_no_budget() {
    let starts = |env: &Env| {
        let start = |action: &Action| match action {
            Action::Start(start) => Some(start.skip_first_gate),
            _ => None,
        };
        env.actions.iter().rev().find_map(start)
    };
    let mut env = Env::new();
    env.spawn(collecting_agent());
    assert_eq!(starts(&env), Some(true));
    let limits = Limits { tokens: Some(15), ..Limits::default() };
    let limited = env.spawn(collecting_agent().limited(limits));
    assert_eq!(starts(&env), Some(false));
    env.spawn_child(limited, collecting_agent());
    assert_eq!(starts(&env), Some(false));
}
