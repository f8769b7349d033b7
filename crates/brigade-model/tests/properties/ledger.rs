//! What the events so far add up to, and what an event may not be.

use std::collections::{BTreeMap, BTreeSet};

use brigade_model::action::Action;
use brigade_model::call::{CallCompletion, Condition, JournalEntry, TasksCondition};
use brigade_model::event::{Event, EventRecord};
use brigade_model::ids::{Attempt, MessageNo, Owner, RunNo, TaskNo, Time};
use brigade_model::limits::Usage;
use brigade_model::outcome::Outcome;
use brigade_model::task::{RunClock, TaskState};
use brigade_model::task_tree::TaskTree;
use brigade_model::work::{KeptDeadline, WakeOn};

use crate::naive::Naive;
use crate::rows::{limit_holder, living};

#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) ended: BTreeMap<(TaskNo, RunNo), bool>,
    pub(crate) collected: BTreeSet<(TaskNo, RunNo)>,
    pub(crate) sent: BTreeSet<MessageNo>,
    pub(crate) arrived: BTreeSet<MessageNo>,
    pub(crate) keys: BTreeMap<(Owner, RunNo, String), TaskNo>,
    pub(crate) totals: BTreeMap<TaskNo, u32>,
    pub(crate) spawns: BTreeMap<Owner, Vec<Time>>,
    /// What was charged to each task itself.
    pub(crate) spent: BTreeMap<TaskNo, Usage>,
    /// The task under whose limits each one was spawned: whatever becomes of it, they hold.
    pub(crate) spawners: BTreeMap<TaskNo, TaskNo>,
    attempts: BTreeMap<TaskNo, Attempt>,
    starts: BTreeSet<(TaskNo, Attempt)>,
    /// Runs that were told to stop while they were at it: they end as cancelled.
    pub(crate) doomed: BTreeSet<(TaskNo, RunNo)>,
    last_collected: Vec<(TaskNo, RunNo)>,
    /// Who was told something by the command that is being looked at.
    told: BTreeSet<TaskNo>,
}

