//! Messages: accepted, then read, delivered, unknown or dead-lettered; in order, and none twice.

use brigade_model::action::Action;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{
    AttemptReport, Caller, Command, MarkRead, PushResult, Recipient, RecoveryFinding, SendCommand,
};
use brigade_model::event::Event;
use brigade_model::ids::{MessageNo, Owner};
use brigade_model::message::{MessageSender, Receipt};
use brigade_model::refusal::RefusalKind;
use brigade_model::spec::TaskSpec;
use brigade_model::work::{CommandLine, InboxMode, KindPolicy, ProcessWork, Work};

use crate::support::*;

fn receive() -> ConditionRequest {
    ConditionRequest::Message { timeout: None, name: None }
}

fn receipts(env: &mut Env) -> Vec<(u64, Receipt)> {
    let rows = env.tree.take_dirty().messages;
    rows.into_iter().map(|row| (row.message.no.0, row.receipt)).collect()
}

#[test]
fn messages_are_read_in_the_order_they_were_sent() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let sent = [0; 3].map(|_| env.send_to(no));
    for (index, expect) in (1..).zip(sent) {
        assert!(!env.park(no, index, receive()), "a message is there already");
        let Some(CallCompletion::Message(message)) = env.completion(no, index) else {
            panic!("no message")
        };
        assert_eq!(message.no, expect);
    }
    assert!(env.park(no, 4, receive()), "none comes twice");
}

#[test]
fn all_messages_are_taken_at_once_and_in_order() {
    let mut env = Env::new();
    let no = env.spawn(job());
    assert!(env.park(no, 1, ConditionRequest::Messages), "it waits for the first one");
    let first = env.send_to(no);
    let taken = |env: &Env, index| match env.completion(no, index) {
        Some(CallCompletion::Messages(messages)) => {
            messages.iter().map(|message| message.no).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(taken(&env, 1), [first]);
    let more = [0; 300].map(|_| env.send_to(no));
    assert!(!env.park(no, 2, ConditionRequest::Messages));
    assert_eq!(taken(&env, 2), more[..256], "very many are taken in parts");
    assert!(!env.park(no, 3, ConditionRequest::Messages));
    assert_eq!(taken(&env, 3), more[256..]);
    assert_eq!(env.unread(Owner::Task(no)), 0);
    assert!(env.park(no, 4, ConditionRequest::Messages), "none comes twice");
}

#[test]
fn a_result_of_a_child_is_no_message() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let child = env.spawn_child(no, job());
    assert!(env.park(no, 1, ConditionRequest::Messages));
    env.succeed(child);
    assert!(env.completion(no, 1).is_none());
}

#[test]
fn a_message_wakes_the_task_that_waits_for_one_and_is_read_once() {
    let mut env = Env::new();
    let no = env.spawn(job());
    assert!(env.park(no, 1, receive()));
    let before = env.row(no).attempt;
    env.send_to(no);
    assert_eq!(env.state(no), "running");
    assert!(env.row(no).attempt > before);
    assert_eq!(env.unread(Owner::Task(no)), 0);
    let last = receipts(&mut env).pop();
    assert_eq!(last, Some((1, Receipt::Read)));
}

#[test]
fn each_message_names_its_sender() {
    let mut env = Env::new();
    let parent = env.spawn(job());
    let child = env.spawn_child(parent, job());
    let by_parent = env.by(parent);
    let by_child = env.by(child);
    let to = |no| Recipient::Task(brigade_model::address::TaskRef::from(no));
    env.send(operator(), to(child)).unwrap();
    env.send(by_parent, to(child)).unwrap();
    env.send(by_child, Recipient::Parent).unwrap();
    env.send(client("me"), to(parent)).unwrap();
    let from = |of| -> Vec<MessageSender> { env.tree.inbox(of).map(|m| m.from.clone()).collect() };
    assert_eq!(from(Owner::Task(child)), [MessageSender::Operator, MessageSender::Parent(parent)]);
    assert_eq!(from(Owner::Task(parent)), [MessageSender::Child(child), MessageSender::Client]);
}

#[test]
fn a_top_level_task_writes_to_the_session() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let caller = env.by(no);
    env.send(caller, Recipient::Parent).unwrap();
    let messages = env.read_inbox();
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].from, MessageSender::Child(no));
    assert!(env.read_inbox().is_empty(), "it was read");
}

#[test]
fn only_the_marked_messages_of_the_session_are_read() {
    let mut env = Env::new();
    let no = env.spawn(job());
    for _ in 0..3 {
        let caller = env.by(no);
        env.send(caller, Recipient::Parent).unwrap();
    }
    let numbers = |messages: Vec<std::sync::Arc<brigade_model::message::Message>>| -> Vec<u64> {
        messages.iter().map(|message| message.no.0).collect()
    };
    assert_eq!(numbers(env.read(MarkRead::Nothing)), [1, 2, 3]);
    assert_eq!(numbers(env.read(MarkRead::These(vec![MessageNo(2), MessageNo(9)]))), [2]);
    assert!(env.read(MarkRead::These(vec![MessageNo(2)])).is_empty(), "read once");
    assert_eq!(numbers(env.read(MarkRead::Nothing)), [1, 3]);
    assert_eq!(numbers(env.read(MarkRead::Oldest(1))), [1]);
}

