//! The calls of one attempt.
//!
//! Each call has the next index. One that the journal knows is answered from it, in the order in
//! which the answers came the first time, so that a job that waited for two things at once takes
//! the same turn again.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use brigade_model::call::{Answer, Asked, Entry, OpenCall};
use brigade_model::ids::CallIndex;
use brigade_model::refusal::Refusal;

/// Shared by the driver, the job's context and the performer.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u32,
    replay: VecDeque<Entry>,
    /// What the journal has for an index, until it is asked for.
    recorded: BTreeMap<CallIndex, Arc<str>>,
    /// Calls that were parked before this attempt began.
    parked_before: BTreeMap<CallIndex, &'static str>,
    waiting: BTreeMap<CallIndex, Waiting>,
    /// Answers that came while the job had yet to react to an earlier one.
    arrived: VecDeque<(CallIndex, Result<Arc<Answer>, Refusal>)>,
    to_park: Vec<(CallIndex, Asked)>,
    abandoned: Vec<CallIndex>,
    /// Calls that the work itself carries out: while there are any, it does not rest.
    under_way: usize,
    /// The model says that an answer is on its way: asking to rest again would be in vain.
    answer_expected: bool,
    told: u64,
    /// The job is being let go of: dropped calls mean nothing.
    closed: bool,
    stopped: bool,
}

#[derive(Debug)]
struct Waiting {
    answer: Option<Result<Arc<Answer>, Refusal>>,
    parked: bool,
    waker: Option<Waker>,
}

/// What the driver has to do when the job itself is waiting.
#[derive(Debug, PartialEq)]
pub(crate) enum Next {
    /// The job has been told something: poll it again.
    Poll,
    /// Nothing to do until something wakes us.
    Wait,
    /// Tell the model of calls that were dropped.
    Abandon(Vec<CallIndex>),
    /// Tell the model of calls that wait. With `rest`, nothing else is going on.
    Park { calls: Vec<(CallIndex, Asked)>, rest: Option<usize> },
}

/// What becomes of a call when it is made.
pub(crate) enum Begun {
    /// Its answer comes by [`Calls::answer`].
    Known(CallIndex),
    /// It is new: the caller carries it out, or parks it.
    New(CallIndex),
}

impl Calls {
    pub(crate) fn load(&self, journal: Vec<Entry>, open: &[OpenCall]) {
        let mut inner = self.lock();
        inner.recorded = journal.iter().map(|e| (e.index, e.label.clone())).collect();
        inner.replay = journal.into();
        inner.parked_before = open.iter().map(|call| (call.index, call.on.label())).collect();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next call. Refused when the journal has something else in its place.
    pub(crate) fn begin(&self, label: &str) -> Result<Begun, Refusal> {
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
            return Ok(Begun::New(index));
        }
        // Nothing will answer a parked call of a task that is being stopped.
        let answer = (inner.stopped && recorded.is_none()).then(|| Err(stopped()));
        let waiting = Waiting { answer, parked: parked.is_some(), waker: None };
        inner.waiting.insert(index, waiting);
        inner.replay_on();
        Ok(Begun::Known(index))
    }

    /// Parks a new call.
    pub(crate) fn park(&self, index: CallIndex, asked: Asked) {
        let mut inner = self.lock();
        let answer = inner.stopped.then(|| Err(stopped()));
        inner.waiting.insert(index, Waiting { answer, parked: true, waker: None });
        if !inner.stopped {
            inner.to_park.push((index, asked));
        }
    }

    /// The answer of a parked or replayed call. Dropping it drops the call.
    pub(crate) fn answer(self: &Arc<Self>, index: CallIndex) -> AnswerFuture {
        AnswerFuture { calls: self.clone(), index, done: false }
    }

    /// Marks something that the work itself carries out.
    pub(crate) fn under_way(self: &Arc<Self>) -> UnderWay {
        self.lock().under_way += 1;
        UnderWay(self.clone())
    }

    /// A parked call was answered, or refused.
    pub(crate) fn tell(&self, index: CallIndex, answer: Result<Arc<Answer>, Refusal>) {
        let mut inner = self.lock();
        inner.answer_expected = false;
        inner.told += 1;
        if !inner.has_told() {
            return inner.tell(index, answer);
        }
        inner.arrived.push_back((index, answer));
        if let Some(waker) = inner.waiting.get(&index).and_then(|waiting| waiting.waker.as_ref()) {
            waker.wake_by_ref();
        }
    }

