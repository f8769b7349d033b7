//! `exec`: starts a process.

use std::time::Duration;

use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_model::sandbox::SandboxRequest;
use brigade_model::work::EnvValue;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{ExecRequest, StartReply};
use brigade_protocol::task_info::TaskInfo;
use brigade_runtime::{NewTask, ProcessTask, Session, TaskHandle};

use crate::request_context::{CallerIdentity, RequestContext};
use crate::request_handler::{ItemSender, RequestHandler};

fn new_task(request: &ExecRequest) -> NewTask<ProcessTask> {
    let mut task = NewTask::process(request.process.clone());
    if let Some(name) = &request.name {
        task = task.name(name);
    }
    if let Some(key) = &request.key {
        task = task.key(key);
    }
    if request.limits.is_some() || request.agent_budget.is_some() {
        let limits = request.limits.as_deref().copied().unwrap_or_default();
        let budget = request.agent_budget.unwrap_or_default();
        let budget = Limits { tokens: budget.tokens, money: budget.money, ..Limits::default() };
        task = task.limits(limits.intersect(&budget));
    }
    if let Some(ms) = request.deadline_ms {
        task = task.deadline(Duration::from_millis(ms));
    }
    if let Some(ms) = request.grace_ms {
        task = task.grace(Duration::from_millis(ms));
    }
    if request.keep {
        task = task.keep();
    }
    if request.worktree {
        task = task.worktree();
    }
    if let Some(notifier) = &request.notify {
        task = task.notify(notifier.clone());
    }
    if let Some(size) = request.terminal {
        task = task.terminal(size);
    }
    if let Some(sandbox) = &request.sandbox {
        let agents = request.agent_budget.is_some();
        task = task.sandbox(SandboxRequest { agents, ..sandbox.clone() });
    }
    task.resources(request.resources)
}

/// Refuses variables of the daemon that it withholds from tasks: a task may not pass them on.
fn reject_withheld_env(request: &ExecRequest, context: &RequestContext) -> Result<(), Refusal> {
    if !matches!(context.caller, CallerIdentity::Task { .. }) {
        return Ok(());
    }
    let secret = request.process.env.iter().find_map(|(name, value)| match value {
        EnvValue::FromEnv(variable) if context.runtime().withholds(variable) => Some(name),
        _ => None,
    });
    match secret {
        Some(name) => Err(Refusal::forbidden(format!(
            "{name} refers to a provider's key, which only the operator passes on"
        ))),
        None => Ok(()),
    }
}

impl RequestHandler for ExecRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<StartReply, Refusal> {
        reject_withheld_env(&self, context)?;
        context.check_notifier(self.notify.as_ref())?;
        // Git runs outside of the client's sandbox, in a repository that the client may change.
        if self.worktree && context.session_scope.is_some() {
            return Err(Refusal::forbidden("only the operator starts processes with a worktree"));
        }
        let key = context.stored_key(self.key.as_deref())?;
        let request = Self { key, ..self };
        let session = context.open_session(&request.session).await?;
        let task = session.spawn(new_task(&request)).await?;
        new_start_reply(&session, &task).await
    }
}

pub(crate) async fn new_start_reply<T>(
    session: &Session,
    task: &TaskHandle<T>,
) -> Result<StartReply, Refusal> {
    let row = task.get().await?;
    let info = TaskInfo::of(&session.row().name, task.no(), &row);
    Ok(StartReply { task: info, existed: task.existed() })
}
