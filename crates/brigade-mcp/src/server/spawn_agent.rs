//! `spawn_agent` for clients: starts a sub-agent that outlives its caller.

use brigade_agent::permission::PermissionRules;
use brigade_delegation::{BackgroundReason, BudgetArgs, SpawnAgent};
use brigade_model::call::WaitMode;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;

use super::protocol_tasks;
use super::run_process::{background_reply, ended_reply, resolve_directory};
use super::tool_call::{ClientDelegationTool, McpCallContext, McpToolReply};
use brigade_protocol::RequestClient;
use brigade_protocol::requests::RunRequest;

impl ClientDelegationTool for SpawnAgent {
    async fn run<C: RequestClient>(
        self,
        call: &McpCallContext<C>,
    ) -> Result<McpToolReply, Refusal> {
        // Check all arguments before anything starts.
        let run = run_request(&self, call)?;
        let wait = self.wait(call.client_profile)?;
        let started = call.request_client.call(|| run.clone()).await?;
        let Some(wait) = wait else {
            return background_reply(call, &started, BackgroundReason::Requested).await;
        };
        // A protocol task asks the user for approvals. Without one, the reply names the command
        // that the user must run. A question goes to the model at once.
        let as_task = call.supports_tasks && call.supports_elicitation;
        let timeout =
            if as_task { protocol_tasks::IMMEDIATE_REPLY_TIMEOUT.min(wait) } else { wait };
        let address = call.address(&started.task);
        let mut waited = call.wait_for_tasks(&[address], WaitMode::All, timeout).await?;
        match waited.ended.pop() {
            Some(ended) => ended_reply(call, &ended).await,
            None if as_task && (waited.timed_out || !waited.pending_approvals.is_empty()) => {
                Ok(McpToolReply::Task(Box::new(started.task)))
            }
            None if waited.timed_out => {
                background_reply(call, &started, BackgroundReason::TimedOut(timeout)).await
            }
            None => background_reply(call, &started, BackgroundReason::InputRequired).await,
        }
    }
}

fn run_request<C: RequestClient>(
    args: &SpawnAgent,
    call: &McpCallContext<C>,
) -> Result<RunRequest, Refusal> {
    args.check()?;
    let limits = args.budget.map(BudgetArgs::to_limits).transpose()?;
    Ok(RunRequest {
        name: args.name.clone(),
        key: Some(args.key.clone().unwrap_or_else(|| call.idempotency_key.clone())),
        agent: args.agent.clone(),
        model: args.model.clone(),
        config: args.config.as_ref().map(Json::of).transpose()?,
        result_schema: args.result_schema.as_ref().map(Json::of).transpose()?,
        cwd: Some(resolve_directory(&call.options, None)?),
        limits: limits.map_or_else(Box::default, Box::new),
        permissions: PermissionRules {
            ask: call.options.ask.clone(),
            ..RunRequest::default_permissions(call.options.allow.iter().cloned())
        },
        keep: args.keep,
        worktree: args.worktree,
        ..RunRequest::new(&call.options.session, &args.task)
    })
}
