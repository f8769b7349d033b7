//! `list_tasks`: lists the tasks that the caller sees.

use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::audience::Audience;
use crate::delegation_reply::DelegationReply;
use crate::task_note::{TaskNote, add_notes};
use crate::task_summary::TaskSummary;
use crate::tool_args::{ArgumentDoc, ToolArgs, ToolHints};

/// The maximum number of tasks in one reply.
pub const TASKS_PER_PAGE: usize = 50;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTasks {
    /// Only tasks in this state.
    #[serde(default)]
    pub state: Option<TaskFilter>,
    /// The next_cursor of an earlier reply, for older tasks. Default: the newest.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// A selection of tasks by their state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskFilter {
    All,
    Alive,
    Ended,
    Queued,
    Running,
    Waiting,
    Away,
    Stopping,
    Closing,
    Succeeded,
    Failed,
    Cancelled,
}

impl ToolArgs for ListTasks {
    const NAME: &'static str = "list_tasks";
    const TITLE: &'static str = "List tasks";
    const HINTS: ToolHints = ToolHints::READ_ONLY;

    fn description(audience: Audience) -> String {
        match audience {
            Audience::Agent => {
                "List the tasks that you started: address, name, state, age, and the step of a \
                 sub-agent. Use it to find an address. It takes no result. Not for waiting: wait_tasks \
                 waits without polling."
            }
            Audience::Client(_) => {
                "List the tasks of this workspace, also those of earlier conversations: address, name, \
                 state, age and exit code; for sub-agents their step, last message, questions and usage. \
                 Use it to find a task. It takes no result. Not for waiting: wait_tasks waits without \
                 polling."
            }
        }
        .to_owned()
    }

    fn argument_docs(audience: Audience) -> Vec<ArgumentDoc> {
        let default = match audience {
            Audience::Agent => "all",
            Audience::Client(_) => "alive tasks, and those whose result was not returned yet",
        };
        let state = format!("Only tasks in this state. Default: {default}.");
        vec![ArgumentDoc::new("state", state)]
    }
}

impl ListTasks {
    /// Returns the number of the task before which the page ends.
    pub fn parse_cursor(&self) -> Result<Option<u32>, Refusal> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        // A model may give the address of a task instead of its number.
        let number = cursor.rsplit(':').next().and_then(|number| number.parse().ok());
        number.map(Some).ok_or_else(|| {
            Refusal::invalid(format!(
                "the argument `cursor`: {cursor:?} is not a cursor; give next_cursor of an earlier reply"
            ))
        })
    }
}

impl TaskFilter {
    /// Returns true if the filter can match ended tasks whose results were collected.
    pub fn includes_ended(self) -> bool {
        matches!(self, Self::All | Self::Ended | Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    pub fn matches(self, state: &str, is_alive: bool) -> bool {
        match self {
            Self::All => true,
            Self::Alive => is_alive,
            Self::Ended => !is_alive,
            filter => state.eq_ignore_ascii_case(&format!("{filter:?}")),
        }
    }
}

/// One page of tasks, the newest last.
#[derive(Clone, Debug)]
pub struct ListTasksReply {
    pub audience: Audience,
    pub tasks: Vec<TaskSummary>,
    /// The number of tasks that match the filter, on all pages.
    pub total_count: usize,
    /// The number of tasks that are older than the page.
    pub older_count: usize,
    pub filter: Option<TaskFilter>,
    pub notes: Vec<TaskNote>,
}

impl ListTasksReply {
    pub fn render(&self) -> DelegationReply {
        let mut reply = DelegationReply::new(self.headline());
        let lines: Vec<String> = self.tasks.iter().map(TaskSummary::list_line).collect();
        reply.add_body(&lines.join("\n"));
        add_notes(&mut reply, &self.notes);
        for task in &self.tasks {
            reply.add_guidance(task.guidance());
        }
        let tasks: Vec<Value> =
            self.tasks.iter().map(|task| Value::Object(task.fields())).collect();
        reply.set_field("tasks", json!(tasks));
        reply.set_field("total", json!(self.total_count));
        if let Some(cursor) = self.next_cursor() {
            reply.add_guidance([format!(
                "{} older tasks are not shown: call list_tasks with cursor {cursor:?}.",
                self.older_count
            )]);
            reply.set_field("next_cursor", json!(cursor));
        }
        reply
    }

    fn next_cursor(&self) -> Option<String> {
        let oldest = self.tasks.first().filter(|_| self.older_count > 0)?;
        oldest.address.rsplit(':').next().map(str::to_owned)
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
            (1, _) if self.total_count == 1 => "1 task.".to_owned(),
            (shown, _) if shown == self.total_count => format!("{shown} tasks."),
            (shown, _) => format!("{shown} of {} tasks, the newest last.", self.total_count),
        }
    }
}
