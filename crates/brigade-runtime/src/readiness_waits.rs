//! Waits until tasks are ready. They consume no result.

use std::time::Duration;

use brigade_model::address::TaskRef;
use brigade_model::call::WaitMode;
use brigade_model::ids::TaskNo;
use brigade_model::readiness::Readiness;
use brigade_model::refusal::Refusal;
use brigade_model::task::StoredTask;

use crate::error::{cancelled_refusal, shutdown_refusal};
use crate::feed::{FeedSubscription, FeedUpdate};
use crate::session::Session;

/// The result of a wait for readiness.
#[derive(Clone, Debug)]
pub struct ReadinessWaitResult {
    /// The tasks after the wait, as they were named. [`TaskRow::readiness`] tells whether each is
    /// ready.
    ///
    /// [`TaskRow::readiness`]: brigade_model::task::TaskRow::readiness
    pub tasks: Vec<StoredTask>,
    pub timed_out: bool,
}

impl Session {
    /// Waits until any or all of these tasks are ready, and consumes nothing. A task that ends before
    /// it is ready ends the wait too. Refused for tasks without a readiness check.
    pub async fn wait_ready(
        &self,
        tasks: Vec<TaskRef>,
        mode: WaitMode,
        timeout: Option<Duration>,
    ) -> Result<ReadinessWaitResult, Refusal> {
        let mut feed = self.subscribe(self.runtime.cursor());
        let mut numbers = Vec::with_capacity(tasks.len());
        for task in tasks {
            let run = task.run;
            let task = self.get(task).await?;
            check_waitable(&task, run.is_some_and(|run| run != task.row.run))?;
            numbers.push(task.no);
        }
        let clock = &self.runtime.inner.clock;
        let timed_out = async {
            match timeout {
                Some(timeout) => clock.sleep_until(clock.now().after(timeout.into())).await,
                None => std::future::pending().await,
            }
        };
        let mut timed_out = std::pin::pin!(timed_out);
        loop {
            let mut tasks = Vec::with_capacity(numbers.len());
            for no in &numbers {
                tasks.push(self.get(*no).await?);
            }
            if Readiness::is_wait_over(mode, tasks.iter().map(|task| task.row.readiness())) {
                return Ok(ReadinessWaitResult { tasks, timed_out: false });
            }
            tokio::select! {
                biased;
                changed = next_change(&mut feed, &numbers) => changed?,
                () = self.cancelled() => return Err(cancelled_refusal()),
                () = &mut timed_out => return Ok(ReadinessWaitResult { tasks, timed_out: true }),
            }
        }
    }
}

fn check_waitable(task: &StoredTask, is_earlier_run: bool) -> Result<(), Refusal> {
    task.row.check_readiness_check(task.no)?;
    match is_earlier_run {
        true => {
            let address = task.address();
            Err(Refusal::ended(format!("that run of {address} is over; name its latest run")))
        }
        false => Ok(()),
    }
}

/// Waits for the next event of one of these tasks, or a gap that may hide one.
async fn next_change(feed: &mut FeedSubscription, tasks: &[TaskNo]) -> Result<(), Refusal> {
    loop {
        match feed.next().await {
            Some(Ok(FeedUpdate::Event(item)))
                if item.record.event.task().is_none_or(|no| !tasks.contains(&no)) => {}
            Some(Ok(_)) => return Ok(()),
            Some(Err(refusal)) => return Err(refusal),
            None => return Err(shutdown_refusal()),
        }
    }
}
