//! Shows one task.

use std::fmt;

use anstyle::Style;
use brigade_agent::Progress;
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_server::info::{ConversationInfo, ConversationState};
use brigade_server::requests;
use brigade_server::{LimitsAbove, TaskInfo};
use serde::Deserialize;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show::count;
use crate::styled_line::StyledLine;
use crate::{asking, confine, show, span, transcript};

/// How much of a conversation's id is shown: enough to tell it from the others.
const CONVERSATION_SHOWN: usize = 8;

/// Show all there is to know of a task; of an agent, its conversation too
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Show {
    /// A number, kind:number, a name or its beginning, or any of them after WORKSPACE/
    #[arg(value_name = "ADDRESS")]
    address: String,
}

const EXAMPLES: &str = "\
Examples:
  brigade show 3
  brigade show Tests
  brigade show /home/me/project/process:3 --json";

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let target = context.target(&self.address)?;
        let mut client = context.daemon().await?;
        let task = context.ask_over(&mut client, requests::Show { target: target.clone() }).await?;
        if context.json {
            show::json(&task)?;
            return Ok(Exit::SUCCEEDED);
        }
        let state = ("state", show::style(&task.state));
        for (what, text) in lines(&task) {
            let style = if what == state.0 { state.1 } else { Style::new() };
            show::line(StyledLine::from(format!("{what:<10} ")).painted(style, text))?;
        }
        if let Some(text) = transcript::whole(context, &mut client, &target).await? {
            show::line(format!("\n{}", text.trim_end_matches('\n')))?;
        }
        Ok(Exit::SUCCEEDED)
    }
}

/// What a task says of itself: an agent's note in words.
fn said(progress: &Json) -> String {
    match progress.decode::<Progress>() {
        Ok(at) if at.step > 0 => format!("step {}, {}", at.step, at.doing),
        _ => progress.as_str().to_owned(),
    }
}

fn lines(task: &TaskInfo) -> Vec<(&'static str, String)> {
    let mut lines = vec![("task", task.address.clone())];
    if let Some(name) = &task.name {
        lines.push(("name", name.clone()));
    }
    lines.push(("workspace", task.session.clone()));
    lines.push((what(task), show::one_line(&task.what)));
    lines.push(("state", show::state(task)));
    if let Some(detail) = task.detail.as_ref().filter(|detail| **detail != task.state) {
        lines.push(("detail", detail.clone()));
    }
    if let Some(liveness) = show::liveness(task) {
        lines.push(("alive", liveness));
    }
    if let Some(parent) = &task.parent {
        lines.push(("parent", parent.clone()));
    }
    if let Some(client) = &task.client {
        lines.push(("client", client_line(client, task.conversation.as_ref())));
    }
    if let Some(enclosure) = &task.enclosure {
        lines.extend(confine::lines(enclosure, &task.sandbox));
        lines.extend(confine::parts_line(&task.sandbox));
    }
    if let Some(held) = task.held_ms {
        lines.push(("held", format!("{} for readers of its output", span::short(held))));
    }
    lines.push(("started", since(task.spawned)));
    if let Some(ended) = task.ended {
        lines.push(("ended", since(ended)));
        lines.push(("took", span::short(ended.saturating_sub(task.spawned))));
    }
    if task.run > 1 || task.attempt > 1 {
        lines.push(("run", format!("{}, attempt {}", task.run, task.attempt)));
    }
    if let Some(spent) = show::spent(&task.usage) {
        let unknown = show::spent(&task.unknown_usage);
        let unknown = unknown.map(|most| format!(" at the most: {most} of it for calls cut off"));
        lines.push(("used", format!("{spent}{}", unknown.unwrap_or_default())));
        if task.own_usage != task.usage {
            let own = show::spent(&task.own_usage);
            lines.push(("itself", own.unwrap_or_else(|| "nothing of that".to_owned())));
        }
    }
    if let Some(limits) = task.limits.as_deref().and_then(limits) {
        lines.push(("limits", limits));
    }
    lines.extend(task.limits_above.iter().filter_map(limits_above));
    if let Some(deadline) = task.inherited_deadline {
        let (left, limit) = (show::until(deadline.at.0), span::short(deadline.limit.0));
        lines.push(("deadline", format!("{left}: the {limit} of task {}", deadline.from)));
    }
    for approval in &task.approvals {
        let (text, call, since) = (&approval.text, approval.call, show::age(approval.since));
        let why = asking::why(approval);
        lines.push(("waits", format!("for leave: {text} (call {call}, {since}; {why})")));
        for line in asking::elided(approval, None) {
            lines.push(("", line));
        }
    }
    for question in &task.questions {
        let (verb, rest) = match &question.client {
            Some(_) => ("waits", "for its client: "),
            None => ("asks", ""),
        };
        lines.push((verb, format!("{rest}{} (question {})", question.text, question.call)));
    }
    if let Some(progress) = &task.progress {
        lines.push(("progress", said(progress)));
    }
    if let Some(result) = &task.result {
        match result.decode::<Written>() {
            Ok(written) => lines.push(("output", written.to_string())),
            Err(_) => {
                lines.push(("result", result.decode().unwrap_or_else(|_| result.to_string())))
            }
        }
    }
    lines
}

