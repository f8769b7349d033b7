//! A task that still runs after the call that started it.

use std::time::Duration;

use serde_json::json;

use crate::delegation_reply::DelegationReply;
use crate::output_tail::OutputTail;
use crate::short_text::render_secs;
use crate::task_summary::TaskSummary;
use crate::user_approval::{UserApproval, add_approvals};

/// The reason for a reply before the end of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundReason {
    /// The caller asked for the address only.
    Requested,
    /// The task did not end within this time.
    TimedOut(Duration),
    /// The task needs input.
    InputRequired,
}

#[derive(Clone, Debug)]
pub struct BackgroundTask {
    pub summary: TaskSummary,
    pub reason: BackgroundReason,
    /// An earlier call with the same key started the task.
    pub existed: bool,
    pub output: Option<OutputTail>,
    /// The pending approvals of the task and its descendants.
    pub approvals: Vec<UserApproval>,
    /// The command line that waits for the task.
    pub wait_command: Option<String>,
}

impl BackgroundTask {
    pub fn render(&self) -> DelegationReply {
        let Self { summary, .. } = self;
        let address = &summary.address;
        let mut headline = format!("{}.", summary.headline());
        match self.reason {
            BackgroundReason::TimedOut(wait) if summary.is_alive => headline.push_str(&format!(
                " It did not end within {} and runs on in the background.",
                render_secs(wait)
            )),
            _ if self.existed => headline.push_str(" It had been started before with this key."),
            _ => {}
        }
        let mut reply = DelegationReply::new(headline);
        let mut fields = summary.fields();
        if let Some(output) = &self.output {
            if !output.text().is_empty() {
                reply.add_body(&format!("Output so far:\n{}", output.text()));
                reply.add_guidance(output.guidance(address));
            }
            output.add_to(&mut fields);
        }
        match self.approvals.is_empty() {
            true => reply.add_guidance(summary.guidance()),
            false => reply.add_guidance(summary.question_guidance()),
        }
        reply.add_guidance([format!(
            "Call wait_tasks for its result; read_output, send_message and stop_task take {address:?}."
        )]);
        if let Some(line) = &self.wait_command {
            reply.add_guidance([format!(
                "To be woken when it ends, run this in a background shell of your own:\n{line}"
            )]);
        }
        reply.add_fields(fields);
        add_approvals(&mut reply, &self.approvals);
        if self.existed {
            reply.set_field("existed", json!(true));
        }
        if let Some(line) = &self.wait_command {
            reply.set_field("wait_command", json!(line));
        }
        reply
    }
}

/// Renders the reply to an agent that started a task in the background.
pub fn render_started(address: &str, existed: bool) -> DelegationReply {
    let before = if existed { " It had been started before with this key." } else { "" };
    DelegationReply::new(format!("{address} has started.{before}"))
}

/// Renders the reply to an agent whose process did not end in time.
pub fn render_timed_out(address: &str, wait: Duration) -> DelegationReply {
    DelegationReply::new(format!(
        "{address} did not end within {} and runs on in the background.",
        render_secs(wait)
    ))
}
