//! What the loop of an agent is given by the runtime: its journal and its purse.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_agent::{
    AgentProgress, BoxFuture, CostEstimate, Host, JournalRecord, PartialResult, SessionStateReader,
    StepGrant, SuspendResult,
};
use brigade_llm::TokenUsage;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{AfterPark, AttemptReport, CallRecord, WorkResult};
use brigade_model::decide::CommandReply;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::limits::Usage;
use brigade_model::refusal::{Refusal, RefusalKind};
use tokio::sync::Notify;

use super::spans::AttemptSpending;
use super::task_link::{TaskLink, retry_while_unavailable};
use crate::performer::Reporter;

/// Bytes of the last words that are kept while an agent waits.
const PARTIAL_MAX_BYTES: usize = 300;

#[derive(Debug)]
pub(crate) struct AgentHost {
    link: TaskLink,
    inbox: Arc<InboxHandle>,
    partial: PartialResult,
}

/// What the loop of the runtime hands to an agent that is at work.
#[derive(Debug, Default)]
pub(crate) struct InboxHandle {
    inner: Mutex<InboxState>,
    arrived: Notify,
    interrupted: Notify,
}

#[derive(Debug, Default)]
struct InboxState {
    /// Calls that wait. Of others nothing needs to be told: the agent wrote them down itself.
    parked_calls: BTreeSet<CallIndex>,
    completions: VecDeque<(CallIndex, Arc<CallCompletion>)>,
    reporter: Option<Reporter>,
    /// What the model call under way has cost, as far as is known, until that is stored.
    unrecorded_usage: Usage,
    /// The entry by which it is.
    usage_recorded_by: Option<CallIndex>,
    /// Nothing more is to be said of the attempt: it has ended or waits, or there is nobody to be told.
    is_concluded: bool,
    /// What all replies have cost.
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

    pub(crate) fn deliver_completion(&self, index: CallIndex, answer: Arc<CallCompletion>) {
        let mut inner = self.lock();
        // Heard here and not from the answer to the report: a stop may come between the two.
        if inner.usage_recorded_by.take_if(|by| *by == index).is_some() {
            inner.unrecorded_usage = Usage::NONE;
        }
        if inner.parked_calls.remove(&index) {
            inner.completions.push_back((index, answer));
            self.arrived.notify_one();
        }
    }

    /// Whether whatever carries the agent out may leave without another word.
    pub(crate) fn is_concluded(&self) -> bool {
        self.lock().is_concluded
    }

    pub(crate) fn conclude(&self) {
        self.lock().is_concluded = true;
    }

    pub(crate) fn interrupt(&self) {
        self.interrupted.notify_one();
    }

    /// What was spent of what was set aside last.
    pub(crate) fn unrecorded_usage(&self) -> Usage {
        self.lock().unrecorded_usage
    }

    /// What this attempt has spent so far.
    pub(crate) fn attempt_spending(&self) -> AttemptSpending {
        self.lock().attempt_spending
    }

    async fn next_completion(&self) -> (CallIndex, Arc<CallCompletion>) {
        loop {
            let arrived = self.arrived.notified();
            if let Some(answer) = self.lock().completions.pop_front() {
                return answer;
            }
            arrived.await;
        }
    }
}

impl AgentHost {
    pub(crate) fn new(link: TaskLink, inbox: Arc<InboxHandle>, partial: PartialResult) -> Self {
        Self { link, inbox, partial }
    }

    /// Says something until it is heard.
    async fn report(&self, what: AttemptReport) -> Result<CommandReply, Refusal> {
        let reporter = &self.link.reporter;
        let told = retry_while_unavailable(reporter, || reporter.report(what.clone())).await;
        // The runtime goes away. What became of the agent is not ours to say: the next runtime goes
        // on from what is stored.
        let gone = [RefusalKind::Unavailable, RefusalKind::Unknown];
        if told.as_ref().is_err_and(|refusal| gone.contains(&refusal.kind)) {
            self.inbox.conclude();
        }
        told
    }

