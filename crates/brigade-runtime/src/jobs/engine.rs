//! The performer of jobs.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use brigade_model::action::Start;
use brigade_model::call::Asked;
use brigade_model::command::{AfterPark, EndedHow, Reported};
use brigade_model::decide::Reply;
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

use super::calls::{Calls, Next};
use super::context::{CURRENT, ContextInner, JobContext, label};
use super::registry::{ClosureBody, Handlers, JobError, JobFuture};
use super::stop_signal::StopSignal;
use crate::agents::insist;
use crate::performer::{Delivery, Performer, Reconciled, Reporter, StopHow, TaskId};

/// How long leaving waits for futures that do not yield.
const HALT_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct JobEngine {
    handlers: Arc<Handlers>,
    store: Arc<dyn Store>,
    live: Arc<Live>,
    tracker: TaskTracker,
}

/// Jobs with a future, in shards: the loop starts them while workers end them.
#[derive(Debug, Default)]
struct Live {
    shards: [Mutex<Jobs>; 16],
}

type Jobs = HashMap<TaskId, LiveJob>;

#[derive(Debug)]
struct LiveJob {
    context: Arc<ContextInner>,
    /// Tells a closure that rests to go on.
    resumed: Option<Arc<Notify>>,
    driver: Option<JoinHandle<()>>,
}

impl Live {
    fn lock(&self, task: TaskId) -> MutexGuard<'_, Jobs> {
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

    fn take_all(&self) -> Vec<LiveJob> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut jobs = shard.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(jobs.drain().map(|(_, job)| job));
        }
        all
    }
}

impl LiveJob {
    /// Whether this start is nothing new: the attempt is under way, or a closure rests and goes on
    /// with it.
    fn takes(&self, attempt: Attempt) -> bool {
        if self.context.attempt() == attempt {
            return true;
        }
        let Some(resumed) = &self.resumed else { return false };
        self.context.attempt.store(attempt.0, Ordering::Release);
        resumed.notify_one();
        true
    }
}

impl JobEngine {
    pub(crate) fn new(handlers: Arc<Handlers>, store: Arc<dyn Store>) -> Self {
        Self { handlers, store, live: Arc::default(), tracker: TaskTracker::new() }
    }
}

