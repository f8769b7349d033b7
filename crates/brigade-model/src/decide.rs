//! What a command leads to: events, or a refusal that changes nothing.
//!
//! `decide` looks at a tree and says what the command itself does. What follows from that (a parent
//! that is woken, a queued task that gets the slot) is found by `react`, one event at a time, so
//! that each consequence is decided against the tree as it then is.

mod answer;
mod approve;
pub(crate) mod budget;
mod collect;
pub(crate) mod inbox;
mod message;
mod park;
mod recover;
mod report;
mod scope;
mod session;
mod spawn;
pub(crate) mod stop;
mod tick;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::{CallCompletion, ParkedCall, RunResult, SpawnedTask};
use crate::command::Command;
use crate::event::Event;
use crate::ids::{CallIndex, MessageNo, TaskNo, Time};
use crate::limits::{LimitKind, RemainingBudgets, Usage};
use crate::message::Message;
use crate::refusal::Refusal;
use crate::task_tree::TaskTree;

pub(crate) use approve::complete_granted_calls;
pub(crate) use park::{complete_call, is_condition_met};
pub(crate) use spawn::{is_queued_at, start_or_queue};

/// What a command does by itself.
#[derive(Debug)]
pub struct Decision {
    pub drafts: Vec<Draft>,
    pub reply: CommandReply,
}

/// An event without its place, with what goes into the journal beside it.
#[derive(Clone, Debug)]
pub struct Draft {
    pub event: Event,
    pub entry: Option<EntryDraft>,
}

#[derive(Clone, Debug)]
pub struct EntryDraft {
    pub index: CallIndex,
    pub label: Arc<str>,
    pub completion: Arc<CallCompletion>,
}

/// What the caller is told.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandReply {
    Done,
    Spawned(SpawnedTask),
    Sent(Vec<MessageNo>),
    Inbox(Vec<Arc<Message>>),
    Stopped(StopResult),
    /// How the awaited runs ended.
    Results(Vec<RunResult>),
    /// Not yet: these are still going on.
    Pending(Vec<TaskNo>),
    /// Whether the performer is to let go of the task.
    Parked {
        suspended: bool,
    },
    /// There were news, which are in the journal now.
    InboxTaken(Arc<CallCompletion>),
    /// What may be spent.
    Granted(Usage),
    /// It may go on and spend so much, of what is left.
    Reserved {
        amount: Usage,
        remaining: RemainingBudgets,
    },
    /// Nothing may be spent any more; the holder of the limit is being ended.
    Exhausted(LimitKind),
}

/// What a stop reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopResult {
    /// Living tasks in what was stopped.
    pub tasks: u32,
    /// It had been told, or had ended, before.
    pub already_stopped: bool,
}

impl From<Event> for Draft {
    fn from(event: Event) -> Self {
        Self { event, entry: None }
    }
}

impl Draft {
    /// A parked call is answered.
    pub(crate) fn call_completed(
        no: TaskNo,
        index: CallIndex,
        label: &str,
        answer: CallCompletion,
    ) -> Self {
        let answer = Arc::new(answer);
        let event = Event::CallCompleted { no, index, digest: digest(&answer) };
        Self { event, entry: Some(EntryDraft { index, label: label.into(), completion: answer }) }
    }

    /// A parked call is dropped.
    pub(crate) fn call_abandoned(no: TaskNo, call: &ParkedCall) -> Self {
        let answer = Arc::new(CallCompletion::Abandoned);
        let event = Event::Abandoned { no, index: call.index, digest: digest(&answer) };
        let (index, label) = (call.index, call.condition.label().into());
        Self { event, entry: Some(EntryDraft { index, label, completion: answer }) }
    }

    /// A call is answered in passing.
    pub(crate) fn call_recorded(no: TaskNo, entry: EntryDraft) -> Self {
        let event = Event::Recorded { no, index: entry.index, digest: digest(&entry.completion) };
        Self { event, entry: Some(entry) }
    }
}

impl Decision {
    pub(crate) fn reply(reply: CommandReply) -> Self {
        Self { drafts: Vec::new(), reply }
    }

    pub(crate) fn event(event: Event, reply: CommandReply) -> Self {
        Self { drafts: vec![event.into()], reply }
    }

    /// Records the reply under the caller's call, so that a caller entered again is told the same.
    pub(crate) fn record_for(
        mut self,
        caller: Option<TaskNo>,
        call: Option<CallIndex>,
        label: &str,
        answer: CallCompletion,
    ) -> Self {
        if let (Some(no), Some(index)) = (caller, call) {
            let entry = EntryDraft { index, label: label.into(), completion: Arc::new(answer) };
            self.drafts.push(Draft::call_recorded(no, entry));
        }
        self
    }
}

/// Decides a command at a time, which is never before the tree's own.
pub fn decide(tree: &TaskTree, command: &Command, now: Time) -> Result<Decision, Refusal> {
    match command {
        Command::SetLimits(set) => session::set_limits(tree, set),
        Command::Close(close) => session::close(tree, close),
        Command::Spawn(spawn) => spawn::spawn(tree, spawn, now),
        Command::Send(send) => message::send(tree, send, now),
        Command::ReadInbox(read) => message::read_inbox(tree, read),
        Command::Stop(stop) => stop::stop(tree, stop, now),
        Command::Collect(collect) => collect::collect(tree, collect),
        Command::Answer(given) => answer::answer(tree, given, now),
        Command::Revoke(revoke) => approve::revoke(tree, revoke),
        Command::Resume(resume) => session::resume(tree, resume),
        Command::Report(report) => report::report(tree, report, now),
        Command::Tick => Ok(tick::tick(tree, now)),
        Command::Sweep => Ok(Decision::reply(CommandReply::Done)),
        Command::Recover(recover) => recover::recover(tree, recover, now),
    }
}

fn digest(answer: &CallCompletion) -> u64 {
    // Most answers are text already.
    if let CallCompletion::Value(value) = answer {
        return xxhash_rust::xxh3::xxh3_64(value.as_str().as_bytes());
    }
    let text = serde_json::to_vec(answer).unwrap_or_default();
    xxhash_rust::xxh3::xxh3_64(&text)
}
