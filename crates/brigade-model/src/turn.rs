//! One command, carried through to its last consequence.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::action::Action;
use crate::apply::apply;
use crate::call::Entry;
use crate::command::Command;
use crate::decide::{Draft, EntryDraft, Reply, decide};
use crate::event::{Event, EventRecord};
use crate::ids::{Epoch, Owner, Seq, TaskNo, Time, TreeId};
use crate::limits::Limits;
use crate::name::SessionName;
use crate::react::{grant, react, sweep_next};
use crate::refusal::Refusal;
use crate::tree::Tree;

/// How many tasks of a stopped subtree, and how many timers, one turn looks at.
pub const SLICE: usize = 512;

/// What a command came to.
#[derive(Debug)]
pub struct Handled {
    pub reply: Reply,
    pub outputs: Outputs,
}

/// What is to be stored, and then done.
#[derive(Debug, Default)]
pub struct Outputs {
    pub events: Vec<Arc<EventRecord>>,
    pub journal: Vec<(TaskNo, Entry)>,
    pub actions: Vec<Action>,
}

/// The first event of a tree, and the tree.
pub fn open_session(
    id: TreeId,
    name: SessionName,
    limits: Limits,
    (at, epoch): (Time, Epoch),
) -> (Tree, Arc<EventRecord>) {
    let event = Event::SessionOpened { name, limits: Box::new(limits) };
    let record = EventRecord { tree: id, seq: Seq(1), at, event };
    let Some(tree) = Tree::open(&record, epoch) else {
        unreachable!("the event just made opens a session")
    };
    (tree, Arc::new(record))
}

/// Decides a command and applies it with all that follows. A refusal leaves the tree as it was.
pub fn handle(tree: &mut Tree, command: &Command, at: Time) -> Result<Handled, Refusal> {
    let mut outputs = Outputs::default();
    let reply = handle_into(tree, command, at, &mut outputs)?;
    Ok(Handled { reply, outputs })
}

/// The same, behind the outputs of what was handled before it.
pub fn handle_into(
    tree: &mut Tree,
    command: &Command,
    at: Time,
    outputs: &mut Outputs,
) -> Result<Reply, Refusal> {
    let now = at.max(tree.row().now);
    let decision = decide(tree, command, now)?;
    let mut turn = Turn { now, outputs, freed: Vec::new() };
    turn.run(tree, decision.drafts);
    turn.settle(tree);
    match command {
        Command::Tick => turn.more_timers(tree),
        _ => turn.sweep(tree),
    }
    Ok(decision.reply)
}

/// Whether a consequence of an earlier draft of the same command has answered this call.
fn already_answered(tree: &Tree, event: &Event) -> bool {
    match event {
        Event::Answered { no, index, .. } | Event::Ruled { no, index, .. } => {
            tree.get(*no).is_none_or(|row| row.open_call(*index).is_none())
        }
        _ => false,
    }
}

struct Turn<'a> {
    now: Time,
    outputs: &'a mut Outputs,
    freed: Vec<Owner>,
}

impl Turn<'_> {
    /// Applies drafts in order, each with its consequences before the next.
    fn run(&mut self, tree: &mut Tree, drafts: Vec<Draft>) {
        let mut queue: VecDeque<Draft> = drafts.into();
        while let Some(draft) = queue.pop_front() {
            if already_answered(tree, &draft.event) {
                continue;
            }
            let Draft { event, entry } = draft;
            let seq = tree.row().seq.next();
            let record = EventRecord { tree: tree.id(), seq, at: self.now, event };
            apply(tree, &record);
            let reaction = react(tree, &record.event, entry.as_ref(), self.now);
            if let (Some(no), Some(EntryDraft { index, label, answer })) =
                (record.event.task(), entry)
            {
                self.outputs.journal.push((no, Entry { index, order: seq, label, answer }));
            }
            self.outputs.actions.extend(reaction.actions);
            self.freed.extend(reaction.freed);
            for follow_up in reaction.drafts.into_iter().rev() {
                queue.push_front(follow_up);
            }
            self.outputs.events.push(Arc::new(record));
        }
    }

    /// Hands out the slots that became free.
    fn settle(&mut self, tree: &mut Tree) {
        while let Some(&from) = self.freed.last() {
            match grant(tree, from) {
                Some(draft) => self.run(tree, vec![draft]),
                None => {
                    self.freed.pop();
                }
            }
        }
    }

    fn sweep(&mut self, tree: &mut Tree) {
        for _ in 0..SLICE {
            let Some(drafts) = sweep_next(tree, self.now) else { break };
            self.run(tree, drafts);
            self.settle(tree);
        }
    }

    fn more_timers(&mut self, tree: &mut Tree) {
        for _ in 1..SLICE {
            if tree.due(self.now).is_none() {
                break;
            }
            match decide(tree, &Command::Tick, self.now) {
                Ok(decision) => self.run(tree, decision.drafts),
                Err(_) => break,
            }
            self.settle(tree);
        }
        self.sweep(tree);
    }
}
