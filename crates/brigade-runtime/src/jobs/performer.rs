//! The performer of jobs.

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
use brigade_model::entry_label::EntryLabel;
use brigade_model::error_details::ErrorDetails;
use brigade_model::id_map::IdMap;
use brigade_model::ids::{Attempt, CallIndex};
use brigade_model::json::Json;
use brigade_model::outcome::{Failure, panic_message};
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_model::work::{JobWork, Work};
use brigade_store::{BoxFuture, Store};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::calls::{DriverStep, JobCalls};
use super::context::{CURRENT, JobContext, JobContextInner};
use super::job_error::JobError;
use super::registry::{ClosureBody, HandlerRegistry, JobFuture};
use super::stop_signal::StopSignal;
use crate::performer::{
    Delivery, Performer, ReconcileResult, Reporter, StopMode, TaskId, retry_while_unavailable,
};

/// The time that a shutdown waits for futures that do not yield.
const HALT_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct JobPerformer {
    handlers: Arc<HandlerRegistry>,
    store: Arc<dyn Store>,
    running: Arc<RunningJobs>,
    tracker: TaskTracker,
}

/// Jobs with a future. In shards, since the loop starts jobs while workers end them.
#[derive(Debug, Default)]
struct RunningJobs {
    shards: [Mutex<JobShard>; 16],
}

type JobShard = IdMap<TaskId, RunningJob>;

#[derive(Debug)]
struct RunningJob {
    context: Arc<JobContextInner>,
    driver: Option<JoinHandle<()>>,
}

impl RunningJob {
    fn abort(self) {
        self.context.calls.close();
        if let Some(driver) = self.driver {
            driver.abort();
        }
    }
}

impl RunningJobs {
    fn lock(&self, task: TaskId) -> MutexGuard<'_, JobShard> {
        let shard = &self.shards[task.no.get() as usize % self.shards.len()];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a job, unless a later attempt has replaced it.
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
    /// Returns true if this start needs no new driver: the attempt is running, or a suspended
    /// closure continues with it.
    fn accept_attempt(&self, attempt: Attempt) -> bool {
        if self.context.attempt() == attempt {
            return true;
        }
        let Some(resume) = &self.context.resume_signal else { return false };
        self.context.attempt.store(attempt.0, Ordering::Release);
        resume.notify_one();
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
        // The job is inserted before its driver runs, so that the driver can remove it at its end.
        let mut jobs = self.running.lock(task);
        if jobs.get(&task).is_some_and(|job| job.accept_attempt(start.attempt)) {
            return;
        }
        let is_closure = matches!(start.spec.work, Work::Job(JobWork::Closure { .. }));
        let context = Arc::new(JobContextInner {
            task,
            run: start.run,
            earlier_entries: start.earlier_entries,
            attempt: AtomicU32::new(start.attempt.0),
            calls: Arc::default(),
            handlers: self.handlers.clone(),
            inputs: reporter.inputs.clone(),
            lease: reporter.lease.clone(),
            store: self.store.clone(),
            state: Mutex::new(start.state.clone()),
            stop: StopSignal::default(),
            resume_signal: is_closure.then(Notify::new),
        });
        let driver = JobDriver { context: context.clone(), running: self.running.clone() };
        let driver = self.tracker.spawn(driver.run(Box::new(start)));
        jobs.insert(task, RunningJob { context, driver: Some(driver) });
    }

    fn deliver(&self, task: TaskId, _attempt: Attempt, delivery: Delivery) {
        let jobs = self.running.lock(task);
        if let (Some(job), Delivery::Completion { index, ordinal, completion }) =
            (jobs.get(&task), delivery)
        {
            job.context.calls.deliver_entry(index, ordinal, completion);
        }
    }

