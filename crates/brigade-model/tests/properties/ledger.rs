//! A ledger of the events so far, and checks on each event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brigade_model::action::Action;
use brigade_model::call::{CallCompletion, Condition, JournalEntry, TasksCondition};
use brigade_model::event::{CollectedRun, Event, EventRecord};
use brigade_model::ids::{Attempt, MessageNo, Owner, RunNo, TaskNo, Time};
use brigade_model::limits::Usage;
use brigade_model::message::Message;
use brigade_model::outcome::Outcome;
use brigade_model::task::{RunClock, TaskState};
use brigade_model::task_tree::TaskTree;
use brigade_model::work::{KeptDeadline, WakeOn};

use crate::naive::Naive;
use crate::naive_messages::NaiveMessageKey;
use crate::rows::{is_alive, limit_holder};

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) ended: BTreeMap<CollectedRun, bool>,
    pub(crate) collected: BTreeSet<CollectedRun>,
    pub(crate) sent: BTreeSet<MessageNo>,
    pub(crate) arrived: BTreeSet<MessageNo>,
    pub(crate) keys: BTreeMap<(Owner, RunNo, String), TaskNo>,
    pub(crate) message_keys: BTreeMap<NaiveMessageKey, Arc<Message>>,
    pub(crate) totals: BTreeMap<TaskNo, u32>,
    pub(crate) spawns: BTreeMap<Owner, Vec<Time>>,
    /// The amount charged to each task itself.
    pub(crate) spent: BTreeMap<TaskNo, Usage>,
    /// The task under whose limits each one was spawned. These limits always apply.
    pub(crate) spawners: BTreeMap<TaskNo, TaskNo>,
    attempts: BTreeMap<TaskNo, Attempt>,
    starts: BTreeSet<(TaskNo, Attempt)>,
    /// Runs that were stopped while they were active. They end as cancelled.
    pub(crate) doomed: BTreeSet<(TaskNo, RunNo)>,
    last_collected: Vec<CollectedRun>,
    /// The attempts that became ready and were not queued again, with the time.
    ready: BTreeMap<(TaskNo, Attempt), Time>,
    /// The tasks that got a completion from the current command.
    completed: BTreeSet<TaskNo>,
}

