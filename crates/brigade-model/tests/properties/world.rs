//! A tree, a store beside it and a fold of its events, checked after every command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brigade_model::apply::apply;
use brigade_model::call::Condition;
use brigade_model::command::{Caller, CollectCommand, Command};
use brigade_model::decide::CommandReply;
use brigade_model::event::Event;
use brigade_model::ids::{Epoch, MessageNo, Owner, SessionId, TaskNo, Time};
use brigade_model::limits::Limits;
use brigade_model::message::{Message, Receipt};
use brigade_model::needs::{NeededRow, needs};
use brigade_model::refusal::Refusal;
use brigade_model::task::{QueueReason, StoredTask, TaskRow};
use brigade_model::task_tree::{KeyMark, MessageKeyMark, MessageRow, SessionRow, TaskTree};
use brigade_model::transition::{CommandOutputs, SessionOpening, handle_command, open_session};

use crate::ledger::Ledger;
use crate::naive::{Expected, Naive};
use crate::rows::{is_alive, limited_by, same};
use crate::{checks, round_trip};

/// The host of the world's processes.
const HOST: &str = "kitchen/1";

pub(crate) struct World {
    /// The tree as a runtime holds it, with evictions and reloads.
    pub(crate) tree: TaskTree,
    /// The tree with every event applied and nothing evicted.
    pub(crate) folded: TaskTree,
    pub(crate) store: Store,
    pub(crate) ledger: Ledger,
    pub(crate) now: Time,
    /// The random numbers of a runtime that shares its slots with other sessions.
    pub(crate) runtime_dice: Option<u32>,
    calls: u32,
}

/// The stored rows of one session.
pub(crate) struct Store {
    pub(crate) row: SessionRow,
    pub(crate) tasks: BTreeMap<TaskNo, TaskRow>,
    pub(crate) messages: BTreeMap<MessageNo, MessageRow>,
}

impl World {
    pub(crate) fn new(limits: Limits) -> Self {
        let now = Time(1_000);
        let name = "properties".parse().expect("a good session name");
        let id = SessionId::from_uuid(uuid());
        let (mut tree, record) =
            open_session(SessionOpening { id, name, limits, at: now, epoch: Epoch(1) });
        tree.set_host(Some(HOST.into()));
        let folded = TaskTree::open(&record, Epoch(1)).expect("the first event opens the session");
        let store =
            Store { row: tree.row().clone(), tasks: BTreeMap::new(), messages: BTreeMap::new() };
        Self { tree, folded, store, ledger: Ledger::default(), now, runtime_dice: None, calls: 0 }
    }

