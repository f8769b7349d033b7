//! The performer of jobs.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use brigade_model::action::StartAction;
use brigade_model::call::ConditionRequest;
use brigade_model::command::{AfterPark, AttemptReport, WorkResult};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{Attempt, CallIndex};
use brigade_model::json::Json;
use brigade_model::outcome::Failure;
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_model::work::{JobWork, Work};
use brigade_store::{BoxFuture, Store};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::calls::{DriverStep, JobCalls};
use super::context::{CURRENT, JobContext, JobContextInner, call_label};
use super::registry::{ClosureBody, HandlerRegistry, JobError, JobFuture};
use super::stop_signal::StopSignal;
use crate::agents::retry_while_unavailable;
use crate::performer::{Delivery, Performer, ReconcileResult, Reporter, StopMode, TaskId};

/// How long leaving waits for futures that do not yield.
const HALT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct JobPerformer {
    handlers: Arc<HandlerRegistry>,
    store: Arc<dyn Store>,
    running: Arc<RunningJobs>,
    tracker: TaskTracker,
}

/// Jobs with a future, in shards: the loop starts them while workers end them.
#[derive(Debug, Default)]
struct RunningJobs {
    shards: [Mutex<JobShard>; 16],
}

type JobShard = HashMap<TaskId, RunningJob>;

#[derive(Debug)]
struct RunningJob {
    context: Arc<JobContextInner>,
    /// Tells a closure that rests to go on.
    resume_signal: Option<Arc<Notify>>,
    driver: Option<JoinHandle<()>>,
}

impl RunningJobs {
    fn lock(&self, task: TaskId) -> MutexGuard<'_, JobShard> {
        let shard = &self.shards[task.no.get() as usize % self.shards.len()];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a job, unless a later attempt has taken its place.
    fn remove(&self, task: TaskId, attempt: Attempt) {
        let mut jobs = self.lock(task);
        if jobs.get(&task).is_some_and(|job| job.context.attempt() == attempt) {
            jobs.remove(&task);
        }
    }

    fn take_all(&self) -> Vec<RunningJob> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut jobs = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(jobs.drain().map(|(_, job)| job));
        }
        all
    }
}

impl RunningJob {
    /// Whether this start is nothing new: the attempt is under way, or a closure rests and goes on
    /// with it.
    fn accept_attempt(&self, attempt: Attempt) -> bool {
        if self.context.attempt() == attempt {
            return true;
        }
        let Some(resumed) = &self.resume_signal else { return false };
        self.context.attempt.store(attempt.0, Ordering::Release);
        resumed.notify_one();
        true
    }
}

impl JobPerformer {
    pub(crate) fn new(handlers: Arc<HandlerRegistry>, store: Arc<dyn Store>) -> Self {
        Self { handlers, store, running: Arc::default(), tracker: TaskTracker::new() }
    }
}

impl Performer for JobPerformer {
    fn start(&self, start: StartAction, reporter: Reporter) {
        let task = reporter.task;
        // The job is known before its driver runs, so that the driver can forget it when it ends.
        let mut jobs = self.running.lock(task);
        if jobs.get(&task).is_some_and(|job| job.accept_attempt(start.attempt)) {
            return;
        }
        let context = Arc::new(JobContextInner {
            task,
            run: start.run,
            attempt: AtomicU32::new(start.attempt.0),
            calls: Arc::default(),
            handlers: self.handlers.clone(),
            inputs: reporter.inputs.clone(),
            store: self.store.clone(),
            state: Mutex::new(start.state.clone()),
            stop: StopSignal::default(),
        });
        let closure = match &start.spec.work {
            Work::Job(JobWork::Closure { .. }) => Some(Arc::new(Notify::new())),
            _ => None,
        };
        let driver = JobDriver {
            context: context.clone(),
            handlers: self.handlers.clone(),
            store: self.store.clone(),
            running: self.running.clone(),
            resume_signal: closure.clone(),
        };
        let driver = self.tracker.spawn(driver.run(start));
        jobs.insert(task, RunningJob { context, resume_signal: closure, driver: Some(driver) });
    }

    fn deliver(&self, task: TaskId, _attempt: Attempt, delivery: Delivery) {
        let jobs = self.running.lock(task);
        if let (Some(job), Delivery::Completion { index, ordinal, answer }) =
            (jobs.get(&task), delivery)
        {
            job.context.calls.deliver_entry(index, ordinal, answer);
        }
    }

