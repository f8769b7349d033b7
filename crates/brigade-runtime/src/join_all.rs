//! Fan-in: many tasks, a bounded number of them at once, and their results in order.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use brigade_model::address::TaskRef;
use brigade_model::call::{RunResult, WaitMode};
use brigade_model::ids::TaskNo;
use brigade_model::refusal::{Refusal, RefusalKind};
use futures_util::future::{Either, select};
use serde::de::DeserializeOwned;

use crate::jobs::{ChildTask, ChildWaitResult, JobContext};
use crate::new_task::{NewTask, TaskType};
use crate::session::Session;
use crate::task_error::TaskError;
use crate::task_handle::decode_result;

/// The reason of the stop when one of the joined tasks failed.
const FAILURE_REASON: &str = "another task of the same join failed";

/// The results of joined tasks, in the order of the tasks.
pub type JoinedResults<T> = Vec<Result<T, TaskError>>;

type BoxedJoin<T> = Pin<Box<dyn Future<Output = Result<JoinedResults<T>, Refusal>> + Send>>;
type BoxedTimer = Pin<Box<dyn Future<Output = Result<(), Refusal>> + Send>>;

/// Many tasks whose results are joined in order. [`Session::join_all`] and [`JobContext::join_all`]
/// make it, and awaiting it starts the tasks.
///
/// In a job the join is durable: a job that is entered again finds the tasks that it started, and
/// starts only the others.
#[must_use = "the tasks are started when this is awaited"]
pub struct JoinAll<K: TaskType> {
    plan: Option<JoinPlan<K>>,
    running: Option<BoxedJoin<K::Output>>,
}

struct JoinPlan<K> {
    caller: JoinCaller,
    tasks: Vec<NewTask<K>>,
    at_once: usize,
    within: Option<Duration>,
    first_failure_stops: bool,
}

/// The owner of the joined tasks.
enum JoinCaller {
    Session(Session),
    Job(JobContext),
}

impl Session {
    /// Starts tasks and waits for all of them. The results are in the order of the tasks.
    ///
    /// ```
    /// use brigade_runtime::{Job, JobContext, JobError, Runtime};
    ///
    /// const SQUARE: Job<u32, u32> = Job::new("square");
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let runtime = Runtime::builder()
    ///     .job(SQUARE, |_: JobContext, n| async move { Ok::<_, JobError>(n * n) })
    ///     .start()
    ///     .await?;
    /// let session = runtime.session("demo").await?;
    /// let squares = session.join_all((1..=3).map(|n| SQUARE.with(n))).at_once(2).await?;
    /// let squares: Vec<u32> = squares.into_iter().collect::<Result<_, _>>()?;
    /// assert_eq!(squares, [1, 4, 9]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn join_all<K: TaskType>(&self, tasks: impl IntoIterator<Item = NewTask<K>>) -> JoinAll<K> {
        let job = JobContext::current().filter(|job| job.session_id() == self.id());
        let caller = job.map_or_else(|| JoinCaller::Session(self.clone()), JoinCaller::Job);
        JoinAll::new(caller, tasks.into_iter().collect())
    }
}

impl JobContext {
    /// Starts children and waits for all of them. The results are in the order of the tasks.
    pub fn join_all<K: TaskType>(&self, tasks: impl IntoIterator<Item = NewTask<K>>) -> JoinAll<K> {
        JoinAll::new(JoinCaller::Job(self.clone()), tasks.into_iter().collect())
    }
}

impl<K: TaskType> JoinAll<K> {
    fn new(caller: JoinCaller, tasks: Vec<NewTask<K>>) -> Self {
        let plan = JoinPlan {
            caller,
            tasks,
            at_once: usize::MAX,
            within: None,
            first_failure_stops: false,
        };
        Self { plan: Some(plan), running: None }
    }

    fn update(mut self, change: impl FnOnce(&mut JoinPlan<K>)) -> Self {
        if let Some(plan) = &mut self.plan {
            change(plan);
        }
        self
    }

    /// Bounds the number of tasks that are alive at once. Without it, all start at once.
    pub fn at_once(self, most: usize) -> Self {
        self.update(|plan| plan.at_once = most)
    }

    /// Bounds the time. Tasks that have not ended then continue in the background and return
    /// [`TaskError::TimedOut`], and tasks that were not started are not started any more.
    pub fn within(self, time: Duration) -> Self {
        self.update(|plan| plan.within = Some(time))
    }

    /// Stops the other tasks when one fails or is cancelled, and starts no more.
    pub fn first_failure_stops(self) -> Self {
        self.update(|plan| plan.first_failure_stops = true)
    }
}

impl<K: TaskType + 'static> Future for JoinAll<K>
where
    K::Output: DeserializeOwned + Send + 'static,
{
    type Output = Result<JoinedResults<K::Output>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(plan) = self.plan.take() {
            self.running = Some(Box::pin(plan.run()));
        }
        match &mut self.running {
            Some(running) => running.as_mut().poll(context),
            None => Poll::Ready(Err(Refusal::internal("a join was polled after it ended"))),
        }
    }
}

