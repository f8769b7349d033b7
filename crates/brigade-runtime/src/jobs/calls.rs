//! The calls of one attempt.
//!
//! Each call has the next index. Whatever answers one is an entry of the journal, and the job hears
//! of the entries in their order, one at a time: it is polled after each before it hears of the
//! next. Entered again it is told the same in the same order, so a job that waited for two things
//! at once takes the same turn again.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use brigade_model::call::{CallCompletion, ConditionRequest, JournalEntry, ParkedCall};
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::refusal::Refusal;

/// Shared by the driver, the job's context and the performer.
#[derive(Debug, Default)]
pub(crate) struct JobCalls {
    inner: Mutex<CallTable>,
}

#[derive(Debug, Default)]
struct CallTable {
    next: u32,
    /// Entries of the journal with their numbers.
    replay: VecDeque<(u32, JournalEntry)>,
    /// How many entries of the journal the job has heard of.
    processed_entries: u32,
    /// How many of these the model knows of.
    acked_entries: u32,
    /// What the journal has for an index, until it is asked for.
    recorded: BTreeMap<CallIndex, Arc<str>>,
    /// Calls that were parked before this attempt began.
    parked_before: BTreeMap<CallIndex, &'static str>,
    waiting: BTreeMap<CallIndex, PendingCall>,
    /// Entries that came since, in their order, and that the job has not heard of.
    arrived: VecDeque<(u32, CallIndex, Arc<CallCompletion>)>,
    /// Answers to calls that were parked before and that the job has not made again yet.
    early_completions: BTreeMap<CallIndex, Arc<CallCompletion>>,
    driver: Option<Waker>,
    /// New calls that wait until the job has gone over what it did before.
    held_back: Vec<Waker>,
    held_back_released: bool,
    to_park: Vec<(CallIndex, ConditionRequest)>,
    abandoned_calls: Vec<CallIndex>,
    /// Calls that the work itself carries out: while there are any, it does not rest.
    running_calls: usize,
    /// The model says that an answer is on its way: asking to rest again would be in vain.
    completion_expected: bool,
    delivered_count: u64,
    /// The job is being let go of: dropped calls mean nothing.
    closed: bool,
    stopped: bool,
}

#[derive(Debug)]
struct PendingCall {
    completion: Option<Result<Arc<CallCompletion>, Refusal>>,
    parked: bool,
    waker: Option<Waker>,
}

/// What the driver has to do when the job itself is waiting.
#[derive(Debug, PartialEq)]
pub(crate) enum DriverStep {
    /// The job has been told something: poll it again.
    Poll,
    /// Nothing to do until something wakes us.
    Wait,
    /// Tell the model of calls that were dropped.
    Abandon(Vec<CallIndex>),
    /// Tell the model of calls that wait, and of how much the job has heard. With `rest`, nothing
    /// else is going on.
    Park { calls: Vec<(CallIndex, ConditionRequest)>, heard: u32, rest: Option<usize> },
}

/// What becomes of a call when it is made.
pub(crate) enum CallStart {
    /// Its answer comes by [`Calls::answer`].
    Known(CallIndex),
    /// It is new: the caller carries it out, or parks it.
    New(CallIndex),
}

impl JobCalls {
    pub(crate) fn load(&self, journal: Vec<JournalEntry>, open: &[ParkedCall], run: RunNo) {
        let mut inner = self.lock();
        // What came while the journal was read may be in it already.
        let known = u32::try_from(journal.len()).unwrap_or(u32::MAX);
        inner.arrived.retain(|(ordinal, ..)| *ordinal >= known);
        let mut entries: VecDeque<(u32, JournalEntry)> = (0..).zip(journal).collect();
        // What an earlier run died of is tried anew, and what came of that takes its place.
        if run > RunNo::FIRST {
            while entries.back().is_some_and(|(_, entry)| is_failed_entry(entry)) {
                entries.pop_back();
            }
        }
        let last: BTreeMap<CallIndex, u32> =
            entries.iter().map(|(ordinal, entry)| (entry.index, *ordinal)).collect();
        entries.retain(|(ordinal, entry)| last.get(&entry.index) == Some(ordinal));
        let labels = entries.iter().map(|(_, entry)| (entry.index, entry.label.clone()));
        inner.recorded = labels.collect();
        inner.replay = entries;
        inner.parked_before =
            open.iter().map(|call| (call.index, call.condition.label())).collect();
    }

    fn lock(&self) -> MutexGuard<'_, CallTable> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next call. Refused when the journal has something else in its place.
    pub(crate) fn begin(&self, label: &str) -> Result<CallStart, Refusal> {
        let mut inner = self.lock();
        let index = CallIndex(inner.next);
        inner.next += 1;
        let recorded = inner.recorded.remove(&index);
        let parked = inner.parked_before.remove(&index);
        let before = recorded.as_deref().or(parked);
        if let Some(before) = before
            && before != label
        {
            return Err(Refusal::conflict(format!(
                "the job went another way than before: call {index} was {before:?} and is now \
                 {label:?}; a job must make the same calls when it is entered again"
            )));
        }
        if recorded.is_none() && parked.is_none() {
            return Ok(CallStart::New(index));
        }
        let early = inner.early_completions.remove(&index).map(Ok);
        // Nothing will answer a parked call of a task that is being stopped.
        let stopped = (inner.stopped && recorded.is_none()).then(|| Err(stopping_refusal()));
        let answer = early.or(stopped);
        let waiting = PendingCall { completion: answer, parked: parked.is_some(), waker: None };
        inner.waiting.insert(index, waiting);
        inner.replay_next();
        Ok(CallStart::Known(index))
    }

