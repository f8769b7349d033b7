//! `brigade stop`: stops tasks.

use brigade_model::duration::parse_duration;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_protocol::requests::{self, StopReply, WaitRequest, WaitUntil};

use crate::context::{CliContext, call_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::styled_line::StyledLine;

/// Stop tasks and their descendants: SIGTERM, then SIGKILL after the grace period
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StopArgs {
    /// Tasks to stop
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<String>,
    /// Grace period [default: the task's own, else 5s]
    #[arg(long, short, value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,
    /// No grace period
    #[arg(long, conflicts_with = "grace")]
    now: bool,
    /// Reason, recorded in the events
    #[arg(long, short, value_name = "TEXT")]
    reason: Option<String>,
    /// Wait until the tasks have ended
    #[arg(long)]
    wait: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade stop Server
  brigade stop --now 3 4
  brigade stop --wait --grace 30s --reason 'new version' Server";

impl StopArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let client = context.connect_daemon().await?;
        let grace = if self.now { Some(Duration::ZERO) } else { self.grace };
        let grace_ms = grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
        let mut replies: Vec<StopReply> = Vec::new();
        for address in &self.addresses {
            let target = context.target(address)?;
            let reason = self.reason.clone();
            let stop = requests::StopRequest { target, reason, grace_ms };
            replies.push(call_over(&client, stop).await?);
        }
        if self.wait {
            for reply in &mut replies {
                let task = format!("{}/{}", reply.task.session, reply.task.address);
                let session = context.session_name()?;
                let mode = WaitMode::All;
                let until = WaitUntil::Ended;
                let wait =
                    WaitRequest { session, tasks: vec![task], mode, timeout_ms: None, until };
                let mut waited = call_over(&client, wait).await?;
                reply.task = waited.ended.pop().unwrap_or(reply.task.clone());
            }
        }
        if context.json {
            render::print_json(&replies)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        for reply in &replies {
            let task = &reply.task;
            let descendants = match reply.task_count {
                0 | 1 => String::new(),
                count => format!(" with {}", render::render_count(count - 1, "descendant")),
            };
            let line = StyledLine::from(&task.address).text(" ");
            render::print_line(
                line.styled(render::state_style(&task.state), render::render_state(task))
                    .text(descendants),
            )?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
