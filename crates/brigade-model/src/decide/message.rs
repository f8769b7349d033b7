//! Sends messages, and reads the session's inbox.

use std::sync::Arc;

use super::scope::{ControlVerb, fence, may_control, resolve_controllable};
use super::session::open_run;
use super::{CommandReply, Decision, Draft};
use crate::call::CallCompletion;
use crate::command::{Caller, MarkRead, ReadInboxCommand, Recipient, SendCommand};
use crate::entry_label::EntryLabel;
use crate::event::Event;
use crate::ids::{MessageNo, Owner, RunNo, TaskNo, Time};
use crate::limits::INBOX_DEFAULT;
use crate::message::{Message, MessageKey, MessageKeyScope, MessagePurpose, MessageSender};
use crate::name::check_message_name;
use crate::refusal::Refusal;
use crate::task::TaskRow;
use crate::task_tree::TaskTree;
use crate::work::{FollowUp, InboxMode};

pub(super) fn send(tree: &TaskTree, send: &SendCommand, now: Time) -> Result<Decision, Refusal> {
    fence(tree, &send.caller)?;
    send.name.as_deref().map_or(Ok(()), check_message_name)?;
    let recipients = resolve_recipients(tree, send)?;
    let mut drafts: Vec<Draft> = Vec::with_capacity(recipients.len());
    let mut numbers = Vec::with_capacity(recipients.len());
    let mut last = tree.row().last_message;
    for to in recipients {
        refuse_part(tree, to)?;
        if let Some(no) = find_repeated(tree, send, to)? {
            numbers.push(no);
            continue;
        }
        let mut run = message_key_scope(tree, &send.caller, to).run;
        if let Some(event) = open_run_for_message(tree, send, to)? {
            drafts.push(event.into());
            run = run.next();
        }
        check_input(tree, to)?;
        check_inbox_limit(tree, to)?;
        if send.closes_input {
            check_input_closable(tree, to)?;
        }
        last = MessageNo(last.0 + 1);
        numbers.push(last);
        let message = Message {
            no: last,
            to,
            from: sender_of(tree, &send.caller, to),
            body: send.body.clone(),
            sent_at: now,
            purpose: MessagePurpose::Note,
            interrupt: send.interrupt,
            reply_to: send.reply_to,
            closes_input: send.closes_input,
            name: send.name.clone(),
            key: send.key.clone().map(|key| MessageKey { key, run }),
        };
        drafts.push(Event::MessageSent(Arc::new(message)).into());
    }
    let decision = Decision { drafts, reply: CommandReply::Sent(numbers.clone()) };
    Ok(decision.record_for(
        send.caller.task(),
        send.call,
        EntryLabel::Send,
        CallCompletion::Sent(numbers),
    ))
}

/// Refuses a message to a part of a task: its input belongs to its parent.
fn refuse_part(tree: &TaskTree, to: Owner) -> Result<(), Refusal> {
    let Some(row) = to.task().and_then(|no| tree.get(no)) else { return Ok(()) };
    match (row.spec.part_of_parent, row.owner.task()) {
        (true, Some(parent)) => Err(Refusal::invalid(format!(
            "it is the program of task {parent}; send the message to that task"
        ))),
        _ => Ok(()),
    }
}

/// Returns the scope of a key in a message to this recipient, as long as the message opens no run.
pub(crate) fn message_key_scope(tree: &TaskTree, caller: &Caller, to: Owner) -> MessageKeyScope {
    let from = caller.task();
    let run = to.task().or(from).and_then(|no| tree.get(no)).map_or(RunNo::FIRST, |row| row.run);
    MessageKeyScope { to, from, run }
}

/// Returns the message that the key of a command already identifies. Refuses the key if it stands
/// for another message.
fn find_repeated(
    tree: &TaskTree,
    send: &SendCommand,
    to: Owner,
) -> Result<Option<MessageNo>, Refusal> {
    let Some(key) = &send.key else { return Ok(None) };
    let scope = message_key_scope(tree, &send.caller, to);
    let Some(mark) = tree.find_message_key(scope, key) else { return Ok(None) };
    // After retention has removed the message, only the key is left to compare.
    let Some(message) = tree.find_message(to, mark.no) else { return Ok(Some(mark.no)) };
    let differences: Vec<&str> = [
        ("body", message.body == send.body),
        ("name", message.name == send.name),
        ("interrupt", message.interrupt == send.interrupt),
        ("reply", message.reply_to == send.reply_to),
        ("end of input", message.closes_input == send.closes_input),
    ]
    .into_iter()
    .filter(|(_, same)| !same)
    .map(|(field, _)| field)
    .collect();
    match differences.as_slice() {
        [] => Ok(Some(mark.no)),
        _ => Err(Refusal::conflict(format!(
            "the key {:?} stands for message {}, which differs in: {}; use another key",
            key.as_str(),
            mark.no,
            differences.join(", ")
        ))),
    }
}

