//! The handle of a task.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::address::TaskRef;
#[cfg(feature = "processes")]
use brigade_model::address::TaskSelector;
use brigade_model::call::{RunResult, WaitMode};
use brigade_model::command::Caller;
use brigade_model::decide::StopResult;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::outcome::Outcome;
use brigade_model::readiness::Readiness;
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_model::work::TaskKind;
#[cfg(feature = "processes")]
use brigade_process::ProcessOutput;
#[cfg(feature = "processes")]
use brigade_process::output::{OutputFollower, OutputView, ReadStart};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::jobs::{ChildTask, ChildWaitResult, JobContext};
use crate::send_message::SendMessage;
use crate::session::Session;
use crate::session_waits::WaitResult;
use crate::task_error::TaskError;

/// A task that was spawned or found.
///
/// `T` is the type of its result: that of its [`Job`](crate::Job), the report of a process, the
/// text of an agent or the type that [`NewTask::returns`](crate::NewTask::returns) declares.
///
/// ```
/// use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::builder().start().await?;
/// # let session = runtime.session("kitchen").await?;
/// let echo = NewTask::closure("echo", |ctx: JobContext| async move {
///     Ok::<_, JobError>(ctx.receive().await?.body.decode::<String>()?)
/// });
/// let task = session.spawn(echo.name("Echo")).await?;
/// assert_eq!(task.address(), "job:1");
/// task.send("hello").await?;
/// assert_eq!(task.result().await?, "hello");
/// # Ok(())
/// # }
/// ```
pub struct TaskHandle<T = Json> {
    pub(crate) session: Session,
    pub(crate) no: TaskNo,
    pub(crate) run: RunNo,
    pub(crate) kind: TaskKind,
    pub(crate) existing: bool,
    /// The place in the feed before the request that returned this handle.
    pub(crate) since: FeedCursor,
    pub(crate) result_type: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> TaskHandle<T> {
    /// Waits for the end, and returns the result of a run that succeeded. Returns the outcome of
    /// any other run as an error.
    pub async fn result(&self) -> Result<T, TaskError> {
        decode_result(self.wait().await?)
    }
}

/// Decodes the result of a run that succeeded.
pub(crate) fn decode_result<T: DeserializeOwned>(run: RunResult) -> Result<T, TaskError> {
    let address = format!("{}:{}", run.kind, run.no);
    let Outcome::Succeeded { result } = &*run.outcome else {
        return Err(TaskError::Ended { address, outcome: run.outcome });
    };
    result.decode().map_err(|refusal| TaskError::OtherType {
        address,
        result: result.clone(),
        problem: refusal.message,
    })
}

impl<T> TaskHandle<T> {
    /// Declares another type for the result, such as that of a task that was found by its name.
    #[must_use]
    pub fn typed<U>(self) -> TaskHandle<U> {
        let Self { session, no, run, kind, existing, since, .. } = self;
        TaskHandle { session, no, run, kind, existing, since, result_type: PhantomData }
    }

    pub fn no(&self) -> TaskNo {
        self.no
    }

    pub fn run(&self) -> RunNo {
        self.run
    }

    /// Returns true if the task existed before: it was found, or spawned with the same key.
    pub fn existed(&self) -> bool {
        self.existing
    }

    /// Returns the address, such as `job:5`.
    pub fn address(&self) -> String {
        format!("{}:{}", self.kind, self.no)
    }

    /// Returns the task as of the last commit.
    pub async fn get(&self) -> Result<Arc<TaskRow>, Refusal> {
        self.session.get(self.no).await.map(|task| task.row)
    }

    /// Returns the parent job if that is the caller, so that its calls are recorded.
    fn calling_job(&self) -> Option<(JobContext, ChildTask)> {
        let parent = match self.session.caller {
            Caller::Task { no, .. } => JobContext::current().filter(|job| job.task() == no),
            Caller::Operator | Caller::Client(_) => None,
        };
        parent.map(|job| (job, ChildTask::new(self.no, self.run, self.kind.clone())))
    }

    /// Waits for the end and consumes the result. A second wait returns the same result, marked as
    /// collected before.
    pub async fn wait(&self) -> Result<RunResult, Refusal> {
        let mut results = match self.calling_job() {
            Some((job, child)) => job.wait_all([&child]).await?,
            None => self.session.wait_all([self.no]).await?,
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

    /// Waits until the task is ready, and consumes nothing. Returns its outcome as an error if it
    /// ends before. Refused for a task that was started without a readiness check.
    ///
    /// In a job, the wait is not recorded: an attempt that is entered again waits again.
    pub async fn wait_ready(&self) -> Result<Arc<TaskRow>, TaskError> {
        let waited = self.session.wait_ready(vec![self.no.into()], WaitMode::All, None).await?;
        let task = waited.tasks.into_iter().next();
        let task = task.ok_or_else(|| Refusal::internal("a wait returned no task"))?;
        match (task.row.readiness(), task.row.ended()) {
            (Readiness::EndedBefore, Some(ended)) => {
                Err(TaskError::Ended { address: task.address(), outcome: ended.outcome.clone() })
            }
            _ => Ok(task.row),
        }
    }

    /// Sends a message to the task.
    pub fn send(&self, body: impl Serialize) -> SendMessage {
        match self.calling_job() {
            Some((job, child)) => job.send(&child, body),
            None => self.session.send(self.no, body),
        }
    }

    /// Returns the output of a process.
    #[cfg(feature = "processes")]
    pub async fn output(&self) -> Result<ProcessOutput, Refusal> {
        self.session.output(self.run_ref()).await
    }

    #[cfg(feature = "processes")]
    pub(crate) fn run_ref(&self) -> TaskRef {
        TaskRef { selector: TaskSelector::Number(self.no), run: Some(self.run) }
    }

    /// Follows the output of a process to its end.
    #[cfg(feature = "processes")]
    pub async fn follow(
        &self,
        view: OutputView,
        from: ReadStart,
    ) -> Result<OutputFollower, Refusal> {
        self.session.follow(self.run_ref(), view, from).await
    }

    /// Closes the input of a process.
    #[cfg(feature = "processes")]
    pub fn close_input(&self) -> SendMessage {
        match self.calling_job() {
            Some((job, child)) => job.close_input(&child),
            None => self.session.close_input(self.no),
        }
    }

    pub async fn stop(&self, reason: Option<&str>) -> Result<StopResult, Refusal> {
        match self.calling_job() {
            Some((job, child)) => job.stop(&child, reason).await,
            None => self.session.stop(self.no, reason).await,
        }
    }
}

impl<T> Clone for TaskHandle<T> {
    fn clone(&self) -> Self {
        Self {
            session: self.session.clone(),
            no: self.no,
            run: self.run,
            kind: self.kind.clone(),
            existing: self.existing,
            since: self.since.clone(),
            result_type: PhantomData,
        }
    }
}

impl<T> fmt::Debug for TaskHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle")
            .field("task", &self.address())
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl<T> From<&TaskHandle<T>> for TaskRef {
    fn from(handle: &TaskHandle<T>) -> Self {
        handle.no.into()
    }
}
