//! The works of the comparison.

use std::time::Duration;

/// Tasks of one batch of `spawn-batch`.
pub const BATCH_TASKS: usize = 1_000;
/// Running tasks while `stop-one` stops some of them.
pub const ALIVE_TASKS: usize = 10_000;
/// Parked tasks before `parked-bytes` begins to measure, so that the figure has no fixed costs.
pub const WARM_UP_TASKS: usize = 1_000;
/// Levels of the tree of `stop-tree`, with its root.
pub const TREE_DEPTH: usize = 10;
/// Tasks in flight of `durable` and `steps`.
pub const IN_FLIGHT: usize = 64;
/// Recorded steps of each task of `steps`.
pub const STEPS_PER_TASK: usize = 5;
/// The longest run, with its setup. The slowest run of Brigade takes a few seconds.
pub const RUN_LIMIT: Duration = Duration::from_secs(20);

/// The environment variable with the path of the program `brigade`.
pub const BRIGADE_VARIABLE: &str = "BRIGADE_PEERS_BRIGADE";

/// A piece of work that each peer does as its documentation recommends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    SpawnBatch,
    SpawnAwait,
    StopOne,
    StopTree,
    Messages,
    ParkedBytes,
    Durable,
    Steps,
    Agent,
    AgentsAtOnce,
    Exec,
}

impl Work {
    pub const ALL: [Self; 11] = [
        Self::SpawnBatch,
        Self::SpawnAwait,
        Self::StopOne,
        Self::StopTree,
        Self::Messages,
        Self::ParkedBytes,
        Self::Durable,
        Self::Steps,
        Self::Agent,
        Self::AgentsAtOnce,
        Self::Exec,
    ];

    /// Returns the work of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|work| work.name() == name)
    }

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::SpawnBatch => "spawn-batch",
            Self::SpawnAwait => "spawn-await",
            Self::StopOne => "stop-one",
            Self::StopTree => "stop-tree",
            Self::Messages => "messages",
            Self::ParkedBytes => "parked-bytes",
            Self::Durable => "durable",
            Self::Steps => "steps",
            Self::Agent => "agent",
            Self::AgentsAtOnce => "agents-at-once",
            Self::Exec => "exec",
        }
    }

    /// Returns the number of items that the driver asks for.
    pub fn count(self) -> usize {
        match self {
            Self::SpawnBatch | Self::StopTree | Self::ParkedBytes | Self::Durable => 10_000,
            Self::SpawnAwait | Self::Steps | Self::AgentsAtOnce => 1_000,
            Self::StopOne => 100,
            Self::Messages => 100_000,
            Self::Agent | Self::Exec => 200,
        }
    }

    /// Returns what one item is.
    pub fn description(self) -> &'static str {
        match self {
            Self::SpawnBatch => "spawn a no-op task, in batches of 1,000 in memory, to its end",
            Self::SpawnAwait => "the same, each awaited before the next",
            Self::StopOne => "stop one of 10,000 running tasks by a call",
            Self::StopTree => "stop a tree of tasks, ten deep, to the last end (per task)",
            Self::Messages => "a message to one task, until the task has received it",
            Self::ParkedBytes => "resident bytes of a parked task",
            Self::Durable => "spawn a task to its stored end, on disk, 64 in flight",
            Self::Steps => "a task of five recorded steps, on disk, 64 in flight",
            Self::Agent => "an agent with one tool call, scripted model, one after another",
            Self::AgentsAtOnce => "the same, all at once",
            Self::Exec => "run `true` in the background, await its end, one after another",
        }
    }

    /// Says whether the figure is memory, not time.
    pub fn measures_memory(self) -> bool {
        self == Self::ParkedBytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_parses_to_its_work() {
        for work in Work::ALL {
            assert_eq!(Work::parse(work.name()), Some(work));
        }
        assert_eq!(Work::parse("nothing"), None);
    }
}