impl Ledger {
    /// Checks one event against the tree before it.
    pub(crate) fn record(
        &mut self,
        before: &TaskTree,
        record: &EventRecord,
        entry: Option<&JournalEntry>,
    ) {
        self.check_not_ended(before, &record.event);
        check_wake(before, &record.event);
        let keys = BTreeMap::new();
        let message_keys = BTreeMap::new();
        let totals = BTreeMap::new();
        let spawns = BTreeMap::new();
        let now = record.at;
        let naive = Naive {
            all: before,
            keys: &keys,
            message_keys: &message_keys,
            totals: &totals,
            spawns: &spawns,
            now,
        };
        let collected_just_before = std::mem::take(&mut self.last_collected);
        match &record.event {
            Event::Spawned(spawned) => {
                self.spawners.extend(spawned.owner.task().map(|owner| (spawned.no, owner)));
                self.count_total(naive, spawned.owner);
                self.count_rate(naive, spawned.owner);
                if let Some(key) = &spawned.spec.key {
                    let scope = (spawned.owner, spawned.owner_run, key.as_str().to_owned());
                    let before = self.keys.insert(scope, spawned.no);
                    assert_eq!(before, None, "a key that was taken got another task");
                }
                if spawned.queued.is_none() {
                    self.started(naive, spawned.no, spawned.owner, Attempt(1));
                }
            }
            Event::Started { no, attempt, .. } => {
                let owner = before.owner_of(*no).expect("a starting task exists");
                self.started(naive, *no, owner, *attempt);
            }
            Event::Ready { no } => {
                let row = before.get(*no).expect("a ready task exists");
                assert!(matches!(row.state, TaskState::Running), "{no:?} is ready and not running");
                let again = self.ready.insert((*no, row.attempt), record.at);
                assert_eq!(again, None, "attempt {} of {no:?} was ready twice", row.attempt);
            }
            Event::Queued { no, .. }
            | Event::Recovered { no, .. }
            | Event::RunOpened { no, .. } => {
                self.ready.retain(|(ready, _), _| ready != no);
            }
            Event::Suspended { no, .. } => {
                assert!(
                    !self.completed.contains(no),
                    "{no:?} was suspended with a completion on its way"
                );
            }
            Event::CallCompleted { no, index, .. } => {
                self.completed.insert(*no);
                let row = before.get(*no).expect("the task of a completed call exists");
                let call = row.parked_call(*index).expect("a completed call was parked");
                let entry = entry.expect("a completion is in the journal");
                if let Condition::Tasks(wait) = &call.condition {
                    let due = wait.until.is_some_and(|until| until <= record.at);
                    let wait = CompletedWait { no: *no, wait, is_due: due };
                    self.check_wait(naive, wait, &entry.completion, &collected_just_before);
                }
                if let Condition::Retry(pause) = &call.condition {
                    let expected = CallCompletion::Retried {
                        attempt: pause.attempt,
                        error: pause.error.clone(),
                    };
                    assert_eq!(*entry.completion, expected, "{no:?} retries another call");
                    assert_eq!(entry.label, pause.label);
                    assert!(pause.until <= record.at, "{no:?} retries before its time");
                }
                if let Condition::Message { name, .. } = &call.condition {
                    check_received(before, *no, name.as_deref(), &entry.completion);
                }
                if matches!(call.condition, Condition::Messages) {
                    check_all_received(before, *no, &entry.completion);
                }
            }
            Event::Ended { no, run, outcome, .. } => {
                let row = before.get(*no).expect("an ending task exists");
                assert!(is_alive(row) && row.run == *run, "{no:?} ended twice in run {run}");
                let cancelled = matches!(**outcome, Outcome::Cancelled(_));
                if self.doomed.contains(&(*no, *run)) {
                    assert!(cancelled, "{no:?} was stopped and ended {outcome}");
                }
                let again = self.ended.insert(CollectedRun { no: *no, run: *run }, cancelled);
                assert_eq!(again, None, "run {run} of {no:?} ended twice");
            }
            Event::Collected { runs } => {
                for run in runs {
                    assert!(self.ended.contains_key(run), "{run:?} collected before it ended");
                    assert!(self.collected.insert(*run), "{run:?} collected twice");
                }
                self.last_collected.clone_from(runs);
            }
            Event::PassedToSession { no, deadline, .. } => {
                check_inherited_deadline(naive, *no, deadline.map(|deadline| deadline.at));
            }
            Event::Charged { no, spent, .. } => {
                let so_far = self.spent.entry(*no).or_default();
                *so_far = so_far.plus(**spent);
            }
            Event::MessageSent(message) => {
                assert!(self.sent.insert(message.no), "message {} sent twice", message.no);
                if let Some(key) = &message.key {
                    let from = message.from.task();
                    let key = NaiveMessageKey {
                        to: message.to.task(),
                        from,
                        run: key.run,
                        key: key.key.as_str().to_owned(),
                    };
                    let before = self.message_keys.insert(key, message.clone());
                    assert_eq!(before, None, "a key that was taken got another message");
                }
            }
            Event::MessageRead { message, .. }
            | Event::MessageDelivered { message, .. }
            | Event::MessageDeliveryUnknown { message, .. } => self.arrived(*message),
            Event::DeadLettered { messages, .. } => {
                messages.iter().for_each(|message| self.arrived(*message));
            }
            _ => {}
        }
    }

    pub(crate) fn acted(&mut self, actions: &[Action]) {
        self.completed.clear();
        for action in actions {
            if let Action::Start(start) = action {
                let new = self.starts.insert((start.no, start.attempt));
                assert!(new, "attempt {} of {:?} started twice", start.attempt, start.no);
            }
        }
    }

