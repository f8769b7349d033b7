//! Resolves addresses to tasks, within the scope of a caller.

use crate::address::{TaskRef, TaskSelector};
use crate::command::{Caller, ClientControl};
use crate::ids::{Owner, TaskNo};
use crate::refusal::Refusal;
use crate::task::TaskRow;
use crate::task_tree::TaskTree;

impl Caller {
    /// Returns the owner of the tasks that this caller spawns.
    pub fn owner(&self) -> Owner {
        match self {
            Self::Operator | Self::Client(_) => Owner::Session,
            Self::Task { no, .. } => Owner::Task(*no),
        }
    }

    pub(crate) fn task(&self) -> Option<TaskNo> {
        self.owner().task()
    }
}

/// Refuses an attempt that is over, because a later one may be running.
pub(super) fn fence(tree: &TaskTree, caller: &Caller) -> Result<(), Refusal> {
    match caller {
        Caller::Operator | Caller::Client(_) => Ok(()),
        Caller::Task { no, attempt } => match tree.get(*no) {
            Some(row) if row.attempt == *attempt && row.is_performed() => Ok(()),
            Some(row) => Err(Refusal::ended(format!(
                "attempt {attempt} of {} is over; it {}",
                row.address(*no),
                row.state.render_phrase()
            ))),
            None => Err(no_such_task(tree, *no)),
        },
    }
}

/// Returns the task that a reference means, if the caller may see it.
pub(crate) fn resolve_task(
    tree: &TaskTree,
    caller: &Caller,
    task: &TaskRef,
) -> Result<TaskNo, Refusal> {
    let no = match &task.selector {
        TaskSelector::Number(no) => *no,
        TaskSelector::KindAndNumber(kind, no) => {
            let row = tree.get(*no).ok_or_else(|| no_such_task(tree, *no))?;
            if row.spec.work.kind() != *kind {
                return Err(Refusal::not_found(format!(
                    "there is no {kind}:{no}; {no} is {}",
                    row.address(*no)
                )));
            }
            *no
        }
        TaskSelector::Name(name) => resolve_name(tree, caller, name)?,
    };
    let row = tree.get(no).ok_or_else(|| no_such_task(tree, no))?;
    if !may_see(caller, row) {
        return Err(Refusal::forbidden(format!(
            "{} is not yours; you see only tasks that you spawned",
            row.address(no)
        )));
    }
    if let Some(run) = task.run
        && (run.0 == 0 || run > row.run)
    {
        return Err(Refusal::not_found(format!(
            "{} has no run {run}; its latest is {}",
            row.address(no),
            row.run
        )));
    }
    Ok(no)
}

/// An action on a task, named for the CLI command that does the same.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ControlVerb {
    Stop,
    Send,
    Answer,
    Resume,
    SetLimits,
}

impl ControlVerb {
    fn cli_command(self, address: &str) -> String {
        match self {
            Self::Stop => format!("`brigade stop {address}`"),
            Self::Send => format!("`brigade send {address} MESSAGE`"),
            Self::Answer => format!("`brigade answer {address} ANSWER`"),
            Self::Resume | Self::SetLimits => format!("`brigade resume {address}`"),
        }
    }
}

/// Returns the task that a reference means, if the caller may control it.
pub(crate) fn resolve_controllable(
    tree: &TaskTree,
    caller: &Caller,
    task: &TaskRef,
    verb: ControlVerb,
) -> Result<TaskNo, Refusal> {
    let no = resolve_task(tree, caller, task)?;
    if may_control(tree, caller, no) {
        return Ok(no);
    }
    let address = tree.get(no).map(|row| row.address(no)).unwrap_or_default();
    let command = verb.cli_command(&address);
    Err(refuse_unshared(
        &format!("{address} was started by {}", render_starter(tree, no)),
        &command,
    ))
}

/// Returns whether a caller may control a task that it sees.
pub(crate) fn may_control(tree: &TaskTree, caller: &Caller, no: TaskNo) -> bool {
    match caller {
        Caller::Operator | Caller::Task { .. } => true,
        Caller::Client(client) => match client.control {
            ClientControl::Shared => true,
            // A later conversation of the same client controls the tasks of an earlier one.
            ClientControl::Own | ClientControl::Confined => {
                tree.started_by(no).map(|starter| &starter.name) == Some(&client.identity.name)
            }
        },
    }
}

/// Renders the starter of the top-level run above a task.
pub(super) fn render_starter(tree: &TaskTree, no: TaskNo) -> String {
    match tree.started_by(no) {
        Some(client) => format!("the client {client}"),
        None => "the operator".to_owned(),
    }
}

/// Returns the refusal to control another client's tasks, with the possible solutions.
pub(super) fn refuse_unshared(reason: &str, command: &str) -> Refusal {
    Refusal::forbidden(format!(
        "{reason}, and a client controls only tasks that it started itself; ask the user for {command}, \
         or for `shared = true` in the configuration (`brigade mcp --shared`), which lets clients \
         control each other's tasks"
    ))
}

fn may_see(caller: &Caller, row: &TaskRow) -> bool {
    match caller {
        Caller::Operator => true,
        Caller::Client(_) | Caller::Task { .. } => row.owner == caller.owner(),
    }
}

/// Returns the alive task with this name, otherwise the newest ended one in memory.
fn resolve_name(
    tree: &TaskTree,
    caller: &Caller,
    name: &crate::name::TaskName,
) -> Result<TaskNo, Refusal> {
    if let Some(no) = tree.find_alive_by_name(caller.owner(), name) {
        return Ok(no);
    }
    let has_name = |row: &TaskRow| row.name.as_ref().is_some_and(|other| other.same_as(name));
    let in_scope = tree.rows().filter(|(_, row)| may_see(caller, row) && has_name(row));
    let candidates: Vec<(TaskNo, &TaskRow)> = in_scope.collect();
    let alive: Vec<_> = candidates.iter().filter(|(_, row)| row.is_alive()).collect();
    match alive.as_slice() {
        [(no, _)] => Ok(*no),
        [] => candidates.last().map(|(no, _)| *no).ok_or_else(|| {
            Refusal::not_found(format!("no task here is called {:?}", name.as_str()))
        }),
        several => {
            let all: Vec<String> = several.iter().map(|(no, row)| row.address(*no)).collect();
            Err(Refusal::conflict(format!(
                "{} tasks are called {:?}: {}; say which",
                all.len(),
                name.as_str(),
                all.join(", ")
            )))
        }
    }
}

pub(super) fn no_such_task(tree: &TaskTree, no: TaskNo) -> Refusal {
    Refusal::not_found(if tree.has_assigned(no) {
        format!("task {no} was removed by retention")
    } else {
        format!("there is no task {no}")
    })
}
