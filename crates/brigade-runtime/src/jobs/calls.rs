//! The calls of one attempt of a job.
//!
//! Each call has the next index. A completion is an entry of the journal, and the job gets the
//! entries in order, one at a time: it is polled after each before it gets the next. A job that is
//! entered again gets the same entries in the same order. A job that waited for two calls at once
//! therefore takes the same branch again.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use brigade_model::action::StartAction;
use brigade_model::call::{CallCompletion, ConditionRequest, JournalEntry, ParkedCall};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::refusal::Refusal;

/// The calls of a job, shared by its driver, its context and the performer.
#[derive(Debug, Default)]
pub(crate) struct JobCalls {
    inner: Mutex<CallTable>,
}

#[derive(Debug, Default)]
struct CallTable {
    next: u32,
    /// Journal entries that are to be replayed.
    replay: VecDeque<NumberedEntry>,
    /// The number of journal entries that were loaded, with those that are not replayed.
    loaded_entries: u32,
    /// The number of tries of the job as a whole that failed in this run.
    failed_tries: u32,
    /// The number of journal entries that the job has processed.
    processed_entries: u32,
    /// The number of processed entries that were acknowledged to the model.
    acked_entries: u32,
    /// The recorded label of each index, until its call is begun.
    recorded: BTreeMap<CallIndex, EntryLabel>,
    /// Calls that were parked before this attempt started.
    parked_before: BTreeMap<CallIndex, EntryLabel>,
    waiting: BTreeMap<CallIndex, PendingCall>,
    /// Entries that arrived during this attempt, in order, which the job has not processed.
    arrived: VecDeque<ArrivedEntry>,
    /// Completions of calls that were parked before and that the job has not begun again yet.
    early_completions: BTreeMap<CallIndex, Arc<CallCompletion>>,
    driver: Option<Waker>,
    /// New calls that wait until the replay is over.
    held_back: Vec<Waker>,
    held_back_released: bool,
    to_park: Vec<(CallIndex, ConditionRequest)>,
    abandoned_calls: Vec<CallIndex>,
    /// The number of calls that the job itself executes. It is not suspended while there are any.
    running_calls: usize,
    /// True if the model announced a completion, so that another request to suspend is pointless.
    completion_expected: bool,
    delivered_count: u64,
    /// True while the job's future is dropped, so that dropped calls mean nothing.
    closed: bool,
    stopped: bool,
}

/// The call index of the pause before the next try of a job as a whole. No call of a job has it.
pub(crate) const JOB_RETRY_INDEX: CallIndex = CallIndex(u32::MAX);

/// The run of an attempt, and the number of journal entries of earlier runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunStart {
    pub(crate) run: RunNo,
    pub(crate) earlier_entries: Option<u32>,
}

/// A journal entry with its ordinal.
#[derive(Debug)]
struct NumberedEntry {
    ordinal: u32,
    entry: JournalEntry,
}

/// A completion that arrived during the attempt, with the ordinal of its journal entry.
#[derive(Debug)]
struct ArrivedEntry {
    ordinal: u32,
    index: CallIndex,
    completion: Arc<CallCompletion>,
}

#[derive(Debug)]
struct PendingCall {
    completion: Option<Result<Arc<CallCompletion>, Refusal>>,
    parked: bool,
    waker: Option<Waker>,
}

/// The next step of the driver while the job itself waits.
#[derive(Debug, PartialEq)]
pub(crate) enum DriverStep {
    /// Poll the job again, since a call was completed.
    Poll,
    /// Wait until something wakes the driver.
    Wait,
    /// Report calls that the job dropped.
    Abandon(Vec<CallIndex>),
    /// Report parked calls and the number of acknowledged entries. With `suspend_open`, the number
    /// of open calls, nothing else is running and the task can be suspended.
    Park {
        calls: Vec<(CallIndex, ConditionRequest)>,
        acked_entries: u32,
        suspend_open: Option<usize>,
    },
}

