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
    let task = task.resources(request.resources);
    if request.keep { task.keep() } else { task }
}

impl RequestHandler for RunRequest {
    async fn handle(
        self,
        context: &RequestContext,
        _: &ItemSender<NoItems>,
    ) -> Result<StartReply, Refusal> {
        let session = context.open_session(&self.session).await?;
        let task = session.spawn(new_task(&self)).await?;
        new_start_reply(&session, &task).await
    }
}
