//! Helpers of the tests.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brigade_model::action::StartAction;
use brigade_model::call::RunResult;
use brigade_model::command::{AttemptReport, WorkResult};
use brigade_model::event::Event;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Attempt, TaskNo};
use brigade_model::json::Json;
use brigade_model::outcome::{CancelledOutcome, Failure, LateResult, Outcome};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::TaskRow;
use brigade_model::work::{
    FollowUp, InboxMode, KindPolicy, ParentClosePolicy, RecoveryPolicy, WakeOn,
};
use brigade_runtime::{
    Delivery, FeedUpdate, JobContext, JobError, NewTask, Performer, ReconcileResult, Reporter,
    Session, StopMode, TaskHandle, TaskId,
};
use brigade_store::BoxFuture;
use brigade_testkit::TestRuntime;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text).unwrap()
}

pub(crate) fn number(no: u32) -> TaskNo {
    TaskNo::new(no).unwrap()
}

pub(crate) fn succeeded(result: &str) -> Outcome {
    Outcome::Succeeded { result: json(result) }
}

pub(crate) fn failed(message: &str) -> Outcome {
    Outcome::failed(Failure::error(message))
}

/// Returns a task that returns this value at once.
pub(crate) fn returns<T: Serialize + Send + 'static>(value: T) -> NewTask {
    NewTask::closure("returns", |_| async { Ok::<_, JobError>(value) }).erase()
}

/// Returns a task that never ends by itself and ignores its stop token.
pub(crate) fn forever() -> NewTask {
    NewTask::closure("forever", |_| async {
        std::future::pending::<()>().await;
        Ok::<_, JobError>(())
    })
    .erase()
}

/// Returns a task that runs until it is stopped, and then cleans up.
pub(crate) fn tidy() -> NewTask {
    NewTask::closure("tidy", |ctx: JobContext| async move {
        ctx.stop_token().cancelled().await;
        Ok::<_, JobError>("tidied")
    })
    .erase()
}

/// Returns a task that ends once the gate is open.
pub(crate) fn behind(gate: &CancellationToken) -> NewTask {
    let gate = gate.clone();
    NewTask::closure("behind a gate", |_| async move {
        gate.cancelled().await;
        Ok::<_, JobError>("through")
    })
    .erase()
}

#[track_caller]
pub(crate) fn refused<T: Debug>(result: Result<T, Refusal>, kind: RefusalKind, part: &str) {
    let refusal = result.unwrap_err();
    assert_eq!(refusal.kind, kind, "{refusal}");
    assert!(refusal.message.contains(part), "{refusal:?} lacks {part:?}");
}

#[track_caller]
pub(crate) fn cancelled(outcome: &Outcome) -> &CancelledOutcome {
    match outcome {
        Outcome::Cancelled(cancelled) => cancelled,
        other => panic!("cancelled was expected, not {other}"),
    }
}

#[track_caller]
pub(crate) fn late_result(outcome: &Outcome) -> &str {
    match &cancelled(outcome).late {
        Some(LateResult::Result(result)) => result.as_str(),
        other => panic!("a late result was expected, not {other:?}"),
    }
}

/// Awaits a future on paused time. Fails if it does not complete within an idle year.
pub(crate) async fn eventually<F: Future>(future: F) -> F::Output {
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    tokio::time::timeout(year, future)
        .await
        .expect("it completes before all tasks are idle for a year")
}

/// Awaits a future on real time, with a timeout that fails instead of hanging.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it completes soon")
}

/// Waits on paused time until all tasks are idle.
pub(crate) async fn until_idle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

pub(crate) async fn wait_result<T>(task: &TaskHandle<T>) -> RunResult {
    eventually(task.wait()).await.unwrap()
}

pub(crate) async fn outcome<T>(task: &TaskHandle<T>) -> Arc<Outcome> {
    wait_result(task).await.outcome
}

/// Waits until the task's state has this label, and returns its row.
pub(crate) async fn until(session: &Session, no: TaskNo, word: &str) -> Arc<TaskRow> {
    let mut feed = session.subscribe(FeedCursor::START);
    loop {
        let row = session.get(no).await.unwrap().row;
        if row.state.label() == word {
            return row;
        }
        eventually(feed.next()).await.unwrap().unwrap();
    }
}

pub(crate) async fn state(session: &Session, no: TaskNo) -> &'static str {
    session.get(no).await.unwrap().row.state.label()
}

pub(crate) fn listed(session: &Session) -> Vec<u32> {
    session.list().iter().map(|task| task.no.get()).collect()
}

/// Returns the session's events so far.
pub(crate) async fn events(test: &TestRuntime) -> Vec<Event> {
    let records = test.events_after(FeedCursor::START).await;
    records.iter().map(|record| record.event.clone()).collect()
}

pub(crate) async fn next_event(feed: &mut brigade_runtime::FeedSubscription) -> Event {
    match eventually(feed.next()).await.unwrap().unwrap() {
        FeedUpdate::Event(item) => item.record.event.clone(),
        gap => panic!("an event was expected, not {gap:?}"),
    }
}

