//! Collects results for a client's wait, in the commit that answers it.

use std::collections::BTreeSet;

use std::sync::Arc;

use super::scope::resolve_task;
use super::{CommandReply, Decision};
use crate::call::{RunResult, WaitMode};
use crate::command::{Caller, CollectCommand};
use crate::event::{CollectedRun, Event};
use crate::ids::{Owner, RunNo, TaskNo};
use crate::outcome::Outcome;
use crate::refusal::Refusal;
use crate::task::{ResultDelivery, TaskRow};
use crate::task_tree::TaskTree;

pub(super) fn collect(tree: &TaskTree, collect: &CollectCommand) -> Result<Decision, Refusal> {
    let mut tasks: Vec<(TaskNo, Option<RunNo>)> = Vec::with_capacity(collect.tasks.len());
    for task in &collect.tasks {
        tasks.push((resolve_task(tree, &collect.caller, task)?, task.run));
    }
    match &collect.caller {
        Caller::Client(client) if tasks.is_empty() => {
            tasks = tree.client_runs(client).map(|no| (no, None)).collect();
        }
        Caller::Task { no, .. } => collect_by_task(tree, *no, &mut tasks)?,
        Caller::Operator | Caller::Client(_) => {}
    }
    let mut results = Vec::new();
    let mut pending = Vec::new();
    for (no, run) in tasks {
        let Some(row) = tree.get(no) else { continue };
        match run {
            Some(run) if run != row.run => results.push(earlier_result(no, row, run)?),
            _ => {
                results.extend(results_of(no, row));
                if row.is_alive() {
                    pending.push(no);
                }
            }
        }
    }
    let mut seen = BTreeSet::new();
    results.retain(|result| seen.insert((result.no, result.run)));
    let is_met = match collect.mode {
        WaitMode::Any => !results.is_empty() || pending.is_empty(),
        WaitMode::All => pending.is_empty(),
    };
    if !is_met {
        return Ok(Decision::reply(CommandReply::Pending(pending)));
    }
    let consumes = collect.caller != Caller::Operator;
    let event = consumes.then(|| collected_event(&results)).flatten();
    Ok(Decision {
        drafts: event.into_iter().map(Into::into).collect(),
        reply: CommandReply::Results(results),
    })
}

/// Checks a wait of a task: only the program that is a part of it waits in its place. Without names,
/// it waits for all other children.
fn collect_by_task(
    tree: &TaskTree,
    agent: TaskNo,
    tasks: &mut Vec<(TaskNo, Option<RunNo>)>,
) -> Result<(), Refusal> {
    let is_part = |no: TaskNo| tree.get(no).is_some_and(|row| row.spec.part_of_parent);
    let is_alive = |no: TaskNo| tree.get(no).is_some_and(|row| row.is_alive());
    let mut children = tree.children(Owner::Task(agent));
    if !children.any(|child| is_part(child) && is_alive(child)) {
        return Err(Refusal::invalid("a task waits by parking a call"));
    }
    if tasks.iter().any(|(no, _)| is_part(*no)) {
        return Err(Refusal::invalid("a program cannot wait for itself"));
    }
    if tasks.is_empty() {
        let is_open = |no: TaskNo| {
            let ended = tree.get(no).and_then(|row| row.ended());
            ended.is_none_or(|ended| ended.delivery == ResultDelivery::Pending)
        };
        let children = tree.children(Owner::Task(agent));
        let children = children.filter(|no| !is_part(*no) && is_open(*no));
        tasks.extend(children.map(|no| (no, None)));
    }
    Ok(())
}

/// Returns the result of a task's latest run, and those of earlier runs that nobody has collected.
pub(crate) fn results_of(no: TaskNo, row: &TaskRow) -> impl Iterator<Item = RunResult> {
    let result = move |run, outcome: &Arc<Outcome>, at, collected_before| RunResult {
        no,
        run,
        kind: row.spec.work.kind(),
        name: row.name.clone(),
        outcome: outcome.clone(),
        ended_at: at,
        collected_before,
    };
    let earlier = row.extras.iter().flat_map(|extra| &extra.earlier_runs);
    let earlier = earlier.map(move |run| result(run.run, &run.outcome, run.ended_at, false));
    earlier.chain(row.ended().map(move |ended| {
        result(row.run, &ended.outcome, ended.at, ended.delivery == ResultDelivery::Collected)
    }))
}

fn earlier_result(no: TaskNo, row: &TaskRow, run: RunNo) -> Result<RunResult, Refusal> {
    results_of(no, row).find(|result| result.run == run).ok_or_else(|| {
        Refusal::not_found(format!(
            "run {run} of {} was collected, and a later run has started; read its result in the feed",
            row.address(no)
        ))
    })
}

/// Returns the event that marks these results as collected, if any of them was not before.
pub(crate) fn collected_event(results: &[RunResult]) -> Option<Event> {
    let fresh = results.iter().filter(|result| !result.collected_before);
    let runs: Vec<CollectedRun> =
        fresh.map(|result| CollectedRun { no: result.no, run: result.run }).collect();
    (!runs.is_empty()).then_some(Event::Collected { runs })
}
