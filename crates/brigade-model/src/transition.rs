//! Handles one command with all its consequences.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::action::Action;
use crate::apply::apply;
use crate::call::{JournalEntry, TaskEntry};
use crate::command::Command;
use crate::decide::{CommandReply, Draft, EntryDraft, decide};
use crate::event::{Event, EventRecord};
use crate::event_author::{CallerOrigin, EventAuthor};
use crate::ids::{Epoch, Owner, Seq, SessionId, Time};
use crate::limits::Limits;
use crate::name::SessionName;
use crate::react::{grant_runtime_slot, grant_slot, react, stop_swept};
use crate::refusal::Refusal;
use crate::task_tree::TaskTree;

/// The number of tasks of a stopped subtree, and of timers, that one transition handles.
pub const SLICE: usize = 512;

/// The reply to a command, and its outputs.
#[derive(Debug)]
pub struct HandledCommand {
    pub reply: CommandReply,
    pub outputs: CommandOutputs,
}

/// The records to store, and the actions to perform after the commit.
#[derive(Debug, Default)]
pub struct CommandOutputs {
    pub events: Vec<Arc<EventRecord>>,
    pub journal: Vec<TaskEntry>,
    pub actions: Vec<Action>,
    /// The author of the last command that had one. Commands of one caller share it.
    pub last_author: Option<Arc<EventAuthor>>,
    /// The number of tasks that stops have reached on their way down. All commands together sweep one
    /// slice; a later transition continues.
    pub swept_count: usize,
}

/// A session to open.
#[derive(Clone, Debug)]
pub struct SessionOpening {
    pub id: SessionId,
    pub name: SessionName,
    pub limits: Limits,
    pub at: Time,
    pub epoch: Epoch,
}

/// Opens a session. Returns the tree and its first event.
pub fn open_session(opening: SessionOpening) -> (TaskTree, Arc<EventRecord>) {
    let SessionOpening { id, name, limits, at, epoch } = opening;
    let event = Event::SessionOpened { name, limits: Box::new(limits) };
    let record = EventRecord { session: id, seq: Seq(1), at, by: None, event };
    let Some(tree) = TaskTree::open(&record, epoch) else {
        unreachable!("the event just made opens a session")
    };
    (tree, Arc::new(record))
}

/// A command on its way to the state machine. The origin is a label: it decides nothing.
#[derive(Clone, Copy, Debug)]
pub struct SubmittedCommand<'a> {
    pub command: &'a Command,
    pub origin: Option<&'a CallerOrigin>,
}

impl<'a> From<&'a Command> for SubmittedCommand<'a> {
    fn from(command: &'a Command) -> Self {
        Self { command, origin: None }
    }
}

impl SubmittedCommand<'_> {
    /// Returns the author of the drafts that are decided for the command: the last one, if it is the
    /// same.
    fn author(&self, last: &mut Option<Arc<EventAuthor>>) -> Option<Arc<EventAuthor>> {
        let caller = self.command.caller()?;
        if !last.as_ref().is_some_and(|author| author.is_of(caller, self.origin)) {
            *last = Some(Arc::new(EventAuthor::of(caller, self.origin)));
        }
        last.clone()
    }
}

/// Decides a command and applies it with all its consequences. A refusal does not change the tree.
pub fn handle_command(
    tree: &mut TaskTree,
    command: &Command,
    at: Time,
) -> Result<HandledCommand, Refusal> {
    let mut outputs = CommandOutputs::default();
    let reply = handle_command_into(tree, command.into(), at, &mut outputs)?;
    Ok(HandledCommand { reply, outputs })
}

/// Handles a command and appends its outputs to those of earlier commands. The events that were
/// decided for it name its author; their consequences do not.
pub fn handle_command_into(
    tree: &mut TaskTree,
    submitted: SubmittedCommand<'_>,
    at: Time,
    outputs: &mut CommandOutputs,
) -> Result<CommandReply, Refusal> {
    let command = submitted.command;
    let now = at.max(tree.row().now);
    let decision = decide(tree, command, now)?;
    let by = match decision.drafts.is_empty() {
        true => None,
        false => submitted.author(&mut outputs.last_author),
    };
    let mut transition = Transition { now, outputs, freed: Vec::new() };
    transition.run_by(tree, decision.drafts, by.as_ref());
    transition.grant_slots(tree);
    match command {
        Command::Tick => transition.fire_due_timers(tree),
        _ => transition.sweep(tree),
    }
    Ok(decision.reply)
}