    pub(crate) fn naive(&self) -> Naive<'_> {
        let Ledger { keys, message_keys, totals, spawns, .. } = &self.ledger;
        let now = self.now.max(self.folded.row().now);
        Naive { all: &self.folded, keys, message_keys, totals, spawns, now }
    }

    /// Returns a call index that no task has used.
    pub(crate) fn next_call(&mut self) -> brigade_model::ids::CallIndex {
        self.calls += 1;
        brigade_model::ids::CallIndex(self.calls)
    }

    /// Handles one command, and checks everything about it.
    pub(crate) fn submit(&mut self, command: &Command) -> Result<CommandReply, Refusal> {
        self.load(command);
        let expected = self.naive().predict(command);
        let starts = self.roll_starts(command);
        self.tree.allow_starts(starts);
        let running_before = self.tree.running_count();
        match handle_command(&mut self.tree, command, self.now) {
            Err(refusal) => {
                checks::stored_folded_and_live_agree(self);
                let dirty = self.tree.take_dirty();
                let is_unchanged = dirty.tasks.is_empty() && dirty.messages.is_empty();
                assert!(is_unchanged, "a refusal touched rows");
                if let Some(expected) = expected {
                    let got = Expected::Refused(refusal.kind);
                    assert_eq!(expected, got, "{command:?}: {refusal}");
                }
                Err(refusal)
            }
            Ok(handled) => {
                if let Some(expected) = expected {
                    checks::reply(&expected, &handled.reply, command);
                    self.check_stopped(&expected, &handled.outputs);
                    check_queued(&expected, &handled.outputs, starts);
                }
                if let Command::Collect(CollectCommand { caller: Caller::Operator, .. }) = command {
                    let collected = |event: &Event| matches!(event, Event::Collected { .. });
                    let mut events = handled.outputs.events.iter().map(|record| &record.event);
                    assert!(!events.any(collected), "the operator consumed a result");
                }
                if starts == Some(0) {
                    let running = self.tree.running_count();
                    let returned = |event: &Event| {
                        matches!(event, Event::Returned { .. } | Event::Unattended { .. })
                    };
                    let events = handled.outputs.events.iter();
                    let returned = events.filter(|record| returned(&record.event)).count();
                    let allowed = running_before as usize + returned;
                    assert!(running as usize <= allowed, "a task started without a start");
                }
                self.commit(&handled.outputs);
                checks::runtime_queue(self, starts);
                checks::all(self, command);
                Ok(handled.reply)
            }
        }
    }

    /// Returns the number of starts that the runtime allows for a command. A recovery starts nothing
    /// that queues for the runtime.
    fn roll_starts(&mut self, command: &Command) -> Option<u32> {
        let dice = self.runtime_dice.as_mut()?;
        *dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match command {
            Command::Recover(_) => Some(0),
            _ => Some((*dice >> 16) % 4 / 2 * ((*dice >> 24) % 3)),
        }
    }

    /// Loads the rows that the command needs, as the loop does before it decides.
    fn load(&mut self, command: &Command) {
        let mut looked_for = Vec::new();
        loop {
            let missing = needs(&self.tree, command);
            if missing.is_empty() || missing == looked_for {
                return;
            }
            self.load_needs(&missing);
            looked_for = missing;
        }
    }

    fn load_needs(&mut self, missing: &[NeededRow]) {
        for need in missing {
            let found = match need {
                NeededRow::Task(no) => self.store.tasks.get(no).map(|row| (*no, row.clone())),
                NeededRow::Named { owner, name } => {
                    let fits = |row: &TaskRow| {
                        owner.is_none_or(|owner| row.owner == owner)
                            && row.name.as_ref().is_some_and(|other| same(other, name))
                    };
                    let newest = self.store.tasks.iter().rev().find(|(_, row)| fits(row));
                    newest.map(|(no, row)| (*no, row.clone()))
                }
                NeededRow::Message(no) => {
                    let row = self.store.messages.get(no).expect("a marked message is stored");
                    self.tree.insert_message(row.message.clone());
                    None
                }
                NeededRow::MessageKey { scope, key } => {
                    let is_same = |message: &Message| {
                        message.key_scope() == Some(*scope)
                            && message.key.as_ref().is_some_and(|other| other.key == *key)
                    };
                    let mut messages = self.store.messages.values().map(|row| &row.message);
                    let found = messages.find(|message| is_same(message));
                    if let Some(mark) = found.and_then(|message| MessageKeyMark::of(message)) {
                        self.tree.insert_found_message_key(mark);
                    }
                    None
                }
            };
            if let Some((no, row)) = found {
                self.tree.insert_loaded(StoredTask::new(no, row));
            }
        }
    }

    fn commit(&mut self, outputs: &CommandOutputs) {
        for record in &outputs.events {
            let entry = outputs.journal.iter().find(|new| new.entry.order == record.seq);
            self.ledger.record(&self.folded, record, entry.map(|new| &new.entry));
            assert_eq!(record.seq, self.folded.row().seq.next(), "a gap in the sequence");
            round_trip(&**record);
            apply(&mut self.folded, record);
        }
        self.ledger.acted(&outputs.actions);
        let changed = self.tree.take_dirty();
        self.store.row = self.tree.row().clone();
        for StoredTask { no, row } in changed.tasks {
            round_trip(&row);
            self.store.tasks.insert(no, std::sync::Arc::unwrap_or_clone(row));
        }
        for message in changed.messages {
            round_trip(&message);
            self.store.messages.insert(message.message.no, message);
        }
    }

    fn check_stopped(&mut self, expected: &Expected, outputs: &CommandOutputs) {
        let Expected::Stopped { reached, .. } = expected else { return };
        let mut allowed: BTreeSet<TaskNo> = reached.clone();
        for no in reached {
            self.ledger.doom(&self.folded, *no);
            let ancestors = self.naive().chain(Owner::Task(*no));
            allowed.extend(ancestors.into_iter().filter_map(Owner::task));
        }
        for record in &outputs.events {
            match &record.event {
                Event::StopRequested { no, .. } => {
                    assert!(reached.contains(no), "{no:?} was stopped")
                }
                Event::Ended { no, .. } => assert!(allowed.contains(no), "{no:?} was ended"),
                _ => {}
            }
        }
    }

    pub(crate) fn evict(&mut self) {
        for no in self.tree.evict() {
            let row = self.store.tasks.get(&no).expect("an evicted task is stored");
            assert!(!is_alive(row), "{no:?} was evicted alive");
        }
    }

    /// Loads the whole session again, as after a restart.
    pub(crate) fn rebuild(&mut self) {
        let mut tree = TaskTree::from_row(self.store.row.clone());
        let loaded = self.to_load();
        for no in &loaded {
            tree.insert_loaded(StoredTask::new(*no, self.store.tasks[no].clone()));
        }
        for row in self.store.messages.values().filter(|row| row.receipt == Receipt::Accepted) {
            tree.insert_unread(Arc::clone(&row.message));
        }
        for (no, row) in self.store.tasks.iter().filter(|(no, _)| !loaded.contains(no)) {
            if let Some(key) = &row.spec.key {
                tree.insert_key(KeyMark::new(row.owner, row.owner_run, key, *no));
            }
        }
        for row in self.store.messages.values() {
            if let Some(mark) = MessageKeyMark::of(&row.message) {
                tree.insert_message_key(mark);
            }
        }
        tree.finish_loading();
        tree.set_host(Some(HOST.into()));
        self.tree = tree;
    }

    /// Returns the tasks that are alive or still needed, and all their owners and limit holders.
    fn to_load(&self) -> BTreeSet<TaskNo> {
        let tasks = &self.store.tasks;
        let is_alive_no = |no: TaskNo| tasks.get(&no).is_some_and(is_alive);
        let mut wanted: BTreeSet<TaskNo> = BTreeSet::new();
        for (no, row) in tasks {
            let lingers = row.ended().is_some_and(|ended| ended.lingering);
            let is_pending = !row.is_collected()
                && match row.owner {
                    Owner::Session => row.client.is_some(),
                    Owner::Task(owner) => is_alive_no(owner),
                };
            if is_alive(row) || lingers || is_pending {
                wanted.insert(*no);
            }
            for call in &row.parked_calls {
                if let Condition::Tasks(wait) = &call.condition {
                    wanted.extend(wait.tasks.iter());
                }
            }
        }
        let mut pending: Vec<TaskNo> = wanted.iter().copied().collect();
        while let Some(no) = pending.pop() {
            let Some(row) = tasks.get(&no) else { continue };
            for no in row.owner.task().into_iter().chain(limited_by(row)) {
                if wanted.insert(no) {
                    pending.push(no);
                }
            }
        }
        wanted
    }
}

fn check_queued(expected: &Expected, outputs: &CommandOutputs, starts: Option<u32>) {
    let Expected::Spawned { existing: None, queued } = expected else { return };
    let spawned = outputs.events.iter().find_map(|record| match &record.event {
        Event::Spawned(spawned) => Some(spawned),
        _ => None,
    });
    let reason = spawned.expect("a new task is an event").queued.clone();
    match (queued, starts) {
        (None, Some(0)) => assert_eq!(reason, Some(QueueReason::RuntimeLimit)),
        (None, Some(_)) if reason.is_some() => assert_eq!(reason, Some(QueueReason::RuntimeLimit)),
        _ => assert_eq!(reason, queued.map(QueueReason::RunningLimit), "the holder of its queue"),
    }
}

fn uuid() -> uuid::Uuid {
    uuid::Uuid::from_u128(7)
}
