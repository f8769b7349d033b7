//! Conversations of one client: results and messages go to the conversation that requested the run.

use brigade_model::command::{Caller, Command, MarkRead, ReadInboxCommand, Recipient, StopTarget};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{ClientIdentity, ConversationId, TaskNo};
use brigade_model::refusal::RefusalKind;

use crate::support::*;

fn first() -> Caller {
    in_conversation("cook", "c1", &[])
}

fn second() -> Caller {
    in_conversation("cook", "c2", &[])
}

/// Returns the second conversation, when the first has lapsed.
fn successor() -> Caller {
    in_conversation("cook", "c2", &["c1"])
}

fn spawn(env: &mut Env, caller: Caller) -> TaskNo {
    env.try_spawn(caller, agent()).expect("it starts").no
}

#[test]
fn a_wait_without_names_covers_this_conversation() {
    let mut env = Env::new();
    let one = spawn(&mut env, first());
    let two = spawn(&mut env, second());
    env.succeed(one);
    env.succeed(two);
    assert_eq!(env.collected(second(), &[]), [(two, false)]);
    assert_eq!(env.collected(first(), &[]), [(one, false)]);
}

#[test]
fn a_wait_without_names_takes_over_from_a_conversation_that_lapsed() {
    let mut env = Env::new();
    let one = spawn(&mut env, first());
    let others = spawn(&mut env, in_conversation("waiter", "c1", &[]));
    env.succeed(one);
    env.succeed(others);
    assert_eq!(env.collected(second(), &[]), []);
    assert_eq!(env.collected(successor(), &[]), [(one, false)], "no other client's result");
    assert_eq!(env.collected(first(), &[]), [], "it was delivered once");
}

#[test]
fn a_task_of_another_conversation_can_be_awaited_by_name_and_controlled() {
    let mut env = Env::new();
    let one = spawn(&mut env, first());
    env.send(second(), Recipient::Task(one.into())).expect("it is the same client");
    env.stop(second(), StopTarget::Task(one.into())).expect("it is the same client");
    let others = env.stop(in_conversation("waiter", "c1", &[]), StopTarget::Task(one.into()));
    refused(others, RefusalKind::Forbidden, "started by the client cook");
    let done = spawn(&mut env, first());
    env.succeed(done);
    assert_eq!(env.collected(second(), &[done.into()]), [(done, false)]);
}

#[test]
fn a_run_belongs_to_the_conversation_that_requested_it() {
    let mut env = Env::new();
    let no = spawn(&mut env, first());
    env.succeed(no);
    assert_eq!(env.collected(first(), &[]), [(no, false)]);
    env.send(second(), Recipient::Task(no.into())).expect("it is the same client");
    env.succeed(no);
    assert_eq!(env.collected(first(), &[]), [], "the second requested the second run");
    assert_eq!(env.collected(second(), &[]), [(no, false)]);
    env.send_to(no);
    env.succeed(no);
    assert_eq!(env.collected(first(), &[]), []);
    assert_eq!(env.collected(second(), &[]), [(no, false)], "the operator collects no results");
}

#[test]
fn messages_reach_the_conversation_that_started_their_sender() {
    let mut env = Env::new();
    let one = spawn(&mut env, first());
    let by_task = env.by(one);
    env.send(by_task, Recipient::Parent).expect("it has a parent");
    let mut read = |caller: Caller, take: MarkRead| {
        let read = ReadInboxCommand { caller, mark_read: take };
        match env.submit(&Command::ReadInbox(read)) {
            Ok(CommandReply::Inbox(messages)) => messages.len(),
            other => panic!("an inbox was answered with {other:?}"),
        }
    };
    assert_eq!(read(second(), MarkRead::Nothing), 0);
    assert_eq!(read(second(), MarkRead::Oldest(9)), 0, "nothing was taken from the first");
    assert_eq!(read(successor(), MarkRead::Nothing), 1);
    assert_eq!(read(first(), MarkRead::Oldest(9)), 1);
}

#[test]
fn an_unrecorded_conversation_matches_every_conversation_of_its_client() {
    let old: ClientIdentity = serde_json::from_str(r#"{"name": "cook"}"#).expect("it was stored");
    assert_eq!(old.conversation, Some(ConversationId::unrecorded()));
    assert!("".parse::<ConversationId>().is_err(), "no client can have that one");
    let Caller::Client(second) = second() else { panic!("it is a client") };
    assert!(second.receives_from(&old));
    let none = serde_json::to_string(&ClientIdentity::from("cook")).expect("it is written");
    let none: ClientIdentity = serde_json::from_str(&none).expect("it is read");
    assert_eq!(none.conversation, None);
    assert!(!second.receives_from(&none), "a client without conversations names its tasks");
}
