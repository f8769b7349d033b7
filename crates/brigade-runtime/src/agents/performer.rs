//! The performer of agents.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_agent::{AgentExit, AttemptInput, Backend, BackendRun, Host, PartialResult};
use brigade_model::action::StartAction;
use brigade_model::call::JournalEntry;
use brigade_model::command::{AttemptReport, EndReport, WorkResult};
use brigade_model::id_map::IdMap;
use brigade_model::ids::{Attempt, RunNo};
use brigade_model::outcome::{Failure, panic_message};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::{TaskRow, TaskState};
use brigade_model::work::Work;
use brigade_store::{BoxFuture, Store};
use futures_util::FutureExt;
use tokio::sync::SetOnce;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

use super::build::BuiltAgent;
use super::host::{AgentHost, InboxHandle};
use super::services::AgentServices;
use super::spans::{self, AttemptEnd};
use crate::performer::retry_while_unavailable;
use crate::performer::{Delivery, Performer, ReconcileResult, Reporter, StopMode, TaskId};
use crate::processes::report::end_confirmation;

/// The time that a shutdown waits for futures that do not yield.
const HALT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time that a stop waits for the backend of an attempt that has just begun. It is shorter than
/// the usual grace period.
const BACKEND_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct AgentPerformer {
    agents: Arc<AgentServices>,
    store: Arc<dyn Store>,
    running: Arc<RunningAgents>,
    tracker: TaskTracker,
}

/// Agents that run. A suspended agent has no entry.
type RunningAgents = Mutex<IdMap<TaskId, RunningAgent>>;

#[derive(Debug)]
struct RunningAgent {
    attempt: Attempt,
    inbox: Arc<InboxHandle>,
    stop: CancellationToken,
    backend: Arc<SetOnce<RunningBackend>>,
    earlier: EarlierWork,
    driver: Option<JoinHandle<()>>,
}

/// The backend of an attempt, and the key by which it knows the agent.
#[derive(Debug)]
struct RunningBackend {
    backend: Arc<dyn Backend>,
    task_key: Arc<str>,
}

impl RunningBackend {
    /// Ends the work of a stopped attempt outside of the runtime. Returns the parts that may still run.
    async fn end_remote_work(running: &SetOnce<Self>, earlier: EarlierWork) -> Vec<String> {
        match (running.get(), earlier) {
            (Some(running), _) => running.backend.end_remote_work(&running.task_key).await,
            (None, EarlierWork::Remote) => vec![UNKNOWN_REMOTE_WORK.to_owned()],
            (None, EarlierWork::None) => Vec::new(),
        }
    }
}

/// The survivor of an attempt that was stopped before its backend could tell of earlier ones.
const UNKNOWN_REMOTE_WORK: &str =
    "work of an earlier attempt at a remote agent, which may still run";

/// The work that earlier attempts of an agent may have left outside of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EarlierWork {
    None,
    Remote,
}

impl EarlierWork {
    fn of(start: &StartAction) -> Self {
        match &start.spec.work {
            Work::Agent(agent) if agent.works_remotely && start.journal_len > 0 => Self::Remote,
            _ => Self::None,
        }
    }
}

impl AgentPerformer {
    pub(crate) fn new(agents: Arc<AgentServices>, store: Arc<dyn Store>) -> Self {
        Self { agents, store, running: Arc::default(), tracker: TaskTracker::new() }
    }

    fn lock(&self) -> MutexGuard<'_, IdMap<TaskId, RunningAgent>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes an agent, unless a later attempt has replaced it.
fn remove_agent(running: &RunningAgents, task: TaskId, attempt: Attempt) {
    let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
    if running.get(&task).is_some_and(|agent| agent.attempt == attempt) {
        running.remove(&task);
    }
}

impl Performer for AgentPerformer {
    fn start(&self, start: StartAction, reporter: Reporter) {
        let task = reporter.task;
        let attempt = start.attempt;
        let mut running = self.lock();
        if running.get(&task).is_some_and(|agent| agent.attempt == attempt) {
            return;
        }
        let inbox = Arc::new(InboxHandle::with_parked_calls(
            start.parked_calls.iter().map(|call| call.index),
        ));
        let stop = CancellationToken::new();
        let backend = Arc::new(SetOnce::new());
        let earlier = EarlierWork::of(&start);
        let driver = AgentDriver {
            agents: self.agents.clone(),
            store: self.store.clone(),
            running: self.running.clone(),
            inbox: inbox.clone(),
            stop: stop.clone(),
            backend: Arc::clone(&backend),
            earlier,
            reporter,
        };
        // The agent is inserted before the lock is released, so that its driver can remove it.
        let driver = self.tracker.spawn(driver.run(start));
        running.insert(
            task,
            RunningAgent { attempt, inbox, stop, backend, earlier, driver: Some(driver) },
        );
    }

