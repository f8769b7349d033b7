//! Keys and names of messages: a key is taken once, also after the session was loaded again.

use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{AfterPark, AttemptReport, Caller, Recipient};
use brigade_model::ids::{CallIndex, MessageNo, Owner, RunNo, TaskNo};
use brigade_model::limits::Limits;
use brigade_model::message::{MessageKeyScope, Receipt};

use super::StoreHarness;
use super::retention::prune_tasks;
use super::writer::{NewMessage, SessionWriter, agent, client, job};

/// Checks that a repeated key finds its message after reopening: unread, read, and after the
/// recipient has ended and left memory.
pub async fn message_keys_stay_taken_across_reopening(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, Limits::default()).await;
    let no = writer.spawn(client(), job()).await;
    let to = Recipient::Task(no.into());
    let first = writer.send_message(Caller::Operator, to.clone(), NewMessage::keyed("one")).await;
    writer.send_message(Caller::Operator, to.clone(), NewMessage::keyed("two")).await;
    for stage in ["unread", "read", "ended", "evicted"] {
        match stage {
            "read" => receive(&mut writer, no, None).await,
            "ended" => writer.finish(no).await,
            "evicted" => {
                writer.collect(client(), &[no]).await;
            }
            _ => {}
        }
        writer = writer.reopen(harness).await;
        writer.reload().await;
        let seq = writer.tree.row().seq;
        let again = writer.send_message(Caller::Operator, to.clone(), NewMessage::keyed("one"));
        assert_eq!(again.await, first, "{stage}");
        assert_eq!(writer.tree.row().seq, seq, "a repeat changes nothing: {stage}");
    }
    assert_eq!(writer.tree.loaded_count(), 0, "the repeat was found without the task in memory");
    assert_eq!(writer.tree.row().last_message, MessageNo(2));
}

/// Checks the scope of a key: the recipient's run and the sender, or the sender's run for a message
/// to the session.
pub async fn message_keys_have_a_scope(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, Limits::default()).await;
    let parent = writer.spawn(client(), agent()).await;
    let acting = writer.caller_of(parent);
    let one = writer.spawn(acting.clone(), job()).await;
    let other = writer.spawn(acting, job()).await;
    let mut sent = Vec::new();
    for sender in [one, other, parent] {
        let caller = writer.caller_of(sender);
        let message = NewMessage::keyed("done");
        sent.push(writer.send_message(caller, Recipient::Parent, message).await);
    }
    writer = writer.reopen(harness).await;
    writer.reload().await;
    for (sender, first) in [one, other, parent].into_iter().zip(&sent) {
        let caller = writer.caller_of(sender);
        let message = NewMessage::keyed("done");
        assert_eq!(writer.send_message(caller, Recipient::Parent, message).await, *first);
    }
    assert_eq!(writer.tree.row().last_message, MessageNo(3), "each sender sent one");
    let key = "done".parse().expect("a key");
    let scope = MessageKeyScope { to: Owner::Task(parent), from: Some(other), run: RunNo::FIRST };
    let found = writer.store.message_key(writer.id(), scope, &key).await.expect("a lookup");
    assert_eq!(found.map(|mark| mark.no), Some(sent[1]));
    for wrong in [
        MessageKeyScope { from: None, ..scope },
        MessageKeyScope { run: RunNo(2), ..scope },
        MessageKeyScope { to: Owner::Session, ..scope },
    ] {
        let found = writer.store.message_key(writer.id(), wrong, &key).await.expect("a lookup");
        assert_eq!(found, None, "{wrong:?}");
    }
    for no in [one, other, parent] {
        writer.finish(no).await;
    }
    let to = Recipient::Task(parent.into());
    let opening = NewMessage::keyed("again");
    let opened = writer.send_message(client(), to.clone(), opening.clone()).await;
    writer = writer.reopen(harness).await;
    writer.reload().await;
    assert_eq!(writer.send_message(client(), to, opening).await, opened, "it opened one run");
    assert_eq!(writer.tree.get(parent).map(|row| row.run), Some(RunNo(2)));
}

/// Checks that the keys of a removed task go with it, and that others stay.
pub async fn message_keys_go_with_their_task(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, Limits::default()).await;
    let gone = writer.spawn(client(), job()).await;
    let alive = writer.spawn(client(), job()).await;
    for no in [gone, alive] {
        let to = Recipient::Task(no.into());
        writer.send_message(Caller::Operator, to, NewMessage::keyed("k")).await;
    }
    writer.finish(gone).await;
    writer.collect(client(), &[gone]).await;
    assert_eq!(prune_tasks(&writer).await, 1);
    let key = "k".parse().expect("a key");
    for (no, is_found) in [(gone, false), (alive, true)] {
        let scope = MessageKeyScope { to: Owner::Task(no), from: None, run: RunNo::FIRST };
        let found = writer.store.message_key(writer.id(), scope, &key).await.expect("a lookup");
        assert_eq!(found.is_some(), is_found, "{no}");
    }
}

/// Checks that a wait for a name is loaded with its name, and takes only messages of that name.
pub async fn a_named_receive_survives_reopening(harness: &dyn StoreHarness) {
    let mut writer = SessionWriter::open(&harness.empty().await, 1, Limits::default()).await;
    let no = writer.spawn(client(), job()).await;
    let to = Recipient::Task(no.into());
    let named = |name: &str| NewMessage { name: Some(name.into()), key: None };
    let blue = writer.send_message(Caller::Operator, to.clone(), named("blue")).await;
    receive(&mut writer, no, Some("red")).await;
    writer = writer.reopen(harness).await;
    writer.reload().await;
    assert_eq!(writer.tree.unread_count(Owner::Task(no)), 1, "it waits beside another message");
    let red = writer.send_message(Caller::Operator, to, named("red")).await;
    let journal = writer.store.journal(writer.id(), no).await.expect("a journal");
    let completion = journal.last().map(|entry| &*entry.completion);
    let Some(CallCompletion::Message(message)) = completion else { panic!("{completion:?}") };
    assert_eq!(message.no, red);
    assert_eq!(message.name.as_deref(), Some("red"));
    for (number, receipt) in [(blue, Receipt::Accepted), (red, Receipt::Read)] {
        let row = writer.store.message(writer.id(), number).await.expect("a message");
        assert_eq!(row.map(|row| row.receipt), Some(receipt));
    }
}

async fn receive(writer: &mut SessionWriter, no: TaskNo, name: Option<&str>) {
    let index = writer.tree.get(no).map_or(0, |row| row.journal_len);
    let request = ConditionRequest::Message { timeout: None, name: name.map(Into::into) };
    let calls = vec![(CallIndex(index), request)];
    let then = AfterPark::Suspend { parked_count: 1 };
    let park = AttemptReport::Park { calls, acked_entries: u32::MAX, then };
    writer.report(no, park).await;
}
