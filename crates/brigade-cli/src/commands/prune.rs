//! Removes what is old.

use std::time::Duration;

use brigade_server::requests;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::{show, span};

/// Remove what ended long ago, with its output and events
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Prune {
    /// What ended longer ago than this
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = span::parse)]
    older: Duration,
}

const EXAMPLES: &str = "\
Examples:
  brigade prune
  brigade prune --older 1h
  brigade prune --older 0                   everything that has ended";

impl Prune {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let older = u64::try_from(self.older.as_millis()).unwrap_or(u64::MAX);
        let asked = requests::Prune { ended_ms: older, events_ms: older };
        let removed = context.ask(asked).await?;
        if context.json {
            show::json(&removed)?;
        } else {
            let tasks = show::count(removed.tasks, "task");
            let events = show::count(removed.events, "event");
            let workspaces = show::count(removed.sessions, "workspace");
            show::line(format!("removed {tasks}, {events}, {workspaces}"))?;
        }
        Ok(Exit::SUCCEEDED)
    }
}