/// Returns whether a consequence of an earlier draft of the same command has completed this call.
fn is_call_completed(tree: &TaskTree, event: &Event) -> bool {
    match event {
        Event::CallCompleted { no, index, .. } | Event::ApprovalDecided { no, index, .. } => {
            tree.get(*no).is_none_or(|row| row.parked_call(*index).is_none())
        }
        _ => false,
    }
}

struct Transition<'a> {
    now: Time,
    outputs: &'a mut CommandOutputs,
    freed: Vec<Owner>,
}

impl Transition<'_> {
    /// Applies drafts without an author.
    fn run(&mut self, tree: &mut TaskTree, drafts: Vec<Draft>) {
        self.run_by(tree, drafts, None);
    }

    /// Applies drafts in order, each with its consequences before the next.
    fn run_by(&mut self, tree: &mut TaskTree, drafts: Vec<Draft>, by: Option<&Arc<EventAuthor>>) {
        let mut follow_ups: VecDeque<Draft> = VecDeque::new();
        for draft in drafts {
            self.apply_draft(tree, draft, by.cloned(), &mut follow_ups);
            while let Some(follow_up) = follow_ups.pop_front() {
                self.apply_draft(tree, follow_up, None, &mut follow_ups);
            }
        }
    }

    /// Applies one draft, and puts its direct consequences in front of the others.
    fn apply_draft(
        &mut self,
        tree: &mut TaskTree,
        draft: Draft,
        by: Option<Arc<EventAuthor>>,
        follow_ups: &mut VecDeque<Draft>,
    ) {
        if is_call_completed(tree, &draft.event) {
            return;
        }
        let Draft { event, entry } = draft;
        let seq = tree.row().seq.next();
        let record = EventRecord { session: tree.id(), seq, at: self.now, by, event };
        apply(tree, &record);
        let actions = &mut self.outputs.actions;
        let reaction = react(tree, &record.event, entry.as_ref(), self.now, actions);
        if let (Some(no), Some(EntryDraft { index, label, completion })) =
            (record.event.task(), entry)
        {
            let entry = JournalEntry { index, order: seq, label, completion };
            self.outputs.journal.push(TaskEntry { no, entry });
        }
        self.freed.extend(reaction.freed);
        for follow_up in reaction.drafts.into_iter().rev() {
            follow_ups.push_front(follow_up);
        }
        self.outputs.events.push(Arc::new(record));
    }

    /// Grants the slots that became free in the session, and those of the runtime that it may take.
    fn grant_slots(&mut self, tree: &mut TaskTree) {
        self.grant_freed_slots(tree);
        for _ in 0..SLICE {
            let Some(draft) = grant_runtime_slot(tree) else { break };
            self.run(tree, vec![draft]);
            self.grant_freed_slots(tree);
        }
    }

    fn grant_freed_slots(&mut self, tree: &mut TaskTree) {
        while let Some(&from) = self.freed.last() {
            match grant_slot(tree, from) {
                Some(draft) => self.run(tree, vec![draft]),
                None => {
                    self.freed.pop();
                }
            }
        }
    }

    /// Stops the next tasks that a stop reaches on its way down. Their children come after them in
    /// the sweep.
    fn sweep(&mut self, tree: &mut TaskTree) {
        let mut count = 0;
        while self.outputs.swept_count < SLICE
            && let Some(&no) = tree.sweep.get(count as usize)
        {
            count += 1;
            self.outputs.swept_count += 1;
            if let Some(draft) = stop_swept(tree, no, self.now) {
                self.run(tree, vec![draft]);
                self.grant_slots(tree);
            }
        }
        if count > 0 {
            self.run(tree, vec![Event::Swept { count }.into()]);
        }
    }

    fn fire_due_timers(&mut self, tree: &mut TaskTree) {
        for _ in 1..SLICE {
            if tree.due_timer(self.now).is_none() {
                break;
            }
            match decide(tree, &Command::Tick, self.now) {
                Ok(decision) => self.run(tree, decision.drafts),
                Err(_) => break,
            }
            self.grant_slots(tree);
        }
        self.sweep(tree);
    }
}