    fn stop(&self, task: TaskId, how: StopMode) {
        let mut jobs = self.running.lock(task);
        match how {
            StopMode::Graceful { .. } => {
                if let Some(job) = jobs.get(&task) {
                    job.context.stop.set();
                    job.context.calls.stop();
                }
            }
            StopMode::Forced { attempt } => {
                let driver = jobs.get_mut(&task).and_then(|job| job.driver.take());
                let reporter = jobs.get(&task).map(|job| job.context.reporter());
                if let (Some(driver), Some(reporter)) = (driver, reporter) {
                    driver.abort();
                    let live = self.running.clone();
                    self.tracker.spawn(async move {
                        // A future that does not yield is gone only when it returns.
                        let _ = driver.await;
                        live.remove(task, attempt);
                        reporter.post(AttemptReport::Ended(WorkResult::Aborted.into())).await;
                    });
                }
            }
            StopMode::Release => {
                let resting = jobs.get(&task).is_some_and(|job| job.resume_signal.is_some());
                if resting && let Some(job) = jobs.remove(&task) {
                    job.context.calls.close();
                    if let Some(driver) = job.driver {
                        driver.abort();
                    }
                }
            }
        }
    }

    fn reconcile<'a>(
        &'a self,
        _task: TaskId,
        _row: &'a TaskRow,
        _reporter: Reporter,
    ) -> BoxFuture<'a, ReconcileResult> {
        let evidence = "a job does not outlive its process".into();
        Box::pin(std::future::ready(ReconcileResult::Lost { evidence }))
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        for job in self.running.take_all() {
            job.context.calls.close();
            if let Some(driver) = job.driver {
                driver.abort();
            }
        }
        self.tracker.close();
        Box::pin(async {
            let _ = tokio::time::timeout(HALT_TIMEOUT, self.tracker.wait()).await;
        })
    }
}

/// Polls one job.
struct JobDriver {
    context: Arc<JobContextInner>,
    handlers: Arc<HandlerRegistry>,
    store: Arc<dyn Store>,
    running: Arc<RunningJobs>,
    resume_signal: Option<Arc<Notify>>,
}

/// What the job came to when it was polled.
enum JobPoll {
    Returned(Result<Json, JobError>),
    Panicked(Arc<str>),
    Step(DriverStep),
}

impl JobDriver {
    async fn run(self, start: StartAction) {
        let entered = self.enter(&start).await;
        let what = match entered {
            Ok(future) => self.drive(future).await,
            Err(what) => Some(what),
        };
        let reporter = self.context.reporter();
        self.running.remove(reporter.task, reporter.attempt);
        if let Some(what) = what {
            reporter.post(what).await;
        }
    }

    /// The job's future, with its journal loaded; or what to report instead.
    async fn enter(&self, start: &StartAction) -> Result<JobFuture, AttemptReport> {
        let context = JobContext { inner: self.context.clone() };
        let Work::Job(job) = &start.spec.work else {
            return Err(failed_report("this is not a job"));
        };
        match job {
            JobWork::Closure { .. } => {
                let body = start.spec.attachment.as_ref();
                let body = body.and_then(|body| body.0.downcast_ref::<ClosureBody>());
                match body.and_then(ClosureBody::take) {
                    Some(enter) => Ok(enter(context)),
                    None => Err(failed_report("the closure is gone")),
                }
            }
            JobWork::Named { handler, args, .. } => {
                if start.journal_len > 0 || !start.parked_calls.is_empty() {
                    self.load_journal(start)
                        .await
                        .map_err(|refusal| failed_report(refusal.to_string()))?;
                }
                match self.handlers.enter(handler, context, args) {
                    Some(future) => Ok(future),
                    None => Err(AttemptReport::NoPerformer {
                        reason: format!("no job is registered as {handler:?}").into(),
                    }),
                }
            }
        }
    }

    /// A store that is away is waited for; one that is damaged is not.
    async fn load_journal(&self, start: &StartAction) -> Result<(), Refusal> {
        let task = self.context.task;
        let reporter = self.context.reporter();
        let journal = retry_while_unavailable(&reporter, || async {
            let journal = self.store.journal(task.session, task.no).await;
            journal.map_err(|error| {
                tracing::warn!(%error, "a journal cannot be read");
                crate::error::store_refusal(&error)
            })
        });
        self.context.calls.load(journal.await?, &start.parked_calls, start.run);
        Ok(())
    }