// The tasks are never pinned.
impl<K: TaskType> Unpin for JoinAll<K> {}

impl<K: TaskType> fmt::Debug for JoinAll<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("JoinAll");
        if let Some(plan) = &self.plan {
            out.field("tasks", &plan.tasks.len()).field("at_once", &plan.at_once);
        }
        out.finish_non_exhaustive()
    }
}

/// The tasks of a join that were started and have not ended. Ordered, so that a job that is entered
/// again makes the same calls.
type OpenTasks = BTreeMap<TaskNo, OpenTask>;

/// A started task with its place among the results.
struct OpenTask {
    child: ChildTask,
    slot: usize,
}

impl<K: TaskType> JoinPlan<K>
where
    K::Output: DeserializeOwned + Send + 'static,
{
    async fn run(self) -> Result<JoinedResults<K::Output>, Refusal> {
        let Self { caller, tasks, at_once, within, first_failure_stops } = self;
        if at_once == 0 {
            return Err(Refusal::invalid("a join of no tasks at once never ends; allow one"));
        }
        let mut results: Vec<Option<Result<K::Output, TaskError>>> = Vec::new();
        results.resize_with(tasks.len(), || None);
        let mut not_started = tasks.into_iter().enumerate();
        let mut open = OpenTasks::new();
        let mut timer = caller.start_timer(within);
        let mut starts_more = true;
        loop {
            while starts_more && open.len() < at_once {
                let Some((slot, task)) = not_started.next() else { break };
                match caller.spawn(task).await {
                    Ok(child) => drop(open.insert(child.no, OpenTask { child, slot })),
                    Err(refusal) => {
                        results[slot] = Some(Err(refusal.into()));
                        if first_failure_stops {
                            starts_more = false;
                            caller.stop_all(&open).await?;
                        }
                    }
                }
            }
            if open.is_empty() {
                break;
            }
            let Some(ended) = caller.wait_any(&open, &mut timer).await? else {
                for OpenTask { child, slot } in open.into_values() {
                    let address = format!("{}:{}", child.kind, child.no);
                    results[slot] = Some(Err(TaskError::TimedOut { address }));
                }
                break;
            };
            let failed = ended.iter().any(|run| !run.outcome.is_success());
            for run in ended {
                if let Some(task) = open.remove(&run.no) {
                    results[task.slot] = Some(decode_result(run));
                }
            }
            if failed && first_failure_stops && starts_more {
                starts_more = false;
                caller.stop_all(&open).await?;
            }
        }
        Ok(results.into_iter().map(|result| result.unwrap_or(Err(TaskError::NotStarted))).collect())
    }
}

impl JoinCaller {
    async fn spawn<K: TaskType>(&self, task: NewTask<K>) -> Result<ChildTask, Refusal> {
        match self {
            Self::Session(session) => {
                let task = session.spawn(task).await?;
                Ok(ChildTask::new(task.no, task.run, task.kind))
            }
            Self::Job(job) => job.spawn(task).await.map(ChildTask::erase),
        }
    }

    fn start_timer(&self, within: Option<Duration>) -> BoxedTimer {
        let Some(time) = within else { return Box::pin(std::future::pending()) };
        match self {
            Self::Session(session) => {
                let clock = session.runtime.clock();
                Box::pin(async move {
                    clock.sleep_until(clock.now().after(time.into())).await;
                    Ok(())
                })
            }
            // The call is made here, so that its place among the calls is always the same.
            Self::Job(job) => Box::pin(job.sleep(time)),
        }
    }

    /// Waits until any of the tasks has ended, or returns `None` when the time is over.
    async fn wait_any(
        &self,
        open: &OpenTasks,
        timer: &mut BoxedTimer,
    ) -> Result<Option<Vec<RunResult>>, Refusal> {
        match self {
            Self::Session(session) => {
                let tasks = open.keys().map(|no| TaskRef::from(*no)).collect();
                let timer = async move { drop(timer.await) };
                session.wait_until(tasks, WaitMode::Any, timer).await
            }
            Self::Job(job) => {
                let waited = job.wait(open.values().map(|task| &task.child), WaitMode::Any, None);
                match select(std::pin::pin!(waited), timer).await {
                    Either::Left((waited, _)) => match waited? {
                        ChildWaitResult::Ended(results) => Ok(Some(results)),
                        ChildWaitResult::TimedOut => Ok(None),
                    },
                    Either::Right((timed_out, _)) => timed_out.map(|()| None),
                }
            }
        }
    }

    /// Stops the tasks. One that has ended meanwhile needs no stop.
    async fn stop_all(&self, open: &OpenTasks) -> Result<(), Refusal> {
        for task in open.values() {
            let stopped = match self {
                Self::Session(session) => session.stop(task.child.no, Some(FAILURE_REASON)).await,
                Self::Job(job) => job.stop(&task.child, Some(FAILURE_REASON)).await,
            };
            match stopped {
                Err(refusal) if refusal.kind != RefusalKind::Ended => return Err(refusal),
                _ => {}
            }
        }
        Ok(())
    }
}
