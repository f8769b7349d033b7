//! `brigade resume`: starts the next run of an ended task.

use brigade_model::duration::parse_duration;
use std::time::Duration;

use brigade_model::limits::Limits;
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::stall::StallPolicy;
use brigade_protocol::requests;

use super::run::{parse_budget, parse_stall};
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Start the next run of an ended task, with a larger budget if needed
///
/// An agent continues its transcript. `brigade send` also starts the next run, with a message.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ResumeArgs {
    /// Task to resume
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Budget of the agent and its descendants, all runs together: dollars as $2.50, tokens as
    /// 500k, or both: $1,200k
    #[arg(long, short, value_name = "AMOUNT", value_parser = parse_budget)]
    budget: Option<Limits>,
    /// End the task as failed after this long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// After this long without activity, nudge the agent, then end it as failed; `off` disables
    #[arg(long, value_name = "TIME|off", value_parser = parse_stall)]
    stall: Option<StallPolicy>,
    /// Spawn rate limit for the agent and its descendants, such as 10/min
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
            limits.stall = self.stall;
            limits.spawn_rate = self.max_spawns;
        }
        let task = context.call(requests::ResumeRequest { target, limits }).await?;
        if context.json {
            render::print_json(&task)?;
        } else {
            render::print_line(format!("{} resumed, run {}", task.address, task.run))?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
