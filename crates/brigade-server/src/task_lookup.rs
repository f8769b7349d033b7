//! Finds the task that a user typed: a number, a name, or the beginning of a name.

use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::ids::TaskNo;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::suggestion::{edit_distance, is_near};
use brigade_model::task::StoredTask;
use brigade_runtime::Session;
use brigade_store::TaskQuery;

use crate::request_context::LocatedTask;

/// The number of newest tasks that are searched for the beginning of a name.
const PREFIX_SEARCH_MAX: u32 = 10_000;

/// Returns the task, or a refusal that suggests the nearest name.
pub async fn locate_task(session: Session, task: TaskRef) -> Result<LocatedTask, Refusal> {
    let run = task.run;
    let refusal = match session.get(task.clone()).await {
        Ok(StoredTask { no, row }) => return Ok(LocatedTask { session, no, run, row }),
        Err(refusal) if refusal.kind == RefusalKind::NotFound => refusal,
        Err(refusal) => return Err(refusal),
    };
    // Numbers grow with each task, so the newest have the highest.
    let last = session.row().last_task.map_or(0, |no| no.get());
    let after = last.checked_sub(PREFIX_SEARCH_MAX).and_then(TaskNo::new);
    let query = TaskQuery { after, ..TaskQuery::default() };
    let all = session.history(&query).await?;
    if let TaskSelector::Name(name) = &task.selector {
        match find_by_prefix(&all, name.as_str()).as_slice() {
            [] => {}
            [StoredTask { no, row }] => {
                return Ok(LocatedTask { session, no: *no, run, row: row.clone() });
            }
            several => {
                let names: Vec<String> = several.iter().map(|task| render_label(task)).collect();
                let names = names.join(", ");
                return Err(Refusal::invalid(format!("{name} may be any of {names}")));
            }
        }
    }
    match find_nearest(&all, &task) {
        Some(near) => Err(Refusal::not_found(format!("{}; did you mean {near}?", refusal.message))),
        None => Err(refusal),
    }
}

/// Returns the tasks whose name has a prefix: the alive ones, or all if none is alive.
fn find_by_prefix<'a>(all: &'a [StoredTask], prefix: &str) -> Vec<&'a StoredTask> {
    let prefix = prefix.to_lowercase();
    let named = all.iter().filter(|StoredTask { row, .. }| {
        row.name.as_ref().is_some_and(|name| name.as_str().to_lowercase().starts_with(&prefix))
    });
    let named: Vec<&StoredTask> = named.collect();
    let alive: Vec<_> = named.iter().filter(|task| task.row.is_alive()).copied().collect();
    if alive.is_empty() { named } else { alive }
}

fn render_label(task: &StoredTask) -> String {
    match &task.row.name {
        Some(name) => format!("{} ({name})", task.address()),
        None => task.address(),
    }
}

/// Returns the label of the task with the nearest name. Numbers get no suggestion: another number
/// is another task, not a misspelling.
fn find_nearest(all: &[StoredTask], typed: &TaskRef) -> Option<String> {
    let text = typed.to_string().to_lowercase();
    let candidates = all.iter().rev().filter_map(|task| {
        let candidate = match &typed.selector {
            TaskSelector::Number(_) | TaskSelector::KindAndNumber(..) => return None,
            TaskSelector::Name(_) => task.row.name.as_ref()?.as_str().to_lowercase(),
        };
        Some((edit_distance(&candidate, &text), render_label(task)))
    });
    let (distance, near) = candidates.min_by_key(|(distance, _)| *distance)?;
    is_near(distance, &text).then_some(near)
}
