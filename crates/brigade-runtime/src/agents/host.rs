//! What the loop of an agent is given by the runtime: its journal and its purse.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_agent::{
    BoxFuture, Cost, Host, Partial, Proceed, Progress, Record, Rest, SessionState,
};
use brigade_llm::TokenUsage;
use brigade_model::call::{Answer, Asked};
use brigade_model::command::{AfterPark, EndedHow, Reported, Written};
use brigade_model::decide::Reply;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::limits::Usage;
use brigade_model::refusal::{Refusal, RefusalKind};
use tokio::sync::Notify;

use super::link::{TaskLink, insist};
use super::spans::Spending;
use crate::performer::Reporter;

/// Bytes of the last words that are kept while an agent waits.
const PARTIAL_KEPT: usize = 300;

#[derive(Debug)]
pub(crate) struct AgentHost {
    link: TaskLink,
    inbox: Arc<Inbox>,
    partial: Partial,
}

/// What the loop of the runtime hands to an agent that is at work.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    inner: Mutex<Inner>,
    arrived: Notify,
    interrupted: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// Calls that wait. Of others nothing needs to be told: the agent wrote them down itself.
    open: BTreeSet<CallIndex>,
    answers: VecDeque<(CallIndex, Arc<Answer>)>,
    reporter: Option<Reporter>,
    /// What the model call under way has cost, as far as is known, until that is stored.
    spending: Usage,
    /// The entry by which it is.
    settled_by: Option<CallIndex>,
    /// Nothing more is to be said of the attempt: it has ended or waits, or there is nobody to be told.
    is_settled: bool,
    /// What all replies have cost.
    attempt: Spending,
}

