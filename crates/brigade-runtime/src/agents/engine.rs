//! The performer of agents.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brigade_agent::{BackendRun, Begun, Exit, Partial};
use brigade_model::action::Start;
use brigade_model::call::Entry;
use brigade_model::command::{End, EndedHow, Reported};
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

use super::common::Agents;
use super::host::{AgentHost, Inbox};
use super::link::insist;
use super::spans::{self, Ending};
use crate::performer::{Delivery, Performer, Reconciled, Reporter, StopHow, TaskId};

/// How long leaving waits for futures that do not yield.
const HALT_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct AgentEngine {
    agents: Arc<Agents>,
    store: Arc<dyn Store>,
    live: Arc<Live>,
    tracker: TaskTracker,
}

/// Agents that are at work. One that waits has nothing here.
type Live = Mutex<HashMap<TaskId, LiveAgent>>;

#[derive(Debug)]
struct LiveAgent {
    attempt: Attempt,
    inbox: Arc<Inbox>,
    stop: CancellationToken,
    driver: Option<JoinHandle<()>>,
}

impl AgentEngine {
    pub(crate) fn new(agents: Arc<Agents>, store: Arc<dyn Store>) -> Self {
        Self { agents, store, live: Arc::default(), tracker: TaskTracker::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, LiveAgent>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets an agent, unless a later attempt has taken its place.
fn remove(live: &Live, task: TaskId, attempt: Attempt) {
    let mut live = live.lock().unwrap_or_else(PoisonError::into_inner);
    if live.get(&task).is_some_and(|agent| agent.attempt == attempt) {
        live.remove(&task);
    }
}

impl Performer for AgentEngine {
    fn start(&self, start: Start, reporter: Reporter) {
        let (task, attempt) = (reporter.task, start.attempt);
        let mut live = self.lock();
        if live.get(&task).is_some_and(|agent| agent.attempt == attempt) {
            return;
        }
        let inbox = Arc::new(Inbox::expecting(start.open.iter().map(|call| call.index)));
        let stop = CancellationToken::new();
        let driver = Driver {
            agents: self.agents.clone(),
            store: self.store.clone(),
            live: self.live.clone(),
            inbox: inbox.clone(),
            stop: stop.clone(),
            reporter,
        };
        // The agent is known before its driver runs, so that the driver can forget it.
        let driver = self.tracker.spawn(driver.run(start));
        live.insert(task, LiveAgent { attempt, inbox, stop, driver: Some(driver) });
    }

    fn deliver(&self, task: TaskId, attempt: Attempt, delivery: Delivery) {
        let live = self.lock();
        // An agent that waits is not in memory. The answer is in its journal, with which it is entered again.
        let Some(agent) = live.get(&task).filter(|agent| agent.attempt == attempt) else { return };
        match delivery {
            Delivery::Answer { index, answer, .. } => agent.inbox.answered(index, answer),
            Delivery::Interrupt => agent.inbox.interrupt(),
            Delivery::Message(_) => {}
        }
    }

    fn stop(&self, task: TaskId, how: StopHow) {
        let mut live = self.lock();
        let Some(agent) = live.get_mut(&task) else { return };
        match how {
            StopHow::Kindly { .. } => agent.stop.cancel(),
            StopHow::Firmly { attempt } => {
                let Some(driver) = agent.driver.take() else { return };
                let reporter = agent.inbox.reporter();
                driver.abort();
                let live = self.live.clone();
                self.tracker.spawn(async move {
                    // A future that does not yield is gone only when it returns.
                    let _ = driver.await;
                    remove(&live, task, attempt);
                    if let Some(reporter) = reporter {
                        reporter.post(Reported::Ended(EndedHow::Aborted.into())).await;
                    }
                });
            }
            StopHow::Forget => {}
        }
    }

    fn reconcile<'a>(
        &'a self,
        _task: TaskId,
        _row: &'a TaskRow,
        _reporter: Reporter,
    ) -> BoxFuture<'a, Reconciled> {
        let evidence = "an agent does not outlive its process".into();
        Box::pin(std::future::ready(Reconciled::Lost { evidence }))
    }

    fn halt(&self) -> BoxFuture<'_, ()> {
        for (_, agent) in self.lock().drain() {
            if let Some(driver) = agent.driver {
                driver.abort();
            }
        }
        self.tracker.close();
        Box::pin(async {
            let _ = tokio::time::timeout(HALT_PATIENCE, self.tracker.wait()).await;
            self.agents.mcp_servers.close().await;
        })
    }
}

/// Carries one attempt of an agent.
struct Driver {
    agents: Arc<Agents>,
    store: Arc<dyn Store>,
    live: Arc<Live>,
    inbox: Arc<Inbox>,
    stop: CancellationToken,
    reporter: Reporter,
}

