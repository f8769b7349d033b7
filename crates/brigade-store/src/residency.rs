//! Decides which tasks must be in memory and which ones retention may remove.

use std::collections::HashSet;

use brigade_model::call::Condition;
use brigade_model::ids::{Owner, TaskNo};
use brigade_model::task::{StoredTask, TaskRow};

/// The reason to hold a task in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Residency {
    /// The task has not ended.
    Alive,
    /// The task ended, but its performer has not returned.
    Lingering,
    /// The task ended, and its owner has not collected the result.
    Pending,
    /// The task is needed only by its address. Its result was collected, or it belongs to the
    /// operator, who reads results by address and collects nothing.
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

/// Adds the tasks that the open tasks of a session require. These are the tasks of parked waits,
/// the ancestors of tasks that hold a slot, and the limit holders of alive tasks. `tasks` is in
/// ascending order before and after the call.
pub fn add_required_tasks<E>(
    tasks: &mut Vec<StoredTask>,
    mut stored: impl FnMut(TaskNo) -> Result<Option<TaskRow>, E>,
) -> Result<(), E> {
    let mut wanted: Vec<TaskNo> = Vec::new();
    for StoredTask { row, .. } in &*tasks {
        let residency = Residency::of(row);
        if residency == Residency::Lingering {
            wanted.extend(row.owner.task());
        }
        if residency < Residency::Pending {
            wanted.extend(row.limit_holder().task());
        }
        for call in &row.parked_calls {
            if let Condition::Tasks(wait) = &call.condition {
                wanted.extend_from_slice(&wait.tasks);
            }
        }
    }
    let open = tasks.len();
    let mut requested = HashSet::new();
    while let Some(no) = wanted.pop() {
        let known = tasks[..open].binary_search_by_key(&no, |task| task.no).is_ok();
        if !known
            && requested.insert(no)
            && let Some(row) = stored(no)?
        {
            wanted.extend(row.owner.task());
            wanted.extend(row.limit_holder().task());
            tasks.push(StoredTask::new(no, row));
        }
    }
    tasks.sort_by_key(|task| task.no);
    Ok(())
}
