//! Work that a remote service performs: started, polled until it is done, cancelled on a stop.

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use brigade_model::action::StartAction;
use brigade_model::command::{AttemptReport, EndReport, WorkResult};
use brigade_model::ids::{Attempt, RunNo};
use brigade_model::json::Json;
use brigade_model::outcome::EndConfirmation;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::spec::TaskSpec;
use brigade_model::task::TaskRow;
use brigade_model::work::Work;
use brigade_store::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::{Clock, SystemClock};
use crate::performer::{Performer, ReconcileResult, Reporter, StopMode, TaskId};

/// A service outside this process that performs work: it is started, polled and cancelled.
///
/// [`RemotePerformer`] turns it into a performer. Register that with
/// [`KindPolicy::adopted`](brigade_model::work::KindPolicy::adopted).
pub trait RemoteService: Send + Sync + 'static {
    /// The payload of a task, as `NewTask::custom` gets it.
    type Payload: DeserializeOwned + Send + 'static;
    /// The name that the service gives to the work. It is stored with the task.
    type Handle: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The result of a task.
    type Output: Serialize + Send + 'static;

    /// Starts the work, or finds the work that was started with this key before.
    ///
    /// The key is the same in every call for one run of a task. After a crash between the start and
    /// the commit of the handle, the next runtime calls this again. The service must not start
    /// anything twice for one key.
    fn start(
        &self,
        payload: Self::Payload,
        key: &str,
    ) -> impl Future<Output = Result<Self::Handle, RemoteError>> + Send;

    /// Returns the status of the work.
    fn poll(
        &self,
        handle: &Self::Handle,
    ) -> impl Future<Output = Result<RemoteStatus<Self::Output>, RemoteError>> + Send;

    /// Cancels the work, and returns `Ok` when it does not run any more. It may have ended before.
    fn cancel(&self, handle: &Self::Handle)
    -> impl Future<Output = Result<(), RemoteError>> + Send;
}

/// The status of work at a remote service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteStatus<T> {
    Running,
    Done(T),
    /// The work failed, with this error.
    Failed(String),
}

/// An error of a call to a remote service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteError {
    /// The service cannot be reached or is busy. The call is repeated.
    Unavailable(String),
    /// The service refuses the request. The task fails.
    Rejected(String),
}

impl RemoteError {
    pub fn unavailable(error: impl Display) -> Self {
        Self::Unavailable(error.to_string())
    }

    pub fn rejected(error: impl Display) -> Self {
        Self::Rejected(error.to_string())
    }
}

impl Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(message) => write!(f, "the remote service is unavailable: {message}"),
            Self::Rejected(message) => write!(f, "the remote service refuses: {message}"),
        }
    }
}

impl std::error::Error for RemoteError {}

/// The performer of work at a [`RemoteService`].
///
/// It stores the handle before it polls. After a crash it polls the stored handle; without one, it
/// starts again with the same key. It polls at once, then after ever longer pauses between the two
/// intervals, by the runtime's clock. An unavailable service is tried again until the task is
/// stopped or its time limit ends it. A stop cancels the work. If the service does not confirm that
/// within the grace, the outcome names the work as a survivor.
pub struct RemotePerformer<S> {
    service: Arc<S>,
    intervals: PollIntervals,
    clock: OnceLock<Arc<dyn Clock>>,
    runs: Arc<RemoteRuns>,
    tracker: TaskTracker,
}

#[derive(Clone, Copy, Debug)]
struct PollIntervals {
    shortest: Duration,
    longest: Duration,
}

impl<S: RemoteService> RemotePerformer<S> {
    /// Creates a performer that polls after one second at first, and at last every 30 seconds.
    pub fn new(service: S) -> Self {
        let intervals =
            PollIntervals { shortest: Duration::from_secs(1), longest: Duration::from_secs(30) };
        Self {
            service: Arc::new(service),
            intervals,
            clock: OnceLock::new(),
            runs: Arc::default(),
            tracker: TaskTracker::new(),
        }
    }

    /// Sets the first and the longest pause between two polls, each at least ten milliseconds.
    #[must_use]
    pub fn poll_between(mut self, shortest: Duration, longest: Duration) -> Self {
        let shortest = shortest.max(Duration::from_millis(10));
        self.intervals = PollIntervals { shortest, longest: longest.max(shortest) };
        self
    }