    fn deliver(&self, task: TaskId, attempt: Attempt, delivery: Delivery) {
        let running = self.lock();
        // A suspended agent is not in memory. Its next attempt reads the completion from the
        // journal.
        let agent = running.get(&task).filter(|agent| agent.attempt == attempt);
        let Some(agent) = agent else { return };
        match delivery {
            Delivery::Completion { index, completion, .. } => {
                agent.inbox.deliver_completion(index, completion)
            }
            Delivery::Interrupt => agent.inbox.interrupt(),
            Delivery::Message(_) => {}
        }
    }

    fn stop(&self, task: TaskId, mode: StopMode) {
        let mut running = self.lock();
        let Some(agent) = running.get_mut(&task) else { return };
        match mode {
            StopMode::Graceful { .. } => agent.stop.cancel(),
            StopMode::Forced { attempt } => {
                let Some(driver) = agent.driver.take() else { return };
                let reporter = agent.inbox.reporter();
                driver.abort();
                // A tool that does not yield sees its token before the driver is dropped.
                agent.stop.cancel();
                let running = self.running.clone();
                let backend = agent.backend.clone();
                let earlier = agent.earlier;
                self.tracker.spawn(async move {
                    // A future that does not yield ends only when it returns.
                    let _ = driver.await;
                    let survivors = RunningBackend::end_remote_work(&backend, earlier).await;
                    remove_agent(&running, task, attempt);
                    if let Some(reporter) = reporter {
                        let confirmation = end_confirmation(survivors);
                        let end = EndReport { result: WorkResult::Aborted, confirmation };
                        reporter.post(AttemptReport::Ended(end)).await;
                    }
                });
            }
            StopMode::Release => {}
        }
    }

    fn halt(&self, task: TaskId) {
        let Some(agent) = self.lock().remove(&task) else { return };
        if let Some(driver) = agent.driver {
            driver.abort();
        }
        agent.stop.cancel();
    }

    fn reconcile<'a>(
        &'a self,
        _task: TaskId,
        _row: &'a TaskRow,
        _reporter: Reporter,
    ) -> BoxFuture<'a, ReconcileResult> {
        let evidence = "an agent does not outlive its process".into();
        Box::pin(std::future::ready(ReconcileResult::Lost { evidence }))
    }

    fn shutdown(&self) -> BoxFuture<'_, ()> {
        for (_, agent) in self.lock().drain() {
            if let Some(driver) = agent.driver {
                driver.abort();
            }
        }
        self.tracker.close();
        Box::pin(async {
            let _ = tokio::time::timeout(HALT_TIMEOUT, self.tracker.wait()).await;
            self.agents.mcp_servers.close().await;
        })
    }
}

/// The driver of one attempt of an agent.
struct AgentDriver {
    agents: Arc<AgentServices>,
    store: Arc<dyn Store>,
    running: Arc<RunningAgents>,
    inbox: Arc<InboxHandle>,
    stop: CancellationToken,
    backend: Arc<SetOnce<RunningBackend>>,
    earlier: EarlierWork,
    reporter: Reporter,
}

impl AgentDriver {
    async fn run(self, start: StartAction) {
        self.inbox.set_reporter(self.reporter.clone());
        let partial = PartialResult::default();
        let span = spans::invoke_agent_span(&start, self.reporter.task);
        let record_end = |end| spans::record_end(&span, &end, self.inbox.attempt_spending());
        let work = self.run_attempt(start, &partial, &span).instrument(span.clone());
        let report = tokio::select! {
            biased;
            () = self.wait_for_stop() => {
                record_end(AttemptEnd::Stopped);
                let survivors = self.end_remote_work().await;
                Some(stopped_report(&partial, &self.inbox, survivors))
            }
            worked = AssertUnwindSafe(work).catch_unwind() => match worked {
                Ok(exit) => {
                    record_end(exit.as_ref().map_or(AttemptEnd::NotStarted, AttemptEnd::Exit));
                    match exit {
                        Some(exit) => self.exit_report(exit, &partial).await,
                        None => None,
                    }
                }
                Err(panic) => {
                    record_end(AttemptEnd::Panicked);
                    Some(panic_report(&*panic, &partial))
                }
            },
        };
        drop(span);
        remove_agent(&self.running, self.reporter.task, self.reporter.attempt);
        if let Some(report) = report {
            self.reporter.post(report).await;
        }
    }