/// Drops the runtime, as a killed process would.
pub(crate) async fn crash(test: TestRuntime) {
    drop(test);
    until_idle().await;
}

/// A count of futures: each holds one count while it is alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Census(Arc<AtomicUsize>);

impl Census {
    pub(crate) fn enter(&self) -> Counted {
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted(self.0.clone())
    }

    pub(crate) fn alive(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A counter of events inside jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<AtomicUsize>);

impl Tally {
    /// Counts one more and returns the count before.
    pub(crate) fn add(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

pub(crate) const NOT_FOUND: RefusalKind = RefusalKind::NotFound;
pub(crate) const FORBIDDEN: RefusalKind = RefusalKind::Forbidden;
pub(crate) const INVALID: RefusalKind = RefusalKind::Invalid;
pub(crate) const CONFLICT: RefusalKind = RefusalKind::Conflict;
pub(crate) const LIMIT: RefusalKind = RefusalKind::Limit;
pub(crate) const ENDED: RefusalKind = RefusalKind::Ended;
pub(crate) const UNAVAILABLE: RefusalKind = RefusalKind::Unavailable;

/// A performer that does nothing by itself: the test receives each call and reports for the work.
pub(crate) struct Puppet {
    calls: tokio::sync::mpsc::UnboundedSender<Called>,
    found: std::sync::Mutex<Option<ReconcileResult>>,
}

pub(crate) enum Called {
    Start(StartAction, Reporter),
    Deliver(Delivery),
    Stop(StopMode),
    Reconcile(Reporter),
}

/// The calls to a [`Puppet`], as the test receives them.
pub(crate) struct PuppetCalls(tokio::sync::mpsc::UnboundedReceiver<Called>);

impl Puppet {
    pub(crate) fn new() -> (Arc<Self>, PuppetCalls) {
        let (calls, received) = tokio::sync::mpsc::unbounded_channel();
        (Arc::new(Self { calls, found: Default::default() }), PuppetCalls(received))
    }

    /// Creates a puppet with this result of `reconcile`.
    pub(crate) fn finding(found: ReconcileResult) -> (Arc<Self>, PuppetCalls) {
        let (puppet, calls) = Self::new();
        *puppet.found.lock().unwrap() = Some(found);
        (puppet, calls)
    }

    fn called(&self, call: Called) {
        // A test that has seen enough drops its receiver.
        let _ = self.calls.send(call);
    }
}

impl Performer for Puppet {
    fn start(&self, start: StartAction, reporter: Reporter) {
        self.called(Called::Start(start, reporter));
    }

    fn deliver(&self, _task: TaskId, _attempt: Attempt, delivery: Delivery) {
        self.called(Called::Deliver(delivery));
    }

    fn stop(&self, _task: TaskId, mode: StopMode) {
        self.called(Called::Stop(mode));
    }

    fn reconcile<'a>(
        &'a self,
        _task: TaskId,
        _row: &'a TaskRow,
        reporter: Reporter,
    ) -> BoxFuture<'a, ReconcileResult> {
        self.called(Called::Reconcile(reporter));
        let found = self.found.lock().unwrap().clone().expect("the test set a result");
        Box::pin(std::future::ready(found))
    }
}

impl PuppetCalls {
    pub(crate) async fn next(&mut self) -> Called {
        eventually(self.0.recv()).await.expect("the performer is there")
    }

    pub(crate) async fn started(&mut self) -> (StartAction, Reporter) {
        match self.next().await {
            Called::Start(start, reporter) => (start, reporter),
            _ => panic!("a start was expected"),
        }
    }

    pub(crate) async fn delivered(&mut self) -> Delivery {
        match self.next().await {
            Called::Deliver(delivery) => delivery,
            _ => panic!("a delivery was expected"),
        }
    }

    pub(crate) async fn stopped(&mut self) -> StopMode {
        match self.next().await {
            Called::Stop(mode) => mode,
            _ => panic!("a stop was expected"),
        }
    }

    pub(crate) async fn reconciled(&mut self) -> Reporter {
        match self.next().await {
            Called::Reconcile(reporter) => reporter,
            _ => panic!("a question was expected"),
        }
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.0.is_empty()
    }
}

/// The policy of work that may outlive the process, receives messages by push and has follow-up
/// runs.
pub(crate) const OVEN: KindPolicy = KindPolicy {
    recovery: RecoveryPolicy::Adopt,
    parent_close: ParentClosePolicy::StopChildren,
    follow_up: FollowUp::NewRun,
    inbox_mode: InboxMode::Push,
    wake_on: WakeOn::AnyCompletion,
};

pub(crate) fn oven(dish: &str) -> NewTask {
    NewTask::custom("oven", dish).erase()
}

pub(crate) fn returned(result: &str) -> AttemptReport {
    AttemptReport::Ended(WorkResult::Returned(json(result)).into())
}