impl Ledger {
    /// Looks at one event against the tree as it is before it.
    pub(crate) fn record(
        &mut self,
        before: &TaskTree,
        record: &EventRecord,
        entry: Option<&JournalEntry>,
    ) {
        self.nothing_after_the_end(before, &record.event);
        wakes_when_it_should(before, &record.event);
        let (keys, totals, spawns) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let now = record.at;
        let naive = Naive { all: before, keys: &keys, totals: &totals, spawns: &spawns, now };
        let collected_just_before = std::mem::take(&mut self.last_collected);
        match &record.event {
            Event::Spawned(spawned) => {
                self.spawners.extend(spawned.owner.task().map(|owner| (spawned.no, owner)));
                self.count_total(naive, spawned.owner);
                self.count_rate(naive, spawned.owner);
                if let Some(key) = &spawned.spec.key {
                    let place = (spawned.owner, spawned.owner_run, key.as_str().to_owned());
                    let before = self.keys.insert(place, spawned.no);
                    assert_eq!(before, None, "a key that was taken got another task");
                }
                if spawned.queued.is_none() {
                    self.started(naive, (spawned.no, spawned.owner), Attempt(1));
                }
            }
            Event::Started { no, attempt } => {
                let owner = before.owner_of(*no).expect("what starts exists");
                self.started(naive, (*no, owner), *attempt);
            }
            Event::Suspended { no, .. } => {
                assert!(!self.told.contains(no), "{no:?} let go with an answer on its way");
            }
            Event::CallCompleted { no, index, .. } => {
                self.told.insert(*no);
                let row = before.get(*no).expect("what is answered exists");
                let call = row.parked_call(*index).expect("what is answered is open");
                let entry = entry.expect("an answer is in the journal");
                if let Condition::Tasks(wait) = &call.condition {
                    let answered = (record, *no, &*entry.completion);
                    self.wait_was_answered_rightly(naive, wait, answered, &collected_just_before);
                }
            }
            Event::Ended { no, run, outcome, .. } => {
                let row = before.get(*no).expect("what ends exists");
                assert!(living(row) && row.run == *run, "{no:?} ended twice in run {run}");
                let cancelled = matches!(**outcome, Outcome::Cancelled(_));
                if self.doomed.contains(&(*no, *run)) {
                    assert!(cancelled, "{no:?} was stopped and ended {outcome}");
                }
                let again = self.ended.insert((*no, *run), cancelled);
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
                inherits_what_it_should(naive, *no, deadline.map(|deadline| deadline.at));
            }
            Event::Charged { no, spent, .. } => {
                let so_far = self.spent.entry(*no).or_default();
                *so_far = so_far.plus(**spent);
            }
            Event::MessageSent(message) => {
                assert!(self.sent.insert(message.no), "message {} sent twice", message.no);
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
        self.told.clear();
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

    fn arrived(&mut self, message: MessageNo) {
        assert!(self.sent.contains(&message), "message {message} was never sent");
        assert!(self.arrived.insert(message), "message {message} arrived twice");
    }

    fn nothing_after_the_end(&self, before: &TaskTree, event: &Event) {
        let Some(row) = event.task().and_then(|no| before.get(no)) else { return };
        let allowed = matches!(
            event,
            Event::DeadLettered { .. }
                | Event::SlotReturned { .. }
                | Event::RunOpened { .. }
                // Of limits that still hold for kept tasks.
                | Event::LimitsSet { .. }
        );
        assert!(living(row) || allowed, "after the end came {event:?}");
    }

    fn started(&mut self, naive: Naive<'_>, (no, owner): (TaskNo, Owner), attempt: Attempt) {
        let before = self.attempts.insert(no, attempt);
        assert!(before.is_none_or(|before| before < attempt), "attempts of {no:?} do not rise");
        let holder = naive.row(no).map_or(owner, limit_holder);
        for holder in naive.limit_chain(holder) {
            assert!(!naive.is_full(holder), "{no:?} started beyond the limit of {holder:?}");
        }
    }

    fn count_total(&mut self, naive: Naive<'_>, owner: Owner) {
        let above: Vec<TaskNo> =
            naive.total_chain(owner).into_iter().filter_map(Owner::task).collect();
        for no in &above {
            let top = above.last() == Some(no) && naive.limits(Owner::Session).total.is_some();
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

    fn wait_was_answered_rightly(
        &self,
        naive: Naive<'_>,
        wait: &TasksCondition,
        (record, no, answer): (&EventRecord, TaskNo, &CallCompletion),
        just_collected: &[(TaskNo, RunNo)],
    ) {
        let ended = naive.ended_enough(&wait.tasks, wait.mode);
        match answer {
            CallCompletion::Results(endings) => {
                assert!(ended, "{no:?} was told endings of tasks that live");
                let fresh: BTreeSet<_> = endings
                    .iter()
                    .filter(|ending| !ending.collected_before)
                    .map(|ending| (ending.no, ending.run))
                    .collect();
                assert_eq!(fresh, just_collected.iter().copied().collect());
                for task in wait.tasks.iter() {
                    let row = naive.row(*task).filter(|row| !living(row));
                    let told = |run| endings.iter().any(|e| e.no == *task && e.run == run);
                    assert!(row.is_none_or(|row| told(row.run)), "{task:?} was left out");
                }
            }
            CallCompletion::Interrupted => {
                let mail = naive.all.inbox(Owner::Task(no)).next().is_some();
                assert!(wait.interruptible && mail && !ended, "news without news");
            }
            CallCompletion::Elapsed => {
                let due = wait.until.is_some_and(|until| until <= record.at);
                assert!(due && !ended, "{no:?} was told that its time was up");
            }
            CallCompletion::Abandoned => {}
            other => panic!("a wait was answered with {other:?}"),
        }
    }

    /// Remembers who was at work when a stop reached it.
    pub(crate) fn doom(&mut self, before: &TaskTree, no: TaskNo) {
        let Some(row) = before.get(no) else { return };
        let at_it = match &row.state {
            TaskState::Queued(_) | TaskState::Running | TaskState::Waiting => true,
            TaskState::Closing { .. } => !crate::rows::being_stopped(row),
            TaskState::Stopping(_) | TaskState::Ended(_) => false,
        };
        if at_it {
            self.doomed.insert((no, row.run));
        }
    }
}

/// Work that wants all its answers is not woken by the first.
fn wakes_when_it_should(before: &TaskTree, event: &Event) {
    let (Event::Started { no, .. } | Event::Queued { no, .. }) = event else { return };
    let Some(row) = before.get(*no).filter(|row| matches!(row.state, TaskState::Waiting)) else {
        return;
    };
    let enough =
        row.spec.work.policy().wake_on == WakeOn::AnyCompletion || row.parked_calls.is_empty();
    assert!(enough, "{no:?} was woken with calls still open");
}

/// A kept task ends no later than it would have where it was, unless it is one that may.
fn inherits_what_it_should(naive: Naive<'_>, no: TaskNo, deadline: Option<Time>) {
    let row = naive.row(no).expect("what passes exists");
    let above = naive.chain(row.owner).into_iter().filter_map(Owner::task);
    let ends = above.filter_map(|no| naive.row(no)).flat_map(|row| {
        let own = match row.clock() {
            RunClock::Unlimited => None,
            RunClock::Ticking { until } => Some(until),
            RunClock::Stopped { remaining: left } => Some(naive.now.after(left)),
        };
        own.into_iter().chain(row.inherited_deadline().map(|deadline| deadline.at))
    });
    let below_processes = naive.process_deadline(row.owner);
    let is_free = row.spec.kept_deadline == Some(KeptDeadline::Dropped);
    let expected = ends.chain(below_processes).min().filter(|_| !is_free);
    assert_eq!(deadline, expected, "the deadline of {no:?}");
}