/// The state of a call when it is begun.
pub(crate) enum CallStart {
    /// The call is in the journal or parked: its result comes by [`JobCalls::completion`].
    Known(CallIndex),
    /// The call is new: the caller executes it, or parks it.
    New(CallIndex),
}

impl JobCalls {
    /// Loads the journal of a job that is entered again, and its parked calls.
    pub(crate) fn load(&self, journal: Vec<JournalEntry>, start: &StartAction) {
        let run = RunStart { run: start.run, earlier_entries: start.earlier_entries };
        self.lock().load(journal, run, &start.parked_calls);
    }

    /// Loads the journal of a job that begins again in the same attempt. The futures of its calls
    /// are dropped.
    pub(crate) fn restart(&self, journal: Vec<JournalEntry>, run: RunStart) {
        let mut inner = self.lock();
        let before = std::mem::take(&mut *inner);
        *inner = CallTable {
            acked_entries: before.acked_entries,
            arrived: before.arrived,
            driver: before.driver,
            to_park: before.to_park,
            abandoned_calls: before.abandoned_calls,
            running_calls: before.running_calls,
            completion_expected: before.completion_expected,
            delivered_count: before.delivered_count,
            closed: before.closed,
            stopped: before.stopped,
            ..CallTable::default()
        };
        inner.load(journal, run, &[]);
    }

    /// Returns the number of tries of the job as a whole that failed in this run.
    pub(crate) fn failed_tries(&self) -> u32 {
        self.lock().failed_tries
    }

    /// Returns the pause before the next try of the job, if one was under way when this attempt
    /// started.
    pub(crate) fn job_pause(self: &Arc<Self>) -> Option<CompletionFuture> {
        let mut inner = self.lock();
        inner.parked_before.remove(&JOB_RETRY_INDEX)?;
        let completion = inner.early_completions.remove(&JOB_RETRY_INDEX).map(Ok);
        let waiting = PendingCall { completion, parked: true, waker: None };
        inner.waiting.insert(JOB_RETRY_INDEX, waiting);
        drop(inner);
        Some(self.completion(JOB_RETRY_INDEX))
    }

    fn lock(&self) -> MutexGuard<'_, CallTable> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the next call. Refuses if the journal has another call in its place.
    pub(crate) fn begin(&self, label: &EntryLabel) -> Result<CallStart, Refusal> {
        let mut inner = self.lock();
        let index = CallIndex(inner.next);
        inner.next += 1;
        let recorded = inner.recorded.remove(&index);
        let parked = inner.parked_before.remove(&index);
        let before = recorded.as_ref().or(parked.as_ref());
        if let Some(before) = before
            && before != label
        {
            return Err(Refusal::conflict(format!(
                "the job took another path than before: call {index} was \"{before}\" and is now \
                \"{label}\"; a job must make the same calls when it is entered again"
            )));
        }
        if recorded.is_none() && parked.is_none() {
            return Ok(CallStart::New(index));
        }
        let early = inner.early_completions.remove(&index).map(Ok);
        // Nothing completes a parked call of a task that is being stopped.
        let stopped = (inner.stopped && recorded.is_none()).then(|| Err(stopping_refusal()));
        let completion = early.or(stopped);
        let waiting = PendingCall { completion, parked: parked.is_some(), waker: None };
        inner.waiting.insert(index, waiting);
        inner.replay_next();
        Ok(CallStart::Known(index))
    }

    /// Parks a new call.
    pub(crate) fn park(&self, index: CallIndex, request: ConditionRequest) {
        let mut inner = self.lock();
        let completion = inner.stopped.then(|| Err(stopping_refusal()));
        inner.waiting.insert(index, PendingCall { completion, parked: true, waker: None });
        if !inner.stopped {
            inner.to_park.push((index, request));
        }
    }

