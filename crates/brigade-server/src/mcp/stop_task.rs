//! Stops a task with all that came of it.

use std::time::{Duration, Instant};

use brigade_model::refusal::Refusal;
use rmcp::model::ToolAnnotations;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::text;
use super::tool::{Answer, Call, Tool};
use crate::requests::Stop;

/// Longer than the usual grace, so that the answer says how it ended.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StopTask {
    /// Address or name.
    task: String,
    /// Kept with the task, for whoever reads about it later.
    #[serde(default)]
    reason: Option<String>,
}

impl Tool for StopTask {
    const NAME: &'static str = "stop_task";
    const TITLE: &'static str = "Stop a task";
    const DESCRIPTION: &'static str = "Stop a task with all that it started, agents and processes: \
        kindly first (SIGTERM), firmly after a grace, then checked that nothing is left. A task that has ended stays as it \
        is. Not for losing interest: a wait can just time out, and the work goes on.";

    fn annotations() -> ToolAnnotations {
        ToolAnnotations::new().read_only(false).destructive(true).idempotent(true).open_world(false)
    }

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
        let mut text = text::headline(call, &info);
        if was_over {
            text.push_str("\nIt had ended before; nothing was stopped.");
        } else if info.living {
            text.push_str("\nIt has been told to stop; wait_tasks says when it has.");
        }
        let mut structured = text::structured(call, &info);
        structured["stopped_tasks"] = json!(if was_over { 0 } else { stopping.tasks });
        Ok(Answer::Said { text, structured })
    }
}
