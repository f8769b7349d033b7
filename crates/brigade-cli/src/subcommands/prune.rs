//! `brigade prune`: deletes ended tasks.

use brigade_model::duration::parse_duration;
use std::time::Duration;

use brigade_protocol::requests;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Delete ended tasks, their output and their events
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PruneArgs {
    /// Only what ended longer ago than this
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_duration)]
    older: Duration,
}

const EXAMPLES: &str = "\
Examples:
  brigade prune
  brigade prune --older 1h
  brigade prune --older 0                   all ended tasks";

impl PruneArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let age_ms = u64::try_from(self.older.as_millis()).unwrap_or(u64::MAX);
        let request = requests::PruneRequest { ended_age_ms: age_ms, event_age_ms: age_ms };
        let removed = context.call(request).await?;
        if context.json {
            render::print_json(&removed)?;
        } else {
            let tasks = render::render_count(removed.tasks, "task");
            let events = render::render_count(removed.events, "event");
            let workspaces = render::render_count(removed.sessions, "workspace");
            render::print_line(format!("removed {tasks}, {events}, {workspaces}"))?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
