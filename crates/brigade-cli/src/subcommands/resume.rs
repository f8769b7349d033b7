//! Lets an ended task go on.

use std::time::Duration;

use brigade_model::limits::Limits;
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::stall::StallPolicy;
use brigade_server::requests;

use super::run::{parse_budget, parse_stall};
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::{duration, render};

/// Let a task that has ended go on, with more to spend if need be
///
/// An agent goes on with the same conversation. `brigade send` does the same with a message.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ResumeArgs {
    /// The task
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// The most that it may use now, all runs together: dollars as $2.50, tokens as 500k, or both
    #[arg(long, short, value_name = "AMOUNT", value_parser = parse_budget)]
    budget: Option<Limits>,
    /// End it as failed when it has run for this long
    #[arg(long, value_name = "TIME", value_parser = duration::parse_duration)]
    deadline: Option<Duration>,
    /// When nothing happens for this long, nudge it, and the next time end it as failed; or off
    #[arg(long, value_name = "TIME|off", value_parser = parse_stall)]
    stall: Option<StallPolicy>,
    /// How fast it and all below it may start tasks, as 10/min
    #[arg(long, value_name = "RATE")]
    max_spawns: Option<SpawnRate>,
}

const EXAMPLES: &str = "\
Examples:
  brigade resume agent:3 --budget '$2'
  brigade wait agent:3";

impl ResumeArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let target = context.target(&self.address)?;
        let mut limits = self.budget;
        if let Some(deadline) = self.deadline {
            limits.get_or_insert_default().time = Some(deadline.into());
        }
        if self.stall.is_some() || self.max_spawns.is_some() {
            let limits = limits.get_or_insert_default();
            (limits.stall, limits.spawn_rate) = (self.stall, self.max_spawns);
        }
        let task = context.call(requests::ResumeRequest { target, limits }).await?;
        if context.json {
            render::print_json(&task)?;
        } else {
            render::print_line(format!("{} goes on, run {}", task.address, task.run))?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