    /// Starts or continues a run, unless this attempt is driven already.
    fn drive(&self, request: RunRequest, reporter: Reporter) {
        let task = reporter.task;
        let attempt = reporter.attempt;
        let stop = CancellationToken::new();
        let key = format!("{}:{}#{}", task.session, task.no, request.run.0);
        let mut runs = self.runs.lock();
        if runs.get(&task).is_some_and(|run| run.attempt == attempt) {
            return;
        }
        let driver = RunDriver {
            service: self.service.clone(),
            intervals: self.intervals,
            clock: self.clock.get().cloned().unwrap_or_else(|| Arc::new(SystemClock)),
            request,
            key: key.clone(),
            reporter: reporter.clone(),
            stop: stop.clone(),
        };
        let all = self.runs.clone();
        let driver = self.tracker.spawn(async move {
            driver.run().await;
            all.remove(task, attempt);
        });
        let run = RemoteRun { attempt, key, stop, reporter, driver: Some(driver) };
        if let Some(RemoteRun { driver: Some(older), .. }) = runs.insert(task, run) {
            older.abort();
        }
    }
}

impl<S: RemoteService> Performer for RemotePerformer<S> {
    fn start(&self, start: StartAction, reporter: Reporter) {
        let request = RunRequest { run: start.run, spec: start.spec, state: start.state };
        self.drive(request, reporter);
    }

    fn set_clock(&self, clock: Arc<dyn Clock>) {
        let _ = self.clock.set(clock);
    }

    fn stop(&self, task: TaskId, mode: StopMode) {
        let mut runs = self.runs.lock();
        match mode {
            StopMode::Graceful { attempt, .. } => {
                if let Some(run) = runs.get(&task).filter(|run| run.attempt == attempt) {
                    run.stop.cancel();
                }
            }
            StopMode::Forced { attempt } => {
                let run = runs.get_mut(&task).filter(|run| run.attempt == attempt);
                let Some(run) = run else { return };
                let Some(driver) = run.driver.take() else { return };
                let reporter = run.reporter.clone();
                let survivor = format!("remote work with the key {}", run.key);
                let all = self.runs.clone();
                driver.abort();
                self.tracker.spawn(async move {
                    let _ = driver.await;
                    all.remove(task, attempt);
                    reporter.post(unconfirmed_end(&survivor)).await;
                });
            }
            StopMode::Release => {
                if let Some(RemoteRun { driver: Some(driver), .. }) = runs.remove(&task) {
                    driver.abort();
                }
            }
        }
    }

    fn halt(&self, task: TaskId) {
        self.stop(task, StopMode::Release);
    }

    fn reconcile<'a>(
        &'a self,
        _task: TaskId,
        row: &'a TaskRow,
        reporter: Reporter,
    ) -> BoxFuture<'a, ReconcileResult> {
        let state = row.extras.as_ref().and_then(|extras| extras.state.clone());
        self.drive(RunRequest { run: row.run, spec: row.spec.clone(), state }, reporter);
        Box::pin(std::future::ready(ReconcileResult::Adopted))
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        for (_, run) in self.runs.lock().drain() {
            if let Some(driver) = run.driver {
                driver.abort();
            }
        }
        self.tracker.close();
        Box::pin(self.tracker.wait())
    }
}

/// The runs that are driven now.
#[derive(Debug, Default)]
struct RemoteRuns(Mutex<HashMap<TaskId, RemoteRun>>);

#[derive(Debug)]
struct RemoteRun {
    attempt: Attempt,
    key: String,
    stop: CancellationToken,
    reporter: Reporter,
    driver: Option<JoinHandle<()>>,
}

impl RemoteRuns {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, RemoteRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, task: TaskId, attempt: Attempt) {
        let mut runs = self.lock();
        if runs.get(&task).is_some_and(|run| run.attempt == attempt) {
            runs.remove(&task);
        }
    }
}

/// A run to start or to continue.
struct RunRequest {
    run: RunNo,
    spec: Arc<TaskSpec>,
    state: Option<Json>,
}

/// The handle of a run, as the task's state. A later run of the same task starts anew.
#[derive(Serialize, Deserialize)]
struct SavedHandle<H> {
    run: RunNo,
    handle: H,
}

/// The driver of one run, from its start to its report.
struct RunDriver<S> {
    service: Arc<S>,
    intervals: PollIntervals,
    clock: Arc<dyn Clock>,
    request: RunRequest,
    key: String,
    reporter: Reporter,
    stop: CancellationToken,
}

