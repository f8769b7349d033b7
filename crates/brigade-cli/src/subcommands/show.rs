//! Shows one task.

use std::fmt;

use anstyle::Style;
use brigade_agent::AgentProgress;
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_server::requests;
use brigade_server::task_info::{ConversationInfo, ConversationState};
use brigade_server::{InheritedLimits, TaskInfo};
use serde::Deserialize;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::render_count;
use crate::styled_line::StyledLine;
use crate::{duration, pending_input, render, sandbox_args, transcript};

/// How much of a conversation's id is shown: enough to tell it from the others.
const CONVERSATION_ID_CHARS: usize = 8;

/// Show all there is to know of a task; of an agent, its conversation too
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// A number, kind:number, a name or its beginning, or any of them after WORKSPACE/
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
        let mut client = context.connect_daemon().await?;
        let task = context
            .call_over(&mut client, requests::ShowTaskRequest { target: target.clone() })
            .await?;
        if context.json {
            render::print_json(&task)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let state = ("state", render::state_style(&task.state));
        for (what, text) in render_lines(&task) {
            let style = if what == state.0 { state.1 } else { Style::new() };
            render::print_line(StyledLine::from(format!("{what:<10} ")).styled(style, text))?;
        }
        if let Some(text) = transcript::read_transcript(context, &mut client, &target).await? {
            render::print_line(format!("\n{}", text.trim_end_matches('\n')))?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

/// What a task says of itself: an agent's note in words.
fn render_progress(progress: &Json) -> String {
    match progress.decode::<AgentProgress>() {
        Ok(at) if at.step > 0 => format!("step {}, {}", at.step, at.activity),
        _ => progress.as_str().to_owned(),
    }
}

fn render_lines(task: &TaskInfo) -> Vec<(&'static str, String)> {
    let mut lines = vec![("task", task.address.clone())];
    if let Some(name) = &task.name {
        lines.push(("name", name.clone()));
    }
    lines.push(("workspace", task.session.clone()));
    lines.push((description_label(task), render::render_one_line(&task.description)));
    lines.push(("state", render::render_state(task)));
    if let Some(detail) = task.detail.as_ref().filter(|detail| **detail != task.state) {
        lines.push(("detail", detail.clone()));
    }
    if let Some(liveness) = render::render_liveness(task) {
        lines.push(("alive", liveness));
    }
    if let Some(parent) = &task.parent {
        lines.push(("parent", parent.clone()));
    }
    if let Some(client) = &task.client {
        lines.push(("client", render_client(client, task.conversation.as_ref())));
    }
    if let Some(enclosure) = &task.sandbox {
        lines.extend(sandbox_args::render_sandbox(enclosure, &task.sandbox_parts));
        lines.extend(sandbox_args::render_sandbox_parts(&task.sandbox_parts));
    }
    if let Some(held) = task.held_ms {
        lines.push((
            "held",
            format!("{} for readers of its output", duration::render_duration(held)),
        ));
    }
    lines.push(("started", render_since(task.spawned_at)));
    if let Some(ended) = task.ended_at {
        lines.push(("ended", render_since(ended)));
        lines.push(("took", duration::render_duration(ended.saturating_sub(task.spawned_at))));
    }
    if task.run > 1 || task.attempt > 1 {
        lines.push(("run", format!("{}, attempt {}", task.run, task.attempt)));
    }
    if let Some(spent) = render::render_usage(&task.usage) {
        let unknown = render::render_usage(&task.unknown_usage);
        let unknown = unknown.map(|most| format!(" at the most: {most} of it for calls cut off"));
        lines.push(("used", format!("{spent}{}", unknown.unwrap_or_default())));
        if task.own_usage != task.usage {
            let own = render::render_usage(&task.own_usage);
            lines.push(("itself", own.unwrap_or_else(|| "nothing of that".to_owned())));
        }
    }
    if let Some(limits) = task.limits.as_deref().and_then(render_limits) {
        lines.push(("limits", limits));
    }
    lines.extend(task.inherited_limits.iter().filter_map(render_inherited_limits));
    if let Some(deadline) = task.inherited_deadline {
        let (left, limit) =
            (render::render_until(deadline.at.0), duration::render_duration(deadline.limit.0));
        lines.push(("deadline", format!("{left}: the {limit} of task {}", deadline.holder)));
    }
    for approval in &task.approvals {
        let (text, call, since) =
            (&approval.text, approval.call, render::render_age(approval.requested_at));
        let why = pending_input::render_rule(approval);
        lines.push(("waits", format!("for leave: {text} (call {call}, {since}; {why})")));
        for line in pending_input::render_elided_call(approval, None) {
            lines.push(("", line));
        }
    }
    for question in &task.questions {
        let (verb, rest) = match &question.client_call {
            Some(_) => ("waits", "for its client: "),
            None => ("asks", ""),
        };
        lines.push((verb, format!("{rest}{} (question {})", question.text, question.call)));
    }
    if let Some(progress) = &task.progress {
        lines.push(("progress", render_progress(progress)));
    }
    if let Some(result) = &task.result {
        match result.decode::<OutputSizes>() {
            Ok(written) => lines.push(("output", written.to_string())),
            Err(_) => {
                lines.push(("result", result.decode().unwrap_or_else(|_| result.to_string())))
            }
        }
    }
    lines
}

/// The client that started it, with the beginning of its conversation's id.
fn render_client(client: &str, conversation: Option<&ConversationInfo>) -> String {
    let Some(conversation) = conversation.filter(|one| !one.id.is_empty()) else {
        return client.to_owned();
    };
    let id: String = conversation.id.chars().take(CONVERSATION_ID_CHARS).collect();
    let gone = match conversation.state {
        ConversationState::Lapsed => " (not seen for a minute)",
        ConversationState::Own | ConversationState::Other => "",
    };
    format!("{client}, conversation {id}{gone}")
}

/// What a holder above shares with it, in a line.
fn render_inherited_limits(above: &InheritedLimits) -> Option<(&'static str, String)> {
    let holder = match (&above.holder, above.holder_ended) {
        (None, _) => "the session".to_owned(),
        (Some(holder), false) => holder.clone(),
        (Some(holder), true) => format!("{holder}, which kept it and has ended"),
    };
    let used = render::render_usage(&above.usage).map(|spent| format!("; used: {spent}"));
    Some((
        "shared",
        format!("{} of {holder}{}", render_limits(&above.limits)?, used.unwrap_or_default()),
    ))
}

/// What holds for it, in a line.
fn render_limits(limits: &Limits) -> Option<String> {
    let number = |name: &str, most: Option<u64>| most.map(|most| format!("{name} {most}"));
    let parts = [
        limits.tokens.map(render::render_tokens),
        limits.money.map(|money| format!("${:.2}", money.0 as f64 / 1e6)),
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
    if task.is_process() { "command" } else { "does" }
}

/// What a command's result says of its output. The exit code is beside the state, and `logs` has the rest.
#[derive(Debug, Deserialize)]
struct OutputSizes {
    stdout_bytes: u64,
    stderr_bytes: u64,
}

impl fmt::Display for OutputSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stdout, stderr) = (self.stdout_bytes, self.stderr_bytes);
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
