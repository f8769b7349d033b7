//! Waits for tasks and takes their results.

use std::time::Duration;

use brigade_delegation::{TaskSummary, WaitEnd, WaitReply, WaitTasks};
use brigade_model::refusal::Refusal;

use super::run_process::ended_task;
use super::summary::{notes, summary};
use super::tool::{Answer, Call, Tool};
use crate::info::TaskInfo;
use crate::requests::Waited;

impl Tool for WaitTasks {
    async fn run(self, call: &Call) -> Result<Answer, Refusal> {
        let wait = self.wait(call.audience)?.unwrap_or(Duration::MAX);
        let tasks = self.names()?;
        let mut waited = call.wait(tasks, self.mode(), wait).await?;
        if tasks.is_empty() && waited.ended.is_empty() {
            let living = living(call).await?;
            let asks = |info: &TaskInfo| call.is_own(info) && !info.questions.is_empty();
            if waited.timed_out || living.iter().any(asks) {
                waited.going_on = living;
            }
        }
        Ok(Answer::Said(reply(call, &waited, wait).await.render()))
    }
}

async fn living(call: &Call) -> Result<Vec<TaskInfo>, Refusal> {
    let mut tasks = call.list(false).await?;
    tasks.retain(|info| info.living);
    Ok(tasks)
}

async fn reply(call: &Call, waited: &Waited, wait: Duration) -> WaitReply {
    let mut ended = Vec::with_capacity(waited.ended.len());
    for info in &waited.ended {
        ended.push(ended_task(call, info).await);
    }
    let running = waited.going_on.iter().map(|info| summary(call, info));
    let running: Vec<TaskSummary> = running.collect();
    let end = if waited.timed_out {
        WaitEnd::TimedOut(wait)
    } else if !ended.is_empty() {
        WaitEnd::Ended
    } else if running.is_empty() {
        WaitEnd::NothingToWaitFor
    } else {
        WaitEnd::InputRequired
    };
    let notes = notes(call.notes(true).await);
    WaitReply { end, ended, more_ready: 0, still_running: running, notes }
}