    fn stop(&self, task: TaskId, mode: StopMode) {
        let mut jobs = self.running.lock(task);
        match mode {
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
                    let running = self.running.clone();
                    self.tracker.spawn(async move {
                        // A future that does not yield ends only when it returns.
                        let _ = driver.await;
                        running.remove(task, attempt);
                        reporter.post(AttemptReport::Ended(WorkResult::Aborted.into())).await;
                    });
                }
            }
            StopMode::Release => {
                let job = jobs.get(&task);
                let is_closure = job.is_some_and(|job| job.context.resume_signal.is_some());
                if is_closure && let Some(job) = jobs.remove(&task) {
                    job.abort();
                }
            }
        }
    }

    fn halt(&self, task: TaskId) {
        if let Some(job) = self.running.lock(task).remove(&task) {
            job.abort();
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
            job.abort();
        }
        self.tracker.close();
        Box::pin(async {
            let _ = tokio::time::timeout(HALT_TIMEOUT, self.tracker.wait()).await;
        })
    }
}

/// The driver of one job, which polls its future.
struct JobDriver {
    context: Arc<JobContextInner>,
    running: Arc<RunningJobs>,
}

/// The result of polling a job.
enum JobPoll {
    Returned(Result<Json, JobError>),
    Panicked(Arc<str>),
    Step(DriverStep),
}

impl JobDriver {
    /// Runs the job to its end, or until it is suspended. Rare steps are boxed, so that the futures
    /// of many waiting tasks are small.
    async fn run(self, start: Box<StartAction>) {
        let loaded = match start.journal_len > 0 || !start.parked_calls.is_empty() {
            true => Box::pin(self.load_journal(&start)).await,
            false => Ok(()),
        };
        let entered = self.enter(&start, loaded);
        drop(start);
        let report = match entered {
            Ok(future) => self.drive(future).await,
            Err(report) => Some(report),
        };
        let reporter = self.context.reporter();
        self.running.remove(reporter.task, reporter.attempt);
        if let Some(report) = report {
            reporter.post(report).await;
        }
    }

