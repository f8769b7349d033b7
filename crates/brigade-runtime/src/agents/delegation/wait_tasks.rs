//! Waits for tasks and collects their results.

use brigade_agent::{ToolEffect, ToolError, ToolInvocation, ToolReply};
use brigade_delegation::wait_tasks::render_running;
use brigade_delegation::{Audience, TaskSummary, WaitTasks};
use brigade_model::call::{CallCompletion, ConditionRequest, RunResult, TaskReadiness};
use brigade_model::ids::{Millis, TaskNo};

use super::summary::summarize_task;
use super::{AgentDelegationTool, DelegationContext};

impl AgentDelegationTool for WaitTasks {
    const EFFECT: ToolEffect = ToolEffect::Recorded;

    async fn run(
        self,
        delegate: &DelegationContext,
        call: &ToolInvocation,
    ) -> Result<ToolReply, ToolError> {
        // The results are collected, so nothing may keep them from the model any more.
        if let Some(CallCompletion::Results(results)) = call.completion.as_deref() {
            let mut text = render_run_results(delegate, results);
            if let Some(running) = render_still_running(delegate).await {
                text.push_str(&format!("\n\n{running}"));
            }
            return Ok(ToolReply::text(text));
        }
        let wait = self.wait(Audience::Agent)?;
        let names = self.task_names()?;
        let mut tasks = Vec::with_capacity(names.len());
        for name in names {
            tasks.push(delegate.link.find_child(name).await?.no);
        }
        if let Some(completion) = &call.completion {
            return self::render_completion(delegate, completion, &tasks).await;
        }
        let mode = self.mode();
        let timeout = wait.map(|wait| Millis(wait.as_millis() as u64));
        let condition = match self.awaits_readiness()? {
            true => ConditionRequest::Ready { tasks, mode, timeout, interruptible: true },
            false => ConditionRequest::Tasks { tasks, mode, timeout, interruptible: true },
        };
        Ok(ToolReply::Park { condition, effect: None })
    }
}

fn render_run_results(delegate: &DelegationContext, results: &[RunResult]) -> String {
    match results {
        [] => "There is nothing to wait for: no task of yours is running.".to_owned(),
        results => delegate.quoter.render_run_results(results),
    }
}

/// Renders the tasks after a wait for readiness. The result of one that has ended is shown, and stays
/// to be taken.
fn render_readiness(delegate: &DelegationContext, tasks: &[TaskReadiness]) -> String {
    let mut texts = Vec::with_capacity(tasks.len());
    for TaskReadiness { no, ready_at, result } in tasks {
        let state = match (ready_at, result) {
            (Some(_), None) => "is ready.",
            (Some(_), Some(_)) => "was ready, and has ended since.",
            (None, Some(_)) => "ended before it was ready.",
            (None, None) => "is not ready yet.",
        };
        texts.push(format!("Task {no} {state}"));
        if let Some(result) = result {
            texts.push(delegate.quoter.render_run_results(std::slice::from_ref(result)));
        }
    }
    texts.join("\n")
}

/// Renders the tasks of the agent that are running. Returns `None` if they are not known, since the
/// results matter more.
async fn render_still_running(delegate: &DelegationContext) -> Option<String> {
    let session = delegate.link.session().await.ok()?;
    let now = delegate.agents.now();
    let mut tasks = session.list();
    tasks.retain(|task| task.row.is_alive());
    let tasks: Vec<TaskSummary> =
        tasks.iter().map(|task| summarize_task(task.no, &task.row, now)).collect();
    (!tasks.is_empty()).then(|| render_running(&tasks))
}

/// Renders the completion of a wait.
pub(super) async fn render_completion(
    delegate: &DelegationContext,
    completion: &CallCompletion,
    tasks: &[TaskNo],
) -> Result<ToolReply, ToolError> {
    let reason = match completion {
        CallCompletion::Results(results) => {
            return Ok(ToolReply::text(render_run_results(delegate, results)));
        }
        CallCompletion::Readiness(tasks) => {
            return Ok(ToolReply::text(render_readiness(delegate, tasks)));
        }
        CallCompletion::Elapsed => "The time is up. No result was taken.",
        CallCompletion::Interrupted => {
            "A message arrived, which follows. No result was taken; the tasks continue."
        }
        CallCompletion::Refused(refusal) => return Err(refusal.clone().into()),
        other => {
            return Err(ToolError::new(format!("the wait was completed with {other:?}")));
        }
    };
    let now = delegate.agents.now();
    let all = delegate.link.session().await?.list();
    let waited_for = all.iter().filter(|task| tasks.is_empty() || tasks.contains(&task.no));
    let running: Vec<TaskSummary> =
        waited_for.map(|task| summarize_task(task.no, &task.row, now)).collect();
    match running.is_empty() {
        true => Ok(ToolReply::text(reason)),
        false => Ok(ToolReply::text(format!("{reason}\n{}", render_running(&running)))),
    }
}