    /// Runs the attempt. Returns `None` if nothing here can execute it, which has been reported.
    async fn run_attempt(
        &self,
        start: StartAction,
        partial: &PartialResult,
        span: &Span,
    ) -> Option<AgentExit> {
        let start = match self.place_start(start).await {
            Ok(start) => start,
            Err(refusal) => return Some(failed_exit(&refusal)),
        };
        let BuiltAgent { agent, backend, blueprint } =
            match self.agents.build(&start, self.reporter.clone()) {
                Ok(built) => built,
                Err(refusal) if refusal.kind == RefusalKind::Unavailable => {
                    let reason = refusal.message.into();
                    self.reporter.post(AttemptReport::NoPerformer { reason }).await;
                    return None;
                }
                Err(refusal) => return Some(failed_exit(&refusal)),
            };
        let parent = start.spawner.filter(|_| !span.is_disabled() && self.agents.is_child(&start));
        spans::record_agent(span, &agent, parent);
        let journal =
            if start.journal_len == 0 { Ok(Vec::new()) } else { self.load_journal().await };
        let journal = match journal {
            Ok(journal) => journal,
            Err(refusal) => return Some(failed_exit(&refusal)),
        };
        // No entry of the journal is of this run.
        let is_first = journal.is_empty();
        let link = self.agents.link(self.reporter.clone());
        // Recovery may start an agent while the runtime is still starting. It must not read the
        // shared state before that: the state would seem empty.
        tokio::select! {
            _ = link.runtime.wait() => {}
            () = self.reporter.inputs.closed() => {}
        }
        let stop = self.stop.child_token();
        let live_outputs = &self.agents.live_outputs;
        let live_output = live_outputs.open_for_agent(self.reporter.task, start.run, is_first);
        let host = AgentHost {
            link,
            blueprint,
            inbox: self.inbox.clone(),
            partial: partial.clone(),
            live_output,
            stop,
        };
        // Later attempts may have much to do before their first model call. A message that opens a run
        // is in the inbox only after the start of that run.
        let is_first_run = start.run == RunNo::FIRST;
        let input = AttemptInput {
            run: start.run,
            journal,
            parked_calls: start.parked_calls,
            skip_first_gate: is_first_run && start.skip_first_gate && start.journal_len == 0,
        };
        let running = RunningBackend { backend: backend.clone(), task_key: host.task_key() };
        // An attempt has one backend, so the cell is empty.
        let _ = self.backend.set(running);
        let run = BackendRun { agent: &agent, host: &host, input, partial };
        let exit = backend.run(run).await;
        Some(if self.inbox.is_concluded() { exit } else { correct_unreported_exit(exit, partial) })
    }

    /// Returns the report of an exit.
    async fn exit_report(&self, exit: AgentExit, partial: &PartialResult) -> Option<AttemptReport> {
        match exit {
            AgentExit::Refused(refusal) if refusal.kind == RefusalKind::Ended => {}
            exit => return exit_report(exit, partial),
        }
        // The task is being stopped. Otherwise another attempt has replaced this one, and goes on with
        // its remote work.
        let survivors = match self.is_stopped().await {
            true => self.end_remote_work().await,
            false => Vec::new(),
        };
        Some(stopped_report(partial, &self.inbox, survivors))
    }

    /// Waits until the agent is stopped. If an earlier attempt may have left remote work, only the
    /// backend can end it, so this attempt first gets as far as that.
    async fn wait_for_stop(&self) {
        self.stop.cancelled().await;
        if self.earlier == EarlierWork::Remote {
            let _ = tokio::time::timeout(BACKEND_TIMEOUT, self.backend.wait()).await;
        }
    }