    /// Returns the job's future, or the report to send instead.
    fn enter(
        &self,
        start: &StartAction,
        loaded: Result<(), Refusal>,
    ) -> Result<JobFuture, AttemptReport> {
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
                    None => Err(failed_report("the closure no longer exists")),
                }
            }
            JobWork::Named { handler, args, .. } => {
                loaded.map_err(|refusal| failed_report(refusal.to_string()))?;
                match self.context.handlers.enter(handler, context, args) {
                    Some(future) => Ok(future),
                    None => Err(AttemptReport::NoPerformer {
                        reason: format!("no job is registered as {handler:?}").into(),
                    }),
                }
            }
        }
    }

    /// Loads the journal. Waits for a store that is unavailable, but not for a damaged one.
    async fn load_journal(&self, start: &StartAction) -> Result<(), Refusal> {
        let task = self.context.task;
        let reporter = self.context.reporter();
        let journal = retry_while_unavailable(&reporter, || async {
            let journal = self.context.store.journal(task.session, task.no).await;
            journal.map_err(|error| {
                tracing::warn!(%error, "a journal cannot be read");
                crate::error::store_refusal(&error)
            })
        });
        self.context.calls.load(journal.await?, start);
        Ok(())
    }

    /// Polls the job until it ends and returns the report, or `None` if it is suspended without a
    /// future.
    async fn drive(&self, future: JobFuture) -> Option<AttemptReport> {
        let context = JobContext { inner: self.context.clone() };
        let calls = &self.context.calls;
        let mut future = std::pin::pin!(CURRENT.scope(context, future));
        let _close_before_future_drops = CloseOnDrop(calls);
        loop {
            match poll_job(future.as_mut(), calls).await {
                JobPoll::Returned(Ok(result)) => {
                    return Some(AttemptReport::Ended(WorkResult::Returned(result).into()));
                }
                JobPoll::Returned(Err(error)) => {
                    return Some(failed_report(error.into_details()));
                }
                JobPoll::Panicked(message) => {
                    let failure = Failure::Panic(message);
                    let result = WorkResult::Failed { failure, partial: None };
                    return Some(AttemptReport::Ended(result.into()));
                }
                JobPoll::Step(DriverStep::Poll | DriverStep::Wait) => {}
                JobPoll::Step(DriverStep::Abandon(calls)) => {
                    let report = AttemptReport::Abandon { calls };
                    let _ = Box::pin(self.context.report(report)).await;
                }
                JobPoll::Step(DriverStep::Park { calls, acked_entries, suspend_open }) => {
                    if Box::pin(self.park(calls, acked_entries, suspend_open)).await
                        && !self.suspend_with_future().await
                    {
                        return None;
                    }
                }
            }
        }
    }

    /// Reports parked calls. Returns true if the task is suspended now and the driver must wait.
    async fn park(
        &self,
        mut calls: Vec<(CallIndex, ConditionRequest)>,
        acked_entries: u32,
        suspend_open: Option<usize>,
    ) -> bool {
        // One report for each call, so that a refusal reaches the call that it is about.
        let last = calls.pop();
        let mut refused = 0;
        for (index, request) in calls {
            let label = request.label();
            let calls = vec![(index, request)];
            let then = AfterPark::Continue;
            let report = AttemptReport::Park { calls, acked_entries, then };
            if let Err(refusal) = self.context.report(report).await {
                self.record_refused_call(index, label, refusal).await;
                refused += 1;
            }
        }
        let delivered = self.context.calls.delivered_count();
        let then = match suspend_open {
            Some(open) if refused == 0 => AfterPark::Suspend { parked_count: open },
            _ => AfterPark::Continue,
        };
        let call = last.as_ref().map(|(index, request)| (*index, request.label()));
        let calls = last.into_iter().collect();
        let report = AttemptReport::Park { calls, acked_entries, then };
        match self.context.report(report).await {
            Ok(CommandReply::Parked { suspended }) => {
                if !suspended && then != AfterPark::Continue {
                    self.context.calls.expect_completion(delivered);
                }
                suspended
            }
            Ok(_) => false,
            Err(refusal) => {
                match call {
                    Some((index, label)) => self.record_refused_call(index, label, refusal).await,
                    None => self.context.calls.expect_completion(delivered),
                }
                false
            }
        }
    }

    async fn record_refused_call(&self, index: CallIndex, label: EntryLabel, refusal: Refusal) {
        if !self.context.record_refusal(index, label, &refusal).await {
            self.context.calls.refuse(index, refusal);
        }
    }

    /// Waits until a closure is resumed, with its future. Returns false for a named job, which has
    /// none.
    async fn suspend_with_future(&self) -> bool {
        match &self.context.resume_signal {
            Some(resume) => {
                resume.notified().await;
                true
            }
            None => false,
        }
    }
}

/// Polls the job when it is woken, then returns the next step of its calls.
async fn poll_job(
    mut future: Pin<&mut impl Future<Output = Result<Json, JobError>>>,
    calls: &JobCalls,
) -> JobPoll {
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        match polled {
            Err(panic) => Poll::Ready(JobPoll::Panicked(panic_message(&*panic).into())),
            Ok(Poll::Ready(result)) => Poll::Ready(JobPoll::Returned(result)),
            Ok(Poll::Pending) => match calls.next_step(context.waker()) {
                DriverStep::Wait => Poll::Pending,
                next => Poll::Ready(JobPoll::Step(next)),
            },
        }
    })
    .await
}

fn failed_report(error: impl Into<ErrorDetails>) -> AttemptReport {
    let failure = Failure::error(error);
    AttemptReport::Ended(WorkResult::Failed { failure, partial: None }.into())
}

/// A guard that closes the calls before the future drops, so that they do not count as abandoned.
struct CloseOnDrop<'a>(&'a JobCalls);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl std::fmt::Debug for JobPerformer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobPerformer").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}
