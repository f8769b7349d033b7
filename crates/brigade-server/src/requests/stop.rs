//! Stops a task and all below it.

use std::time::Duration;

use brigade_model::command::StopTarget;
use brigade_model::decide::Stopped;
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Target};
use crate::info::TaskInfo;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stop {
    pub target: Target,
    #[serde(default)]
    pub reason: Option<String>,
    #[serde(default)]
    pub grace_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stopping {
    /// As it is after the order.
    pub task: TaskInfo,
    /// How many tasks the stop reaches.
    pub tasks: u64,
    /// It had been told before, or had ended.
    pub already: bool,
}

impl Ask for Stop {
    type Done = Stopping;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Stopping, Refusal> {
        let found = desk.find(&self.target).await?;
        let grace = self.grace_ms.map(Duration::from_millis);
        let target = StopTarget::Task(found.no.into());
        let stopped = found.session.stop_with(target, self.reason.as_deref(), grace).await?;
        let Stopped { tasks, already } = stopped;
        let (no, row) = found.session.get(found.no).await?;
        let task = TaskInfo::of(&found.session.row().name, no, &row);
        Ok(Stopping { task, tasks: tasks as u64, already })
    }
}