    pub(crate) fn was_started(&self, no: TaskNo, attempt: Attempt) -> bool {
        self.starts.contains(&(no, attempt))
    }

    /// Returns when an attempt became ready.
    pub(crate) fn ready_at(&self, no: TaskNo, attempt: Attempt) -> Option<Time> {
        self.ready.get(&(no, attempt)).copied()
    }

    fn arrived(&mut self, message: MessageNo) {
        assert!(self.sent.contains(&message), "message {message} was never sent");
        assert!(self.arrived.insert(message), "message {message} arrived twice");
    }

    fn check_not_ended(&self, before: &TaskTree, event: &Event) {
        let Some(row) = event.task().and_then(|no| before.get(no)) else { return };
        let allowed = matches!(
            event,
            Event::DeadLettered { .. }
                | Event::SlotReturned { .. }
                | Event::RunOpened { .. }
                // These limits may still apply to kept tasks.
                | Event::LimitsSet { .. }
        );
        assert!(is_alive(row) || allowed, "after the end came {event:?}");
    }

    fn started(&mut self, naive: Naive<'_>, no: TaskNo, owner: Owner, attempt: Attempt) {
        let before = self.attempts.insert(no, attempt);
        assert!(before.is_none_or(|before| before < attempt), "attempts of {no:?} do not rise");
        let holder = naive.row(no).map_or(owner, limit_holder);
        for holder in naive.limit_chain(holder) {
            assert!(!naive.has_no_slot(holder), "{no:?} started beyond the limit of {holder:?}");
        }
    }

    fn count_total(&mut self, naive: Naive<'_>, owner: Owner) {
        let holders: Vec<TaskNo> =
            naive.total_chain(owner).into_iter().filter_map(Owner::task).collect();
        for no in &holders {
            let top = holders.last() == Some(no) && naive.limits(Owner::Session).total.is_some();
            if top || naive.limits(Owner::Task(*no)).total.is_some() {
                *self.totals.entry(*no).or_default() += 1;
            }
        }
    }

    fn count_rate(&mut self, naive: Naive<'_>, owner: Owner) {
        for holder in naive.limit_chain(owner) {
            if naive.limits(holder).spawn_rate.is_some() {
                self.spawns.entry(holder).or_default().push(naive.now);
            }
        }
    }

    fn check_wait(
        &self,
        naive: Naive<'_>,
        CompletedWait { no, wait, is_due }: CompletedWait<'_>,
        completion: &CallCompletion,
        just_collected: &[CollectedRun],
    ) {
        let ended = naive.is_wait_over(wait);
        match completion {
            CallCompletion::Readiness(tasks) => {
                assert!(wait.until_ready && ended, "{no:?} got the readiness of pending tasks");
                assert!(tasks.iter().map(|task| task.no).eq(wait.tasks.iter().copied()));
                for task in tasks {
                    let row = naive.row(task.no).expect("an awaited task exists");
                    assert_eq!(task.ready_at, row.ready_at());
                    assert_eq!(task.result.is_some(), !is_alive(row));
                }
            }
            CallCompletion::Results(results) => {
                assert!(ended && !wait.until_ready, "{no:?} got results of alive tasks");
                let fresh: BTreeSet<_> = results
                    .iter()
                    .filter(|result| !result.collected_before)
                    .map(|result| CollectedRun { no: result.no, run: result.run })
                    .collect();
                assert_eq!(fresh, just_collected.iter().copied().collect());
                for task in wait.tasks.iter() {
                    let row = naive.row(*task).filter(|row| !is_alive(row));
                    let has =
                        |run| results.iter().any(|result| result.no == *task && result.run == run);
                    assert!(row.is_none_or(|row| has(row.run)), "{task:?} has no result");
                }
            }
            CallCompletion::Interrupted => {
                let has_message = naive.all.inbox(Owner::Task(no)).next().is_some();
                assert!(
                    wait.interruptible && has_message && !ended,
                    "an interruption without a message"
                );
            }
            CallCompletion::Elapsed => {
                assert!(is_due && !ended, "{no:?} was woken before its time");
            }
            CallCompletion::Abandoned => {}
            other => panic!("a wait completed with {other:?}"),
        }
    }

