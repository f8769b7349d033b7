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
use brigade_model::outcome::Failure;
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::task::TaskRow;
use brigade_store::{BoxFuture, Store};
use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span};

use super::host::{AgentHost, InboxHandle};
use super::services::AgentServices;
use super::spans::{self, AttemptEnd};
use super::task_link::retry_while_unavailable;
use crate::performer::{Delivery, Performer, ReconcileResult, Reporter, StopMode, TaskId};

/// How long leaving waits for futures that do not yield.
const HALT_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct AgentPerformer {
    agents: Arc<AgentServices>,
    store: Arc<dyn Store>,
    running: Arc<RunningAgents>,
    tracker: TaskTracker,
}

/// Agents that are at work. One that waits has nothing here.
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

/// Forgets an agent, unless a later attempt has taken its place.
fn remove_agent(live: &RunningAgents, task: TaskId, attempt: Attempt) {
    let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
    if live.get(&task).is_some_and(|agent| agent.attempt == attempt) {
        live.remove(&task);
    }
}

impl Performer for AgentPerformer {
    fn start(&self, start: StartAction, reporter: Reporter) {
        let (task, attempt) = (reporter.task, start.attempt);
        let mut live = self.lock();
        if live.get(&task).is_some_and(|agent| agent.attempt == attempt) {
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
        // The agent is known before its driver runs, so that the driver can forget it.
        let driver = self.tracker.spawn(driver.run(start));
        live.insert(task, RunningAgent { attempt, inbox, stop, driver: Some(driver) });
    }

    fn deliver(&self, task: TaskId, attempt: Attempt, delivery: Delivery) {
        let live = self.lock();
        // An agent that waits is not in memory. The answer is in its journal, with which it is entered again.
        let Some(agent) = live.get(&task).filter(|agent| agent.attempt == attempt) else { return };
        match delivery {
            Delivery::Completion { index, answer, .. } => {
                agent.inbox.deliver_completion(index, answer)
            }
            Delivery::Interrupt => agent.inbox.interrupt(),
            Delivery::Message(_) => {}
        }
    }

    fn stop(&self, task: TaskId, how: StopMode) {
        let mut live = self.lock();
        let Some(agent) = live.get_mut(&task) else { return };
        match how {
            StopMode::Graceful { .. } => agent.stop.cancel(),
            StopMode::Forced { attempt } => {
                let Some(driver) = agent.driver.take() else { return };
                let reporter = agent.inbox.reporter();
                driver.abort();
                let live = self.running.clone();
                self.tracker.spawn(async move {
                    // A future that does not yield is gone only when it returns.
                    let _ = driver.await;
                    remove_agent(&live, task, attempt);
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

/// Carries one attempt of an agent.
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
        let ended = |ending| spans::record_end(&span, &ending, self.inbox.attempt_spending());
        let work = self.run_attempt(start, &partial, &span).instrument(span.clone());
        let what = tokio::select! {
            biased;
            () = self.stop.cancelled() => {
                ended(AttemptEnd::Stopped);
                Some(stopped_report(&partial, &self.inbox))
            }
            worked = AssertUnwindSafe(work).catch_unwind() => match worked {
                Ok(exit) => {
                    ended(exit.as_ref().map_or(AttemptEnd::NotStarted, AttemptEnd::Exit));
                    exit.and_then(|exit| exit_report(exit, &partial, &self.inbox))
                }
                Err(panic) => {
                    ended(AttemptEnd::Panicked);
                    Some(panic_report(&*panic, &partial))
                }
            },
        };
        drop(span);
        remove_agent(&self.running, self.reporter.task, self.reporter.attempt);
        if let Some(what) = what {
            self.reporter.post(what).await;
        }
    }

    /// `None` when nobody here can do it, and that has been said.
    async fn run_attempt(
        &self,
        start: StartAction,
        partial: &PartialResult,
        span: &Span,
    ) -> Option<AgentExit> {
        let (agent, backend) = match self.agents.build(&start, self.reporter.clone()) {
            Ok(agent) => agent,
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
        let link = self.agents.link(self.reporter.clone());
        // An agent may be begun while the runtime still starts. What its session shares is not to be
        // seen before: it would be taken for nothing.
        tokio::select! {
            _ = link.runtime.wait() => {}
            () = self.reporter.inputs.closed() => {}
        }
        let host = AgentHost::new(link, self.inbox.clone(), partial.clone());
        // Later attempts may have much to do before they ask the model.
        let at_leave = start.skip_first_gate && start.journal_len == 0;
        let begun = AttemptInput {
            run: start.run,
            journal,
            parked_calls: start.parked_calls,
            skip_first_gate: at_leave,
        };
        let run = BackendRun { agent: &agent, host: &host, input: begun, partial };
        let exit = backend.run(run).await;
        Some(if self.inbox.is_concluded() { exit } else { correct_unreported_exit(exit, partial) })
    }

    /// What is written down. A store that is away is waited for; one that is damaged is not.
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

/// What an exit means of which the host has not heard: the run has not ended and waits for nothing, so
/// that nothing would ever be heard of it again.
fn correct_unreported_exit(exit: AgentExit, partial: &PartialResult) -> AgentExit {
    let failure: Arc<str> = match exit {
        AgentExit::Finished | AgentExit::Suspended => {
            "what carries it out left before the run had ended or waited for anything".into()
        }
        AgentExit::Refused(refusal)
            if matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Unknown) =>
        {
            refusal.to_string().into()
        }
        told => return told,
    };
    AgentExit::Failed { failure: Failure::Error(failure), partial: partial.take() }
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
        // It was told to end, or another attempt has taken its place.
        AgentExit::Refused(refusal) if refusal.kind == RefusalKind::Ended => {
            Some(stopped_report(partial, inbox))
        }
        // The runtime goes away. What became of the agent is not ours to say: the next runtime goes
        // on from what is stored.
        AgentExit::Refused(refusal)
            if matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Unknown) =>
        {
            None
        }
        AgentExit::Refused(refusal) => {
            let failure = Failure::Error(refusal.to_string().into());
            let partial = partial.take();
            Some(AttemptReport::Ended(WorkResult::Failed { failure, partial }.into()))
        }
    }
}

fn stopped_report(partial: &PartialResult, inbox: &InboxHandle) -> AttemptReport {
    let (partial, spent) = (partial.take(), Some(inbox.unrecorded_usage()));
    AttemptReport::Ended(EndReport::from(WorkResult::Stopped { partial, spent }))
}

fn failed_exit(refusal: &Refusal) -> AgentExit {
    AgentExit::Failed { failure: Failure::Error(refusal.to_string().into()), partial: None }
}

fn panic_report(panic: &(dyn std::any::Any + Send), partial: &PartialResult) -> AttemptReport {
    let failure = Failure::Panic(crate::jobs::panic_message(panic));
    let partial = partial.take();
    AttemptReport::Ended(WorkResult::Failed { failure, partial }.into())
}

#[cfg(test)]
mod tests {
    use brigade_model::limits::Usage;

    use super::*;

    #[test]
    fn a_runtime_that_goes_away_is_no_ending() {
        let told = |refusal| {
            let inbox = InboxHandle::with_parked_calls(std::iter::empty());
            exit_report(AgentExit::Refused(refusal), &PartialResult::default(), &inbox)
        };
        assert_eq!(told(crate::error::shutdown_refusal()), None);
        assert_eq!(told(crate::error::in_doubt_refusal()), None);
        let ended = told(Refusal::ended("it is stopping"));
        let how = WorkResult::Stopped { partial: None, spent: Some(Usage::NONE) };
        assert_eq!(ended, Some(AttemptReport::Ended(how.into())));
        assert!(matches!(told(Refusal::internal("a defect")), Some(AttemptReport::Ended(_))));
    }
}
