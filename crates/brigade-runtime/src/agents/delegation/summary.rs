//! The summary of a task for an agent.

use brigade_agent::AgentProgress;
use brigade_delegation::{AgentTaskSummary, TaskSummary, WorktreeSummary, render_away};
use brigade_model::ids::{TaskNo, Time};
use brigade_model::task::TaskRow;
use brigade_model::work::TaskKind;

/// Returns the summary of a task for the agent that started it.
pub(super) fn summarize_task(no: TaskNo, row: &TaskRow, now: Time) -> TaskSummary {
    let ended = row.ended();
    let until = ended.map_or(now, |ended| ended.at);
    let is_agent = row.spec.work.kind() == TaskKind::Agent;
    TaskSummary {
        address: row.address(no),
        name: row.name.as_ref().map(ToString::to_string),
        state: row.state.label().to_owned(),
        detail: ended
            .map(|ended| ended.outcome.to_string())
            .or_else(|| render_absence(row, now))
            .or_else(|| {
                (row.ready_at().is_some() && row.is_performed()).then(|| "ready".to_owned())
            }),
        is_alive: row.is_alive(),
        exit_code: None,
        signal: None,
        elapsed_ms: until.since(row.spawned_at).0,
        description: row.spec.work.description(),
        agent: is_agent.then(|| summarize_agent(row)),
        worktree: row.worktree().filter(|one| one.kept() != Some(false)).map(|one| {
            WorktreeSummary { path: one.path.to_string(), branch: one.branch.to_string() }
        }),
        returned_before: false,
        other_conversation: false,
    }
}

/// Renders the absence of a process's host.
fn render_absence(row: &TaskRow, now: Time) -> Option<String> {
    let away = row.away()?;
    Some(render_away(&away.node, now.since(away.since).0))
}

/// Summarizes an agent, without its questions, which reach the parent as messages.
fn summarize_agent(row: &TaskRow) -> AgentTaskSummary {
    let progress = row.extras.as_ref().and_then(|extra| extra.progress.as_ref());
    match progress.and_then(|progress| progress.decode::<AgentProgress>().ok()) {
        Some(at) => {
            AgentTaskSummary { step: at.step, activity: at.activity, ..AgentTaskSummary::default() }
        }
        None => AgentTaskSummary::default(),
    }
}
