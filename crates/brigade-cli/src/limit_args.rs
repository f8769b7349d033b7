//! Options that bound what a task and all below it may start.

use brigade_model::limits::Limits;
use brigade_model::spawn_rate::SpawnRate;

#[derive(Clone, Copy, Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// How many levels of tasks may be below it; 0 lets it start none
    #[arg(long, value_name = "N")]
    max_depth: Option<u16>,
    /// How many children it, and each task below it, may have at a time
    #[arg(long, value_name = "N")]
    max_width: Option<u32>,
    /// How many tasks may ever be started below it
    #[arg(long, value_name = "N")]
    max_total: Option<u32>,
    /// How many tasks below it may run at once; others wait for their turn
    #[arg(long, value_name = "N")]
    max_running: Option<u32>,
    /// How fast it and all below it may start tasks, as 10/min
    #[arg(long, value_name = "RATE")]
    max_spawns: Option<SpawnRate>,
}

impl LimitArgs {
    /// Adds what was given to other limits.
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
