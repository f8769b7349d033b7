//! What must be in memory before a command can be decided.
//!
//! Ended tasks leave memory. A command that names one is decided after its row was loaded again, so
//! that `decide` sees it and does no IO.

use crate::address::{TaskRef, Who};
use crate::call::Asked;
use crate::command::{Caller, Command, Given, Recipient, Reported, StopTarget};
use crate::ids::{Owner, TaskNo};
use crate::name::Name;
use crate::task::TaskRow;
use crate::tree::Tree;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    Task(TaskNo),
    /// The newest task with this name; with an owner, among its children.
    Named {
        owner: Option<Owner>,
        name: Name,
    },
}

/// What to load. A row that does not exist is not an error here: the decision will say so. A loaded row
/// can need others in turn, so this is asked until nothing new is needed.
pub fn needs(tree: &Tree, command: &Command) -> Vec<Need> {
    let mut needs = Needs { tree, found: Vec::new() };
    if let Some(no) = command.caller().and_then(Caller::task) {
        needs.task(no);
    }
    match command {
        Command::Spawn(spawn) => needs.key(spawn),
        Command::Send(send) => {
            if let Recipient::Task(task) = &send.to {
                needs.steered(&send.caller, task);
            }
        }
        Command::Stop(stop) => {
            if let StopTarget::Task(task) = &stop.target {
                needs.steered(&stop.caller, task);
            }
        }
        Command::Collect(collect) => {
            for task in &collect.tasks {
                needs.reference(&collect.caller, task);
            }
        }
        // A client decides for whatever is below what it started.
        Command::Answer(given) => match (&given.caller, &given.answer) {
            (Caller::Client(_), Given::Verdict(_)) => {
                needs.reference(&Caller::Operator, &given.task);
            }
            (caller, _) => needs.steered(caller, &given.task),
        },
        Command::Resume(resume) => needs.steered(&resume.caller, &resume.task),
        Command::SetLimits(set) => {
            if let Some(task) = &set.task {
                needs.steered(&set.caller, task);
            }
        }
        Command::Report(report) => {
            needs.task(report.no);
            if let Reported::Park { calls, .. } = &report.what {
                for (_, asked) in calls {
                    if let Asked::Tasks { tasks, .. } = asked {
                        tasks.iter().for_each(|no| needs.task(*no));
                    }
                }
            }
        }
        Command::Recover(recover) => needs.task(recover.no),
        Command::Close(_)
        | Command::ReadInbox(_)
        | Command::Revoke(_)
        | Command::Tick
        | Command::Sweep => {}
    }
    needs.found
}

struct Needs<'a> {
    tree: &'a Tree,
    found: Vec<Need>,
}

impl Needs<'_> {
    fn task(&mut self, no: TaskNo) {
        if self.tree.get(no).is_none() && self.tree.was_numbered(no) {
            self.found.push(Need::Task(no));
        }
    }

    fn reference(&mut self, caller: &Caller, task: &TaskRef) {
        match &task.who {
            Who::No(no) | Who::Kinded(_, no) => self.task(*no),
            Who::Named(name) => {
                if self.tree.living_named(caller.owner(), name).is_none() {
                    let owner = match caller {
                        Caller::Operator => None,
                        Caller::Client(_) | Caller::Task { .. } => Some(caller.owner()),
                    };
                    self.found.push(Need::Named { owner, name: name.clone() });
                }
            }
        }
    }

    /// A task that is to do something, with all that limits it: that says who may ask for it, and counts
    /// what it then uses.
    fn steered(&mut self, caller: &Caller, task: &TaskRef) {
        self.reference(caller, task);
        match &task.who {
            Who::No(no) | Who::Kinded(_, no) => self.holders(*no),
            Who::Named(name) => {
                let bears = |row: &TaskRow| row.name.as_ref().is_some_and(|n| n.same_as(name));
                let named = self.tree.rows().filter(|(_, row)| !row.is_living() && bears(row));
                let named: Vec<TaskNo> = named.map(|(no, _)| no).collect();
                named.into_iter().for_each(|no| self.holders(no));
            }
        }
    }

    fn holders(&mut self, no: TaskNo) {
        if self.tree.get(no).is_some_and(|row| !row.is_living()) {
            let holders = self.tree.limit_holders(Owner::Task(no)).filter_map(Owner::task);
            let holders: Vec<TaskNo> = holders.collect();
            holders.into_iter().for_each(|no| self.task(no));
        }
    }

    fn key(&mut self, spawn: &crate::command::Spawn) {
        let owner = spawn.caller.owner();
        let run = owner.task().and_then(|no| self.tree.get(no)).map(|row| row.run);
        if let Some(key) = &spawn.spec.key
            && let Some(mark) = self.tree.keyed(owner, run.unwrap_or(crate::ids::RunNo::FIRST), key)
        {
            self.task(mark.no);
        }
    }
}