    /// Parks a call and returns the future of its completion.
    pub(crate) fn park_call(
        self: &Arc<Self>,
        index: CallIndex,
        request: ConditionRequest,
    ) -> CompletionFuture {
        self.park(index, request);
        self.completion(index)
    }

    /// Returns the future of a parked or replayed call. Dropping it drops the call.
    pub(crate) fn completion(self: &Arc<Self>, index: CallIndex) -> CompletionFuture {
        CompletionFuture { calls: self.clone(), index, done: false }
    }

    /// Marks a call that the job itself executes, until the guard is dropped.
    pub(crate) fn mark_running(self: &Arc<Self>) -> RunningCallGuard {
        self.lock().running_calls += 1;
        RunningCallGuard(self.clone())
    }

    /// Returns when the replay is over, or when it cannot continue without this call. Until then, a
    /// call without a completion may be one that the job dropped the last time.
    pub(crate) fn poll_replayed(&self, context: &Context<'_>) -> Poll<()> {
        let mut inner = self.lock();
        if inner.replay.is_empty() || inner.held_back_released {
            return Poll::Ready(());
        }
        inner.held_back.push(context.waker().clone());
        Poll::Pending
    }

    /// Registers a call that the job itself executes, so that it can be completed.
    pub(crate) fn register_call(&self, index: CallIndex) {
        let waiting = PendingCall { completion: None, parked: false, waker: None };
        self.lock().waiting.insert(index, waiting);
    }

    /// Delivers a new entry of the journal.
    pub(crate) fn deliver_entry(
        &self,
        index: CallIndex,
        ordinal: u32,
        completion: Arc<CallCompletion>,
    ) {
        let mut inner = self.lock();
        inner.completion_expected = false;
        inner.delivered_count += 1;
        inner.arrived.push_back(ArrivedEntry { ordinal, index, completion });
        if let Some(driver) = inner.driver.take() {
            driver.wake();
        }
    }

    /// Refuses a call whose refusal is not in the journal.
    pub(crate) fn refuse(&self, index: CallIndex, refusal: Refusal) {
        self.lock().complete_call(index, Err(refusal));
    }

    /// Returns true while the job replays recorded calls.
    pub(crate) fn is_replaying(&self) -> bool {
        !self.lock().replay.is_empty()
    }

    /// Returns the number of completions that were delivered so far.
    pub(crate) fn delivered_count(&self) -> u64 {
        self.lock().delivered_count
    }

    /// Notes that a completion is on its way, unless one was delivered since the count was
    /// `delivered`.
    pub(crate) fn expect_completion(&self, delivered: u64) {
        let mut inner = self.lock();
        inner.completion_expected = inner.delivered_count == delivered;
    }

    /// Refuses every parked call, since the task is being stopped.
    pub(crate) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopped = true;
        inner.to_park.clear();
        let parked = inner.waiting.iter().filter(|(_, waiting)| waiting.parked);
        let parked: Vec<CallIndex> = parked.map(|(index, _)| *index).collect();
        for index in parked {
            inner.complete_call(index, Err(stopping_refusal()));
        }
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    /// Returns the next step, given that the job waits and has processed every delivered
    /// completion.
    pub(crate) fn next_step(&self, driver: &Waker) -> DriverStep {
        let mut inner = self.lock();
        if inner.replay_next()
            || inner.replay.is_empty() && inner.deliver_next()
            || inner.release_held_back()
        {
            return DriverStep::Poll;
        }
        if !inner.abandoned_calls.is_empty() {
            return DriverStep::Abandon(std::mem::take(&mut inner.abandoned_calls));
        }
        let calls = std::mem::take(&mut inner.to_park);
        let open = inner.waiting.values().filter(|w| w.parked && w.completion.is_none()).count();
        let can_suspend = inner.running_calls == 0 && open > 0 && !inner.completion_expected;
        let has_unacked = open > 0 && inner.processed_entries > inner.acked_entries;
        if calls.is_empty() && !can_suspend && !has_unacked {
            inner.driver = Some(driver.clone());
            return DriverStep::Wait;
        }
        inner.acked_entries = inner.processed_entries;
        DriverStep::Park {
            calls,
            acked_entries: inner.processed_entries,
            suspend_open: can_suspend.then_some(open),
        }
    }
}