/// The client that started it, with the beginning of its conversation's id.
fn client_line(client: &str, conversation: Option<&ConversationInfo>) -> String {
    let Some(conversation) = conversation.filter(|one| !one.id.is_empty()) else {
        return client.to_owned();
    };
    let id: String = conversation.id.chars().take(CONVERSATION_SHOWN).collect();
    let gone = match conversation.state {
        ConversationState::Lapsed => " (not seen for a minute)",
        ConversationState::Own | ConversationState::Other => "",
    };
    format!("{client}, conversation {id}{gone}")
}

/// What a holder above shares with it, in a line.
fn limits_above(above: &LimitsAbove) -> Option<(&'static str, String)> {
    let holder = match (&above.holder, above.outlived) {
        (None, _) => "the session".to_owned(),
        (Some(holder), false) => holder.clone(),
        (Some(holder), true) => format!("{holder}, which kept it and has ended"),
    };
    let used = show::spent(&above.usage).map(|spent| format!("; used: {spent}"));
    Some(("shared", format!("{} of {holder}{}", limits(&above.limits)?, used.unwrap_or_default())))
}

/// What holds for it, in a line.
fn limits(limits: &Limits) -> Option<String> {
    let number = |name: &str, most: Option<u64>| most.map(|most| format!("{name} {most}"));
    let parts = [
        limits.tokens.map(show::tokens),
        limits.money.map(|money| format!("${:.2}", money.0 as f64 / 1e6)),
        limits.time.map(|time| format!("{} of time", span::short(time.0))),
        number("depth", limits.depth.map(Into::into)),
        number("width", limits.width.map(Into::into)),
        number("total", limits.total.map(Into::into)),
        number("running", limits.running.map(Into::into)),
        limits.spawn_rate.map(|rate| format!("{rate} started")),
        limits.stall.map(|stall| match stall.watch() {
            Some(watch) => format!("{} of silence", span::short(watch.after.0)),
            None => "any silence".to_owned(),
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn what(task: &TaskInfo) -> &'static str {
    if task.is_command() { "command" } else { "does" }
}

/// What a command's result says of its output. The exit code is beside the state, and `logs` has the rest.
#[derive(Debug, Deserialize)]
struct Written {
    stdout_bytes: u64,
    stderr_bytes: u64,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stdout, stderr) = (self.stdout_bytes, self.stderr_bytes);
        write!(f, "{} on stdout, {} on stderr", count(stdout, "byte"), count(stderr, "byte"))
    }
}

fn since(millis: u64) -> String {
    format!("{} ({} ago)", span::date(millis), show::age(millis))
}
