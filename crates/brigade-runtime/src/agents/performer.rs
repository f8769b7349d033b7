//! The performer of agents.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_agent::{AgentExit, AttemptInput, BackendRun, PartialResult};
use brigade_model::action::StartAction;
use brigade_model::call::JournalEntry;
use brigade_model::command::{AttemptReport, EndReport, WorkResult};
use brigade_model::ids::Attempt;
use brigade_model::outcome::{Failure, panic_message};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::TaskRow;
use brigade_store::{BoxFuture, Store};
use futures_util::FutureExt;
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

/// The time that a shutdown waits for futures that do not yield.
const HALT_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct AgentPerformer {
    agents: Arc<AgentServices>,
    store: Arc<dyn Store>,
    running: Arc<RunningAgents>,
    tracker: TaskTracker,
}

/// Agents that run. A suspended agent has no entry.
type RunningAgents = Mutex<HashMap<TaskId, RunningAgent>>;

#[derive(Debug)]
struct RunningAgent {
    attempt: Attempt,
    inbox: Arc<InboxHandle>,
    stop: CancellationToken,
    driver: Option<JoinHandle<()>>,
}

impl AgentPerformer {
    pub(crate) fn new(agents: Arc<AgentServices>, store: Arc<dyn Store>) -> Self {
        Self { agents, store, running: Arc::default(), tracker: TaskTracker::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, RunningAgent>> {
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
        let driver = AgentDriver {
            agents: self.agents.clone(),
            store: self.store.clone(),
            running: self.running.clone(),
            inbox: inbox.clone(),
            stop: stop.clone(),
            reporter,
        };
        // The agent is inserted before the lock is released, so that its driver can remove it.
        let driver = self.tracker.spawn(driver.run(start));
        running.insert(task, RunningAgent { attempt, inbox, stop, driver: Some(driver) });
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
                self.tracker.spawn(async move {
                    // A future that does not yield ends only when it returns.
                    let _ = driver.await;
                    remove_agent(&running, task, attempt);
                    if let Some(reporter) = reporter {
                        reporter.post(AttemptReport::Ended(WorkResult::Aborted.into())).await;
                    }
                });
            }
            StopMode::Release => {}
        }
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
            () = self.stop.cancelled() => {
                record_end(AttemptEnd::Stopped);
                Some(stopped_report(&partial, &self.inbox))
            }
            worked = AssertUnwindSafe(work).catch_unwind() => match worked {
                Ok(exit) => {
                    record_end(exit.as_ref().map_or(AttemptEnd::NotStarted, AttemptEnd::Exit));
                    exit.and_then(|exit| exit_report(exit, &partial, &self.inbox))
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
        // Later attempts may have much to do before their first model call.
        let input = AttemptInput {
            run: start.run,
            journal,
            parked_calls: start.parked_calls,
            skip_first_gate: start.skip_first_gate && start.journal_len == 0,
        };
        let run = BackendRun { agent: &agent, host: &host, input, partial };
        let exit = backend.run(run).await;
        Some(if self.inbox.is_concluded() { exit } else { correct_unreported_exit(exit, partial) })
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

fn exit_report(
    exit: AgentExit,
    partial: &PartialResult,
    inbox: &InboxHandle,
) -> Option<AttemptReport> {
    match exit {
        AgentExit::Finished | AgentExit::Suspended => None,
        AgentExit::Failed { failure, partial } => {
            Some(AttemptReport::Ended(WorkResult::Failed { failure, partial }.into()))
        }
        // The task is being stopped, or another attempt has replaced this one.
        AgentExit::Refused(refusal) if refusal.kind == RefusalKind::Ended => {
            Some(stopped_report(partial, inbox))
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

fn stopped_report(partial: &PartialResult, inbox: &InboxHandle) -> AttemptReport {
    let partial = partial.take();
    let spent = Some(inbox.unrecorded_usage());
    AttemptReport::Ended(EndReport::from(WorkResult::Stopped { partial, spent }))
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
    use brigade_model::limits::Usage;

    use super::*;

    #[test]
    fn a_shutdown_of_the_runtime_reports_no_end() {
        let report = |refusal| {
            let inbox = InboxHandle::with_parked_calls(std::iter::empty());
            exit_report(AgentExit::Refused(refusal), &PartialResult::default(), &inbox)
        };
        assert_eq!(report(crate::error::shutdown_refusal()), None);
        assert_eq!(report(crate::error::in_doubt_refusal()), None);
        let ended = report(Refusal::ended("it is stopping"));
        let result = WorkResult::Stopped { partial: None, spent: Some(Usage::NONE) };
        assert_eq!(ended, Some(AttemptReport::Ended(result.into())));
        assert!(matches!(report(Refusal::internal("a defect")), Some(AttemptReport::Ended(_))));
    }
}
