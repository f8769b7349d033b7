//! `brigade show`: prints one task.

use std::fmt;

use anstyle::Style;
use brigade_agent::AgentProgress;
use brigade_model::event_author::EventAuthor;
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::work::ReadinessCheck;
use brigade_protocol::requests;
use brigade_protocol::task_info::{ConversationInfo, ConversationState};
use brigade_protocol::{InheritedLimits, TaskInfo};
use serde::{Deserialize, Serialize};

use crate::context::{CliContext, call_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{LabelledLine, render_count};
use crate::styled_line::StyledLine;
use crate::subcommands::events;
use crate::{duration, pending_input, render, sandbox_args, task_author, transcript};

/// Characters of a conversation's id that are printed, enough to tell it from others.
const CONVERSATION_ID_CHARS: usize = 8;
/// The width of the column of labels.
const LABEL_WIDTH: usize = 10;
const STATE_LABEL: &str = "state";

/// Show one task; for an agent, its transcript too
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// Number, kind:number, name or its prefix; WORKSPACE/ before it selects another workspace
    #[arg(value_name = "ADDRESS")]
    address: String,
}

const EXAMPLES: &str = "\
Examples:
  brigade show 3
  brigade show Tests
  brigade show /home/me/project/process:3 --json";

impl ShowArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let target = context.target(&self.address)?;
        let client = context.connect_daemon().await?;
        let task = call_over(&client, requests::ShowTaskRequest { target: target.clone() }).await?;
        let by = task_author::find_author(&client, &task).await;
        if context.json {
            render::print_json(&ShownTask { task: &task, by: by.as_deref() })?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        for line in render_lines(&task, by.as_deref()) {
            let is_state = line.label == STATE_LABEL;
            let style = if is_state { render::state_style(&task.state) } else { Style::new() };
            let label = format!("{:<LABEL_WIDTH$} ", line.label);
            render::print_line(StyledLine::from(label).styled(style, line.text))?;
        }
        if let Some(text) = transcript::read_transcript(&client, &target).await? {
            render::print_line(format!("\n{}", text.trim_end_matches('\n')))?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

/// A task, and the person or program that started it.
#[derive(Debug, Serialize)]
struct ShownTask<'a> {
    #[serde(flatten)]
    task: &'a TaskInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a EventAuthor>,
}

/// Renders the progress of a task: the step of an agent, else its JSON.
fn render_progress(progress: &Json) -> String {
    match progress.decode::<AgentProgress>() {
        Ok(progress) if progress.step > 0 => {
            format!("step {}, {}", progress.step, progress.activity)
        }
        _ => progress.as_str().to_owned(),
    }
}

/// Renders when a task became ready, or the condition for that.
fn render_readiness(task: &TaskInfo, check: &ReadinessCheck) -> String {
    let check = render::render_one_line(&check.to_string());
    match task.ready_at {
        Some(at) => format!("{} ({check})", render_since(at)),
        None if task.alive => format!("not yet (when {check})"),
        None => format!("never (when {check})"),
    }
}

fn render_lines(task: &TaskInfo, by: Option<&EventAuthor>) -> Vec<LabelledLine> {
    let mut lines = vec![LabelledLine::new("address", task.address.clone())];
    if let Some(name) = &task.name {
        lines.push(LabelledLine::new("name", name.clone()));
    }
    lines.push(LabelledLine::new("workspace", task.session.clone()));
    lines.push(LabelledLine::new(
        description_label(task),
        render::render_one_line(&task.description),
    ));
    lines.push(LabelledLine::new(STATE_LABEL, render::render_state(task)));
    let is_shown = |detail: &&String| **detail != task.state && task.retries.is_empty();
    if let Some(detail) = task.detail.as_ref().filter(is_shown) {
        lines.push(LabelledLine::new("detail", detail.clone()));
    }
    if let Some(liveness) = render::render_liveness(task) {
        lines.push(LabelledLine::new("alive", liveness));
    }
    if let Some(check) = &task.readiness_check {
        lines.push(LabelledLine::new("ready", render_readiness(task, check)));
    }
    if let Some(parent) = &task.parent {
        lines.push(LabelledLine::new("parent", parent.clone()));
    }
    if let Some(client) = &task.client {
        lines.push(LabelledLine::new("client", render_client(client, task.conversation.as_ref())));
    }
    if let Some(sandbox) = &task.sandbox {
        lines.extend(sandbox_args::render_sandbox(sandbox, &task.sandbox_parts));
        lines.extend(sandbox_args::render_sandbox_parts(&task.sandbox_parts));
    }
    if let Some(worktree) = &task.worktree {
        lines.push(LabelledLine::new("worktree", worktree.to_string()));
    }
    if let Some(held) = task.held_ms {
        lines.push(LabelledLine::new(
            "output held",
            format!("{} for readers of its output", duration::render_duration(held)),
        ));
    }
    let by = by.map(events::render_author).unwrap_or_default();
    lines.push(LabelledLine::new("started", format!("{}{by}", render_since(task.spawned_at))));
    if let Some(ended) = task.ended_at {
        lines.push(LabelledLine::new("ended", render_since(ended)));
        lines.push(LabelledLine::new(
            "took",
            duration::render_duration(ended.saturating_sub(task.spawned_at)),
        ));
    }
    if task.run > 1 || task.attempt > 1 {
        lines.push(LabelledLine::new("run", format!("{}, attempt {}", task.run, task.attempt)));
    }
    lines.extend(render_usage_and_limits(task));
    lines.extend(render_pending_input(task));
    if let Some(progress) = &task.progress {
        lines.push(LabelledLine::new("progress", render_progress(progress)));
    }
    if let Some(result) = &task.result {
        match result.decode::<OutputSizes>() {
            Ok(sizes) => lines.push(LabelledLine::new("output", sizes.to_string())),
            Err(_) => lines.push(LabelledLine::new(
                "result",
                result.decode().unwrap_or_else(|_| result.to_string()),
            )),
        }
    }
    lines
}

fn render_usage_and_limits(task: &TaskInfo) -> Vec<LabelledLine> {
    let mut lines = Vec::new();
    if let Some(usage) = render::render_usage(&task.usage) {
        let unknown = render::render_usage(&task.unknown_usage);
        let unknown = unknown.map(|usage| format!(" at most: {usage} of it for interrupted calls"));
        lines.push(LabelledLine::new("used", format!("{usage}{}", unknown.unwrap_or_default())));
        if task.own_usage != task.usage {
            let own = render::render_usage(&task.own_usage);
            lines.push(LabelledLine::new(
                "own usage",
                own.unwrap_or_else(|| "none of it".to_owned()),
            ));
        }
    }
    if let Some(limits) = task.limits.as_deref().and_then(render_limits) {
        lines.push(LabelledLine::new("limits", limits));
    }
    lines.extend(task.inherited_limits.iter().filter_map(render_inherited_limits));
    if let Some(deadline) = task.inherited_deadline {
        let remaining = render::render_until(deadline.at.0);
        let limit = duration::render_duration(deadline.limit.0);
        lines.push(LabelledLine::new(
            "deadline",
            format!("{remaining}: the {limit} of task {}", deadline.holder),
        ));
    }
    lines
}

fn render_pending_input(task: &TaskInfo) -> Vec<LabelledLine> {
    let mut lines = Vec::new();
    for approval in &task.approvals {
        let text = &approval.text;
        let call = approval.call;
        let age = render::render_age(approval.requested_at);
        let rule = pending_input::render_rule(approval);
        lines.push(LabelledLine::new(
            "needs",
            format!("approval: {text} (call {call}, {age}; {rule})"),
        ));
        for line in pending_input::render_elided_call(approval, None) {
            lines.push(LabelledLine::new("", line));
        }
    }
    for retry in &task.retries {
        lines.push(LabelledLine::new("retries", render::render_retry(retry)));
    }
    for question in &task.questions {
        let (label, prefix) = match &question.client_call {
            Some(_) => ("waits", "for its client: "),
            None => ("asks", ""),
        };
        lines.push(LabelledLine::new(
            label,
            format!("{prefix}{} (question {})", question.text, question.call),
        ));
    }
    lines
}

/// Renders the client that started a task, with the start of its conversation's id.
fn render_client(client: &str, conversation: Option<&ConversationInfo>) -> String {
    let Some(conversation) = conversation.filter(|found| !found.id.is_empty()) else {
        return client.to_owned();
    };
    let id: String = conversation.id.chars().take(CONVERSATION_ID_CHARS).collect();
    let state = match conversation.state {
        ConversationState::Lapsed => " (not seen for a minute)",
        ConversationState::Own | ConversationState::Other => "",
    };
    format!("{client}, conversation {id}{state}")
}

/// Renders limits that a task inherits from an ancestor or the session.
fn render_inherited_limits(inherited: &InheritedLimits) -> Option<LabelledLine> {
    let holder = match (&inherited.holder, inherited.holder_ended) {
        (None, _) => "the session".to_owned(),
        (Some(holder), false) => holder.clone(),
        (Some(holder), true) => format!("{holder}, which kept it and has ended"),
    };
    let used = render::render_usage(&inherited.usage).map(|usage| format!("; used: {usage}"));
    let limits = render_limits(&inherited.limits)?;
    let text = format!("{limits} of {holder}{}", used.unwrap_or_default());
    Some(LabelledLine::new("inherited", text))
}

/// Renders limits on one line.
fn render_limits(limits: &Limits) -> Option<String> {
    let number = |name: &str, limit: Option<u64>| limit.map(|limit| format!("{name} {limit}"));
    let parts = [
        limits.tokens.map(render::render_tokens),
        limits.money.map(|money| money.to_string()),
        limits.time.map(|time| format!("{} of time", duration::render_duration(time.0))),
        number("depth", limits.depth.map(Into::into)),
        number("width", limits.width.map(Into::into)),
        number("total", limits.total.map(Into::into)),
        number("running", limits.running.map(Into::into)),
        limits.spawn_rate.map(|rate| format!("{rate} started")),
        limits.stall.map(|stall| match stall.watch() {
            Some(watch) => format!("{} of silence", duration::render_duration(watch.after.0)),
            None => "any silence".to_owned(),
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn description_label(task: &TaskInfo) -> &'static str {
    if task.is_process() { "command" } else { "task" }
}

/// The output sizes in the result of a process.
#[derive(Debug, Deserialize)]
struct OutputSizes {
    stdout_bytes: u64,
    stderr_bytes: u64,
}

impl fmt::Display for OutputSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stdout = self.stdout_bytes;
        let stderr = self.stderr_bytes;
        write!(
            f,
            "{} on stdout, {} on stderr",
            render_count(stdout, "byte"),
            render_count(stderr, "byte")
        )
    }
}

fn render_since(millis: u64) -> String {
    format!("{} ({} ago)", duration::render_timestamp(millis), render::render_age(millis))
}