impl Performer for JobEngine {
    fn start(&self, start: Start, reporter: Reporter) {
        let task = reporter.task;
        // The job is known before its driver runs, so that the driver can forget it when it ends.
        let mut jobs = self.live.lock(task);
        if jobs.get(&task).is_some_and(|job| job.takes(start.attempt)) {
            return;
        }
        let context = Arc::new(ContextInner {
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
        let driver = Driver {
            context: context.clone(),
            handlers: self.handlers.clone(),
            store: self.store.clone(),
            live: self.live.clone(),
            resumed: closure.clone(),
        };
        let driver = self.tracker.spawn(driver.run(start));
        jobs.insert(task, LiveJob { context, resumed: closure, driver: Some(driver) });
    }

    fn deliver(&self, task: TaskId, _attempt: Attempt, delivery: Delivery) {
        let jobs = self.live.lock(task);
        if let (Some(job), Delivery::Answer { index, ordinal, answer }) =
            (jobs.get(&task), delivery)
        {
            job.context.calls.tell(index, ordinal, answer);
        }
    }

    fn stop(&self, task: TaskId, how: StopHow) {
        let mut jobs = self.live.lock(task);
        match how {
            StopHow::Kindly { .. } => {
                if let Some(job) = jobs.get(&task) {
                    job.context.stop.set();
                    job.context.calls.stop();
                }
            }
            StopHow::Firmly { attempt } => {
                let driver = jobs.get_mut(&task).and_then(|job| job.driver.take());
                let reporter = jobs.get(&task).map(|job| job.context.reporter());
                if let (Some(driver), Some(reporter)) = (driver, reporter) {
                    driver.abort();
                    let live = self.live.clone();
                    self.tracker.spawn(async move {
                        // A future that does not yield is gone only when it returns.
                        let _ = driver.await;
                        live.remove(task, attempt);
                        reporter.post(Reported::Ended(EndedHow::Aborted.into())).await;
                    });
                }
            }
            StopHow::Forget => {
                let resting = jobs.get(&task).is_some_and(|job| job.resumed.is_some());
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
    ) -> BoxFuture<'a, Reconciled> {
        let evidence = "a job does not outlive its process".into();
        Box::pin(std::future::ready(Reconciled::Lost { evidence }))
    }

    fn halt(&self) -> BoxFuture<'_, ()> {
        for job in self.live.take_all() {
            job.context.calls.close();
            if let Some(driver) = job.driver {
                driver.abort();
            }
        }
        self.tracker.close();
        Box::pin(async {
            let _ = tokio::time::timeout(HALT_PATIENCE, self.tracker.wait()).await;
        })
    }
}

/// Polls one job.
struct Driver {
    context: Arc<ContextInner>,
    handlers: Arc<Handlers>,
    store: Arc<dyn Store>,
    live: Arc<Live>,
    resumed: Option<Arc<Notify>>,
}

/// What the job came to when it was polled.
enum Polled {
    Returned(Result<Json, JobError>),
    Panicked(Arc<str>),
    Next(Next),
}

impl Driver {
    async fn run(self, start: Start) {
        let entered = self.enter(&start).await;
        let what = match entered {
            Ok(future) => self.drive(future).await,
            Err(what) => Some(what),
        };
        let reporter = self.context.reporter();
        self.live.remove(reporter.task, reporter.attempt);
        if let Some(what) = what {
            reporter.post(what).await;
        }
    }

    /// The job's future, with its journal loaded; or what to report instead.
    async fn enter(&self, start: &Start) -> Result<JobFuture, Reported> {
        let context = JobContext { inner: self.context.clone() };
        let Work::Job(job) = &start.spec.work else {
            return Err(failed("this is not a job"));
        };
        match job {
            JobWork::Closure { .. } => {
                let body = start.spec.attachment.as_ref();
                let body = body.and_then(|body| body.0.downcast_ref::<ClosureBody>());
                match body.and_then(ClosureBody::take) {
                    Some(enter) => Ok(enter(context)),
                    None => Err(failed("the closure is gone")),
                }
            }
            JobWork::Named { handler, args, .. } => {
                if start.journal > 0 || !start.open.is_empty() {
                    self.load_journal(start)
                        .await
                        .map_err(|refusal| failed(refusal.to_string()))?;
                }
                match self.handlers.enter(handler, context, args) {
                    Some(future) => Ok(future),
                    None => Err(Reported::NoPerformer {
                        reason: format!("no job is registered as {handler:?}").into(),
                    }),
                }
            }
        }
    }

    /// A store that is away is waited for; one that is damaged is not.
    async fn load_journal(&self, start: &Start) -> Result<(), Refusal> {
        let task = self.context.task;
        let reporter = self.context.reporter();
        let journal = insist(&reporter, || async {
            let journal = self.store.journal(task.tree, task.no).await;
            journal.map_err(|error| {
                tracing::warn!(%error, "a journal cannot be read");
                crate::error::refusal(&error)
            })
        });
        self.context.calls.load(journal.await?, &start.open, start.run);
        Ok(())
    }

    /// Polls the job until it returns (what to report) or rests without a future (`None`).
    async fn drive(&self, future: JobFuture) -> Option<Reported> {
        let context = JobContext { inner: self.context.clone() };
        let calls = &self.context.calls;
        let mut future = std::pin::pin!(CURRENT.scope(context, future));
        let _close_before_the_future_goes = CloseOnDrop(calls.clone());
        loop {
            match poll_job(future.as_mut(), calls).await {
                Polled::Returned(Ok(result)) => {
                    return Some(Reported::Ended(EndedHow::Returned(result).into()));
                }
                Polled::Returned(Err(error)) => return Some(failed(error.message().clone())),
                Polled::Panicked(message) => {
                    let failure = Failure::Panic(message);
                    let how = EndedHow::Failed { failure, partial: None };
                    return Some(Reported::Ended(how.into()));
                }
                Polled::Next(Next::Poll | Next::Wait) => {}
                Polled::Next(Next::Abandon(calls)) => {
                    let _ = self.context.report(Reported::Abandon { calls }).await;
                }
                Polled::Next(Next::Park { calls, heard, rest }) => {
                    if self.park(calls, heard, rest).await && !self.rest_with_future().await {
                        return None;
                    }
                }
            }
        }
    }

    /// Tells the model of calls that wait. True when the task now waits and the driver must rest.
    async fn park(
        &self,
        mut calls: Vec<(CallIndex, Asked)>,
        heard: u32,
        rest: Option<usize>,
    ) -> bool {
        // Each alone, so that a refusal reaches the call that it is about.
        let last = calls.pop();
        let mut refused = 0;
        for (index, asked) in calls {
            let label = label(&asked);
            let (calls, then) = (vec![(index, asked)], AfterPark::GoOn);
            let what = Reported::Park { calls, heard, then };
            if let Err(refusal) = self.context.report(what).await {
                self.refused(index, label, refusal).await;
                refused += 1;
            }
        }
        let told = self.context.calls.told();
        let then = match rest {
            Some(open) if refused == 0 => AfterPark::Suspend { open },
            _ => AfterPark::GoOn,
        };
        let call = last.as_ref().map(|(index, asked)| (*index, label(asked)));
        let what = Reported::Park { calls: last.into_iter().collect(), heard, then };
        match self.context.report(what).await {
            Ok(Reply::Parked { suspended }) => {
                if !suspended && then != AfterPark::GoOn {
                    self.context.calls.expect_answer(told);
                }
                suspended
            }
            Ok(_) => false,
            Err(refusal) => {
                match call {
                    Some((index, label)) => self.refused(index, label, refusal).await,
                    None => self.context.calls.expect_answer(told),
                }
                false
            }
        }
    }

    async fn refused(&self, index: CallIndex, label: &'static str, refusal: Refusal) {
        if !self.context.record_refusal(index, label, &refusal).await {
            self.context.calls.refuse(index, refusal);
        }
    }

    /// A closure keeps its future while it rests. False for a named job, which does not.
    async fn rest_with_future(&self) -> bool {
        match &self.resumed {
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
    calls: &Calls,
) -> Polled {
    poll_fn(|context| {
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        match polled {
            Err(panic) => Poll::Ready(Polled::Panicked(panic_message(&*panic))),
            Ok(Poll::Ready(result)) => Poll::Ready(Polled::Returned(result)),
            Ok(Poll::Pending) => match calls.next(context.waker()) {
                Next::Wait => Poll::Pending,
                next => Poll::Ready(Polled::Next(next)),
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

fn failed(message: impl Into<Arc<str>>) -> Reported {
    let failure = Failure::Error(message.into());
    Reported::Ended(EndedHow::Failed { failure, partial: None }.into())
}

/// Calls that are dropped with their future were not given up by the job.
struct CloseOnDrop(Arc<Calls>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl std::fmt::Debug for JobEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobEngine").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}