#[test]
fn events_of_one_task_are_not_delivered_to_another() {
    let mut env = Env::new();
    let [one, two] = [0; 2].map(|_| env.spawn(job()));
    env.park(one, 1, receive());
    env.park(two, 1, receive());
    env.send_to(two);
    env.states(&[(one, "waiting"), (two, "running")]);
}

#[test]
fn a_message_to_all_reaches_every_child_that_accepts_one() {
    let mut env = Env::new();
    let parent = env.spawn(agent());
    let [a, b, c] = [0; 3].map(|_| env.spawn_child(parent, job()));
    env.succeed(b);
    let caller = env.by(parent);
    let sent = env.send(caller, Recipient::Children).unwrap();
    assert_eq!(sent, [MessageNo(1), MessageNo(2)]);
    let counts = [a, b, c].map(|no| env.unread(Owner::Task(no)));
    assert_eq!(counts, [1, 0, 1]);
}

#[test]
fn an_unread_message_becomes_a_dead_letter_with_a_reason_at_the_end() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.send_to(no);
    env.succeed(no);
    let (last, receipt) = receipts(&mut env).pop().unwrap();
    assert_eq!(last, 1);
    let Receipt::DeadLettered(reason) = receipt else { panic!("{receipt:?}") };
    assert!(reason.contains("job:1 ended before it read this"));
}

#[test]
fn a_job_that_ended_takes_no_more_messages() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.succeed(no);
    let sent = env.send(operator(), Recipient::Task(no.into()));
    refused(sent, RefusalKind::Ended, "job:1 has succeeded and takes no more messages");
}

#[test]
fn a_message_to_a_stopping_task_is_refused() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.stop_task(no);
    let sent = env.send(operator(), Recipient::Task(no.into()));
    refused(sent, RefusalKind::Ended, "is stopping");
}

#[test]
fn a_message_reaches_a_running_agent() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.send_to(no);
    assert_eq!(env.unread(Owner::Task(no)), 1);
    assert!(!env.park(no, 1, receive()), "it is there at its next step");
}

#[test]
fn a_message_to_an_ended_agent_opens_its_next_run_and_is_in_its_inbox() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.succeed(no);
    let before = env.row(no).attempt;
    env.send_to(no);
    assert_eq!(env.state(no), "running");
    assert_eq!((env.row(no).run.0, env.unread(Owner::Task(no))), (2, 1));
    assert!(env.row(no).attempt > before);
}

#[test]
fn a_message_for_an_alive_agent_opens_no_run_of_an_ended_one() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let key = Some("k".parse().expect("a good key"));
    let to = Recipient::Task(no.into());
    let send = SendCommand { key, alive_only: true, ..SendCommand::new(operator(), to, json("x")) };
    let first = env.submit(&Command::Send(send.clone()));
    env.succeed(no);
    // A repeat tells of the first message, which was accepted.
    assert_eq!(env.submit(&Command::Send(send.clone())), first);
    let other = SendCommand { key: None, ..send };
    refused(env.submit(&Command::Send(other)), RefusalKind::Ended, "takes no more messages");
    assert_eq!(env.row(no).run.0, 1);
}

#[test]
fn each_message_is_pushed_to_a_process() {
    let mut env = Env::new();
    let no = env.spawn(process());
    let message = env.send_to(no);
    let pushed = |a: &Action| matches!(a, Action::Push { message: m, .. } if m.no == message);
    assert_eq!(env.acted(pushed), 1);
    env.report(no, AttemptReport::Pushed { message, result: PushResult::Delivered });
    assert_eq!(receipts(&mut env).pop(), Some((1, Receipt::Delivered)));
    let again = env.try_report(
        no,
        AttemptReport::Pushed {
            message,
            result: PushResult::Refused { reason: "no input".into() },
        },
    );
    refused(again, RefusalKind::NotFound, "not in the inbox");
}

#[test]
fn a_message_to_a_queued_process_is_pushed_when_it_starts() {
    let limits = brigade_model::limits::Limits { running: Some(1), ..Default::default() };
    let mut env = Env::limited(limits);
    let first = env.spawn(job());
    let no = env.spawn(process());
    let message = env.send_to(no);
    let pushed = |a: &Action| matches!(a, Action::Push { message: m, .. } if m.no == message);
    assert_eq!(env.acted(pushed), 0);
    env.succeed(first);
    assert_eq!(env.acted(pushed), 1);
    let starts = env.actions.iter().position(|a| matches!(a, Action::Start(s) if s.no == no));
    let pushes = env.actions.iter().position(pushed);
    assert!(starts < pushes, "it is started before it is written to");
}

