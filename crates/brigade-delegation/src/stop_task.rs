//! `stop_task`: stops a task and its descendants.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::audience::Audience;
use crate::delegation_reply::DelegationReply;
use crate::task_summary::TaskSummary;
use crate::tool_args::{ArgumentDoc, ToolArgs, ToolHints};

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopTask {
    /// Address or name.
    pub task: String,
    /// The reason, stored with the task.
    #[serde(default)]
    pub reason: Option<String>,
}

impl ToolArgs for StopTask {
    const NAME: &'static str = "stop_task";
    const TITLE: &'static str = "Stop a task";
    const HINTS: ToolHints = ToolHints {
        is_read_only: false,
        is_destructive: true,
        is_idempotent: true,
        is_open_world: false,
    };

    fn description(audience: Audience) -> String {
        match audience {
            Audience::Agent => {
                "Stop a task that you started and its descendants: SIGTERM first, SIGKILL after a grace \
                 period. `self` stops you and everything that you started. Use it for work that is no \
                 longer needed or has gone wrong. Not for a task that is only slow: its work is lost."
            }
            Audience::Client(_) => {
                "Stop a task and its descendants, sub-agents and processes: SIGTERM first, SIGKILL after \
                 a grace period, then a check that no process is left. A task that has ended stays as it \
                 is. Not for a task that you only stop waiting for: let it run."
            }
        }
        .to_owned()
    }

    fn argument_docs(audience: Audience) -> Vec<ArgumentDoc> {
        match audience {
            Audience::Agent => {
                let task = "An address or name of a task that you started, or `self`.";
                vec![ArgumentDoc::new("task", task)]
            }
            Audience::Client(_) => Vec::new(),
        }
    }
}

/// The state of a task after a request to stop it.
#[derive(Clone, Debug)]
pub struct StopTaskReply {
    pub task: TaskSummary,
    /// The number of stopped tasks; 0 if the task had already ended.
    pub stopped_count: u64,
}

impl StopTaskReply {
    pub fn render(&self) -> DelegationReply {
        let mut reply = DelegationReply::new(format!("{}.", self.task.headline()));
        if self.stopped_count == 0 {
            reply.add_guidance(["It had ended before; nothing was stopped.".to_owned()]);
        } else if self.task.is_alive {
            reply.add_guidance([
                "It is being stopped; call wait_tasks to learn when it has ended.".to_owned(),
            ]);
        }
        reply.add_fields(self.task.fields());
        reply.set_field("stopped_tasks", json!(self.stopped_count));
        reply
    }
}