    /// Parks a new call.
    pub(crate) fn park(&self, index: CallIndex, asked: ConditionRequest) {
        let mut inner = self.lock();
        let answer = inner.stopped.then(|| Err(stopping_refusal()));
        inner.waiting.insert(index, PendingCall { completion: answer, parked: true, waker: None });
        if !inner.stopped {
            inner.to_park.push((index, asked));
        }
    }

    /// The answer of a parked or replayed call. Dropping it drops the call.
    pub(crate) fn completion(self: &Arc<Self>, index: CallIndex) -> CompletionFuture {
        CompletionFuture { calls: self.clone(), index, done: false }
    }

    /// Marks something that the work itself carries out.
    pub(crate) fn mark_running(self: &Arc<Self>) -> RunningCallGuard {
        self.lock().running_calls += 1;
        RunningCallGuard(self.clone())
    }

    /// Returns when the job has gone over what it did before, or cannot go on with that without
    /// this. Until then a call without an answer may be one that the job dropped the last time.
    pub(crate) fn wait_replayed(&self) -> impl Future<Output = ()> {
        poll_fn(|context| {
            let mut inner = self.lock();
            if inner.replay.is_empty() || inner.held_back_released {
                return Poll::Ready(());
            }
            inner.held_back.push(context.waker().clone());
            Poll::Pending
        })
    }

    /// Makes ready for the answer of a call that the work itself carries out.
    pub(crate) fn register_call(&self, index: CallIndex) {
        let waiting = PendingCall { completion: None, parked: false, waker: None };
        self.lock().waiting.insert(index, waiting);
    }

    /// The journal has a new entry.
    pub(crate) fn deliver_entry(
        &self,
        index: CallIndex,
        ordinal: u32,
        answer: Arc<CallCompletion>,
    ) {
        let mut inner = self.lock();
        inner.completion_expected = false;
        inner.delivered_count += 1;
        inner.arrived.push_back((ordinal, index, answer));
        if let Some(driver) = inner.driver.take() {
            driver.wake();
        }
    }

    /// A call was refused, and the journal will not say so.
    pub(crate) fn refuse(&self, index: CallIndex, refusal: Refusal) {
        self.lock().complete_call(index, Err(refusal));
    }

    /// Whether the job is still going over what it did before.
    pub(crate) fn is_replaying(&self) -> bool {
        !self.lock().replay.is_empty()
    }

    /// How many answers have come so far.
    pub(crate) fn delivered_count(&self) -> u64 {
        self.lock().delivered_count
    }

    /// An answer is on its way, unless it has come since `told` was asked for.
    pub(crate) fn expect_completion(&self, told: u64) {
        let mut inner = self.lock();
        inner.completion_expected = inner.delivered_count == told;
    }

    /// Every parked call is told that the task is being stopped.
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

    /// What to do, given that the job itself waits and has reacted to all that it was told.
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
        let rests = inner.running_calls == 0 && open > 0 && !inner.completion_expected;
        let news = open > 0 && inner.processed_entries > inner.acked_entries;
        if calls.is_empty() && !rests && !news {
            inner.driver = Some(driver.clone());
            return DriverStep::Wait;
        }
        inner.acked_entries = inner.processed_entries;
        DriverStep::Park { calls, heard: inner.processed_entries, rest: rests.then_some(open) }
    }
}

impl CallTable {
    /// Hands out recorded answers in their order, as far as they have been asked for.
    fn replay_next(&mut self) -> bool {
        let mut told = false;
        while let Some((_, front)) = self.replay.front() {
            let index = front.index;
            let asked = self.waiting.contains_key(&index);
            let dropped = !asked && index.0 < self.next && !self.recorded.contains_key(&index);
            if !asked && !dropped {
                break;
            }
            let Some((ordinal, entry)) = self.replay.pop_front() else { break };
            self.processed_entries = ordinal + 1;
            if asked && *entry.completion != CallCompletion::Abandoned {
                self.complete_call(index, Ok(entry.completion));
                told = true;
                // One at a time: the job reacts to it before it hears of the next.
                break;
            }
        }
        told
    }

    /// Lets new calls go on that were held back, since nothing else does.
    fn release_held_back(&mut self) -> bool {
        let any = !self.held_back.is_empty();
        self.held_back_released |= any;
        self.held_back.drain(..).for_each(Waker::wake);
        any
    }

    /// Hands out the next entry that came meanwhile.
    fn deliver_next(&mut self) -> bool {
        while let Some((ordinal, index, answer)) = self.arrived.pop_front() {
            self.processed_entries = ordinal + 1;
            if self.waiting.contains_key(&index) {
                self.complete_call(index, Ok(answer));
                return true;
            }
            if self.parked_before.contains_key(&index) {
                self.early_completions.insert(index, answer);
            }
        }
        false
    }

    fn complete_call(&mut self, index: CallIndex, answer: Result<Arc<CallCompletion>, Refusal>) {
        if let Some(waiting) = self.waiting.get_mut(&index)
            && waiting.completion.is_none()
        {
            waiting.completion = Some(answer);
            if let Some(waker) = waiting.waker.take() {
                waker.wake();
            }
        }
    }
}

fn is_failed_entry(entry: &JournalEntry) -> bool {
    matches!(*entry.completion, CallCompletion::Refused(_) | CallCompletion::Error(_))
}

pub(crate) fn stopping_refusal() -> Refusal {
    Refusal::ended("the task is being stopped")
}

pub(crate) struct CompletionFuture {
    calls: Arc<JobCalls>,
    index: CallIndex,
    done: bool,
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
        let answer = inner.waiting.remove(&self.index).and_then(|waiting| waiting.completion);
        self.done = true;
        match answer {
            Some(answer) => Poll::Ready(answer),
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