impl CallTable {
    fn load(&mut self, journal: Vec<JournalEntry>, run: RunStart, open: &[ParkedCall]) {
        self.failed_tries = failed_tries(&journal, run);
        // An entry that arrived while the journal was read may be in it already.
        let known = u32::try_from(journal.len()).unwrap_or(u32::MAX);
        self.arrived.retain(|arrived| arrived.ordinal >= known);
        let mut entries = entries_to_replay(journal, run);
        // A call that waits to be made again has failed before, but not with a result.
        entries.retain(|numbered| open.iter().all(|call| call.index != numbered.entry.index));
        let last: BTreeMap<CallIndex, u32> =
            entries.iter().map(|numbered| (numbered.entry.index, numbered.ordinal)).collect();
        entries.retain(|numbered| last.get(&numbered.entry.index) == Some(&numbered.ordinal));
        let labels = entries.iter().map(|n| (n.entry.index, n.entry.label.clone()));
        self.recorded = labels.collect();
        self.replay = entries;
        self.loaded_entries = known;
        self.note_processed(0);
        self.parked_before = open.iter().map(|call| (call.index, call.condition.label())).collect();
    }

    /// Notes the number of processed entries. After the last replayed entry it includes those that
    /// are not replayed, or the model would wait for their acknowledgement for ever.
    fn note_processed(&mut self, count: u32) {
        self.processed_entries = if self.replay.is_empty() { self.loaded_entries } else { count };
    }

    /// Delivers the next recorded completion, if its call was begun. Returns true if it did.
    fn replay_next(&mut self) -> bool {
        let mut delivered = false;
        while let Some(front) = self.replay.front() {
            let index = front.entry.index;
            let is_called = self.waiting.contains_key(&index);
            let dropped = !is_called && index.0 < self.next && !self.recorded.contains_key(&index);
            if !is_called && !dropped {
                break;
            }
            let Some(NumberedEntry { ordinal, entry }) = self.replay.pop_front() else { break };
            self.note_processed(ordinal + 1);
            if is_called && *entry.completion != CallCompletion::Abandoned {
                self.complete_call(index, Ok(entry.completion));
                delivered = true;
                // One at a time: the job processes it before it gets the next.
                break;
            }
        }
        delivered
    }

    /// Releases new calls that were held back, when nothing else can continue.
    fn release_held_back(&mut self) -> bool {
        let any = !self.held_back.is_empty();
        self.held_back_released |= any;
        self.held_back.drain(..).for_each(Waker::wake);
        any
    }

    /// Delivers the next entry that arrived during the attempt.
    fn deliver_next(&mut self) -> bool {
        while let Some(ArrivedEntry { ordinal, index, completion }) = self.arrived.pop_front() {
            self.processed_entries = ordinal + 1;
            if self.waiting.contains_key(&index) {
                self.complete_call(index, Ok(completion));
                return true;
            }
            if self.parked_before.contains_key(&index) {
                self.early_completions.insert(index, completion);
            }
        }
        false
    }

    fn complete_call(
        &mut self,
        index: CallIndex,
        completion: Result<Arc<CallCompletion>, Refusal>,
    ) {
        if let Some(waiting) = self.waiting.get_mut(&index)
            && waiting.completion.is_none()
        {
            waiting.completion = Some(completion);
            if let Some(waker) = waiting.waker.take() {
                waker.wake();
            }
        }
    }
}

