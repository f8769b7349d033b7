//! The rows that must be in memory before a command is decided.
//!
//! Ended tasks are evicted from memory. A command that names one is decided after its row was
//! loaded again, so that `decide` does no IO.

use crate::address::{TaskRef, TaskSelector};
use crate::call::ConditionRequest;
use crate::command::{
    AttemptReport, Caller, Command, GivenAnswer, Recipient, SendCommand, StopTarget,
};
use crate::decide::{message_key_scope, resolve_recipients};
use crate::ids::{MessageNo, Owner, RunNo, TaskNo};
use crate::message::MessageKeyScope;
use crate::name::{IdempotencyKey, TaskName};
use crate::task::TaskRow;
use crate::task_tree::{KeyScope, TaskTree};

/// A row to load, with the method of the tree that takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NeededRow {
    /// A task, for [`TaskTree::insert_loaded`].
    Task(TaskNo),
    /// The newest task with this name, among the children of the owner if there is one.
    Named { owner: Option<Owner>, name: TaskName },
    /// A message that was sent with a key, for [`TaskTree::insert_message`].
    Message(MessageNo),
    /// The number of the message to an ended task that has this key, for
    /// [`TaskTree::insert_found_message_key`]. The keys of alive recipients are in memory.
    MessageKey { scope: MessageKeyScope, key: IdempotencyKey },
}

/// Returns the rows to load. A row that does not exist is no error here, because `decide` refuses
/// the command. A loaded row can need others, so call this until nothing new is needed.
pub fn needs(tree: &TaskTree, command: &Command) -> Vec<NeededRow> {
    let mut needs = NeedsCollector { tree, found: Vec::new() };
    if let Some(no) = command.caller().and_then(Caller::task) {
        needs.add_task(no);
    }
    match command {
        Command::Spawn(spawn) => needs.add_keyed(spawn),
        Command::Send(send) => {
            if let Recipient::Task(task) = &send.to {
                needs.add_controlled(&send.caller, task);
            }
            needs.add_keyed_message(send);
        }
        Command::Stop(stop) => {
            if let StopTarget::Task(task) = &stop.target {
                needs.add_controlled(&stop.caller, task);
            }
        }
        Command::Collect(collect) => {
            for task in &collect.tasks {
                needs.add_reference(&collect.caller, task);
            }
        }
        // A client decides for the descendants of tasks that it started.
        Command::Answer(given) => match (&given.caller, &given.answer) {
            (Caller::Client(_), GivenAnswer::Verdict(_) | GivenAnswer::ShownVerdict { .. }) => {
                needs.add_reference(&Caller::Operator, &given.task);
            }
            (caller, _) => needs.add_controlled(caller, &given.task),
        },
        Command::Resume(resume) => needs.add_controlled(&resume.caller, &resume.task),
        Command::SetLimits(set) => {
            if let Some(task) = &set.task {
                needs.add_controlled(&set.caller, task);
            }
        }
        Command::Report(report) => {
            needs.add_task(report.no);
            if let AttemptReport::Park { calls, .. } = &report.report {
                for (_, asked) in calls {
                    if let ConditionRequest::Tasks { tasks, .. }
                    | ConditionRequest::Ready { tasks, .. } = asked
                    {
                        tasks.iter().for_each(|no| needs.add_task(*no));
                    }
                }
            }
        }
        Command::Recover(recover) => needs.add_task(recover.no),
        Command::ReleaseWorktree(release) => needs.add_task(release.no),
        Command::Close(_)
        | Command::ReadInbox(_)
        | Command::Revoke(_)
        | Command::Tick
        | Command::Sweep => {}
    }
    needs.found
}

struct NeedsCollector<'a> {
    tree: &'a TaskTree,
    found: Vec<NeededRow>,
}

impl NeedsCollector<'_> {
    fn add_task(&mut self, no: TaskNo) {
        if self.tree.get(no).is_none() && self.tree.has_assigned(no) {
            self.found.push(NeededRow::Task(no));
        }
    }

    fn add_reference(&mut self, caller: &Caller, task: &TaskRef) {
        match &task.selector {
            TaskSelector::Number(no) | TaskSelector::KindAndNumber(_, no) => self.add_task(*no),
            TaskSelector::Name(name) => {
                if self.tree.find_alive_by_name(caller.owner(), name).is_none() {
                    let owner = match caller {
                        Caller::Operator => None,
                        Caller::Client(_) | Caller::Task { .. } => Some(caller.owner()),
                    };
                    self.found.push(NeededRow::Named { owner, name: name.clone() });
                }
            }
        }
    }

    /// Adds a task that is to be controlled, with its limit holders. They show who may control it,
    /// and count its usage.
    fn add_controlled(&mut self, caller: &Caller, task: &TaskRef) {
        self.add_reference(caller, task);
        match &task.selector {
            TaskSelector::Number(no) | TaskSelector::KindAndNumber(_, no) => {
                self.add_limit_holders(*no)
            }
            TaskSelector::Name(name) => {
                let has_name = |row: &TaskRow| row.name.as_ref().is_some_and(|n| n.same_as(name));
                let named = self.tree.rows().filter(|(_, row)| !row.is_alive() && has_name(row));
                let named: Vec<TaskNo> = named.map(|(no, _)| no).collect();
                named.into_iter().for_each(|no| self.add_limit_holders(no));
            }
        }
    }

    fn add_limit_holders(&mut self, no: TaskNo) {
        if self.tree.get(no).is_some_and(|row| !row.is_alive()) {
            let holders = self.tree.limit_holders(Owner::Task(no)).filter_map(Owner::task);
            let holders: Vec<TaskNo> = holders.collect();
            holders.into_iter().for_each(|no| self.add_task(no));
        }
    }

    fn add_keyed_message(&mut self, send: &SendCommand) {
        let Some(key) = &send.key else { return };
        // A command without a valid recipient is refused.
        for to in resolve_recipients(self.tree, send).unwrap_or_default() {
            let scope = message_key_scope(self.tree, &send.caller, to);
            match self.tree.find_message_key(scope, key) {
                Some(mark) if self.tree.find_message(to, mark.no).is_none() => {
                    self.found.push(NeededRow::Message(mark.no));
                }
                Some(_) => {}
                None if !self.tree.has_message_keys(scope) => {
                    self.found.push(NeededRow::MessageKey { scope, key: key.clone() });
                }
                None => {}
            }
        }
    }

    fn add_keyed(&mut self, spawn: &crate::command::SpawnCommand) {
        let owner = spawn.caller.owner();
        let run = owner.task().and_then(|no| self.tree.get(no)).map_or(RunNo::FIRST, |row| row.run);
        if let Some(key) = &spawn.spec.key
            && let Some(mark) = self.tree.find_by_key(KeyScope { owner, run }, key)
        {
            self.add_task(mark.no);
        }
    }
}
