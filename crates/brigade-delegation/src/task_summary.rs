//! A task for a model, as a line of text and as JSON.

use std::fmt::Write;

use brigade_model::truncate::truncate_line;
use serde_json::{Map, Value, json};

use crate::agent_task_summary::AgentTaskSummary;
use crate::short_text::render_duration;

const LISTED_DESCRIPTION_CHARS: usize = 80;
const SHOWN_DESCRIPTION_CHARS: usize = 1_000;
const LISTED_DETAIL_CHARS: usize = 200;

/// A task, with the fields that both kinds of callers know.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskSummary {
    /// The address by which the reader can name the task.
    pub address: String,
    pub name: Option<String>,
    /// `queued`, `running`, `waiting`, `away`, `stopping`, `closing`, `succeeded`, `failed`, `cancelled`.
    pub state: String,
    /// The reason why the task is queued, or the details of its outcome.
    pub detail: Option<String>,
    pub is_alive: bool,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// The time from the start of the task to its end, or to now.
    pub elapsed_ms: u64,
    /// The command line, the job, or the agent's prompt.
    pub description: String,
    /// The fields that only agents have.
    pub agent: Option<AgentTaskSummary>,
    /// The worktree of the task, unless it was removed.
    pub worktree: Option<WorktreeSummary>,
    /// An earlier reply returned the result.
    pub returned_before: bool,
    /// Another conversation started the task and gets its result.
    pub other_conversation: bool,
}

/// The git worktree of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorktreeSummary {
    pub path: String,
    pub branch: String,
}

impl TaskSummary {
    /// Renders `process:4 "Tests" succeeded (exit code 0) after 3.2s`.
    pub fn headline(&self) -> String {
        let mut line = self.address.clone();
        if let Some(name) = &self.name {
            let _ = write!(line, " {name:?}");
        }
        let detail = self.detail.as_deref().filter(|detail| *detail != self.state);
        match (detail, self.is_alive) {
            (Some(detail), false) => _ = write!(line, " {detail}"),
            (Some(detail), true) => _ = write!(line, " {} ({detail})", self.state),
            (None, _) => _ = write!(line, " {}", self.state),
        }
        match (self.exit_code, self.signal) {
            (Some(code), _) if !line.contains("exit code") => {
                _ = write!(line, " (exit code {code})");
            }
            (_, Some(signal)) if !line.contains("signal") => _ = write!(line, " (signal {signal})"),
            _ => {}
        }
        let preposition = if self.is_alive { "for" } else { "after" };
        let _ = write!(line, " {preposition} {}", render_duration(self.elapsed_ms));
        if let Some(status) = self.agent.as_ref().and_then(|agent| agent.status(self.is_alive)) {
            let _ = write!(line, ", {status}");
        }
        if let Some(worktree) = &self.worktree {
            let _ = write!(line, ", on branch {}", worktree.branch);
        }
        if self.other_conversation {
            line.push_str(", of another conversation");
        }
        if self.returned_before {
            line.push_str(" (its result had been returned before)");
        }
        line
    }

    /// Returns the detail, unless the state and the exit code have the same information.
    fn distinct_detail(&self) -> Option<&str> {
        let detail = self.detail.as_deref().filter(|detail| *detail != self.state)?;
        let rendered = match (self.exit_code, self.signal) {
            (Some(code), _) => format!("{} (exit code {code})", self.state),
            (None, Some(signal)) => format!("{} (signal {signal})", self.state),
            (None, None) => return Some(detail),
        };
        (detail != rendered).then_some(detail)
    }

    /// Renders the headline with the description, and the last text of an agent that is alive.
    pub fn list_line(&self) -> String {
        let listed = Self {
            detail: self.detail.as_deref().map(|detail| truncate_line(detail, LISTED_DETAIL_CHARS)),
            ..self.clone()
        };
        let description = truncate_line(&self.description, LISTED_DESCRIPTION_CHARS);
        let line = format!("{}: {description}", listed.headline());
        let last_text = self
            .agent
            .as_ref()
            .filter(|_| self.is_alive)
            .and_then(AgentTaskSummary::last_text_line);
        match last_text {
            Some(text) => format!("{line}\n  says: {text}"),
            None => line,
        }
    }

    /// Renders the most urgent input that an agent needs, or its status, in one line.
    pub fn status_line(&self) -> Option<String> {
        self.agent.as_ref().and_then(|agent| agent.status_line(self.is_alive))
    }

    /// Renders the actions that the task needs from the reader.
    pub fn guidance(&self) -> Vec<String> {
        match &self.agent {
            Some(agent) if self.is_alive => agent.guidance(&self.address),
            _ => Vec::new(),
        }
    }

    /// Renders the guidance without approvals. The reply lists them together with those of the
    /// task's descendants.
    pub(crate) fn question_guidance(&self) -> Vec<String> {
        match &self.agent {
            Some(agent) if self.is_alive => agent.question_guidance(&self.address),
            _ => Vec::new(),
        }
    }

    /// Returns the summary as JSON fields without nulls, the address first.
    pub fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut add = |name: &str, value: Value| {
            if !value.is_null() {
                fields.insert(name.to_owned(), value);
            }
        };
        add("address", json!(self.address));
        add("name", json!(self.name));
        add("state", json!(self.state));
        add("detail", json!(self.distinct_detail()));
        add("exit_code", json!(self.exit_code));
        add("signal", json!(self.signal));
        add("elapsed", json!(render_duration(self.elapsed_ms)));
        let kind = if self.agent.is_some() { "task" } else { "command" };
        add(kind, json!(truncate_line(&self.description, SHOWN_DESCRIPTION_CHARS)));
        let worktree = self.worktree.as_ref();
        let worktree = worktree.map(|one| json!({"path": one.path, "branch": one.branch}));
        add("worktree", json!(worktree));
        add("other_conversation", if self.other_conversation { json!(true) } else { Value::Null });
        add("returned_before", if self.returned_before { json!(true) } else { Value::Null });
        if let Some(agent) = &self.agent {
            agent.add_to(&mut fields, self.is_alive);
        }
        fields
    }
}