impl<S: RemoteService> RunDriver<S> {
    async fn run(self) {
        let handle = match self.saved_handle() {
            Ok(Some(handle)) => handle,
            Ok(None) => {
                let Some(handle) = self.start().await else { return };
                handle
            }
            Err(refusal) => {
                let error = format!("the stored handle cannot be read: {}", refusal.message);
                return self.reporter.fail(error).await;
            }
        };
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = self.poll(&handle) => return,
        }
        self.cancel(&handle).await;
    }

    fn saved_handle(&self) -> Result<Option<S::Handle>, Refusal> {
        let Some(state) = &self.request.state else { return Ok(None) };
        let saved: SavedHandle<Json> = state.decode()?;
        if saved.run != self.request.run {
            return Ok(None);
        }
        saved.handle.decode().map(Some)
    }

    /// Starts the work and stores its handle. Returns `None` if the run is over.
    ///
    /// A stop does not interrupt this: the work may have been started, and only its handle can
    /// cancel it.
    async fn start(&self) -> Option<S::Handle> {
        if self.stop.is_cancelled() {
            self.reporter.stopped().await;
            return None;
        }
        let mut pauses = self.pauses();
        let handle = loop {
            let payload = match self.payload() {
                Ok(payload) => payload,
                Err(refusal) => {
                    self.reporter.fail(refusal.message).await;
                    return None;
                }
            };
            match self.service.start(payload, &self.key).await {
                Ok(handle) => break handle,
                Err(RemoteError::Unavailable(error)) => self.log("start", &error),
                Err(error) => {
                    self.reporter.fail(error).await;
                    return None;
                }
            }
            pauses.wait(&*self.clock).await;
        };
        self.save(&handle).await.then_some(handle)
    }

    fn payload(&self) -> Result<S::Payload, Refusal> {
        match &self.request.spec.work {
            Work::Custom(custom) => custom.payload.decode(),
            _ => Err(Refusal::invalid("the task has no payload")),
        }
    }

    /// Stores the handle. Returns false if the attempt is over.
    async fn save(&self, handle: &S::Handle) -> bool {
        let mut pauses = self.pauses();
        let saved = SavedHandle { run: self.request.run, handle };
        loop {
            match self.reporter.save_state(&saved).await {
                Ok(()) => return true,
                Err(refusal) if refusal.kind == RefusalKind::Ended => return false,
                Err(refusal) if refusal.kind == RefusalKind::Invalid => {
                    self.reporter.fail(format!("the handle cannot be stored: {refusal}")).await;
                    return false;
                }
                Err(refusal) => self.log("store the handle of", &refusal.message),
            }
            pauses.wait(&*self.clock).await;
        }
    }

    /// Polls until the work is over, and reports its end.
    async fn poll(&self, handle: &S::Handle) {
        let mut pauses = self.pauses();
        loop {
            match self.service.poll(handle).await {
                Ok(RemoteStatus::Running) => {}
                Ok(RemoteStatus::Done(output)) => {
                    let report = self.reporter.succeed(&output);
                    return report.await;
                }
                Ok(RemoteStatus::Failed(error)) => return self.reporter.fail(error).await,
                Err(RemoteError::Unavailable(error)) => self.log("poll", &error),
                Err(error) => return self.reporter.fail(error).await,
            }
            pauses.wait(&*self.clock).await;
        }
    }

    /// Cancels the work until the service confirms or refuses it.
    async fn cancel(&self, handle: &S::Handle) {
        let mut pauses = self.pauses();
        loop {
            match self.service.cancel(handle).await {
                Ok(()) => return self.reporter.stopped().await,
                Err(RemoteError::Unavailable(error)) => self.log("cancel", &error),
                Err(error) => {
                    let survivor = format!("remote work with the key {}: {error}", self.key);
                    return self.reporter.post(unconfirmed_end(&survivor)).await;
                }
            }
            pauses.wait(&*self.clock).await;
        }
    }

    fn pauses(&self) -> Pauses {
        Pauses { next: self.intervals.shortest, longest: self.intervals.longest }
    }

    fn log(&self, verb: &str, error: &str) {
        tracing::warn!(error, key = self.key, "could not {verb} remote work; trying again");
    }
}

/// Returns the end of work that a stop could not end for certain.
fn unconfirmed_end(survivor: &str) -> AttemptReport {
    let result = WorkResult::Stopped { partial: None, spent: None };
    let confirmation = EndConfirmation::Survivors(vec![survivor.into()]);
    AttemptReport::Ended(EndReport { result, confirmation })
}

/// Pauses between two calls, each twice as long as the one before, up to a maximum.
struct Pauses {
    next: Duration,
    longest: Duration,
}

impl Pauses {
    async fn wait(&mut self, clock: &dyn Clock) {
        let pause = self.next;
        self.next = pause.saturating_mul(2).min(self.longest);
        clock.sleep_until(clock.now().after(pause.into())).await;
    }
}

impl<S> fmt::Debug for RemotePerformer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemotePerformer")
            .field("intervals", &self.intervals)
            .finish_non_exhaustive()
    }
}