    /// Remembers the runs that were active when a stop reached them.
    pub(crate) fn doom(&mut self, before: &TaskTree, no: TaskNo) {
        let Some(row) = before.get(no) else { return };
        let is_active = match &row.state {
            TaskState::Queued(_) | TaskState::Running | TaskState::Waiting | TaskState::Away(_) => {
                true
            }
            TaskState::Closing { .. } => !crate::rows::being_stopped(row),
            TaskState::Stopping(_) | TaskState::Ended(_) => false,
            other => panic!("no rule for {other:?}"),
        };
        if is_active {
            self.doomed.insert((no, row.run));
        }
    }
}

/// Checks that a wait for a message took the oldest one that it waits for. The message has left the
/// inbox before.
fn check_received(before: &TaskTree, no: TaskNo, name: Option<&str>, completion: &CallCompletion) {
    let fits = |message: &Message| name.is_none() || message.name.as_deref() == name;
    let mut waiting = before.inbox(Owner::Task(no)).filter(|message| fits(message));
    match completion {
        CallCompletion::Message(message) => {
            assert!(fits(message), "{no:?} waits for {name:?} and got {message:?}");
            assert!(waiting.all(|other| other.no > message.no), "{no:?} got a newer message");
        }
        _ => assert_eq!(waiting.next(), None, "{no:?} did not get its message"),
    }
}

/// Checks that the oldest messages were received, in order and at least one.
fn check_all_received(before: &TaskTree, no: TaskNo, completion: &CallCompletion) {
    let CallCompletion::Messages(messages) = completion else {
        panic!("{no:?} waits for messages and got {completion:?}")
    };
    assert!(messages.is_sorted_by_key(|message| message.no), "{no:?} got {messages:?}");
    let last = messages.last().expect("a wait for messages ends with one");
    let mut waiting = before.inbox(Owner::Task(no));
    assert!(waiting.all(|other| other.no > last.no), "{no:?} got a newer message");
}

/// A wait for tasks that has completed.
struct CompletedWait<'a> {
    no: TaskNo,
    wait: &'a TasksCondition,
    is_due: bool,
}

/// Checks that work that wakes on all completions is not woken by the first.
fn check_wake(before: &TaskTree, event: &Event) {
    let (Event::Started { no, .. } | Event::Queued { no, .. }) = event else { return };
    let Some(row) = before.get(*no).filter(|row| matches!(row.state, TaskState::Waiting)) else {
        return;
    };
    let enough =
        row.spec.work.policy().wake_on == WakeOn::AnyCompletion || row.parked_calls.is_empty();
    assert!(enough, "{no:?} was woken with calls still open");
}

/// Checks that a kept task ends no later than under its parent, unless it may outlive the deadline.
fn check_inherited_deadline(naive: Naive<'_>, no: TaskNo, deadline: Option<Time>) {
    let row = naive.row(no).expect("a passing task exists");
    let owners = naive.chain(row.owner).into_iter().filter_map(Owner::task);
    let ends = owners.filter_map(|no| naive.row(no)).flat_map(|row| {
        let own = match row.clock() {
            RunClock::Unlimited => None,
            RunClock::Ticking { until } => Some(until),
            RunClock::Stopped { remaining } => Some(naive.now.after(remaining)),
        };
        own.into_iter().chain(row.inherited_deadline().map(|deadline| deadline.at))
    });
    let process_deadline = naive.process_deadline(row.owner);
    let is_free = row.spec.kept_deadline == Some(KeptDeadline::Dropped);
    let expected = ends.chain(process_deadline).min().filter(|_| !is_free);
    assert_eq!(deadline, expected, "the deadline of {no:?}");
}
