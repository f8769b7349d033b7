//! The host of an agent: its journal, inbox and budget.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_agent::agent_program::ProgramHost;
use brigade_agent::{
    AgentOutput, AgentProgress, BoxFuture, CostEstimate, Host, JournalRecord, PartialResult,
    SessionStateReader, StepGrant, SuspendResult,
};
use brigade_llm::TokenUsage;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{AfterPark, AttemptReport, CallRecord, WorkResult};
use brigade_model::decide::CommandReply;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::limits::{LimitKind, Usage};
use brigade_model::refusal::{Refusal, RefusalKind};
use brigade_model::truncate::truncate_with_hint;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::blueprint::Blueprint;
use super::live_output::LiveOutput;
use super::programs::AgentPrograms;
use super::spans::AttemptSpending;
use super::task_link::TaskLink;
use crate::performer::Reporter;
use crate::performer::retry_while_unavailable;

/// The largest number of bytes of the last message that is stored while an agent is suspended.
const PARTIAL_MAX_BYTES: usize = 300;

#[derive(Debug)]
pub(crate) struct AgentHost {
    pub(crate) link: TaskLink,
    pub(crate) blueprint: Arc<Blueprint>,
    pub(crate) inbox: Arc<InboxHandle>,
    pub(crate) partial: PartialResult,
    pub(crate) live_output: Arc<LiveOutput>,
    pub(crate) stop: CancellationToken,
}

/// The completions, the reporter and the spending of a running attempt.
#[derive(Debug, Default)]
pub(crate) struct InboxHandle {
    inner: Mutex<InboxState>,
    arrived: Notify,
    interrupted: Notify,
}

#[derive(Debug, Default)]
struct InboxState {
    /// Parked calls. The agent recorded the completions of all other calls itself.
    parked_calls: BTreeSet<CallIndex>,
    completions: VecDeque<(CallIndex, Arc<CallCompletion>)>,
    reporter: Option<Reporter>,
    /// The known cost of the current model call, until it is stored.
    unrecorded_usage: Usage,
    /// The journal entry that stores it.
    usage_recorded_by: Option<CallIndex>,
    /// True if the attempt needs no further report: it has ended, is suspended, or has no receiver.
    is_concluded: bool,
    /// The tokens and the cost of all replies.
    attempt_spending: AttemptSpending,
}