    async fn end_remote_work(&self) -> Vec<String> {
        RunningBackend::end_remote_work(&self.backend, self.earlier).await
    }

    /// Returns true if the task of this attempt is being stopped, as its row says. The token may learn
    /// of it later.
    async fn is_stopped(&self) -> bool {
        if self.stop.is_cancelled() {
            return true;
        }
        let TaskId { session, no } = self.reporter.task;
        let found = retry_while_unavailable(&self.reporter, || async {
            let found = self.store.task(session, no).await;
            found.map_err(|error| crate::error::store_refusal(&error))
        });
        match found.await {
            Ok(Some(row)) => {
                let goes_on = matches!(row.state, TaskState::Queued(_) | TaskState::Waiting);
                row.attempt == self.reporter.attempt && !goes_on
            }
            _ => false,
        }
    }

    /// Returns the start in the agent's worktree, if it has one.
    async fn place_start(&self, start: StartAction) -> Result<StartAction, Refusal> {
        match &self.agents.worktrees {
            Some(worktrees) => worktrees.place_start(start, &self.reporter).await,
            None if start.spec.has_worktree() => {
                Err(Refusal::unavailable("worktrees need a runtime with processes"))
            }
            None => Ok(start),
        }
    }

    /// Loads the journal. Waits for a store that is unavailable, but not for a damaged one.
    async fn load_journal(&self) -> Result<Vec<JournalEntry>, Refusal> {
        let task = self.reporter.task;
        retry_while_unavailable(&self.reporter, || async {
            let journal = self.store.journal(task.session, task.no).await;
            journal.map_err(|error| {
                tracing::warn!(%error, "a journal cannot be read");
                crate::error::store_refusal(&error)
            })
        })
        .await
    }
}

/// Turns an exit that the host has no report of into a failure: the run has not ended and waits for
/// nothing, so it would stay silent forever.
fn correct_unreported_exit(exit: AgentExit, partial: &PartialResult) -> AgentExit {
    let failure: Arc<str> = match exit {
        AgentExit::Finished | AgentExit::Suspended => {
            "its backend returned before the run had ended or was suspended".into()
        }
        AgentExit::Refused(refusal)
            if matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Unknown) =>
        {
            refusal.to_string().into()
        }
        reported => return reported,
    };
    AgentExit::Failed { failure: Failure::error(failure), partial: partial.take() }
}

/// Returns the report of an exit that is not a stop.
fn exit_report(exit: AgentExit, partial: &PartialResult) -> Option<AttemptReport> {
    match exit {
        AgentExit::Finished | AgentExit::Suspended => None,
        AgentExit::Failed { failure, partial } => {
            Some(AttemptReport::Ended(WorkResult::Failed { failure, partial }.into()))
        }
        // The runtime shuts down. The next one continues from the stored state.
        AgentExit::Refused(refusal)
            if matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Unknown) =>
        {
            None
        }
        AgentExit::Refused(refusal) => {
            let failure = Failure::error(refusal.to_string());
            let partial = partial.take();
            Some(AttemptReport::Ended(WorkResult::Failed { failure, partial }.into()))
        }
    }
}

fn stopped_report(
    partial: &PartialResult,
    inbox: &InboxHandle,
    survivors: Vec<String>,
) -> AttemptReport {
    let partial = partial.take();
    let spent = Some(inbox.unrecorded_usage());
    let result = WorkResult::Stopped { partial, spent };
    AttemptReport::Ended(EndReport { result, confirmation: end_confirmation(survivors) })
}

fn failed_exit(refusal: &Refusal) -> AgentExit {
    AgentExit::Failed { failure: Failure::error(refusal.to_string()), partial: None }
}

fn panic_report(panic: &(dyn std::any::Any + Send), partial: &PartialResult) -> AttemptReport {
    let failure = Failure::Panic(panic_message(panic).into());
    let partial = partial.take();
    AttemptReport::Ended(WorkResult::Failed { failure, partial }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shutdown_of_the_runtime_reports_no_end() {
        let report = |refusal| exit_report(AgentExit::Refused(refusal), &PartialResult::default());
        assert_eq!(report(crate::error::shutdown_refusal()), None);
        assert_eq!(report(crate::error::in_doubt_refusal()), None);
        assert!(matches!(report(Refusal::internal("a defect")), Some(AttemptReport::Ended(_))));
    }
}
