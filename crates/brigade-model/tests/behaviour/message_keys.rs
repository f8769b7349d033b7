//! Messages with keys are accepted once, and messages with names are received by name.

use std::sync::Arc;

use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{Caller, Command, Recipient, SendCommand};
use brigade_model::decide::CommandReply;
use brigade_model::event::Event;
use brigade_model::ids::{CallIndex, MessageNo, Millis, Owner, TaskNo};
use brigade_model::message::Message;
use brigade_model::needs::{NeededRow, needs};
use brigade_model::refusal::RefusalKind;
use brigade_model::task::StoredTask;
use brigade_model::task_tree::{MessageKeyMark, TaskTree};

use crate::support::*;

fn keyed(caller: Caller, to: Recipient, key: &str, body: &str) -> SendCommand {
    let key = Some(key.parse().expect("a good key"));
    SendCommand { key, ..SendCommand::new(caller, to, json(body)) }
}

fn to(no: TaskNo) -> Recipient {
    Recipient::Task(no.into())
}

/// Sends with the key "approval 17".
fn approve(env: &mut Env, no: TaskNo, body: &str) -> SubmitResult<Vec<MessageNo>> {
    submit(env, keyed(operator(), to(no), "approval 17", body))
}

fn submit(env: &mut Env, send: SendCommand) -> SubmitResult<Vec<MessageNo>> {
    match env.submit(&Command::Send(send))? {
        CommandReply::Sent(numbers) => Ok(numbers),
        other => panic!("a message was answered with {other:?}"),
    }
}

fn sent_count(env: &Env) -> usize {
    env.count(|event| matches!(event, Event::MessageSent(_)))
}

/// Commits, and returns the messages as the store has them.
fn commit(env: &mut Env) -> Vec<Arc<Message>> {
    let messages = env.tree.take_dirty().messages;
    env.tree.evict();
    messages.into_iter().map(|row| row.message).collect()
}

fn receive_named(name: &str) -> ConditionRequest {
    ConditionRequest::Message { timeout: None, name: Some(name.into()) }
}

fn received(env: &Env, no: TaskNo, index: u32) -> MessageNo {
    match env.completion(no, index) {
        Some(CallCompletion::Message(message)) => message.no,
        other => panic!("no message: {other:?}"),
    }
}

#[test]
fn a_repeated_key_gets_the_same_number_and_changes_nothing() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let first = approve(&mut env, no, "yes").unwrap();
    let seq = env.tree.row().seq;
    assert_eq!(approve(&mut env, no, "yes").unwrap(), first);
    assert_eq!(env.tree.row().seq, seq, "a repeat is no event");
    assert_eq!(env.unread(Owner::Task(no)), 1);
    assert!(!env.park(no, 1, ConditionRequest::Message { timeout: None, name: None }));
    assert_eq!(approve(&mut env, no, "yes").unwrap(), first, "also after it was read");
    assert_eq!(sent_count(&env), 1);
}

#[test]
fn a_key_with_another_request_is_a_conflict() {
    let mut env = Env::new();
    let no = env.spawn(job());
    approve(&mut env, no, "yes").unwrap();
    refused(approve(&mut env, no, "no"), RefusalKind::Conflict, "differs in: body");
    let same = || keyed(operator(), to(no), "approval 17", "yes");
    let named = SendCommand { name: Some("approval".into()), ..same() };
    refused(submit(&mut env, named), RefusalKind::Conflict, "differs in: name");
    let interrupting = SendCommand { interrupt: true, ..same() };
    refused(submit(&mut env, interrupting), RefusalKind::Conflict, "differs in: interrupt");
    assert_eq!(sent_count(&env), 1);
}

#[test]
fn a_repeat_is_answered_after_the_recipient_has_ended() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let first = approve(&mut env, no, "yes").unwrap();
    env.succeed(no);
    assert_eq!(approve(&mut env, no, "yes").unwrap(), first);
    let other = keyed(operator(), to(no), "approval 18", "yes");
    refused(submit(&mut env, other), RefusalKind::Ended, "takes no more messages");
}

#[test]
fn a_repeat_to_an_ended_agent_opens_no_second_run() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    env.succeed(no);
    let first = approve(&mut env, no, "go on").unwrap();
    assert_eq!(env.row(no).run.0, 2);
    assert_eq!(approve(&mut env, no, "go on").unwrap(), first, "in the run that it opened");
    env.succeed(no);
    assert_eq!(approve(&mut env, no, "go on").unwrap(), first, "and after it");
    assert_eq!(env.row(no).run.0, 2);
    env.resume(operator(), no).unwrap();
    let again = approve(&mut env, no, "go on").unwrap();
    assert_ne!(again, first, "the next run has an inbox and keys of its own");
}

