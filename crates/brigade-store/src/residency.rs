//! What has to be in memory of a tree, and what retention may remove.

use std::collections::HashSet;

use brigade_model::call::Condition;
use brigade_model::ids::{Owner, TaskNo};
use brigade_model::task::TaskRow;

/// How a task stands with those who could still ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Residency {
    /// It has not ended.
    Alive,
    /// It ended, but its performer has not returned.
    Lingering,
    /// Its owner has yet to collect it.
    Pending,
    /// Nobody asks for it without naming it: it was collected, or it is the operator's, who reads
    /// results by their address and collects nothing.
    Finished,
}

impl Residency {
    pub fn of(row: &TaskRow) -> Self {
        match row.ended() {
            None => Self::Alive,
            Some(ended) if ended.lingering => Self::Lingering,
            Some(_) if row.is_collected() => Self::Finished,
            Some(_) if row.owner == Owner::Session && row.client.is_none() => Self::Finished,
            Some(_) => Self::Pending,
        }
    }
}

/// Adds to the open tasks of a tree what they lead to: the tasks that their parked waits will be
/// told of, whatever is above a task that still holds a slot, and whatever limits one that lives. The
/// tasks are in ascending order, before and after.
pub fn add_required_tasks<E>(
    tasks: &mut Vec<(TaskNo, TaskRow)>,
    mut stored: impl FnMut(TaskNo) -> Result<Option<TaskRow>, E>,
) -> Result<(), E> {
    let mut wanted: Vec<TaskNo> = Vec::new();
    for (_, row) in &*tasks {
        let standing = Residency::of(row);
        if standing == Residency::Lingering {
            wanted.extend(row.owner.task());
        }
        if standing < Residency::Pending {
            wanted.extend(row.limit_holder().task());
        }
        for call in &row.parked_calls {
            if let Condition::Tasks(wait) = &call.condition {
                wanted.extend_from_slice(&wait.tasks);
            }
        }
    }
    let open = tasks.len();
    let mut looked_for = HashSet::new();
    while let Some(no) = wanted.pop() {
        let known = tasks[..open].binary_search_by_key(&no, |(no, _)| *no).is_ok();
        if !known
            && looked_for.insert(no)
            && let Some(row) = stored(no)?
        {
            wanted.extend(row.owner.task());
            wanted.extend(row.limit_holder().task());
            tasks.push((no, row));
        }
    }
    tasks.sort_by_key(|(no, _)| *no);
    Ok(())
}
