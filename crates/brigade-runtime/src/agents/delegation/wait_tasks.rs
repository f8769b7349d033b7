//! Waits for tasks and takes their results.

use brigade_agent::{ToolEffect, ToolError, ToolInvocation, ToolReply};
use brigade_delegation::wait_tasks::render_running;
use brigade_delegation::{Audience, TaskSummary, WaitTasks};
use brigade_model::call::{CallCompletion, ConditionRequest, RunResult};
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
        // The results are taken: nothing may stand between them and the model any more.
        if let Some(CallCompletion::Results(endings)) = call.completion.as_deref() {
            let mut text = render_run_results(delegate, endings);
            if let Some(running) = render_still_running(delegate).await {
                text.push_str(&format!("\n\n{running}"));
            }
            return Ok(ToolReply::text(text));
        }
        let wait = self.wait(Audience::Agent)?;
        let names = self.task_names()?;
        let mut tasks = Vec::with_capacity(names.len());
        for name in names {
            tasks.push(delegate.link.find_child(name).await?.0);
        }
        if let Some(told) = &call.completion {
            return self::render_completion(delegate, told, &tasks).await;
        }
        let patience = wait.map(|wait| Millis(wait.as_millis() as u64));
        let asked = ConditionRequest::Tasks {
            tasks,
            mode: self.mode(),
            timeout: patience,
            interruptible: true,
        };
        Ok(ToolReply::Park { asked, effect: None })
    }
}

fn render_run_results(delegate: &DelegationContext, endings: &[RunResult]) -> String {
    match endings {
        [] => "There is nothing to wait for: no task of yours is running.".to_owned(),
        endings => delegate.quoter.render_run_results(endings),
    }
}

/// The tasks of the agent that still run. The results come first: where this cannot be known it is left
/// out.
async fn render_still_running(delegate: &DelegationContext) -> Option<String> {
    let session = delegate.link.session().await.ok()?;
    let now = delegate.agents.now();
    let mut tasks = session.list();
    tasks.retain(|(_, row)| row.is_alive());
    let tasks: Vec<TaskSummary> =
        tasks.iter().map(|(no, row)| summarize_task(*no, row, now)).collect();
    (!tasks.is_empty()).then(|| render_running(&tasks))
}

/// What a wait came to, in words.
pub(super) async fn render_completion(
    delegate: &DelegationContext,
    told: &CallCompletion,
    tasks: &[TaskNo],
) -> Result<ToolReply, ToolError> {
    let why = match told {
        CallCompletion::Results(endings) => {
            return Ok(ToolReply::text(render_run_results(delegate, endings)));
        }
        CallCompletion::Elapsed => "The time is up. No result was taken.",
        CallCompletion::Interrupted => {
            "A message came, which follows. No result was taken; the tasks run on."
        }
        CallCompletion::Refused(refusal) => return Err(refusal.clone().into()),
        other => {
            return Err(ToolError::new(format!("the wait was answered with {other:?}")));
        }
    };
    let now = delegate.agents.now();
    let all = delegate.link.session().await?.list();
    let waited_for = all.iter().filter(|(no, _)| tasks.is_empty() || tasks.contains(no));
    let running: Vec<TaskSummary> =
        waited_for.map(|(no, row)| summarize_task(*no, row, now)).collect();
    match running.is_empty() {
        true => Ok(ToolReply::text(why)),
        false => Ok(ToolReply::text(format!("{why}\n{}", render_running(&running)))),
    }
}
