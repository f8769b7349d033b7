//! The `Performer` trait, which executes one kind of work, and the types it exchanges with the
//! loop.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::action::{Action, StartAction};
use brigade_model::call::CallCompletion;
use brigade_model::command::{AttemptReport, Command, EndReport, ReportCommand, SpawnCommand};
use brigade_model::decide::CommandReply;
use brigade_model::ids::{Attempt, CallIndex, SessionId, TaskNo, Time};
use brigade_model::message::Message;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::spec::TaskSpec;
use brigade_model::task::TaskRow;
use brigade_model::work::{CustomWork, KindPolicy, TaskKind, Work};
use brigade_store::BoxFuture;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::clock::Clock;
use crate::fleet::AttemptLease;
use crate::loop_input::LoopInput;
use crate::runtime::submit;

mod remote;
mod reports;

pub use remote::{RemoteError, RemotePerformer, RemoteService, RemoteStatus};

/// A task and its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    pub session: SessionId,
    pub no: TaskNo,
}

/// A performer, which executes one kind of work.
///
/// The loop calls these methods, so they must not block: long work belongs in a tokio task of the
/// performer. Each call may come twice for the same attempt and must then do nothing new.
///
/// ```
/// use brigade_model::action::StartAction;
/// use brigade_runtime::{Performer, Reporter, StopMode, TaskId};
///
/// struct Kettle;
///
/// impl Performer for Kettle {
///     fn start(&self, _start: StartAction, reporter: Reporter) {
///         tokio::spawn(async move { reporter.succeed("hot water").await });
///     }
///
///     fn stop(&self, _task: TaskId, _mode: StopMode) {}
/// }
/// ```
///
/// [`RuntimeBuilder::performer`](crate::RuntimeBuilder::performer) registers it.
pub trait Performer: Send + Sync + 'static {
    /// Starts an attempt. The performer reports its results through the reporter.
    fn start(&self, start: StartAction, reporter: Reporter);

    /// Returns the work with the decisions of this machine, which are stored with the task. A later
    /// start, also on another machine, must not decide otherwise. Returns `None` if there is
    /// nothing to decide.
    fn resolve(&self, _work: &Work) -> Option<Work> {
        None
    }

    /// Receives the clock of the runtime, before any other call.
    fn set_clock(&self, _clock: Arc<dyn Clock>) {}

    /// Delivers something to a running attempt. A completion for an attempt that is not in memory
    /// is dropped, since the next attempt reads it from the journal. By default everything is
    /// dropped, which suits work that parks no calls and receives no pushed messages.
    fn deliver(&self, _task: TaskId, _attempt: Attempt, _delivery: Delivery) {}

    /// Ends an attempt, or releases what is held for a suspended task.
    fn stop(&self, task: TaskId, mode: StopMode);

    /// Ends what exists of a task only in this process, and reports nothing: another runtime has
    /// taken its session. Work that outlives a process continues there. By default nothing is ended,
    /// and later reports are ignored.
    fn halt(&self, _task: TaskId) {}

    /// Finds out after a crash what happened to work that may have outlived the process.
    ///
    /// The loop calls this for kinds whose recovery is `Adopt`, before it runs and before any
    /// request is answered. The performer must not wait for a reply of the reporter, which is for
    /// later reports. By default the work is lost.
    fn reconcile<'a>(
        &'a self,
        _task: TaskId,
        _row: &'a TaskRow,
        _reporter: Reporter,
    ) -> BoxFuture<'a, ReconcileResult> {
        let evidence = "its performer does not look for work of an earlier process".into();
        Box::pin(std::future::ready(ReconcileResult::Lost { evidence }))
    }

    /// Returns the tasks that have data outside the store, such as output.
    fn tasks_with_data(&self) -> BoxFuture<'_, Vec<TaskId>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Removes the data of a pruned task.
    fn remove_data(&self, _task: TaskId) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Removes the data of many tasks of one session, for kinds that can do it in one operation.
    fn remove_all(&self, tasks: Vec<TaskId>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            for task in tasks {
                self.remove_data(task).await;
            }
        })
    }

    /// Ends everything that exists only in this process, and returns when that is done. Reports
    /// nothing more. Work that is meant to outlive the process continues.
    fn shutdown(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Delivery {
    /// The completion of a call, with its ordinal in the task's journal. Completions come in order.
    Completion { index: CallIndex, ordinal: u32, completion: Arc<CallCompletion> },
    /// A message, for kinds that receive messages by push. The performer reports its arrival.
    Message(Arc<Message>),
    /// A notice that an urgent message is in the inbox, for kinds that read their inbox.
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// A request to end in its own time, before the deadline.
    Graceful { attempt: Attempt, deadline: Time },
    /// A request to end now. The performer reports when that is done.
    Forced { attempt: Attempt },
    /// The end of the task, of which nothing is needed any more. No report is expected.
    Release,
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReconcileResult {
    /// The work is running, and its reports come under the same attempt.
    Adopted,
    /// The work ended meanwhile, with this report.
    Ended(EndReport),
    /// The work was never started and cannot start any more: it may be started again.
    NeverStarted,
    /// Nothing remains of the work.
    Lost { evidence: Arc<str> },
    /// The work was started on this other host, where it may run. It is neither adopted here nor
    /// lost.
    Elsewhere { host: Arc<str> },
    /// The performer could not look. Recovery stops, since nothing can be concluded from that.
    Unknown { problem: Arc<str> },
}

/// The sender of reports about one attempt of a task.
#[derive(Clone, Debug)]
pub struct Reporter {
    pub task: TaskId,
    pub attempt: Attempt,
    pub(crate) inputs: mpsc::Sender<LoopInput>,
    /// The lease of a node; `None` if this runtime is the only one.
    pub(crate) lease: Option<Arc<AttemptLease>>,
}

impl Reporter {
    /// Refuses if another node may perform the task now. Each effect begins only while this succeeds.
    #[cfg(feature = "processes")]
    pub(crate) fn check_lease(&self) -> Result<(), Refusal> {
        self.lease.as_ref().map_or(Ok(()), |lease| lease.check())
    }

    /// Submits a report and returns the loop's reply.
    pub async fn report(&self, report: AttemptReport) -> Result<CommandReply, Refusal> {
        submit(&self.inputs, self.task.session, self.command(report)).await
    }

    /// Posts a report that must not be lost: the loop retries it until it is stored.
    pub async fn post(&self, report: AttemptReport) {
        let command = self.command(report);
        let input = LoopInput::Report { session: self.task.session, command };
        // Without a loop nobody receives the report; recovery finds out the same. A full queue is
        // rare, and every task would hold the place of its future.
        if let Err(TrySendError::Full(input)) = self.inputs.try_send(input) {
            let _ = Box::pin(self.inputs.send(input)).await;
        }
    }

    /// Posts a report that is dropped if the loop's queue is full.
    #[cfg(feature = "agents")]
    pub(crate) fn try_report(&self, report: AttemptReport) {
        let command = self.command(report);
        let _ = self.inputs.try_send(LoopInput::Report { session: self.task.session, command });
    }

    pub(crate) fn command(&self, report: AttemptReport) -> Command {
        Command::Report(ReportCommand { no: self.task.no, attempt: self.attempt, report })
    }
}

/// The pause before a call is repeated that the store could not take.
const UNAVAILABLE_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Repeats a call until the store is available. A short outage must not reach an agent, nor be
/// recorded as the result of a call. Gives up when the runtime has ended.
pub(crate) async fn retry_while_unavailable<T, F>(
    reporter: &Reporter,
    call: impl Fn() -> F,
) -> Result<T, Refusal>
where
    F: Future<Output = Result<T, Refusal>>,
{
    loop {
        match call().await {
            Err(refusal)
                if refusal.kind == RefusalKind::Unavailable && !reporter.inputs.is_closed() =>
            {
                tokio::time::sleep(UNAVAILABLE_RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// The performers, by kind of work.
#[derive(Clone, Default)]
pub(crate) struct PerformerRegistry {
    by_kind: HashMap<TaskKind, Arc<dyn Performer>>,
    /// The policies with which custom kinds are registered.
    policies: HashMap<Arc<str>, KindPolicy>,
}

impl PerformerRegistry {
    pub(crate) fn register(&mut self, kind: TaskKind, performer: Arc<dyn Performer>) {
        self.by_kind.insert(kind, performer);
    }

    pub(crate) fn register_custom(
        &mut self,
        kind: Arc<str>,
        policy: KindPolicy,
        performer: Arc<dyn Performer>,
    ) {
        self.policies.insert(kind.clone(), policy);
        self.register(TaskKind::Custom(kind), performer);
    }

    pub(crate) fn set_clock(&self, clock: &Arc<dyn Clock>) {
        for performer in self.all() {
            performer.set_clock(clock.clone());
        }
    }

    pub(crate) async fn shutdown(&self) {
        for performer in self.all() {
            performer.shutdown().await;
        }
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<dyn Performer>> {
        self.by_kind.values()
    }

    pub(crate) fn get(&self, kind: &TaskKind) -> Option<&Arc<dyn Performer>> {
        self.by_kind.get(kind)
    }

    /// Returns a spawn with the decisions of its performer, or `None` if there are none.
    pub(crate) fn resolve(&self, command: &Command) -> Option<Command> {
        let Command::Spawn(spawn) = command else { return None };
        let with_policy = self.with_policy(&spawn.spec.work);
        let work = with_policy.as_ref().unwrap_or(&spawn.spec.work);
        let resolved = self.get(&work.kind()).and_then(|performer| performer.resolve(work));
        let work = resolved.or(with_policy)?;
        let spec = Arc::new(TaskSpec { work, ..TaskSpec::clone(&spawn.spec) });
        Some(Command::Spawn(SpawnCommand { spec, ..spawn.clone() }))
    }

    /// Returns work of a custom kind with the policy of its registration, unless it has its own.
    fn with_policy(&self, work: &Work) -> Option<Work> {
        let Work::Custom(custom) = work else { return None };
        let policy = self.policies.get(&custom.kind).filter(|_| custom.policy.is_none())?;
        Some(Work::Custom(CustomWork { policy: Some(*policy), ..custom.clone() }))
    }

    pub(crate) fn perform(&self, kind: &TaskKind, action: Action, reporter: Reporter) {
        let task = reporter.task;
        let Some(performer) = self.get(kind) else {
            if let Action::Start(_) = action {
                report_no_performer(kind, reporter);
            }
            return;
        };
        match action {
            Action::Start(start) => performer.start(start, reporter),
            Action::DeliverCompletion { attempt, index, ordinal, completion, .. } => {
                performer.deliver(
                    task,
                    attempt,
                    Delivery::Completion { index, ordinal, completion },
                );
            }
            Action::Push { attempt, message, .. } => {
                performer.deliver(task, attempt, Delivery::Message(message));
            }
            Action::Interrupt { attempt, .. } => {
                performer.deliver(task, attempt, Delivery::Interrupt);
            }
            Action::Stop { attempt, deadline, .. } => {
                performer.stop(task, StopMode::Graceful { attempt, deadline });
            }
            Action::Kill { attempt, .. } => performer.stop(task, StopMode::Forced { attempt }),
            Action::Release { .. } => performer.stop(task, StopMode::Release),
        }
    }
}

/// Reports that no performer is registered. Spawned, since the loop must not wait for its own
/// channel.
fn report_no_performer(kind: &TaskKind, reporter: Reporter) {
    let reason = format!("no performer for {kind} is registered").into();
    let report = AttemptReport::NoPerformer { reason };
    #[expect(
        clippy::disallowed_methods,
        reason = "ends by itself as soon as the channel accepts the report"
    )]
    tokio::spawn(async move { reporter.post(report).await });
}

impl fmt::Debug for PerformerRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_kind.keys()).finish()
    }
}
