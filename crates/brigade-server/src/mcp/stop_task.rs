//! Stops a task and its descendants.

use std::time::{Duration, Instant};

use brigade_delegation::{StopTask, StopTaskReply};
use brigade_model::refusal::Refusal;

use super::summary::summarize_task;
use super::tool_call::{ClientDelegationTool, McpCallContext, McpToolReply};
use crate::requests::StopRequest;

/// Longer than the usual grace, so that the answer says how it ended.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

impl ClientDelegationTool for StopTask {
    async fn run(self, call: &McpCallContext) -> Result<McpToolReply, Refusal> {
        let question = || StopRequest {
            target: call.target(&self.task),
            reason: self.reason.clone(),
            grace_ms: None,
        };
        let stopping = call.daemon.call(question).await?;
        let address = call.address(&stopping.task);
        let was_over = !stopping.task.alive;
        let mut info = stopping.task;
        let began = Instant::now();
        // Looked at, not waited for: the result belongs to whoever started it.
        while info.alive && began.elapsed() < STOP_TIMEOUT && !call.cancelled.is_cancelled() {
            tokio::time::sleep(POLL_INTERVAL).await;
            info = call.show_task(&address).await?;
        }
        let stopped = if was_over { 0 } else { stopping.task_count };
        Ok(McpToolReply::Reply(
            StopTaskReply { task: summarize_task(call, &info), stopped_count: stopped }.render(),
        ))
    }
}
