//! The handle of a task.

use std::sync::Arc;
use std::time::Duration;

use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::call::{RunResult, WaitMode};
use brigade_model::command::Caller;
use brigade_model::decide::StopResult;
use brigade_model::ids::{MessageNo, RunNo, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_model::work::TaskKind;
use brigade_process::ProcessOutput;
use brigade_process::output::{OutputFollower, OutputView, ReadStart};
use serde::Serialize;

use crate::jobs::{ChildTask, ChildWaitResult, JobContext};
use crate::session::{Session, WaitResult};

/// A task that was spawned or found.
#[derive(Clone, Debug)]
pub struct TaskHandle {
    pub(crate) session: Session,
    pub(crate) no: TaskNo,
    pub(crate) run: RunNo,
    pub(crate) kind: TaskKind,
    pub(crate) existing: bool,
}

impl TaskHandle {
    pub fn no(&self) -> TaskNo {
        self.no
    }

    pub fn run(&self) -> RunNo {
        self.run
    }

    /// Returns true if the task existed before, under the same key.
    pub fn existed(&self) -> bool {
        self.existing
    }

    /// Returns the address, such as `job:5`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.kind, self.no)
    }

    /// Returns the task as of the last commit.
    pub async fn get(&self) -> Result<Arc<TaskRow>, Refusal> {
        self.session.get(self.no).await.map(|(_, row)| row)
    }

    /// Returns the parent job if that is the caller, so that its calls are recorded.
    fn calling_job(&self) -> Option<(JobContext, ChildTask)> {
        let parent = match self.session.caller {
            Caller::Task { no, .. } => JobContext::current().filter(|job| job.task() == no),
            Caller::Operator | Caller::Client(_) => None,
        };
        parent.map(|job| (job, ChildTask { no: self.no, run: self.run, kind: self.kind.clone() }))
    }

    /// Waits for the end and consumes the result. A second wait returns the same result, marked as
    /// collected before.
    pub async fn wait(&self) -> Result<RunResult, Refusal> {
        let mut results = match self.calling_job() {
            Some((job, child)) => job.wait_all([&child]).await?,
            None => self.session.wait_all([self.no.into()]).await?,
        };
        results.pop().ok_or_else(|| Refusal::internal("a wait returned no result"))
    }

    /// Waits with a timeout. Returns `None` when it passed.
    pub async fn wait_within(&self, timeout: Duration) -> Result<Option<RunResult>, Refusal> {
        if let Some((job, child)) = self.calling_job() {
            let waited = job.wait([&child], WaitMode::All, Some(timeout)).await?;
            return Ok(match waited {
                ChildWaitResult::Ended(mut results) => results.pop(),
                ChildWaitResult::TimedOut => None,
            });
        }
        let tasks = vec![self.no.into()];
        match self.session.wait_within(tasks, WaitMode::All, timeout).await? {
            WaitResult::Ended(mut results) => Ok(results.pop()),
            WaitResult::TimedOut(_) => Ok(None),
        }
    }

    pub async fn send(&self, body: impl Serialize) -> Result<MessageNo, Refusal> {
        match self.calling_job() {
            Some((job, child)) => job.send(&child, body).await,
            None => self.session.send(self.no, body).await,
        }
    }

    /// Returns the output of a process.
    pub async fn output(&self) -> Result<ProcessOutput, Refusal> {
        self.session.output(self.run_ref()).await
    }

    fn run_ref(&self) -> TaskRef {
        TaskRef { selector: TaskSelector::Number(self.no), run: Some(self.run) }
    }

    /// Follows the output of a process to its end.
    pub async fn follow(
        &self,
        view: OutputView,
        from: ReadStart,
    ) -> Result<OutputFollower, Refusal> {
        self.session.follow(self.run_ref(), view, from).await
    }

    /// Closes the input of a process.
    pub async fn close_input(&self) -> Result<MessageNo, Refusal> {
        match self.calling_job() {
            Some((job, child)) => job.close_input(&child).await,
            None => self.session.close_input(self.no).await,
        }
    }

    pub async fn stop(&self, reason: Option<&str>) -> Result<StopResult, Refusal> {
        match self.calling_job() {
            Some((job, child)) => job.stop(&child, reason).await,
            None => self.session.stop(self.no, reason).await,
        }
    }
}

impl From<&TaskHandle> for TaskRef {
    fn from(handle: &TaskHandle) -> Self {
        handle.no.into()
    }
}