#[test]
fn after_a_crash_during_a_push_the_delivery_is_unknown() {
    let mut env = Env::new();
    let no = env.spawn(process());
    env.send_to(no);
    env.recover(no, RecoveryFinding::Crash);
    env.recover(no, RecoveryFinding::Adopted);
    assert_eq!(receipts(&mut env).pop(), Some((1, Receipt::DeliveryUnknown)));
    assert_eq!(env.unread(Owner::Task(no)), 0, "it is not pushed a second time");
}

#[test]
fn a_message_to_a_process_that_never_started_is_pushed_when_it_starts() {
    let mut env = Env::new();
    let no = env.spawn(process());
    let message = env.send_to(no);
    env.recover(no, RecoveryFinding::Crash);
    env.recover(no, RecoveryFinding::NeverStarted);
    env.advance(0);
    let pushed = |a: &Action| matches!(a, Action::Push { message: m, .. } if m.no == message);
    assert_eq!((env.state(no), env.acted(pushed)), ("running", 2));
}

#[test]
fn the_last_message_closes_the_input_of_work_with_a_pushed_inbox() {
    let mut env = Env::new();
    let no = env.spawn(process());
    env.send_last(no).unwrap();
    let last = |a: &Action| matches!(a, Action::Push { message, .. } if message.closes_input);
    assert_eq!(env.acted(last), 1);
    let no = env.spawn(job());
    refused(env.send_last(no), RefusalKind::Invalid, "no input that could be closed");
    assert_eq!(env.unread(Owner::Task(no)), 0);
}

#[test]
fn a_message_to_a_process_without_an_input_is_refused() {
    let mut env = Env::new();
    let command = CommandLine::Shell("sleep 60".into());
    let without = TaskSpec::new(Work::Process(ProcessWork::new(command)));
    let no = env.spawn(without);
    let before = env.tree.row().last_message;
    let sent = env.send(operator(), Recipient::Task(no.into()));
    refused(sent.clone(), RefusalKind::Invalid, "process:1 was started without an input");
    refused(sent, RefusalKind::Invalid, "`brigade exec --stdin`");
    refused(env.send_last(no), RefusalKind::Invalid, "started without an input");
    assert_eq!(env.tree.row().last_message, before, "a refusal changes nothing");
    let reads = env.spawn(process());
    let sent = env.send(operator(), Recipient::Children).unwrap();
    let counts = [no, reads].map(|no| env.unread(Owner::Task(no)));
    assert_eq!((sent.len(), counts), (1, [0, 1]), "a message to all children skips it");
}

#[test]
fn a_refused_push_makes_a_dead_letter() {
    let mut env = Env::new();
    let no = env.spawn(process());
    let message = env.send_to(no);
    env.report(
        no,
        AttemptReport::Pushed {
            message,
            result: PushResult::Refused { reason: "no input".into() },
        },
    );
    assert!(matches!(receipts(&mut env).pop(), Some((1, Receipt::DeadLettered(_)))));
}

#[test]
fn work_with_a_pushed_inbox_cannot_park_on_messages() {
    let mut env = Env::new();
    let no = env.spawn(custom(KindPolicy { inbox_mode: InboxMode::Push, ..POLICY }));
    let parked = env.park_all(
        no,
        vec![(1, receive())],
        brigade_model::command::AfterPark::Suspend { parked_count: 1 },
    );
    refused(parked, RefusalKind::Invalid, "are pushed to it");
}

#[test]
fn only_a_task_has_a_parent() {
    let mut env = Env::new();
    refused(env.send(operator(), Recipient::Parent), RefusalKind::Invalid, "name the task");
}

#[test]
fn progress_reaches_the_feed_in_order_and_a_burst_loses_none() {
    let mut env = Env::new();
    let no = env.spawn(job());
    for step in 0..100 {
        env.report(no, AttemptReport::Progress(json(&step.to_string())));
    }
    env.succeed(no);
    let notes: Vec<String> = env
        .events
        .iter()
        .filter_map(|record| match &record.event {
            Event::Progressed { note, .. } => Some(note.as_str().to_owned()),
            _ => None,
        })
        .collect();
    let expect: Vec<String> = (0..100).map(|step| format!("\"{step}\"")).collect();
    assert_eq!(notes, expect);
    let last = env.events.last().map(|record| &record.event);
    assert!(matches!(last, Some(Event::Ended { no: ended, .. }) if *ended == no));
}

#[test]
fn a_stale_attempt_sends_nothing() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let Caller::Task { attempt, .. } = env.by(no) else { unreachable!("a task asks") };
    env.park(no, 1, receive());
    env.send_to(no);
    let sent = env.send(Caller::Task { no, attempt }, Recipient::Parent);
    refused(sent, RefusalKind::Ended, "is over");
}