pub(crate) fn resolve_recipients(
    tree: &TaskTree,
    send: &SendCommand,
) -> Result<Vec<Owner>, Refusal> {
    match &send.to {
        Recipient::Task(task) => {
            let no = resolve_controllable(tree, &send.caller, task, ControlVerb::Send)?;
            Ok(vec![Owner::Task(no)])
        }
        Recipient::Parent => match &send.caller {
            Caller::Task { no, .. } => Ok(tree.owner_of(*no).into_iter().collect()),
            Caller::Operator | Caller::Client(_) => {
                Err(Refusal::invalid("only a task has a parent; name the task you mean"))
            }
        },
        Recipient::Children => {
            let is_recipient = |no: &TaskNo| {
                let row = tree.get(*no);
                row.is_some_and(|row| {
                    !row.is_ending() && row.spec.work.missing_input_reason().is_none()
                }) && may_control(tree, &send.caller, *no)
            };
            Ok(tree.children(send.caller.owner()).filter(is_recipient).map(Owner::Task).collect())
        }
    }
}

/// Opens the next run of an ended task, if its kind allows that for a message.
fn open_run_for_message(
    tree: &TaskTree,
    send: &SendCommand,
    to: Owner,
) -> Result<Option<Event>, Refusal> {
    let Owner::Task(no) = to else { return Ok(None) };
    let Some(row) = tree.get(no) else { return Ok(None) };
    if !row.is_ending() {
        return Ok(None);
    }
    let opens_run = row.spec.work.policy().follow_up == FollowUp::NewRun;
    if row.ended().is_some() && opens_run && !send.alive_only {
        return open_run(tree, &send.caller, no, None).map(Some);
    }
    Err(Refusal::ended(format!(
        "{} {} and takes no more messages",
        row.address(no),
        row.state.render_phrase()
    )))
}

/// Refuses a message that cannot arrive, instead of turning it into a dead letter later.
fn check_input(tree: &TaskTree, to: Owner) -> Result<(), Refusal> {
    let Some(task) = to.task().and_then(|no| tree.view(no)) else { return Ok(()) };
    match task.row.spec.work.missing_input_reason() {
        Some(problem) => Err(Refusal::invalid(format!("{} {problem}", task.address()))),
        None => Ok(()),
    }
}

/// Checks that the recipient has an input that can end: only work with a pushed inbox does.
fn check_input_closable(tree: &TaskTree, to: Owner) -> Result<(), Refusal> {
    match to.task().and_then(|no| tree.view(no)) {
        Some(task) if task.row.spec.work.policy().inbox_mode == InboxMode::Push => Ok(()),
        Some(task) => {
            let address = task.address();
            Err(Refusal::invalid(format!("{address} has no input that could be closed")))
        }
        None => Err(Refusal::invalid("a session has no input that could be closed")),
    }
}

pub(super) fn check_inbox_limit(tree: &TaskTree, to: Owner) -> Result<(), Refusal> {
    let unread = tree.unread_count(to);
    let limit = tree.owner_chain(to).find_map(|holder| tree.limits(holder)?.inbox);
    let max = limit.unwrap_or(INBOX_DEFAULT) as usize;
    if unread < max {
        return Ok(());
    }
    let name = match to {
        Owner::Session => "the session".to_owned(),
        Owner::Task(no) => tree.get(no).map_or(String::new(), |row: &TaskRow| row.address(no)),
    };
    Err(Refusal::limit(format!("the inbox of {name} is full: {unread} unread messages")))
}

fn sender_of(tree: &TaskTree, caller: &Caller, to: Owner) -> MessageSender {
    match caller {
        Caller::Operator => MessageSender::Operator,
        Caller::Client(_) => MessageSender::Client,
        Caller::Task { no, .. } => {
            let owned = to.task().and_then(|to| tree.owner_of(to)) == Some(Owner::Task(*no));
            if owned { MessageSender::Parent(*no) } else { MessageSender::Child(*no) }
        }
    }
}

pub(super) fn read_inbox(tree: &TaskTree, read: &ReadInboxCommand) -> Result<Decision, Refusal> {
    if let Caller::Task { .. } = read.caller {
        return Err(Refusal::forbidden("a task receives from its own inbox only"));
    }
    let unread =
        tree.inbox(Owner::Session).filter(|message| is_for_caller(tree, &read.caller, message));
    let unread = unread.cloned();
    let messages: Vec<Arc<Message>> = match &read.mark_read {
        MarkRead::Nothing => return Ok(Decision::reply(CommandReply::Inbox(unread.collect()))),
        MarkRead::Oldest(max) => unread.take(*max).collect(),
        MarkRead::These(these) => unread.filter(|message| these.contains(&message.no)).collect(),
    };
    let mut decision = Decision::reply(CommandReply::Inbox(messages.clone()));
    for message in messages {
        decision.drafts.push(Event::MessageRead { to: Owner::Session, message: message.no }.into());
    }
    Ok(decision)
}

/// Returns whether a message to the session is for this caller. Messages of a client's tasks are
/// for the conversation that started them. If the sender is evicted, the reader of the rows must
/// check this.
fn is_for_caller(tree: &TaskTree, caller: &Caller, message: &Message) -> bool {
    let (Caller::Client(client), MessageSender::Child(no)) = (caller, &message.from) else {
        return true;
    };
    tree.started_by(*no).is_none_or(|starter| client.receives_from(starter))
}
