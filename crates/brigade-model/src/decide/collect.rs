//! A client's wait: results leave for it in the commit that answers it.

use std::collections::BTreeSet;

use std::sync::Arc;

use super::scope::resolve_task;
use super::{CommandReply, Decision};
use crate::call::{RunResult, WaitMode};
use crate::command::{Caller, CollectCommand};
use crate::event::Event;
use crate::ids::{RunNo, TaskNo};
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
        Caller::Task { .. } => {
            return Err(Refusal::invalid("a task waits by parking a call"));
        }
        Caller::Operator | Caller::Client(_) => {}
    }
    let mut endings = Vec::new();
    let mut pending = Vec::new();
    for (no, run) in tasks {
        let Some(row) = tree.get(no) else { continue };
        match run {
            Some(run) if run != row.run => endings.push(earlier_result(no, row, run)?),
            _ => {
                endings.extend(results_of(no, row));
                if row.is_alive() {
                    pending.push(no);
                }
            }
        }
    }
    let mut told = BTreeSet::new();
    endings.retain(|ending| told.insert((ending.no, ending.run)));
    let answered = match collect.mode {
        WaitMode::Any => !endings.is_empty() || pending.is_empty(),
        WaitMode::All => pending.is_empty(),
    };
    if !answered {
        return Ok(Decision::reply(CommandReply::Pending(pending)));
    }
    let consumes = collect.caller != Caller::Operator;
    let event = consumes.then(|| collected_event(&endings)).flatten();
    Ok(Decision {
        drafts: event.into_iter().map(Into::into).collect(),
        reply: CommandReply::Results(endings),
    })
}

/// What there is to tell of a task: its ending, and those of earlier runs that nobody heard of.
pub(crate) fn results_of(no: TaskNo, row: &TaskRow) -> impl Iterator<Item = RunResult> {
    let ending = move |run, outcome: &Arc<Outcome>, at, collected_before| RunResult {
        no,
        run,
        kind: row.spec.work.kind(),
        name: row.name.clone(),
        outcome: outcome.clone(),
        ended_at: at,
        collected_before,
    };
    let earlier = row.extras.iter().flat_map(|extra| &extra.earlier_runs);
    let earlier = earlier.map(move |run| ending(run.run, &run.outcome, run.ended_at, false));
    earlier.chain(row.ended().map(move |ended| {
        ending(row.run, &ended.outcome, ended.at, ended.delivery == ResultDelivery::Collected)
    }))
}

fn earlier_result(no: TaskNo, row: &TaskRow, run: RunNo) -> Result<RunResult, Refusal> {
    results_of(no, row).find(|ending| ending.run == run).ok_or_else(|| {
        Refusal::not_found(format!(
            "run {run} of {} was collected, and a later run began; read its result in the feed",
            row.address(no)
        ))
    })
}

/// The event by which these results are delivered, if any of them was not before.
pub(crate) fn collected_event(endings: &[RunResult]) -> Option<Event> {
    let fresh = endings.iter().filter(|ending| !ending.collected_before);
    let runs: Vec<(TaskNo, RunNo)> = fresh.map(|ending| (ending.no, ending.run)).collect();
    (!runs.is_empty()).then_some(Event::Collected { runs })
}