#[test]
fn a_full_inbox_does_not_refuse_a_repeat() {
    use brigade_model::limits::Limits;
    let mut env = Env::new();
    let no = env.spawn(job().limited(Limits { inbox: Some(1), ..Limits::default() }));
    let first = approve(&mut env, no, "yes").unwrap();
    refused(env.send(operator(), to(no)), RefusalKind::Limit, "is full");
    assert_eq!(approve(&mut env, no, "yes").unwrap(), first);
}

#[test]
fn the_operator_and_clients_share_keys_and_tasks_have_their_own() {
    let mut env = Env::new();
    let parent = env.spawn(job());
    let [one, other] = [0; 2].map(|_| env.spawn_child(parent, job()));
    let by_client = submit(&mut env, keyed(client("me"), to(parent), "k", "x")).unwrap();
    let by_operator = submit(&mut env, keyed(operator(), to(parent), "k", "x")).unwrap();
    assert_eq!(by_client, by_operator, "a signal may be repeated by either");
    let mut numbers = vec![by_client[0]];
    for child in [one, other] {
        let send = keyed(env.by(child), Recipient::Parent, "k", "done");
        let first = submit(&mut env, send.clone()).unwrap();
        assert_eq!(submit(&mut env, send).unwrap(), first);
        numbers.push(first[0]);
    }
    numbers.dedup();
    assert_eq!(numbers.len(), 3, "no child swallows the message of another");
    let send = keyed(env.by(one), Recipient::Parent, "k", "changed");
    refused(submit(&mut env, send), RefusalKind::Conflict, "differs in: body");
}

#[test]
fn a_key_to_the_session_belongs_to_one_run_of_the_sender() {
    let mut env = Env::new();
    let no = env.spawn(agent());
    let send = |env: &Env| keyed(env.by(no), Recipient::Parent, "k", "done");
    let report = send(&env);
    let first = submit(&mut env, report.clone()).unwrap();
    assert_eq!(submit(&mut env, report).unwrap(), first);
    env.read_inbox();
    let report = send(&env);
    assert_eq!(submit(&mut env, report).unwrap(), first, "also after it was read");
    env.succeed(no);
    env.resume(operator(), no).unwrap();
    let report = send(&env);
    assert_ne!(submit(&mut env, report).unwrap(), first);
}

#[test]
fn a_repeated_message_to_all_children_reaches_only_new_ones() {
    let mut env = Env::new();
    let parent = env.spawn(job());
    let one = env.spawn_child(parent, job());
    let caller = env.by(parent);
    let send = keyed(caller, Recipient::Children, "menu", "soup");
    let first = submit(&mut env, send.clone()).unwrap();
    let other = env.spawn_child(parent, job());
    let second = submit(&mut env, send.clone()).unwrap();
    assert_eq!(second[0], first[0]);
    assert_eq!(
        (second.len(), env.unread(Owner::Task(one)), env.unread(Owner::Task(other))),
        (2, 1, 1)
    );
    let changed = SendCommand { body: json("fish"), ..send };
    refused(submit(&mut env, changed), RefusalKind::Conflict, "differs in: body");
}

#[test]
fn a_repeat_is_recorded_for_the_call_that_made_it() {
    let mut env = Env::new();
    let parent = env.spawn(job());
    let child = env.spawn_child(parent, job());
    let send = keyed(env.by(parent), to(child), "k", "x");
    let first = submit(&mut env, send.clone()).unwrap();
    let repeat = SendCommand { call: Some(CallIndex(7)), ..send };
    assert_eq!(submit(&mut env, repeat).unwrap(), first);
    assert_eq!(env.completion(parent, 7), Some(&CallCompletion::Sent(first)));
}

#[test]
fn a_read_message_is_loaded_to_compare_it_with_a_repeat() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let first = approve(&mut env, no, "yes").unwrap();
    env.park(no, 1, ConditionRequest::Message { timeout: None, name: None });
    let stored = commit(&mut env).pop().expect("it is stored");
    let send = Command::Send(keyed(operator(), to(no), "approval 17", "no"));
    assert_eq!(needs(&env.tree, &send), [NeededRow::Message(first[0])]);
    env.tree.insert_message(stored);
    assert_eq!(needs(&env.tree, &send), []);
    refused(env.submit(&send), RefusalKind::Conflict, "differs in: body");
    commit(&mut env);
    assert_eq!(needs(&env.tree, &send), [NeededRow::Message(first[0])], "it left memory again");
    let new = Command::Send(keyed(operator(), to(no), "approval 18", "no"));
    assert_eq!(needs(&env.tree, &new), [], "a new key needs no read");
}

