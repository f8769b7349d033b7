//! Waits for tasks and takes their results.

use brigade_agent::{Call, Effect, Outcome, ToolError};
use brigade_delegation::wait_tasks::render_running;
use brigade_delegation::{Audience, TaskSummary, WaitTasks};
use brigade_model::call::{Answer, Asked, Ending};
use brigade_model::ids::{Millis, TaskNo};

use super::summary::summary;
use super::{Delegate, Delegation};

impl Delegation for WaitTasks {
    const EFFECT: Effect = Effect::Recorded;

    async fn run(self, delegate: &Delegate, call: &Call) -> Result<Outcome, ToolError> {
        // The results are taken: nothing may stand between them and the model any more.
        if let Some(Answer::Endings(endings)) = call.told.as_deref() {
            let mut text = render_endings(delegate, endings);
            if let Some(running) = still_running(delegate).await {
                text.push_str(&format!("\n\n{running}"));
            }
            return Ok(Outcome::text(text));
        }
        let wait = self.wait(Audience::Agent)?;
        let names = self.names()?;
        let mut tasks = Vec::with_capacity(names.len());
        for name in names {
            tasks.push(delegate.link.child(name).await?.0);
        }
        if let Some(told) = &call.told {
            return self::told(delegate, told, &tasks).await;
        }
        let patience = wait.map(|wait| Millis(wait.as_millis() as u64));
        let asked = Asked::Tasks { tasks, mode: self.mode(), patience, interruptible: true };
        Ok(Outcome::Park { asked, effect: None })
    }
}

fn render_endings(delegate: &Delegate, endings: &[Ending]) -> String {
    match endings {
        [] => "There is nothing to wait for: no task of yours is running.".to_owned(),
        endings => delegate.quoter.endings(endings),
    }
}

/// The tasks of the agent that still run. The results come first: where this cannot be known it is left
/// out.
async fn still_running(delegate: &Delegate) -> Option<String> {
    let session = delegate.link.session().await.ok()?;
    let now = delegate.agents.now();
    let mut tasks = session.list();
    tasks.retain(|(_, row)| row.is_living());
    let tasks: Vec<TaskSummary> = tasks.iter().map(|(no, row)| summary(*no, row, now)).collect();
    (!tasks.is_empty()).then(|| render_running(&tasks))
}

/// What a wait came to, in words.
pub(super) async fn told(
    delegate: &Delegate,
    told: &Answer,
    tasks: &[TaskNo],
) -> Result<Outcome, ToolError> {
    let why = match told {
        Answer::Endings(endings) => {
            return Ok(Outcome::text(render_endings(delegate, endings)));
        }
        Answer::Elapsed => "The time is up. No result was taken.",
        Answer::News => "A message came, which follows. No result was taken; the tasks run on.",
        Answer::Refused(refusal) => return Err(refusal.clone().into()),
        other => {
            return Err(ToolError::new(format!("the wait was answered with {other:?}")));
        }
    };
    let now = delegate.agents.now();
    let all = delegate.link.session().await?.list();
    let waited_for = all.iter().filter(|(no, _)| tasks.is_empty() || tasks.contains(no));
    let running: Vec<TaskSummary> = waited_for.map(|(no, row)| summary(*no, row, now)).collect();
    match running.is_empty() {
        true => Ok(Outcome::text(why)),
        false => Ok(Outcome::text(format!("{why}\n{}", render_running(&running)))),
    }
}
