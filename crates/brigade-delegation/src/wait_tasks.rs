//! `wait_tasks`: waits for tasks and takes their results.

use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::refusal::Refusal;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::audience::{Audience, WaitBounds};
use crate::delegation_reply::DelegationReply;
use crate::ended_task::{EndedTask, bytes_per_result};
use crate::short_text::render_secs;
use crate::task_note::{TaskNote, add_notes};
use crate::task_summary::TaskSummary;
use crate::tool_args::{ArgumentDoc, ToolArgs, ToolHints};
use crate::user_approval::{UserApproval, add_approvals};

/// The maximum number of results in one reply to a client.
pub const RESULTS_MAX: usize = 20;
/// The maximum number of tasks that one call names.
const TASKS_MAX: usize = 1_000;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitTasks {
    /// Addresses or names.
    #[serde(default)]
    pub tasks: Option<Vec<String>>,
    /// Return when any of them has ended (default), or when all have.
    #[serde(default)]
    pub mode: Option<WaitTasksMode>,
    /// Wait until they have ended (default), or until commands started with `ready` are ready.
    #[serde(default)]
    pub until: Option<WaitTasksUntil>,
    /// Seconds to wait.
    #[serde(default)]
    #[schemars(with = "Option<u64>")]
    pub wait_secs: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitTasksMode {
    Any,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitTasksUntil {
    Ended,
    Ready,
}

impl ToolArgs for WaitTasks {
    const NAME: &'static str = "wait_tasks";
    const TITLE: &'static str = "Wait for tasks";
    // The call only marks results as collected.
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
                 nothing. A message or question that arrives also ends the wait; no result is taken \
                 then. Use it when you cannot continue without a result. Not needed before you end your \
                 turn: you are woken when a task ends."
            }
            Audience::Client(_) => {
                "Wait until tasks end, and get their results: state, exit code, last output, a \
                 sub-agent's result. A sub-agent's question also ends the wait: answer it with \
                 send_message. So does a call that only the user can approve. After wait_secs the \
                 current states come back and nothing is lost: call it again. Each result is returned \
                 once; name its task to get it again. Not for reading the output of a running task: \
                 use read_output."
            }
        }
        .to_owned()
    }

    fn argument_docs(audience: Audience) -> Vec<ArgumentDoc> {
        let tasks = match audience {
            Audience::Agent => {
                "Addresses or names of tasks that you started. Default, and the meaning of an empty \
                 array: all whose results you have not got yet."
                    .to_owned()
            }
            Audience::Client(_) => format!(
                "Addresses or names. Default, and the meaning of an empty array: all tasks that this \
                 conversation started and whose results it has not got yet. One reply has at most \
                 {RESULTS_MAX} results."
            ),
        };
        let range = match audience {
            Audience::Agent => "Default: no limit.".to_owned(),
            Audience::Client(client) => {
                let WaitBounds { default_secs, max_secs } = client.wait;
                format!("Default {default_secs}, most {max_secs}.")
            }
        };
        let wait = format!(
            "Seconds to wait; then the current states come back and no result is taken. {range} \
             0 returns the states at once."
        );
        vec![ArgumentDoc::new("tasks", tasks), ArgumentDoc::new("wait_secs", wait)]
    }
}

impl WaitTasks {
    /// Returns the named tasks; none stands for all tasks of the caller.
    pub fn task_names(&self) -> Result<&[String], Refusal> {
        let names = self.tasks.as_deref().unwrap_or_default();
        if names.len() > TASKS_MAX {
            let count = names.len();
            return Err(Refusal::invalid(format!(
                "the argument `tasks` names {count} tasks; the most is {TASKS_MAX}"
            )));
        }
        Ok(names)
    }

    /// Returns whether the wait is for readiness. The tasks have to be named then.
    pub fn awaits_readiness(&self) -> Result<bool, Refusal> {
        let awaits = self.until == Some(WaitTasksUntil::Ready);
        match awaits && self.task_names()?.is_empty() {
            true => Err(Refusal::invalid(
                "with until: \"ready\", name the tasks in the argument `tasks`",
            )),
            false => Ok(awaits),
        }
    }

    pub fn mode(&self) -> WaitMode {
        match self.mode {
            Some(WaitTasksMode::All) => WaitMode::All,
            Some(WaitTasksMode::Any) | None => WaitMode::Any,
        }
    }

    /// Returns the timeout of the call; `None` is a wait without a timeout.
    pub fn wait(&self, audience: Audience) -> Result<Option<Duration>, Refusal> {
        match (self.wait_secs, audience) {
            (Some(secs), _) => audience.read_wait("wait_secs", secs).map(Some),
            (None, Audience::Agent) => Ok(None),
            (None, Audience::Client(client)) => {
                Ok(Some(Duration::from_secs(client.wait.default_secs)))
            }
        }
    }
}

/// The maximum number of running tasks that a reply lists.
const LISTED_RUNNING_MAX: usize = 20;

/// The reason for the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// Tasks have ended.
    Ended,
    TimedOut(Duration),
    /// A wait for readiness is over: each task is ready, or one has ended before.
    Ready,
    /// A sub-agent asks a question.
    InputRequired,
    /// The user has to approve a call.
    ApprovalRequired,
    /// No task of the caller is alive, and every result has been returned.
    NothingToWaitFor,
}