    /// Writes down entries before something else. One of them may say what a model call has cost.
    fn with_records(&self, records: Vec<JournalRecord>, what: AttemptReport) -> AttemptReport {
        let paid = records.iter().find(|record| record.spent.is_some());
        if let Some(paid) = paid {
            self.inbox.lock().usage_recorded_by = Some(paid.index);
        }
        prepend_records(records, what)
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
            let CostEstimate { max: most, min: least } = cost;
            let what = self
                .with_records(records, AttemptReport::BeginStep { index, max: most, min: least });
            Ok(match self.report(what).await? {
                CommandReply::InboxTaken(news) => StepGrant::Inbox(news),
                CommandReply::Reserved { amount, remaining: left } => {
                    StepGrant::Budget { amount, remaining: left }
                }
                CommandReply::Exhausted(limit) => StepGrant::Exhausted(limit),
                other => return Err(unexpected_host_reply(&other)),
            })
        })
    }

    fn record(&self, mut records: Vec<JournalRecord>) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let Some(last) = records.pop() else { return Ok(()) };
            if last.spent.is_some() {
                self.inbox.lock().usage_recorded_by = Some(last.index);
            }
            let what = self.with_records(records, AttemptReport::Record(to_call_record(last)));
            self.report(what).await.map(|_| ())
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
        asked: ConditionRequest,
    ) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            // The answer may come before we hear that the call is parked.
            self.inbox.lock().parked_calls.insert(index);
            let (calls, then) = (vec![(index, asked)], AfterPark::Continue);
            let parked =
                self.report(AttemptReport::Park { calls, acked_entries: u32::MAX, then }).await;
            if parked.is_err() {
                self.inbox.lock().parked_calls.remove(&index);
            }
            parked.map(|_| ())
        })
    }

    fn suspend(&self, open: usize) -> BoxFuture<'_, Result<SuspendResult, Refusal>> {
        Box::pin(async move {
            let arrived = self.inbox.lock().completions.pop_front();
            if let Some((index, answer)) = arrived {
                return Ok(SuspendResult::Completed(index, answer));
            }
            let partial = self.partial.get().and_then(truncate_partial);
            match self.report(AttemptReport::Suspend { parked_count: open, partial }).await? {
                CommandReply::Parked { suspended: true } => {
                    self.inbox.conclude();
                    Ok(SuspendResult::Suspended)
                }
                CommandReply::Parked { suspended: false } => {
                    let (index, answer) = self.inbox.next_completion().await;
                    Ok(SuspendResult::Completed(index, answer))
                }
                other => Err(unexpected_host_reply(&other)),
            }
        })
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

    fn report_progress(&self, progress: AgentProgress) {
        if let Ok(note) = Json::of(&progress) {
            self.link.reporter.try_report(AttemptReport::Progress(note));
        }
    }
}

fn prepend_records(records: Vec<JournalRecord>, what: AttemptReport) -> AttemptReport {
    if records.is_empty() {
        return what;
    }
    let records = records.into_iter().map(to_call_record).collect();
    AttemptReport::WithRecords { records, report: Box::new(what) }
}

fn to_call_record(record: JournalRecord) -> CallRecord {
    let JournalRecord { index, label, completion: answer, spent, shared } = record;
    CallRecord { spent, shared_writes: shared, ..CallRecord::new(index, label, answer) }
}

/// What is kept of the last words of an agent that waits. Many do, and each has them in memory: whoever
/// ends one has no time to read its journal, and the conversation has the words whole.
fn truncate_partial(partial: Json) -> Option<Json> {
    if partial.as_str().len() <= PARTIAL_MAX_BYTES {
        return Some(partial);
    }
    let words: String = partial.decode().ok()?;
    let head = &words[..words.floor_char_boundary(PARTIAL_MAX_BYTES)];
    Json::of(&format!("{head} [cut: the first of {} bytes]", words.len())).ok()
}

fn unexpected_host_reply(reply: &CommandReply) -> Refusal {
    Refusal::internal(format!("an agent was answered with {reply:?}"))
}
