//! Options that limit a task and its descendants.

use brigade_model::limits::Limits;
use brigade_model::spawn_rate::SpawnRate;

#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Levels of tasks below this one; 0: it starts none
    #[arg(long, value_name = "N")]
    max_depth: Option<u16>,
    /// Children at a time, for this task and each descendant
    #[arg(long, value_name = "N")]
    max_width: Option<u32>,
    /// Descendants in total
    #[arg(long, value_name = "N")]
    max_total: Option<u32>,
    /// Descendants that run at the same time; the others are queued
    #[arg(long, value_name = "N")]
    max_running: Option<u32>,
    /// Spawn rate limit for the task and its descendants, such as 10/min
    #[arg(long, value_name = "RATE")]
    max_spawns: Option<SpawnRate>,
}

impl LimitArgs {
    /// Adds these limits to others.
    pub(crate) fn add_to(self, limits: Limits) -> Limits {
        Limits {
            depth: self.max_depth,
            width: self.max_width,
            total: self.max_total,
            running: self.max_running,
            spawn_rate: self.max_spawns,
            ..limits
        }
    }
}