impl InboxHandle {
    pub(crate) fn with_parked_calls(open: impl Iterator<Item = CallIndex>) -> Self {
        let inner = InboxState { parked_calls: open.collect(), ..InboxState::default() };
        Self { inner: Mutex::new(inner), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, InboxState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_reporter(&self, reporter: Reporter) {
        self.lock().reporter = Some(reporter);
    }

    pub(crate) fn reporter(&self) -> Option<Reporter> {
        self.lock().reporter.clone()
    }

    pub(crate) fn deliver_completion(&self, index: CallIndex, completion: Arc<CallCompletion>) {
        let mut inner = self.lock();
        // Cleared here and not by the reply to the report, since a stop may come between the two.
        if inner.usage_recorded_by.take_if(|by| *by == index).is_some() {
            inner.unrecorded_usage = Usage::NONE;
        }
        if inner.parked_calls.remove(&index) {
            inner.completions.push_back((index, completion));
            self.arrived.notify_one();
        }
    }

    /// Returns true if the backend may return without a further report.
    pub(crate) fn is_concluded(&self) -> bool {
        self.lock().is_concluded
    }

    pub(crate) fn conclude(&self) {
        self.lock().is_concluded = true;
    }

    pub(crate) fn interrupt(&self) {
        self.interrupted.notify_one();
    }

    /// Returns the known cost of the current model call that is not stored yet.
    pub(crate) fn unrecorded_usage(&self) -> Usage {
        self.lock().unrecorded_usage
    }

    /// Returns the spending of this attempt so far.
    pub(crate) fn attempt_spending(&self) -> AttemptSpending {
        self.lock().attempt_spending
    }

    async fn next_completion(&self) -> (CallIndex, Arc<CallCompletion>) {
        loop {
            let arrived = self.arrived.notified();
            if let Some(completed) = self.lock().completions.pop_front() {
                return completed;
            }
            arrived.await;
        }
    }
}

impl AgentHost {
    /// Submits a report, and retries while the store is unavailable.
    async fn report(&self, report: AttemptReport) -> Result<CommandReply, Refusal> {
        let reporter = &self.link.reporter;
        let has_records =
            matches!(report, AttemptReport::Record(_) | AttemptReport::WithRecords { .. });
        let result = retry_while_unavailable(reporter, || reporter.report(report.clone())).await;
        // The runtime shuts down. The next one continues from the stored state.
        let shutdown_kinds = [RefusalKind::Unavailable, RefusalKind::Unknown];
        if result.as_ref().is_err_and(|refusal| shutdown_kinds.contains(&refusal.kind)) {
            self.inbox.conclude();
        }
        if has_records && result.is_ok() {
            self.live_output.note_commit();
        }
        result
    }

    /// Returns a report that first stores records. One of them may hold the cost of a model call.
    fn with_records(&self, records: Vec<JournalRecord>, report: AttemptReport) -> AttemptReport {
        let charged = records.iter().find(|record| record.spent.is_some());
        if let Some(charged) = charged {
            self.inbox.lock().usage_recorded_by = Some(charged.index);
        }
        prepend_records(records, report)
    }
}

impl Host for AgentHost {
    fn begin_step(
        &self,
        records: Vec<JournalRecord>,
        index: CallIndex,
        cost: CostEstimate,
    ) -> BoxFuture<'_, Result<StepGrant, Refusal>> {
        Box::pin(async move {
            self.inbox.lock().unrecorded_usage = Usage::NONE;
            let report = self.with_records(records, AttemptReport::BeginStep { index, cost });
            Ok(match self.report(report).await? {
                CommandReply::InboxTaken(batch) => StepGrant::Inbox(batch),
                CommandReply::Reserved { amount, remaining } => {
                    StepGrant::Budget { amount, remaining }
                }
                CommandReply::Exhausted(limit) => StepGrant::Exhausted(limit),
                other => return Err(unexpected_host_reply(&other)),
            })
        })
    }

    fn check_lease(&self) -> Result<(), Refusal> {
        // Its next owner continues from the stored state.
        self.link.reporter.check_lease().inspect_err(|_| self.inbox.conclude())
    }

    fn record(&self, mut records: Vec<JournalRecord>) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let Some(last) = records.pop() else { return Ok(()) };
            if last.spent.is_some() {
                self.inbox.lock().usage_recorded_by = Some(last.index);
            }
            let report = self.with_records(records, AttemptReport::Record(to_call_record(last)));
            self.report(report).await.map(|_| ())
        })
    }

    fn charge(&self, spent: Usage) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            self.report(AttemptReport::Charge(spent)).await?;
            self.inbox.lock().unrecorded_usage = Usage::NONE;
            Ok(())
        })
    }

    fn park(
        &self,
        index: CallIndex,
        request: ConditionRequest,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            // The completion may arrive before the reply that the call is parked.
            self.inbox.lock().parked_calls.insert(index);
            let calls = vec![(index, request)];
            let then = AfterPark::Continue;
            let parked =
                self.report(AttemptReport::Park { calls, acked_entries: u32::MAX, then }).await;
            if parked.is_err() {
                self.inbox.lock().parked_calls.remove(&index);
            }
            parked.map(|_| ())
        })
    }

    fn abandon(&self, calls: Vec<CallIndex>) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            if calls.is_empty() {
                return Ok(());
            }
            {
                let mut inbox = self.inbox.lock();
                calls.iter().for_each(|index| {
                    inbox.parked_calls.remove(index);
                });
            }
            self.report(AttemptReport::Abandon { calls }).await.map(|_| ())
        })
    }

    fn find_exhausted_budget(
        &self,
        cost: CostEstimate,
    ) -> BoxFuture<'_, Result<Option<LimitKind>, Refusal>> {
        Box::pin(async move {
            match self.report(AttemptReport::Reserve(cost)).await? {
                CommandReply::Exhausted(limit) => Ok(Some(limit)),
                _ => Ok(None),
            }
        })
    }

    fn suspend(&self, open: usize) -> BoxFuture<'_, Result<SuspendResult, Refusal>> {
        Box::pin(async move {
            let arrived = self.inbox.lock().completions.pop_front();
            if let Some((index, completion)) = arrived {
                return Ok(SuspendResult::Completed(index, completion));
            }
            let partial = self.partial.get().and_then(truncate_partial);
            match self.report(AttemptReport::Suspend { parked_count: open, partial }).await? {
                CommandReply::Parked { suspended: true } => {
                    self.inbox.conclude();
                    Ok(SuspendResult::Suspended)
                }
                CommandReply::Parked { suspended: false } => {
                    let (index, completion) = self.inbox.next_completion().await;
                    Ok(SuspendResult::Completed(index, completion))
                }
                other => Err(unexpected_host_reply(&other)),
            }
        })
    }

    fn next_completion(&self) -> BoxFuture<'_, (CallIndex, Arc<CallCompletion>)> {
        Box::pin(self.inbox.next_completion())
    }

    fn finish(
        &self,
        records: Vec<JournalRecord>,
        result: Json,
    ) -> BoxFuture<'_, Result<bool, Refusal>> {
        Box::pin(async move {
            let ended = AttemptReport::Ended(WorkResult::Returned(result).into());
            match self.report(self.with_records(records, ended)).await {
                Ok(_) => {
                    self.inbox.conclude();
                    Ok(true)
                }
                Err(refusal) if refusal.kind == RefusalKind::Conflict => Ok(false),
                Err(refusal) => Err(refusal),
            }
        })
    }

    fn session_state(&self) -> Arc<dyn SessionStateReader> {
        Arc::new(self.link.clone())
    }

    fn programs(&self) -> Option<Arc<dyn ProgramHost>> {
        let link = self.link.clone();
        let blueprint = self.blueprint.clone();
        Some(Arc::new(AgentPrograms { link, blueprint }))
    }

    fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    fn task_key(&self) -> Arc<str> {
        let task = self.link.task();
        format!("{}/{}", task.session, task.no).into()
    }

    fn wait_for_interrupt(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inbox.interrupted.notified())
    }

    fn report_spending(&self, known: Usage) {
        self.inbox.lock().unrecorded_usage = known;
    }

    fn report_reply(&self, tokens: &TokenUsage, cost: Usage) {
        let mut inner = self.inbox.lock();
        inner.attempt_spending.add(tokens, cost);
        inner.unrecorded_usage = cost;
    }

    fn report_output(&self, output: AgentOutput) {
        self.live_output.publish(output);
    }

    fn report_progress(&self, progress: AgentProgress) {
        if let Ok(note) = Json::of(&progress) {
            self.link.reporter.try_report(AttemptReport::Progress(note));
        }
    }
}

fn prepend_records(records: Vec<JournalRecord>, report: AttemptReport) -> AttemptReport {
    if records.is_empty() {
        return report;
    }
    let records = records.into_iter().map(to_call_record).collect();
    AttemptReport::WithRecords { records, report: Box::new(report) }
}

fn to_call_record(record: JournalRecord) -> CallRecord {
    let JournalRecord { index, label, completion, spent, shared } = record;
    CallRecord { spent, shared_writes: shared, ..CallRecord::new(index, label, completion) }
}

/// Truncates the last message of an agent that is suspended. Many agents are, and each message is
/// in memory for a stop that has no time to read the journal. The transcript has the whole message.
fn truncate_partial(partial: Json) -> Option<Json> {
    if partial.as_str().len() <= PARTIAL_MAX_BYTES {
        return Some(partial);
    }
    let message: String = partial.decode().ok()?;
    Json::of(&truncate_with_hint(&message, PARTIAL_MAX_BYTES, "The message", "")).ok()
}

fn unexpected_host_reply(reply: &CommandReply) -> Refusal {
    Refusal::internal(format!("a report of an agent got the reply {reply:?}"))
}