#[test]
fn after_retention_removed_the_message_its_key_is_still_taken() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let first = approve(&mut env, no, "yes").unwrap();
    env.park(no, 1, ConditionRequest::Message { timeout: None, name: None });
    commit(&mut env);
    assert_eq!(approve(&mut env, no, "yes").unwrap(), first);
}

#[test]
fn the_key_of_an_ended_recipient_is_looked_up_in_the_store() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let first = approve(&mut env, no, "yes").unwrap();
    env.succeed(no);
    let row = env.row(no).clone();
    let stored = commit(&mut env).pop().expect("it is stored");
    let mut loaded = TaskTree::from_row(env.tree.row().clone());
    loaded.insert_loaded(StoredTask::new(no, row));
    loaded.insert_message_key(MessageKeyMark::of(&stored).expect("it has a key"));
    loaded.finish_loading();
    env.tree = loaded;
    let send = Command::Send(keyed(operator(), to(no), "approval 17", "yes"));
    let scope = stored.key_scope().expect("it has a key");
    let key = stored.key.as_ref().expect("it has a key").key.clone();
    assert_eq!(needs(&env.tree, &send), [NeededRow::MessageKey { scope, key }]);
    env.tree.insert_found_message_key(MessageKeyMark::of(&stored).expect("it has a key"));
    assert_eq!(needs(&env.tree, &send), [NeededRow::Message(first[0])]);
    env.tree.insert_message(stored);
    assert_eq!(approve(&mut env, no, "yes").unwrap(), first);
}

#[test]
fn many_keys_of_ended_recipients_do_not_stay_in_memory() {
    let mut env = Env::new();
    let old = env.spawn(job());
    for key in 0..1_100 {
        submit(&mut env, keyed(operator(), to(old), &format!("k{key}"), "x")).unwrap();
        env.park(old, key + 1, ConditionRequest::Message { timeout: None, name: None });
        commit(&mut env);
    }
    env.succeed(old);
    env.collected(client("me"), &[]);
    commit(&mut env);
    assert_eq!(env.tree.loaded_count(), 0);
    let new = env.spawn(job());
    for key in 0..1_100 {
        submit(&mut env, keyed(operator(), to(new), &format!("k{key}"), "x")).unwrap();
        env.park(new, key + 1, ConditionRequest::Message { timeout: None, name: None });
        commit(&mut env);
    }
    assert!(env.tree.message_key_count() <= 1_100, "{}", env.tree.message_key_count());
    assert_eq!(submit(&mut env, keyed(operator(), to(new), "k0", "x")).unwrap().len(), 1);
    assert_eq!(sent_count(&env), 2_200);
}

#[test]
fn a_wait_for_a_name_leaves_other_messages_in_the_inbox() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let note = env.send_to(no);
    assert!(env.park(no, 1, receive_named("approval")), "a note is not what it waits for");
    let named = SendCommand {
        name: Some("approval".into()),
        ..SendCommand::new(operator(), to(no), json("yes"))
    };
    let older = submit(&mut env, named.clone()).unwrap()[0];
    assert_eq!(received(&env, no, 1), older);
    let newer = submit(&mut env, named).unwrap()[0];
    assert!(!env.park(no, 2, receive_named("approval")));
    assert_eq!(received(&env, no, 2), newer);
    assert!(!env.park(no, 3, ConditionRequest::Message { timeout: None, name: None }));
    assert_eq!(received(&env, no, 3), note, "a wait without a name takes the oldest of all");
    assert_eq!(env.unread(Owner::Task(no)), 0);
}

#[test]
fn a_wait_for_a_name_ends_at_its_timeout_beside_other_messages() {
    let mut env = Env::new();
    let no = env.spawn(job());
    env.send_to(no);
    let request = ConditionRequest::Message { timeout: Some(Millis(50)), name: Some("x".into()) };
    assert!(env.park(no, 1, request));
    env.advance(50);
    assert_eq!(env.completion(no, 1), Some(&CallCompletion::Elapsed));
    assert_eq!(env.unread(Owner::Task(no)), 1);
}

#[test]
fn a_bad_name_is_refused_by_send_and_by_receive() {
    let mut env = Env::new();
    let no = env.spawn(job());
    let send = SendCommand { name: Some("".into()), ..keyed(operator(), to(no), "k", "x") };
    refused(submit(&mut env, send), RefusalKind::Invalid, "is empty");
    let parked = env.park_all(
        no,
        vec![(1, receive_named("a\nb"))],
        brigade_model::command::AfterPark::Continue,
    );
    refused(parked, RefusalKind::Invalid, "control");
}
