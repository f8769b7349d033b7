//! News: what a task has not heard of, taken all at once.

use std::sync::Arc;

use super::collect::{collected, endings_of};
use super::{Decision, Draft, EntryDraft, Reply, budget};
use crate::call::{Answer, Condition, Ending, Gathered};
use crate::event::Event;
use crate::ids::{CallIndex, Owner, TaskNo, Time};
use crate::json::PAYLOAD_MAX;
use crate::limits::Usage;
use crate::refusal::Refusal;
use crate::task::{State, TaskRow};
use crate::tree::Tree;
use crate::work::InboxMode;

/// Lets a task go on: with what it has not heard of, or else with what it may spend.
pub(super) fn proceed(
    tree: &Tree,
    (no, row): (TaskNo, &TaskRow),
    index: CallIndex,
    (most, least): (Usage, Usage),
    now: Time,
) -> Result<Decision, Refusal> {
    if !matches!(row.state, State::Running) {
        return Err(Refusal::ended(format!("{} {}", row.address(no), row.state.phrase())));
    }
    asks_for_messages(no, row)?;
    if !any(tree, no, row) {
        return Ok(budget::leave(tree, no, (most, least), now));
    }
    let (mut drafts, answer) = take(tree, no, row);
    let answer = Arc::new(answer);
    let entry = EntryDraft { index, label: Condition::News.label().into(), answer: answer.clone() };
    drafts.push(Draft::recorded(no, entry));
    Ok(Decision { drafts, reply: Reply::Gathered(answer) })
}

/// Refuses work that is handed its messages as they come.
pub(super) fn asks_for_messages(no: TaskNo, row: &TaskRow) -> Result<(), Refusal> {
    match row.spec.work.conduct().inbox {
        InboxMode::Pull => Ok(()),
        InboxMode::Push => Err(Refusal::invalid(format!(
            "messages to {} are handed to it as they come",
            row.address(no)
        ))),
    }
}

pub(crate) fn any(tree: &Tree, no: TaskNo, row: &TaskRow) -> bool {
    tree.unread(Owner::Task(no)) > 0 || untold(tree, no, row).next().is_some()
}

/// Takes it: messages are read and results collected in the commit that tells of them. Of very much
/// only a part is taken, and the rest is news still.
pub(super) fn take(tree: &Tree, no: TaskNo, row: &TaskRow) -> (Vec<Draft>, Answer) {
    let me = Owner::Task(no);
    let mut room = Room { bytes: BYTES_AT_ONCE, pieces: PIECES_AT_ONCE };
    let messages: Vec<_> = tree
        .inbox(me)
        .take_while(|message| room.takes(message.body.as_str().len()))
        .cloned()
        .collect();
    let endings = untold(tree, no, row).take_while(|ending| room.takes(ending.outcome.bytes()));
    let endings: Vec<Ending> = endings.collect();
    let read = messages.iter().map(|message| Event::MessageRead { to: me, message: message.no });
    let drafts = read.chain(collected(&endings)).map(Draft::from).collect();
    (drafts, Answer::Gathered(Gathered { messages, endings }))
}

/// How much news is taken at once: it becomes one entry of a journal.
const BYTES_AT_ONCE: usize = PAYLOAD_MAX / 4;
const PIECES_AT_ONCE: usize = 256;

struct Room {
    bytes: usize,
    pieces: usize,
}

impl Room {
    /// Whether there is room for one more. There always is for the first; after one that is refused
    /// there is none for any.
    fn takes(&mut self, bytes: usize) -> bool {
        let first = self.pieces == PIECES_AT_ONCE;
        if self.pieces == 0 || (bytes > self.bytes && !first) {
            *self = Self { bytes: 0, pieces: 0 };
            return false;
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        self.pieces -= 1;
        true
    }
}

/// How children of this run ended, as far as nobody was told.
fn untold(tree: &Tree, no: TaskNo, row: &TaskRow) -> impl Iterator<Item = Ending> {
    let children = tree.children(Owner::Task(no)).filter_map(|no| Some((no, tree.get(no)?)));
    let run = row.run;
    children
        .filter(move |(_, child)| child.asked_by() == run)
        .flat_map(|(no, child)| endings_of(no, child))
        .filter(|ending| !ending.collected_before)
}

/// Whether something will still come: a child lives that does not outlive the task.
pub(super) fn expected(tree: &Tree, no: TaskNo) -> bool {
    let mut children = tree.children(Owner::Task(no)).filter_map(|no| tree.get(no));
    children.any(|child| child.is_living() && !child.spec.keep)
}
