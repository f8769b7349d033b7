//! `wait_tasks`: waits for tasks and takes their results.

use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::audience::Audience;
use crate::ended_task::{EndedTask, share};
use crate::note::{TaskNote, add_notes};
use crate::span::render_secs;
use crate::task_summary::TaskSummary;
use crate::tool_args::{ToolArgs, ToolHints};
use crate::tool_reply::ToolReply;

/// The most tasks that one call names.
const TASKS_MAX: usize = 1_000;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitTasks {
    /// Addresses or names.
    #[serde(default)]
    pub tasks: Option<Vec<String>>,
    /// Return when any of them has ended (default), or when all have.
    #[serde(default)]
    pub mode: Option<Mode>,
    /// How long to wait.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    pub timeout_secs: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    Any,
    All,
}

impl ToolArgs for WaitTasks {
    const NAME: &'static str = "wait_tasks";
    const TITLE: &'static str = "Wait for tasks";
    // A result that is taken leaves the list, and nothing else changes.
    const HINTS: ToolHints = ToolHints {
        is_read_only: false,
        is_destructive: false,
        is_idempotent: true,
        is_open_world: false,
    };

    fn description(audience: Audience) -> String {
        match audience {
            Audience::Agent => {
                "Wait until tasks that you started have ended, and get their results. Waiting costs \
                 nothing. A message or question that arrives ends the wait too, and takes no result. \
                 Use it when you cannot go on without a result. Not needed before you end your turn: \
                 you are woken by itself when a task ends."
            }
            Audience::Client(_) => {
                "Wait until tasks end and get their results: state, exit code, last output, what a \
                 sub-agent has to say. A sub-agent's question ends the wait too. Each result is \
                 handed out once; naming a task again returns it again, marked so. A timeout is no \
                 failure: it returns the current states, and you can wait again. Not for looking at a \
                 task that runs: read_output does that."
            }
        }
        .to_owned()
    }

    fn argument_docs(audience: Audience) -> Vec<(&'static str, String)> {
        let tasks = match audience {
            Audience::Agent => {
                "Addresses or names of tasks that you started. Default: all whose results you did \
                 not get yet."
            }
            Audience::Client(_) => {
                "Addresses or names. Default: everything that this client started and took no result \
                 of."
            }
        };
        let default = match audience {
            Audience::Agent => "no end".to_owned(),
            Audience::Client(client) => client.wait.default_secs.to_string(),
        };
        let wait = format!(
            "How long to wait; then the current states are returned and nothing is taken. Default: \
             {default}."
        );
        vec![("tasks", tasks.to_owned()), ("timeout_secs", wait)]
    }
}

impl WaitTasks {
    /// The tasks that are named; none for all of the caller's.
    pub fn names(&self) -> Result<&[String], Refusal> {
        let names = self.tasks.as_deref().unwrap_or_default();
        if names.len() > TASKS_MAX {
            let count = names.len();
            return Err(Refusal::invalid(format!(
                "the argument `tasks` names {count} tasks; the most is {TASKS_MAX}"
            )));
        }
        Ok(names)
    }

    pub fn mode(&self) -> WaitMode {
        match self.mode {
            Some(Mode::All) => WaitMode::All,
            Some(Mode::Any) | None => WaitMode::Any,
        }
    }

    /// Returns how long the call waits; for ever where there is none.
    pub fn wait(&self, audience: Audience) -> Result<Option<Duration>, Refusal> {
        match (self.timeout_secs, audience) {
            (Some(secs), _) => audience.read_wait("timeout_secs", secs).map(Some),
            (None, Audience::Agent) => Ok(None),
            (None, Audience::Client(client)) => {
                Ok(Some(Duration::from_secs(client.wait.default_secs)))
            }
        }
    }
}

/// The most running tasks that a reply lists.
const RUNNING_LISTED: usize = 20;

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// Tasks have ended.
    Ended,
    TimedOut(Duration),
    /// A sub-agent asks something.
    InputRequired,
    /// No task of the caller lives, and every result has been returned.
    NothingToWaitFor,
}

/// The outcome of a wait.
#[derive(Clone, Debug)]
pub struct WaitReply {
    pub end: WaitEnd,
    pub ended: Vec<EndedTask>,
    /// Results that are ready, beyond those that one reply has.
    pub more_ready: usize,
    pub still_running: Vec<TaskSummary>,
    pub notes: Vec<TaskNote>,
}

impl WaitReply {
    pub fn render(&self) -> ToolReply {
        let mut reply = ToolReply::new(self.headline());
        add_notes(&mut reply, &self.notes);
        let share = share(self.ended.len());
        let ended: Vec<ToolReply> = self.ended.iter().map(|task| task.render(share)).collect();
        for task in &ended {
            reply.add_body(&task.text());
        }
        if !self.still_running.is_empty() {
            reply.add_body(&render_running(&self.still_running));
        }
        for task in &self.still_running {
            reply.add_guidance(task.guidance());
        }
        if self.more_ready > 0 {
            reply.add_guidance([format!(
                "{} more results are ready: call wait_tasks again.",
                self.more_ready
            )]);
        }
        let ended: Vec<Value> = ended.iter().map(ToolReply::structured).collect();
        let running = self.still_running.iter().take(RUNNING_LISTED);
        let running: Vec<Value> = running.map(|task| Value::Object(task.fields())).collect();
        reply.set("ended", json!(ended));
        reply.set("still_running", json!(running));
        reply.set("timed_out", json!(matches!(self.end, WaitEnd::TimedOut(_))));
        reply
    }

    fn headline(&self) -> String {
        let running = match self.still_running.len() {
            0 => String::new(),
            1 => " 1 task is still running.".to_owned(),
            count => format!(" {count} tasks are still running."),
        };
        let why = match (self.end, self.ended.len()) {
            (WaitEnd::NothingToWaitFor, 0) => {
                "There is nothing to wait for: no task of yours is running, and every result has been \
                 returned."
                    .to_owned()
            }
            (WaitEnd::TimedOut(waited), _) => {
                format!("No task has ended within {}. No result was taken.", render_secs(waited))
            }
            (WaitEnd::InputRequired, _) => {
                "The wait is over because input is needed. No result was taken.".to_owned()
            }
            (_, 1) => "1 task has ended.".to_owned(),
            (_, count) => format!("{count} tasks have ended."),
        };
        format!("{why}{running}")
    }
}

/// Lists tasks that are still running.
pub fn render_running(tasks: &[TaskSummary]) -> String {
    let mut lines = vec!["Still running:".to_owned()];
    lines.extend(tasks.iter().take(RUNNING_LISTED).map(TaskSummary::list_line));
    if tasks.len() > RUNNING_LISTED {
        lines.push(format!("and {} more: call list_tasks.", tasks.len() - RUNNING_LISTED));
    }
    lines.join("\n")
}
