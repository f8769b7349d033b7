//! `list_tasks`: the tasks that the caller sees.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::audience::Audience;
use crate::note::{TaskNote, add_notes};
use crate::task_summary::TaskSummary;
use crate::tool_args::{ToolArgs, ToolHints};
use crate::tool_reply::ToolReply;

/// The most tasks that one reply has.
pub const PAGE: usize = 50;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTasks {
    /// Only tasks in this state.
    #[serde(default)]
    pub state: Option<TaskFilter>,
}

/// A choice of tasks by their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskFilter {
    All,
    Living,
    Ended,
    Queued,
    Running,
    Waiting,
    Stopping,
    Closing,
    Succeeded,
    Failed,
    Cancelled,
}

impl ToolArgs for ListTasks {
    const NAME: &'static str = "list_tasks";
    const TITLE: &'static str = "List tasks";
    const HINTS: ToolHints = ToolHints::READS;

    fn description(audience: Audience) -> String {
        match audience {
            Audience::Agent => {
                "List the tasks that you started: address, name, state, age, what each is at or how \
                 it ended. Use it to find an address that you no longer know. Takes no result. Not \
                 for waiting: wait_tasks does that without polling."
            }
            Audience::Client(_) => {
                "List the workspace's tasks with address, name, state, age and exit code, what \
                 sub-agents are at, say, ask and have used, also those of earlier conversations. Use \
                 it to find work whose address you no longer know. Not for waiting: wait_tasks does \
                 that without polling."
            }
        }
        .to_owned()
    }

    fn argument_docs(audience: Audience) -> Vec<(&'static str, String)> {
        let default = match audience {
            Audience::Agent => "all of them",
            Audience::Client(_) => "living ones, and ended ones whose result nobody took",
        };
        vec![("state", format!("Only tasks in this state. Default: {default}."))]
    }
}

impl TaskFilter {
    /// Whether tasks that have ended and were collected are looked for too.
    pub fn includes_ended(self) -> bool {
        matches!(self, Self::All | Self::Ended | Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    pub fn fits(self, state: &str, is_alive: bool) -> bool {
        match self {
            Self::All => true,
            Self::Living => is_alive,
            Self::Ended => !is_alive,
            filter => state.eq_ignore_ascii_case(&format!("{filter:?}")),
        }
    }
}

/// One page of tasks, the newest last.
#[derive(Clone, Debug)]
pub struct ListReply {
    pub audience: Audience,
    pub tasks: Vec<TaskSummary>,
    pub total: usize,
    pub filter: Option<TaskFilter>,
    pub notes: Vec<TaskNote>,
}

impl ListReply {
    pub fn render(&self) -> ToolReply {
        let mut reply = ToolReply::new(self.headline());
        let lines: Vec<String> = self.tasks.iter().map(TaskSummary::list_line).collect();
        reply.add_body(&lines.join("\n"));
        add_notes(&mut reply, &self.notes);
        for task in &self.tasks {
            reply.add_guidance(task.guidance());
        }
        let tasks: Vec<Value> =
            self.tasks.iter().map(|task| Value::Object(task.fields())).collect();
        reply.set("tasks", json!(tasks));
        reply.set("total", json!(self.total));
        reply
    }

    fn headline(&self) -> String {
        match (self.tasks.len(), self.filter) {
            (0, None) if self.audience.is_agent() => "You have started no tasks.".to_owned(),
            (0, None) => {
                "There are no tasks to show: none is running, and every result has been returned. \
                 state \"all\" also shows tasks that have ended."
                    .to_owned()
            }
            (0, Some(TaskFilter::All)) => "There are no tasks.".to_owned(),
            (0, Some(_)) => "There are no tasks in this state.".to_owned(),
            (1, _) if self.total == 1 => "1 task:".to_owned(),
            (shown, _) if shown == self.total => format!("{shown} tasks:"),
            (shown, _) => format!("{shown} of {} tasks, the newest last:", self.total),
        }
    }
}