    /// Whether the job is still going over what it did before.
    pub(crate) fn is_replaying(&self) -> bool {
        !self.lock().replay.is_empty()
    }

    /// How many answers have come so far.
    pub(crate) fn told(&self) -> u64 {
        self.lock().told
    }

    /// An answer is on its way, unless it has come since `told` was asked for.
    pub(crate) fn expect_answer(&self, told: u64) {
        let mut inner = self.lock();
        inner.answer_expected = inner.told == told;
    }

    /// Every call that waits is told that the task is being stopped.
    pub(crate) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopped = true;
        inner.to_park.clear();
        let waiting: Vec<CallIndex> = inner.waiting.keys().copied().collect();
        for index in waiting {
            inner.tell(index, Err(stopped()));
        }
    }

    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    /// What to do, given that the job itself waits.
    pub(crate) fn next(&self) -> Next {
        let mut inner = self.lock();
        if inner.replay_on() || inner.hand_on() {
            return Next::Poll;
        }
        if !inner.abandoned.is_empty() {
            return Next::Abandon(std::mem::take(&mut inner.abandoned));
        }
        let calls = std::mem::take(&mut inner.to_park);
        let open = inner.waiting.values().filter(|w| w.parked && w.answer.is_none()).count();
        let rests = inner.under_way == 0 && open > 0 && !inner.has_told() && !inner.answer_expected;
        match (calls.is_empty(), rests) {
            (true, false) => Next::Wait,
            (_, rests) => Next::Park { calls, rest: rests.then_some(open) },
        }
    }
}

impl Inner {
    /// Hands out recorded answers in their order, as far as they have been asked for.
    fn replay_on(&mut self) -> bool {
        let mut told = false;
        while let Some(front) = self.replay.front() {
            let index = front.index;
            let asked = self.waiting.contains_key(&index);
            let dropped = !asked && index.0 < self.next && !self.recorded.contains_key(&index);
            if !asked && !dropped {
                break;
            }
            let Some(entry) = self.replay.pop_front() else { break };
            if asked && *entry.answer != Answer::Abandoned {
                self.tell(index, Ok(entry.answer));
                told = true;
                // One at a time: the job reacts to it before it hears of the next.
                break;
            }
        }
        told
    }

    /// Hands out the next answer that came meanwhile: one at a time and in their order, as they
    /// will be handed out when the job is entered again.
    fn hand_on(&mut self) -> bool {
        let next = self.arrived.pop_front();
        next.is_some_and(|(index, answer)| {
            self.tell(index, answer);
            true
        })
    }

    /// Whether the job has yet to react to an answer.
    fn has_told(&self) -> bool {
        self.waiting.values().any(|waiting| waiting.answer.is_some())
    }

    fn tell(&mut self, index: CallIndex, answer: Result<Arc<Answer>, Refusal>) {
        if let Some(waiting) = self.waiting.get_mut(&index)
            && waiting.answer.is_none()
        {
            waiting.answer = Some(answer);
            if let Some(waker) = waiting.waker.take() {
                waker.wake();
            }
        }
    }
}

pub(crate) fn stopped() -> Refusal {
    Refusal::ended("the task is being stopped")
}

pub(crate) struct AnswerFuture {
    calls: Arc<Calls>,
    index: CallIndex,
    done: bool,
}

impl Future for AnswerFuture {
    type Output = Result<Arc<Answer>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let calls = self.calls.clone();
        let mut inner = calls.lock();
        let Some(waiting) = inner.waiting.get_mut(&self.index) else { return Poll::Pending };
        if waiting.answer.is_none() {
            waiting.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        let answer = inner.waiting.remove(&self.index).and_then(|waiting| waiting.answer);
        self.done = true;
        match answer {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        }
    }
}

impl Drop for AnswerFuture {
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
        if known_to_model && waiting.is_some_and(|w| w.parked && w.answer.is_none()) {
            inner.abandoned.push(index);
        }
    }
}

pub(crate) struct UnderWay(Arc<Calls>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.lock().under_way -= 1;
    }
}