/// The reply to a wait.
#[derive(Clone, Debug)]
pub struct WaitTasksReply {
    pub end: WaitEnd,
    pub ended: Vec<EndedTask>,
    /// The number of ready results that did not fit into this reply.
    pub more_ready_count: usize,
    /// Named tasks that exceed the results of one reply, so that the call did not wait for them.
    pub not_waited_for: Vec<String>,
    pub still_running: Vec<TaskSummary>,
    /// The tasks that are ready, after a wait for that.
    pub ready: Vec<TaskSummary>,
    /// Tasks of other conversations and of the user, which a wait without names does not cover.
    pub others: Vec<TaskSummary>,
    /// The pending approvals that the user must decide.
    pub approvals: Vec<UserApproval>,
    pub notes: Vec<TaskNote>,
}

impl WaitTasksReply {
    pub fn render(&self) -> DelegationReply {
        let mut reply = DelegationReply::new(self.headline());
        add_notes(&mut reply, &self.notes);
        let max_bytes = bytes_per_result(self.ended.len());
        let ended: Vec<DelegationReply> =
            self.ended.iter().map(|task| task.render(max_bytes)).collect();
        for task in &ended {
            reply.add_body(&task.text());
        }
        if !self.ready.is_empty() {
            reply.add_body(&render_list("Ready:", &self.ready));
            reply.set_field(
                "ready",
                self.ready.iter().map(|task| Value::Object(task.fields())).collect(),
            );
        }
        if !self.still_running.is_empty() {
            reply.add_body(&render_running(&self.still_running));
        }
        for task in &self.still_running {
            match self.approvals.is_empty() {
                true => reply.add_guidance(task.guidance()),
                false => reply.add_guidance(task.question_guidance()),
            }
        }
        add_approvals(&mut reply, &self.approvals);
        if !self.others.is_empty() {
            let lines = self.others.iter().take(LISTED_RUNNING_MAX).map(TaskSummary::list_line);
            let lines: Vec<String> = lines.collect();
            reply.add_body(&format!("Started by others:\n{}", lines.join("\n")));
            reply.add_guidance(["Name a task of others to wait for it.".to_owned()]);
            let others = self.others.iter().take(LISTED_RUNNING_MAX);
            reply.set_field("others", others.map(|task| Value::Object(task.fields())).collect());
        }
        if self.more_ready_count > 0 {
            reply.add_guidance([format!(
                "{} more results are ready: call wait_tasks again.",
                self.more_ready_count
            )]);
        }
        if !self.not_waited_for.is_empty() {
            reply.add_guidance([format!(
                "{} of the tasks were not waited for: call wait_tasks again with them.",
                self.not_waited_for.len()
            )]);
            reply.set_field("not_waited_for", json!(self.not_waited_for));
        }
        let ended: Vec<Value> = ended.iter().map(DelegationReply::structured_content).collect();
        let running = self.still_running.iter().take(LISTED_RUNNING_MAX);
        let running: Vec<Value> = running.map(|task| Value::Object(task.fields())).collect();
        reply.set_field("ended", json!(ended));
        reply.set_field("still_running", json!(running));
        reply.set_field("timed_out", json!(matches!(self.end, WaitEnd::TimedOut(_))));
        reply
    }

    fn headline(&self) -> String {
        let running = match self.still_running.len() {
            0 => String::new(),
            1 => " 1 task is still running.".to_owned(),
            count => format!(" {count} tasks are still running."),
        };
        let reason = match (self.end, self.ended.len()) {
            (WaitEnd::NothingToWaitFor, 0) => {
                "There is nothing to wait for: no task of yours is running, and every result has been \
                 returned."
                    .to_owned()
            }
            (WaitEnd::TimedOut(Duration::ZERO), _) => {
                "The wait is not over yet. No result was taken.".to_owned()
            }
            (WaitEnd::TimedOut(waited), _) => format!(
                "The wait is not over after {}. No result was taken; to wait longer, call wait_tasks \
                 again.",
                render_secs(waited)
            ),
            (WaitEnd::Ready, 0) => match self.ready.len() {
                1 => "1 task is ready.".to_owned(),
                count => format!("{count} tasks are ready."),
            },
            (WaitEnd::Ready, 1) => {
                "1 task ended before it was ready. No result was taken.".to_owned()
            }
            (WaitEnd::Ready, count) => {
                format!("{count} tasks ended before they were ready. No result was taken.")
            }
            (WaitEnd::InputRequired, _) => {
                "The wait is over because input is needed. No result was taken.".to_owned()
            }
            (WaitEnd::ApprovalRequired, _) => {
                "The wait is over because the user has to approve a call. No result was taken."
                    .to_owned()
            }
            (_, 1) => "1 task has ended.".to_owned(),
            (_, count) => format!("{count} tasks have ended."),
        };
        format!("{reason}{running}")
    }
}

/// Lists tasks that are still running.
pub fn render_running(tasks: &[TaskSummary]) -> String {
    render_list("Still running:", tasks)
}

fn render_list(heading: &str, tasks: &[TaskSummary]) -> String {
    let mut lines = vec![heading.to_owned()];
    lines.extend(tasks.iter().take(LISTED_RUNNING_MAX).map(TaskSummary::list_line));
    if tasks.len() > LISTED_RUNNING_MAX {
        lines.push(format!("and {} more: call list_tasks.", tasks.len() - LISTED_RUNNING_MAX));
    }
    lines.join("\n")
}
