//! `stop_task` for clients: stops a task and its descendants.

use std::time::{Duration, Instant};

use brigade_delegation::{StopTask, StopTaskReply};
use brigade_model::refusal::Refusal;

use super::summary::summarize_task;
use super::tool_call::{ClientDelegationTool, McpCallContext, McpToolReply};
use brigade_protocol::RequestClient;
use brigade_protocol::requests::StopRequest;

/// A time over the usual grace period, so that the reply has the outcome.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl ClientDelegationTool for StopTask {
    async fn run<C: RequestClient>(
        self,
        call: &McpCallContext<C>,
    ) -> Result<McpToolReply, Refusal> {
        let stop = || StopRequest {
            target: call.target(&self.task),
            reason: self.reason.clone(),
            grace_ms: None,
        };
        let stopping = call.request_client.call(stop).await?;
        let address = call.address(&stopping.task);
        let had_ended = !stopping.task.alive;
        let mut info = stopping.task;
        let started_at = Instant::now();
        // Poll instead of waiting: a wait would collect the result, which belongs to the starter.
        while info.alive && started_at.elapsed() < STOP_TIMEOUT && !call.cancelled.is_cancelled() {
            tokio::time::sleep(POLL_INTERVAL).await;
            info = call.show_task(&address).await?;
        }
        let stopped_count = if had_ended { 0 } else { stopping.task_count };
        let reply = StopTaskReply { task: summarize_task(call, &info), stopped_count };
        Ok(McpToolReply::Reply(reply.render()))
    }
}