/// Returns the entries to replay. An earlier run, or an earlier try of the job as a whole, has
/// failed: failures at its end are tried again, and its retries begin anew.
fn entries_to_replay(journal: Vec<JournalEntry>, run: RunStart) -> VecDeque<NumberedEntry> {
    let entries = (0..).zip(journal);
    let mut earlier: Vec<NumberedEntry> =
        entries.map(|(ordinal, entry)| NumberedEntry { ordinal, entry }).collect();
    let is_job_retry = |numbered: &NumberedEntry| numbered.entry.label == EntryLabel::JobRetry;
    let last_try = earlier.iter().rev().find(|numbered| is_job_retry(numbered));
    let last_try = last_try.map(|numbered| numbered.ordinal + 1);
    let first_current = last_try.max(run.earlier_entries).unwrap_or(0);
    let at = earlier.partition_point(|numbered| numbered.ordinal < first_current);
    let mut current = earlier.split_off(at);
    earlier.retain(|numbered| !is_job_retry(numbered) && !is_retried_entry(&numbered.entry));
    drop_last_failures(&mut earlier);
    // A run that an earlier version opened does not know where its entries begin.
    if run.run > RunNo::FIRST && run.earlier_entries.is_none() {
        drop_last_failures(&mut current);
    }
    earlier.append(&mut current);
    earlier.into()
}

/// Returns the number of tries of the job as a whole that failed in this run.
fn failed_tries(journal: &[JournalEntry], run: RunStart) -> u32 {
    let first = run.earlier_entries.map_or(0, |entries| entries as usize);
    let of_run = journal.get(first..).unwrap_or_default();
    let retries = of_run.iter().rev().filter(|entry| entry.label == EntryLabel::JobRetry);
    let attempts = retries.filter_map(|entry| match *entry.completion {
        CallCompletion::Retried { attempt, .. } => Some(attempt),
        _ => None,
    });
    attempts.max().unwrap_or(0)
}

fn drop_last_failures(entries: &mut Vec<NumberedEntry>) {
    while entries.last().is_some_and(|last| is_failed_entry(&last.entry)) {
        entries.pop();
    }
}

fn is_failed_entry(entry: &JournalEntry) -> bool {
    matches!(*entry.completion, CallCompletion::Refused(_) | CallCompletion::Error(_))
}

fn is_retried_entry(entry: &JournalEntry) -> bool {
    matches!(*entry.completion, CallCompletion::Retried { .. })
}

pub(crate) fn stopping_refusal() -> Refusal {
    Refusal::ended("the task is being stopped")
}

pub(crate) struct CompletionFuture {
    calls: Arc<JobCalls>,
    index: CallIndex,
    done: bool,
}

impl CompletionFuture {
    pub(crate) fn index(&self) -> CallIndex {
        self.index
    }
}

impl Future for CompletionFuture {
    type Output = Result<Arc<CallCompletion>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let calls = self.calls.clone();
        let mut inner = calls.lock();
        let Some(waiting) = inner.waiting.get_mut(&self.index) else { return Poll::Pending };
        if waiting.completion.is_none() {
            waiting.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let completion = inner.waiting.remove(&self.index).and_then(|waiting| waiting.completion);
        self.done = true;
        match completion {
            Some(completion) => Poll::Ready(completion),
            None => Poll::Pending,
        }
    }
}

impl Drop for CompletionFuture {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut inner = self.calls.lock();
        let index = self.index;
        let waiting = inner.waiting.remove(&index);
        if inner.closed {
            return;
        }
        let before = inner.to_park.len();
        inner.to_park.retain(|(other, _)| *other != index);
        let known_to_model = inner.to_park.len() == before;
        if known_to_model && waiting.is_some_and(|w| w.parked && w.completion.is_none()) {
            inner.abandoned_calls.push(index);
        }
    }
}

pub(crate) struct RunningCallGuard(Arc<JobCalls>);

impl Drop for RunningCallGuard {
    fn drop(&mut self) {
        self.0.lock().running_calls -= 1;
    }
}

#[cfg(test)]
mod tests;
