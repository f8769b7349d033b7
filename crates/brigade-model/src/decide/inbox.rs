//! Takes a task's inbox: its unread messages and uncollected results, all at once.

use std::sync::Arc;

use super::collect::{collected_event, results_of};
use super::{CommandReply, Decision, Draft, EntryDraft, budget};
use crate::call::{CallCompletion, InboxBatch, RunResult};
use crate::entry_label::EntryLabel;
use crate::event::Event;
use crate::ids::{CallIndex, Owner, TaskNo, Time};
use crate::json::PAYLOAD_MAX;
use crate::limits::CostEstimate;
use crate::message::Message;
use crate::refusal::Refusal;
use crate::task::TaskState;
use crate::task_tree::{TaskTree, TaskView};
use crate::work::InboxMode;

/// Begins a step: takes the inbox if it holds items, otherwise reserves budget.
pub(super) fn begin_step(
    tree: &TaskTree,
    task: TaskView<'_>,
    index: CallIndex,
    estimate: CostEstimate,
    now: Time,
) -> Result<Decision, Refusal> {
    if !matches!(task.row.state, TaskState::Running) {
        let phrase = task.row.state.render_phrase();
        return Err(Refusal::ended(format!("{} {phrase}", task.address())));
    }
    check_pulls_inbox(task)?;
    if !has_inbox_items(tree, task) {
        return Ok(budget::reserve_with_remaining(tree, task.no, estimate, now));
    }
    let (mut drafts, completion) = take_inbox(tree, task);
    let completion = Arc::new(completion);
    let entry = EntryDraft { index, label: EntryLabel::Inbox, completion: completion.clone() };
    drafts.push(Draft::call_recorded(task.no, entry));
    Ok(Decision { drafts, reply: CommandReply::InboxTaken(completion) })
}

/// Refuses work with a pushed inbox.
pub(super) fn check_pulls_inbox(task: TaskView<'_>) -> Result<(), Refusal> {
    match task.row.spec.work.policy().inbox_mode {
        InboxMode::Pull => Ok(()),
        InboxMode::Push => Err(Refusal::invalid(format!(
            "messages to {} are pushed to it; it cannot wait for them",
            task.address()
        ))),
    }
}

pub(crate) fn has_inbox_items(tree: &TaskTree, task: TaskView<'_>) -> bool {
    tree.unread_count(Owner::Task(task.no)) > 0 || uncollected_results(tree, task).next().is_some()
}

/// Takes all messages of the inbox, or the first of very many. They are read in the commit that
/// delivers them.
pub(super) fn take_messages(tree: &TaskTree, no: TaskNo) -> (Vec<Draft>, Vec<Arc<Message>>) {
    read_messages(tree, no, &mut BatchCapacity::default())
}

fn read_messages(
    tree: &TaskTree,
    no: TaskNo,
    capacity: &mut BatchCapacity,
) -> (Vec<Draft>, Vec<Arc<Message>>) {
    let me = Owner::Task(no);
    let messages: Vec<_> = tree
        .inbox(me)
        .take_while(|message| capacity.admit(message.body.as_str().len()))
        .cloned()
        .collect();
    let read = messages.iter().map(|message| Event::MessageRead { to: me, message: message.no });
    (read.map(Draft::from).collect(), messages)
}

/// Takes the inbox: messages are read and results collected in the commit that delivers them. If
/// the inbox is very large, only a part is taken.
pub(super) fn take_inbox(tree: &TaskTree, task: TaskView<'_>) -> (Vec<Draft>, CallCompletion) {
    let mut capacity = BatchCapacity::default();
    let (mut drafts, messages) = read_messages(tree, task.no, &mut capacity);
    let results = uncollected_results(tree, task)
        .take_while(|result| capacity.admit(result.outcome.result_bytes()));
    let results: Vec<RunResult> = results.collect();
    drafts.extend(collected_event(&results).map(Draft::from));
    (drafts, CallCompletion::Inbox(InboxBatch { messages, results }))
}

/// The maximum size of one batch, which becomes one journal entry.
const BATCH_BYTES_MAX: usize = PAYLOAD_MAX / 4;
const BATCH_ITEMS_MAX: usize = 256;

struct BatchCapacity {
    bytes: usize,
    items: usize,
}

impl Default for BatchCapacity {
    fn default() -> Self {
        Self { bytes: BATCH_BYTES_MAX, items: BATCH_ITEMS_MAX }
    }
}

impl BatchCapacity {
    /// Returns whether one more item fits. The first always does. After one that does not fit, no
    /// other does.
    fn admit(&mut self, bytes: usize) -> bool {
        let first = self.items == BATCH_ITEMS_MAX;
        if self.items == 0 || (bytes > self.bytes && !first) {
            *self = Self { bytes: 0, items: 0 };
            return false;
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        self.items -= 1;
        true
    }
}

/// Returns the uncollected results of children of this run. A part is no child whose result counts:
/// its parent waits for it itself.
fn uncollected_results(tree: &TaskTree, task: TaskView<'_>) -> impl Iterator<Item = RunResult> {
    let children = tree.children(Owner::Task(task.no)).filter_map(|no| Some((no, tree.get(no)?)));
    let run = task.row.run;
    children
        .filter(move |(_, child)| child.opened_by_run() == run && !child.spec.part_of_parent)
        .flat_map(|(no, child)| results_of(no, child))
        .filter(|result| !result.collected_before)
}

/// Returns whether a child is alive that does not outlive the task, so that a result will follow.
pub(super) fn has_awaited_children(tree: &TaskTree, no: TaskNo) -> bool {
    let mut children = tree.children(Owner::Task(no)).filter_map(|no| tree.get(no));
    children.any(|child| child.is_alive() && !child.spec.keep)
}
