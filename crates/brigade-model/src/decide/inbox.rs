//! News: what a task has not heard of, taken all at once.

use std::sync::Arc;

use super::collect::{collected_event, results_of};
use super::{CommandReply, Decision, Draft, EntryDraft, budget};
use crate::call::{CallCompletion, Condition, InboxBatch, RunResult};
use crate::event::Event;
use crate::ids::{CallIndex, Owner, TaskNo, Time};
use crate::json::PAYLOAD_MAX;
use crate::limits::Usage;
use crate::refusal::Refusal;
use crate::task::{TaskRow, TaskState};
use crate::task_tree::TaskTree;
use crate::work::InboxMode;

/// Lets a task go on: with what it has not heard of, or else with what it may spend.
pub(super) fn begin_step(
    tree: &TaskTree,
    (no, row): (TaskNo, &TaskRow),
    index: CallIndex,
    (most, least): (Usage, Usage),
    now: Time,
) -> Result<Decision, Refusal> {
    if !matches!(row.state, TaskState::Running) {
        return Err(Refusal::ended(format!("{} {}", row.address(no), row.state.render_phrase())));
    }
    check_pulls_inbox(no, row)?;
    if !has_inbox_items(tree, no, row) {
        return Ok(budget::reserve_with_remaining(tree, no, (most, least), now));
    }
    let (mut drafts, answer) = take_inbox(tree, no, row);
    let answer = Arc::new(answer);
    let entry =
        EntryDraft { index, label: Condition::Inbox.label().into(), completion: answer.clone() };
    drafts.push(Draft::call_recorded(no, entry));
    Ok(Decision { drafts, reply: CommandReply::InboxTaken(answer) })
}

/// Refuses work that is handed its messages as they come.
pub(super) fn check_pulls_inbox(no: TaskNo, row: &TaskRow) -> Result<(), Refusal> {
    match row.spec.work.policy().inbox_mode {
        InboxMode::Pull => Ok(()),
        InboxMode::Push => Err(Refusal::invalid(format!(
            "messages to {} are handed to it as they come",
            row.address(no)
        ))),
    }
}

pub(crate) fn has_inbox_items(tree: &TaskTree, no: TaskNo, row: &TaskRow) -> bool {
    tree.unread_count(Owner::Task(no)) > 0 || uncollected_results(tree, no, row).next().is_some()
}

/// Takes it: messages are read and results collected in the commit that tells of them. Of very much
/// only a part is taken, and the rest is news still.
pub(super) fn take_inbox(
    tree: &TaskTree,
    no: TaskNo,
    row: &TaskRow,
) -> (Vec<Draft>, CallCompletion) {
    let me = Owner::Task(no);
    let mut room = BatchCapacity { bytes: BATCH_BYTES_MAX, items: BATCH_ITEMS_MAX };
    let messages: Vec<_> = tree
        .inbox(me)
        .take_while(|message| room.admit(message.body.as_str().len()))
        .cloned()
        .collect();
    let endings = uncollected_results(tree, no, row)
        .take_while(|ending| room.admit(ending.outcome.result_bytes()));
    let endings: Vec<RunResult> = endings.collect();
    let read = messages.iter().map(|message| Event::MessageRead { to: me, message: message.no });
    let drafts = read.chain(collected_event(&endings)).map(Draft::from).collect();
    (drafts, CallCompletion::Inbox(InboxBatch { messages, results: endings }))
}

/// How much news is taken at once: it becomes one entry of a journal.
const BATCH_BYTES_MAX: usize = PAYLOAD_MAX / 4;
const BATCH_ITEMS_MAX: usize = 256;

struct BatchCapacity {
    bytes: usize,
    items: usize,
}

impl BatchCapacity {
    /// Whether there is room for one more. There always is for the first; after one that is refused
    /// there is none for any.
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

/// How children of this run ended, as far as nobody was told.
fn uncollected_results(
    tree: &TaskTree,
    no: TaskNo,
    row: &TaskRow,
) -> impl Iterator<Item = RunResult> {
    let children = tree.children(Owner::Task(no)).filter_map(|no| Some((no, tree.get(no)?)));
    let run = row.run;
    children
        .filter(move |(_, child)| child.opened_by_run() == run)
        .flat_map(|(no, child)| results_of(no, child))
        .filter(|ending| !ending.collected_before)
}

/// Whether something will still come: a child lives that does not outlive the task.
pub(super) fn has_awaited_children(tree: &TaskTree, no: TaskNo) -> bool {
    let mut children = tree.children(Owner::Task(no)).filter_map(|no| tree.get(no));
    children.any(|child| child.is_alive() && !child.spec.keep)
}
