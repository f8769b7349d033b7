//! Decides a command: returns drafts of events, or a refusal that changes nothing.
//!
//! `decide` reads a tree and returns the direct effects of the command. `react` finds the
//! consequences, such as a woken parent or a queued task that gets the slot. It handles one event
//! at a time, so that each consequence is decided against the current tree.

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
mod worktree;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::call::{CallCompletion, ParkedCall, RunResult, SpawnedTask};
use crate::command::Command;
use crate::entry_label::EntryLabel;
use crate::event::Event;
use crate::ids::{CallIndex, MessageNo, TaskNo, Time};
use crate::limits::{LimitKind, RemainingBudgets, Usage};
use crate::message::Message;
use crate::refusal::Refusal;
use crate::task_tree::TaskTree;

pub(crate) use approve::complete_granted_calls;
pub(crate) use message::{message_key_scope, resolve_recipients};
pub(crate) use park::{complete_call, is_condition_met};
pub(crate) use spawn::{is_queued_at, start_event, start_or_queue};

/// The direct effects of a command, and its reply.
#[derive(Debug)]
pub struct Decision {
    pub drafts: Vec<Draft>,
    pub reply: CommandReply,
}

/// An event without a sequence number, with its journal entry if it has one.
#[derive(Clone, Debug)]
pub struct Draft {
    pub event: Event,
    pub entry: Option<EntryDraft>,
}

#[derive(Clone, Debug)]
pub struct EntryDraft {
    pub index: CallIndex,
    pub label: EntryLabel,
    pub completion: Arc<CallCompletion>,
}

/// The reply to a command, beside its events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum CommandReply {
    Done,
    Spawned(SpawnedTask),
    Sent(Vec<MessageNo>),
    Inbox(Vec<Arc<Message>>),
    Stopped(StopResult),
    /// The outcomes of the awaited runs.
    Results(Vec<RunResult>),
    /// The results are not there yet, because these tasks are still alive.
    Pending(Vec<TaskNo>),
    /// True if the performer is to release the task.
    Parked {
        suspended: bool,
    },
    /// The inbox items that were taken and recorded.
    InboxTaken(Arc<CallCompletion>),
    /// The amount that was reserved.
    Granted(Usage),
    /// The amount that was reserved for a step, and the remaining budgets.
    Reserved {
        amount: Usage,
        remaining: RemainingBudgets,
    },
    /// The budget is exhausted, and the holder of the limit is being ended.
    Exhausted(LimitKind),
}

/// The reach of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopResult {
    /// The number of alive tasks in the stopped subtrees.
    pub tasks: u32,
    /// True if all of it had been stopped or had ended before.
    pub already_stopped: bool,
}

impl From<Event> for Draft {
    fn from(event: Event) -> Self {
        Self { event, entry: None }
    }
}

impl Draft {
    /// Creates the draft that completes a parked call.
    pub(crate) fn call_completed(
        no: TaskNo,
        index: CallIndex,
        label: EntryLabel,
        completion: CallCompletion,
    ) -> Self {
        let completion = Arc::new(completion);
        let event = Event::CallCompleted { no, index, digest: digest(&completion) };
        Self { event, entry: Some(EntryDraft { index, label, completion }) }
    }

    /// Creates the draft that drops a parked call.
    pub(crate) fn call_abandoned(no: TaskNo, call: &ParkedCall) -> Self {
        let completion = Arc::new(CallCompletion::Abandoned);
        let event = Event::Abandoned { no, index: call.index, digest: digest(&completion) };
        let index = call.index;
        let label = call.condition.label();
        Self { event, entry: Some(EntryDraft { index, label, completion }) }
    }

    /// Creates the draft of a call that completed without parking.
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

    /// Records the completion under the caller's call, so that a caller that is entered again gets
    /// the same one.
    pub(crate) fn record_for(
        mut self,
        caller: Option<TaskNo>,
        call: Option<CallIndex>,
        label: EntryLabel,
        completion: CallCompletion,
    ) -> Self {
        if let (Some(no), Some(index)) = (caller, call) {
            let entry = EntryDraft { index, label, completion: Arc::new(completion) };
            self.drafts.push(Draft::call_recorded(no, entry));
        }
        self
    }
}

/// Decides a command at `now`, which is never before the session's own time.
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
        Command::ReleaseWorktree(release) => worktree::release(tree, release),
    }
}

fn digest(completion: &CallCompletion) -> u64 {
    // Most completions are text already.
    if let CallCompletion::Value(value) = completion {
        return xxhash_rust::xxh3::xxh3_64(value.as_str().as_bytes());
    }
    let text = serde_json::to_vec(completion).unwrap_or_default();
    xxhash_rust::xxh3::xxh3_64(&text)
}