    /// Polls the job until it returns (what to report) or rests without a future (`None`).
    async fn drive(&self, future: JobFuture) -> Option<AttemptReport> {
        let context = JobContext { inner: self.context.clone() };
        let calls = &self.context.calls;
        let mut future = std::pin::pin!(CURRENT.scope(context, future));
        let _close_before_the_future_goes = CloseOnDrop(calls.clone());
        loop {
            match poll_job(future.as_mut(), calls).await {
                JobPoll::Returned(Ok(result)) => {
                    return Some(AttemptReport::Ended(WorkResult::Returned(result).into()));
                }
                JobPoll::Returned(Err(error)) => {
                    return Some(failed_report(error.message().clone()));
                }
                JobPoll::Panicked(message) => {
                    let failure = Failure::Panic(message);
                    let how = WorkResult::Failed { failure, partial: None };
                    return Some(AttemptReport::Ended(how.into()));
                }
                JobPoll::Step(DriverStep::Poll | DriverStep::Wait) => {}
                JobPoll::Step(DriverStep::Abandon(calls)) => {
                    let _ = self.context.report(AttemptReport::Abandon { calls }).await;
                }
                JobPoll::Step(DriverStep::Park { calls, heard, rest }) => {
                    if self.park(calls, heard, rest).await && !self.suspend_with_future().await {
                        return None;
                    }
                }
            }
        }
    }

    /// Tells the model of calls that wait. True when the task now waits and the driver must rest.
    async fn park(
        &self,
        mut calls: Vec<(CallIndex, ConditionRequest)>,
        heard: u32,
        rest: Option<usize>,
    ) -> bool {
        // Each alone, so that a refusal reaches the call that it is about.
        let last = calls.pop();
        let mut refused = 0;
        for (index, asked) in calls {
            let label = call_label(&asked);
            let (calls, then) = (vec![(index, asked)], AfterPark::Continue);
            let what = AttemptReport::Park { calls, acked_entries: heard, then };
            if let Err(refusal) = self.context.report(what).await {
                self.record_refused_call(index, label, refusal).await;
                refused += 1;
            }
        }
        let told = self.context.calls.delivered_count();
        let then = match rest {
            Some(open) if refused == 0 => AfterPark::Suspend { parked_count: open },
            _ => AfterPark::Continue,
        };
        let call = last.as_ref().map(|(index, asked)| (*index, call_label(asked)));
        let what =
            AttemptReport::Park { calls: last.into_iter().collect(), acked_entries: heard, then };
        match self.context.report(what).await {
            Ok(CommandReply::Parked { suspended }) => {
                if !suspended && then != AfterPark::Continue {
                    self.context.calls.expect_completion(told);
                }
                suspended
            }
            Ok(_) => false,
            Err(refusal) => {
                match call {
                    Some((index, label)) => self.record_refused_call(index, label, refusal).await,
                    None => self.context.calls.expect_completion(told),
                }
                false
            }
        }
    }

    async fn record_refused_call(&self, index: CallIndex, label: &'static str, refusal: Refusal) {
        if !self.context.record_refusal(index, label, &refusal).await {
            self.context.calls.refuse(index, refusal);
        }
    }

    /// A closure keeps its future while it rests. False for a named job, which does not.
    async fn suspend_with_future(&self) -> bool {
        match &self.resume_signal {
            Some(resumed) => {
                resumed.notified().await;
                true
            }
            None => false,
        }
    }
}

/// Polls the job once it is woken, then looks at what its calls want.
async fn poll_job(
    mut future: Pin<&mut impl Future<Output = Result<Json, JobError>>>,
    calls: &JobCalls,
) -> JobPoll {
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        match polled {
            Err(panic) => Poll::Ready(JobPoll::Panicked(panic_message(&*panic))),
            Ok(Poll::Ready(result)) => Poll::Ready(JobPoll::Returned(result)),
            Ok(Poll::Pending) => match calls.next_step(context.waker()) {
                DriverStep::Wait => Poll::Pending,
                next => Poll::Ready(JobPoll::Step(next)),
            },
        }
    })
    .await
}

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> Arc<str> {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").into()
}

fn failed_report(message: impl Into<Arc<str>>) -> AttemptReport {
    let failure = Failure::Error(message.into());
    AttemptReport::Ended(WorkResult::Failed { failure, partial: None }.into())
}

/// Calls that are dropped with their future were not given up by the job.
struct CloseOnDrop(Arc<JobCalls>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl std::fmt::Debug for JobPerformer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobEngine").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}
