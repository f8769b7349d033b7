//! Tasks by what people type: a number, a name, the beginning of one.

use std::sync::Arc;

use brigade_llm::suggestion::{edit_distance, is_near};
use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::TaskRow;
use brigade_runtime::Session;
use brigade_store::TaskQuery;

use crate::request_context::LocatedTask;

/// How many of the newest tasks are looked through for the beginning of a name.
const PREFIX_SEARCH_MAX: u32 = 10_000;
/// The task that is meant, or a refusal that offers the nearest.
pub async fn locate_task(session: Session, task: TaskRef) -> Result<LocatedTask, Refusal> {
    let run = task.run;
    let refusal = match session.get(task.clone()).await {
        Ok((no, row)) => return Ok(new_located_task(session, no, run, row)),
        Err(refusal) if refusal.kind == RefusalKind::NotFound => refusal,
        Err(refusal) => return Err(refusal),
    };
    // Numbers are given out in order, so the newest have the highest.
    let last = session.row().last_task.map_or(0, |no| no.get());
    let after = last.checked_sub(PREFIX_SEARCH_MAX).and_then(TaskNo::new);
    let query = TaskQuery { after, ..TaskQuery::default() };
    let all = session.history(&query).await?;
    if let TaskSelector::Name(name) = &task.selector {
        match find_by_prefix(&all, name.as_str()).as_slice() {
            [] => {}
            [(no, row)] => {
                let (no, row) = (*no, Arc::new((*row).clone()));
                return Ok(new_located_task(session, no, run, row));
            }
            several => {
                let names: Vec<String> =
                    several.iter().map(|(no, row)| render_label(*no, row)).collect();
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

fn new_located_task(
    session: Session,
    no: TaskNo,
    run: Option<RunNo>,
    row: Arc<TaskRow>,
) -> LocatedTask {
    LocatedTask { session, no, run, row }
}

/// Those whose name begins so; the living ones, where there are some.
fn find_by_prefix<'a>(all: &'a [(TaskNo, TaskRow)], start: &str) -> Vec<(TaskNo, &'a TaskRow)> {
    let start = start.to_lowercase();
    let named = all.iter().filter(|(_, row)| {
        row.name.as_ref().is_some_and(|name| name.as_str().to_lowercase().starts_with(&start))
    });
    let named: Vec<(TaskNo, &TaskRow)> = named.map(|(no, row)| (*no, row)).collect();
    let living: Vec<_> = named.iter().filter(|(_, row)| row.is_alive()).copied().collect();
    if living.is_empty() { named } else { living }
}

fn render_label(no: TaskNo, row: &TaskRow) -> String {
    match &row.name {
        Some(name) => format!("{} ({name})", row.address(no)),
        None => row.address(no),
    }
}

/// Names for a name. A number is like no other, with its kind or without: another number is another
/// task, and not a way to spell this one.
fn find_nearest(all: &[(TaskNo, TaskRow)], typed: &TaskRef) -> Option<String> {
    let text = typed.to_string().to_lowercase();
    let candidates = all.iter().rev().filter_map(|(no, row)| {
        let candidate = match &typed.selector {
            TaskSelector::Number(_) | TaskSelector::KindAndNumber(..) => return None,
            TaskSelector::Name(_) => row.name.as_ref()?.as_str().to_lowercase(),
        };
        Some((edit_distance(&candidate, &text), render_label(*no, row)))
    });
    let (distance, near) = candidates.min_by_key(|(distance, _)| *distance)?;
    is_near(distance, &text).then_some(near)
}