impl Driver {
    async fn run(self, start: Start) {
        self.inbox.speaks_for(self.reporter.clone());
        let partial = Partial::default();
        let span = spans::invoke_agent(&start, self.reporter.task);
        let ended = |ending| spans::ended(&span, &ending, self.inbox.spending());
        let work = self.work(start, &partial, &span).instrument(span.clone());
        let what = tokio::select! {
            biased;
            () = self.stop.cancelled() => {
                ended(Ending::Stopped);
                Some(cut_short(&partial, &self.inbox))
            }
            worked = AssertUnwindSafe(work).catch_unwind() => match worked {
                Ok(exit) => {
                    ended(exit.as_ref().map_or(Ending::NotBegun, Ending::Exit));
                    exit.and_then(|exit| report_of(exit, &partial, &self.inbox))
                }
                Err(panic) => {
                    ended(Ending::Panicked);
                    Some(panicked(&*panic, &partial))
                }
            },
        };
        drop(span);
        remove(&self.live, self.reporter.task, self.reporter.attempt);
        if let Some(what) = what {
            self.reporter.post(what).await;
        }
    }

    /// `None` when nobody here can do it, and that has been said.
    async fn work(&self, start: Start, partial: &Partial, span: &Span) -> Option<Exit> {
        let (agent, backend) = match self.agents.build(&start, self.reporter.clone()) {
            Ok(agent) => agent,
            Err(refusal) if refusal.kind == RefusalKind::Unavailable => {
                let reason = refusal.message.into();
                self.reporter.post(Reported::NoPerformer { reason }).await;
                return None;
            }
            Err(refusal) => return Some(failed(&refusal)),
        };
        let parent = start.spawner.filter(|_| !span.is_disabled() && self.agents.is_child(&start));
        spans::is_at_work(span, &agent, parent);
        let journal = if start.journal == 0 { Ok(Vec::new()) } else { self.journal().await };
        let journal = match journal {
            Ok(journal) => journal,
            Err(refusal) => return Some(failed(&refusal)),
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
        let at_leave = start.at_leave && start.journal == 0;
        let begun = Begun { run: start.run, journal, open: start.open, at_leave };
        let run = BackendRun { agent: &agent, host: &host, begun, partial };
        let exit = backend.run(run).await;
        Some(if self.inbox.is_settled() { exit } else { truthful(exit, partial) })
    }

    /// What is written down. A store that is away is waited for; one that is damaged is not.
    async fn journal(&self) -> Result<Vec<Entry>, Refusal> {
        let task = self.reporter.task;
        insist(&self.reporter, || async {
            let journal = self.store.journal(task.tree, task.no).await;
            journal.map_err(|error| {
                tracing::warn!(%error, "a journal cannot be read");
                crate::error::refusal(&error)
            })
        })
        .await
    }
}

/// What an exit means of which the host has not heard: the run has not ended and waits for nothing, so
/// that nothing would ever be heard of it again.
fn truthful(exit: Exit, partial: &Partial) -> Exit {
    let failure: Arc<str> = match exit {
        Exit::Finished | Exit::Suspended => {
            "what carries it out left before the run had ended or waited for anything".into()
        }
        Exit::Over(refusal)
            if matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Unknown) =>
        {
            refusal.to_string().into()
        }
        told => return told,
    };
    Exit::Failed { failure: Failure::Error(failure), partial: partial.take() }
}

fn report_of(exit: Exit, partial: &Partial, inbox: &Inbox) -> Option<Reported> {
    match exit {
        Exit::Finished | Exit::Suspended => None,
        Exit::Failed { failure, partial } => {
            Some(Reported::Ended(EndedHow::Failed { failure, partial }.into()))
        }
        // It was told to end, or another attempt has taken its place.
        Exit::Over(refusal) if refusal.kind == RefusalKind::Ended => {
            Some(cut_short(partial, inbox))
        }
        // The runtime goes away. What became of the agent is not ours to say: the next runtime goes
        // on from what is stored.
        Exit::Over(refusal)
            if matches!(refusal.kind, RefusalKind::Unavailable | RefusalKind::Unknown) =>
        {
            None
        }
        Exit::Over(refusal) => {
            let failure = Failure::Error(refusal.to_string().into());
            let partial = partial.take();
            Some(Reported::Ended(EndedHow::Failed { failure, partial }.into()))
        }
    }
}

fn cut_short(partial: &Partial, inbox: &Inbox) -> Reported {
    let (partial, spent) = (partial.take(), Some(inbox.spent()));
    Reported::Ended(End::from(EndedHow::CutShort { partial, spent }))
}

fn failed(refusal: &Refusal) -> Exit {
    Exit::Failed { failure: Failure::Error(refusal.to_string().into()), partial: None }
}

fn panicked(panic: &(dyn std::any::Any + Send), partial: &Partial) -> Reported {
    let failure = Failure::Panic(crate::jobs::panic_message(panic));
    let partial = partial.take();
    Reported::Ended(EndedHow::Failed { failure, partial }.into())
}

#[cfg(test)]
mod tests {
    use brigade_model::limits::Usage;

    use super::*;

    #[test]
    fn a_runtime_that_goes_away_is_no_ending() {
        let told = |refusal| {
            let inbox = Inbox::expecting(std::iter::empty());
            report_of(Exit::Over(refusal), &Partial::default(), &inbox)
        };
        assert_eq!(told(crate::error::gone()), None);
        assert_eq!(told(crate::error::in_doubt()), None);
        let ended = told(Refusal::ended("it is stopping"));
        let how = EndedHow::CutShort { partial: None, spent: Some(Usage::NONE) };
        assert_eq!(ended, Some(Reported::Ended(how.into())));
        assert!(matches!(told(Refusal::internal("a defect")), Some(Reported::Ended(_))));
    }
}