impl Inbox {
    pub(crate) fn expecting(open: impl Iterator<Item = CallIndex>) -> Self {
        let inner = Inner { open: open.collect(), ..Inner::default() };
        Self { inner: Mutex::new(inner), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn speaks_for(&self, reporter: Reporter) {
        self.lock().reporter = Some(reporter);
    }

    pub(crate) fn reporter(&self) -> Option<Reporter> {
        self.lock().reporter.clone()
    }

    pub(crate) fn answered(&self, index: CallIndex, answer: Arc<Answer>) {
        let mut inner = self.lock();
        // Heard here and not from the answer to the report: a stop may come between the two.
        if inner.settled_by.take_if(|by| *by == index).is_some() {
            inner.spending = Usage::NONE;
        }
        if inner.open.remove(&index) {
            inner.answers.push_back((index, answer));
            self.arrived.notify_one();
        }
    }

    /// Whether whatever carries the agent out may leave without another word.
    pub(crate) fn is_settled(&self) -> bool {
        self.lock().is_settled
    }

    pub(crate) fn settle(&self) {
        self.lock().is_settled = true;
    }

    pub(crate) fn interrupt(&self) {
        self.interrupted.notify_one();
    }

    /// What was spent of what was set aside last.
    pub(crate) fn spent(&self) -> Usage {
        self.lock().spending
    }

    /// What this attempt has spent so far.
    pub(crate) fn spending(&self) -> Spending {
        self.lock().attempt
    }

    async fn next_answer(&self) -> (CallIndex, Arc<Answer>) {
        loop {
            let arrived = self.arrived.notified();
            if let Some(answer) = self.lock().answers.pop_front() {
                return answer;
            }
            arrived.await;
        }
    }
}

impl AgentHost {
    pub(crate) fn new(link: TaskLink, inbox: Arc<Inbox>, partial: Partial) -> Self {
        Self { link, inbox, partial }
    }

    /// Says something until it is heard.
    async fn report(&self, what: Reported) -> Result<Reply, Refusal> {
        let reporter = &self.link.reporter;
        let told = insist(reporter, || reporter.report(what.clone())).await;
        // The runtime goes away. What became of the agent is not ours to say: the next runtime goes
        // on from what is stored.
        let gone = [RefusalKind::Unavailable, RefusalKind::Unknown];
        if told.as_ref().is_err_and(|refusal| gone.contains(&refusal.kind)) {
            self.inbox.settle();
        }
        told
    }

    /// Writes down entries before something else. One of them may say what a model call has cost.
    fn after(&self, records: Vec<Record>, what: Reported) -> Reported {
        let paid = records.iter().find(|record| record.spent.is_some());
        if let Some(paid) = paid {
            self.inbox.lock().settled_by = Some(paid.index);
        }
        after(records, what)
    }
}

impl Host for AgentHost {
    fn proceed(
        &self,
        records: Vec<Record>,
        index: CallIndex,
        cost: Cost,
    ) -> BoxFuture<'_, Result<Proceed, Refusal>> {
        Box::pin(async move {
            self.inbox.lock().spending = Usage::NONE;
            let Cost { most, least } = cost;
            let what = self.after(records, Reported::Proceed { index, most, least });
            Ok(match self.report(what).await? {
                Reply::Gathered(news) => Proceed::News(news),
                Reply::Leave { amount, left } => Proceed::Granted { amount, left },
                Reply::Exhausted(limit) => Proceed::Exhausted(limit),
                other => return Err(unexpected(&other)),
            })
        })
    }

    fn record(&self, mut records: Vec<Record>) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let Some(last) = records.pop() else { return Ok(()) };
            if last.spent.is_some() {
                self.inbox.lock().settled_by = Some(last.index);
            }
            let what = self.after(records, Reported::Record(written(last)));
            self.report(what).await.map(|_| ())
        })
    }

    fn charge(&self, spent: Usage) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            self.report(Reported::Charge(spent)).await?;
            self.inbox.lock().spending = Usage::NONE;
            Ok(())
        })
    }

    fn park(&self, index: CallIndex, asked: Asked) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            // The answer may come before we hear that the call is parked.
            self.inbox.lock().open.insert(index);
            let (calls, then) = (vec![(index, asked)], AfterPark::GoOn);
            let parked = self.report(Reported::Park { calls, heard: u32::MAX, then }).await;
            if parked.is_err() {
                self.inbox.lock().open.remove(&index);
            }
            parked.map(|_| ())
        })
    }

    fn rest(&self, open: usize) -> BoxFuture<'_, Result<Rest, Refusal>> {
        Box::pin(async move {
            let arrived = self.inbox.lock().answers.pop_front();
            if let Some((index, answer)) = arrived {
                return Ok(Rest::Answered(index, answer));
            }
            let partial = self.partial.get().and_then(brief);
            match self.report(Reported::Rest { open, partial }).await? {
                Reply::Parked { suspended: true } => {
                    self.inbox.settle();
                    Ok(Rest::Suspended)
                }
                Reply::Parked { suspended: false } => {
                    let (index, answer) = self.inbox.next_answer().await;
                    Ok(Rest::Answered(index, answer))
                }
                other => Err(unexpected(&other)),
            }
        })
    }

    fn finish(&self, records: Vec<Record>, result: Json) -> BoxFuture<'_, Result<bool, Refusal>> {
        Box::pin(async move {
            let ended = Reported::Ended(EndedHow::Returned(result).into());
            match self.report(self.after(records, ended)).await {
                Ok(_) => {
                    self.inbox.settle();
                    Ok(true)
                }
                Err(refusal) if refusal.kind == RefusalKind::Conflict => Ok(false),
                Err(refusal) => Err(refusal),
            }
        })
    }

    fn session_state(&self) -> Arc<dyn SessionState> {
        Arc::new(self.link.clone())
    }

    fn interrupted(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.inbox.interrupted.notified())
    }

    fn spending(&self, known: Usage) {
        self.inbox.lock().spending = known;
    }

    fn replied(&self, tokens: &TokenUsage, cost: Usage) {
        let mut inner = self.inbox.lock();
        inner.attempt.add(tokens, cost);
        inner.spending = cost;
    }

    fn progress(&self, progress: Progress) {
        if let Ok(note) = Json::of(&progress) {
            self.link.reporter.mention(Reported::Progress(note));
        }
    }
}

fn after(records: Vec<Record>, what: Reported) -> Reported {
    if records.is_empty() {
        return what;
    }
    let records = records.into_iter().map(written).collect();
    Reported::After { records, what: Box::new(what) }
}

fn written(record: Record) -> Written {
    let Record { index, label, answer, spent, shared } = record;
    Written { spent, shared, ..Written::new(index, label, answer) }
}

/// What is kept of the last words of an agent that waits. Many do, and each has them in memory: whoever
/// ends one has no time to read its journal, and the conversation has the words whole.
fn brief(partial: Json) -> Option<Json> {
    if partial.as_str().len() <= PARTIAL_KEPT {
        return Some(partial);
    }
    let words: String = partial.decode().ok()?;
    let head = &words[..words.floor_char_boundary(PARTIAL_KEPT)];
    Json::of(&format!("{head} [cut: the first of {} bytes]", words.len())).ok()
}

fn unexpected(reply: &Reply) -> Refusal {
    Refusal::internal(format!("an agent was answered with {reply:?}"))
}
