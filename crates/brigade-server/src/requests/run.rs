//! `run`: starts an agent.

use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_protocol::call::NoItems;
use brigade_protocol::requests::{RunRequest, StartReply};
use brigade_runtime::{AgentTask, NewTask};

use super::exec::new_start_reply;
use crate::request_context::RequestContext;
use crate::request_handler::{ItemSender, RequestHandler};

fn new_task(request: &RunRequest) -> NewTask<AgentTask<Json>> {
    let mut task = NewTask::agent(&request.prompt).returns_json();
    task = task.permissions(request.permissions.clone());
    if let Some(name) = &request.name {
        task = task.name(name);
    }
    if let Some(key) = &request.key {
        task = task.key(key);
    }
    if let Some(agent) = &request.agent {
        task = task.definition(agent);
    }
    if let Some(model) = &request.model {
        task = task.model(model);
    }
    if let Some(config) = &request.config {
        task = task.config(config);
    }
    if let Some(schema) = &request.result_schema {
        task = task.result_schema(schema);
    }
    if let Some(cwd) = &request.cwd {
        task = task.cwd(cwd);
    }
    if !request.limits.is_empty() {
        task = task.limits(*request.limits);
    }
    for server in &request.mcp_servers {
        task = task.mcp_server(server);
    }
    if request.unattended {
        task = task.unattended();
    }
    if let Some(sandbox) = &request.sandbox {
        task = task.sandbox(sandbox.clone());
    }
    if let Some(overrides) = &request.overrides {
        task = task.overrides(overrides);
    }
    if request.worktree {
        task = task.worktree();
    }
    if let Some(notifier) = &request.notify {
        task = task.notify(notifier.clone());
    }
    let task = task.resources(request.resources);
    if request.keep { task.keep() } else { task }
}

/// Refuses an agent of a client that is confined to its session, if the agent would leave its sandbox:
/// the server reads a model that is a file, and MCP servers run outside of every sandbox.
async fn check_scoped_agent(request: &RunRequest, context: &RequestContext) -> Result<(), Refusal> {
    let names_file = |model: &str| context.runtime().is_model_file(model);
    if let Some(model) = request.model.as_deref().filter(|model| names_file(model)) {
        return Err(Refusal::forbidden(format!(
            "the model {model} is a file, which only the operator names"
        )));
    }
    let directory = request.cwd.as_deref().unwrap_or("/");
    let definitions = match &request.agent {
        Some(_) => Some(context.definitions(directory).await?),
        None => None,
    };
    let name = request.agent.as_deref().unwrap_or_default();
    let found = definitions.as_ref().and_then(|definitions| definitions.find(name).ok());
    let names_server =
        found.is_some_and(|found| found.definition.mcp_servers.iter().flatten().next().is_some());
    if names_server || !request.mcp_servers.is_empty() {
        return Err(Refusal::forbidden("only the operator starts agents that use MCP servers"));
    }
    if request.worktree || found.is_some_and(|found| found.definition.worktree) {
        return Err(Refusal::forbidden("only the operator starts agents with a worktree"));
    }
    Ok(())
}

impl RequestHandler for RunRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<StartReply, Refusal> {
        if context.session_scope.is_some() {
            check_scoped_agent(&self, context).await?;
        }
        context.check_notifier(self.notify.as_ref())?;
        let key = context.stored_key(self.key.as_deref())?;
        let request = Self { key, ..self };
        let session = context.open_session(&request.session).await?;
        let mut task = new_task(&request);
        if context.session_scope.is_some() {
            task = task.withhold_variables();
        }
        let task = session.spawn(task).await?;
        new_start_reply(&session, &task).await
    }
}
