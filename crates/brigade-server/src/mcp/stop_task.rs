//! Stops a task and its descendants.

use std::time::{Duration, Instant};

use brigade_delegation::{StopReply, StopTask};
use brigade_model::refusal::Refusal;

use super::summary::summary;
use super::tool::{Answer, Call, Tool};
use crate::requests::Stop;

/// Longer than the usual grace, so that the answer says how it ended.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

impl Tool for StopTask {
    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        let question = || Stop {
            target: call.target(&self.task),
            reason: self.reason.clone(),
            grace_ms: None,
        };
        let stopping = call.line.ask(question).await?;
        let address = call.address(&stopping.task);
        let was_over = !stopping.task.living;
        let mut info = stopping.task;
        let began = Instant::now();
        // Looked at, not waited for: the result belongs to whoever started it.
        while info.living && began.elapsed() < PATIENCE && !call.cancelled.is_cancelled() {
            tokio::time::sleep(LOOK).await;
            info = call.show(&address).await?;
        }
        let stopped = if was_over { 0 } else { stopping.tasks };
        Ok(Answer::Said(StopReply { task: summary(call, &info), stopped }.render()))
    }
}
