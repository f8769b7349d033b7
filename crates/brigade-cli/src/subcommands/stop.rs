//! Stops tasks.

use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_server::requests::{self, StopReply, WaitRequest};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::styled_line::StyledLine;
use crate::{duration, render};

/// Stop tasks and all that came of them: kindly first, firmly when the grace is over
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StopArgs {
    /// The tasks
    #[arg(value_name = "ADDRESS", required = true)]
    addresses: Vec<String>,
    /// How long they may take by themselves [default: 5s, or what they were started with]
    #[arg(long, short, value_name = "TIME", value_parser = duration::parse_duration)]
    grace: Option<Duration>,
    /// Without grace
    #[arg(long, conflicts_with = "grace")]
    now: bool,
    /// Why, for whoever looks later
    #[arg(long, short, value_name = "TEXT")]
    reason: Option<String>,
    /// Return when they have ended
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
        let mut client = context.connect_daemon().await?;
        let grace = if self.now { Some(Duration::ZERO) } else { self.grace };
        let grace_ms = grace.map(|grace| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX));
        let mut told: Vec<StopReply> = Vec::new();
        for address in &self.addresses {
            let (target, reason) = (context.target(address)?, self.reason.clone());
            let stop = requests::StopRequest { target, reason, grace_ms };
            told.push(context.call_over(&mut client, stop).await?);
        }
        if self.wait {
            for stopping in &mut told {
                let task = format!("{}/{}", stopping.task.session, stopping.task.address);
                let (session, mode) = (context.session_name()?, WaitMode::All);
                let wait = WaitRequest { session, tasks: vec![task], mode, timeout_ms: None };
                let mut waited = context.call_over(&mut client, wait).await?;
                stopping.task = waited.ended.pop().unwrap_or(stopping.task.clone());
            }
        }
        if context.json {
            render::print_json(&told)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        for stopping in &told {
            let task = &stopping.task;
            let below = match stopping.task_count {
                0 | 1 => String::new(),
                more => format!(" with {} below it", more - 1),
            };
            let line = StyledLine::from(&task.address).text(" ");
            render::print_line(
                line.styled(render::state_style(&task.state), render::render_state(task))
                    .text(below),
            )?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
