//! One session of the store in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use brigade_model::call::JournalEntry;
use brigade_model::id_map::IdMap;
use brigade_model::ids::{MessageNo, Owner, TaskNo, Time};
use brigade_model::message::{Message, MessageKeyScope, Receipt};
use brigade_model::name::IdempotencyKey;
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{KeyMark, MessageKeyMark, MessageRow, SessionRow};

use crate::batch::{SessionBatch, SupersededRun};
use crate::residency::{Residency, add_required_tasks};
use crate::store::{LoadedSession, Retention, RunRow};

#[derive(Clone, Debug)]
pub(crate) struct MemorySession {
    pub(crate) row: SessionRow,
    pub(crate) tasks: BTreeMap<TaskNo, Arc<TaskRow>>,
    pub(crate) children: BTreeSet<(Owner, TaskNo)>,
    /// Pairs of a limit holder and a kept task that its limits apply to.
    pub(crate) limited_tasks: BTreeSet<(TaskNo, TaskNo)>,
    pub(crate) journal: IdMap<TaskNo, Vec<JournalEntry>>,
    pub(crate) runs: IdMap<TaskNo, Vec<RunRow>>,
    pub(crate) messages: BTreeMap<MessageNo, MessageRow>,
    pub(crate) recipients: BTreeSet<(Owner, MessageNo)>,
    /// Keys of removed tasks whose parent is alive.
    pub(crate) key_marks: BTreeMap<(Owner, TaskNo), KeyMark>,
    /// Keys of messages, by the task whose run they are unique in. They outlive their messages.
    pub(crate) message_keys: BTreeMap<(TaskNo, MessageNo), MessageKeyMark>,
}

impl MemorySession {
    pub(crate) fn new(row: SessionRow) -> Self {
        Self {
            row,
            tasks: BTreeMap::new(),
            children: BTreeSet::new(),
            limited_tasks: BTreeSet::new(),
            journal: IdMap::default(),
            runs: IdMap::default(),
            messages: BTreeMap::new(),
            recipients: BTreeSet::new(),
            key_marks: BTreeMap::new(),
            message_keys: BTreeMap::new(),
        }
    }

    pub(crate) fn load(&self) -> LoadedSession {
        let mut tasks = Vec::new();
        let mut keys: Vec<KeyMark> =
            self.key_marks.values().filter(|mark| self.is_alive(mark.owner)).copied().collect();
        for (no, row) in &self.tasks {
            if let Some(key) = row.spec.key.as_ref().filter(|_| self.is_alive(row.owner)) {
                keys.push(KeyMark::new(row.owner, row.owner_run, key, *no));
            }
            let open = match Residency::of(row) {
                Residency::Alive | Residency::Lingering => true,
                Residency::Pending => self.is_alive(row.owner),
                Residency::Finished => false,
            };
            if open {
                tasks.push(StoredTask::new(*no, row.clone()));
            }
        }
        let Ok(()) = add_required_tasks::<Infallible>(&mut tasks, |no| Ok(self.task_row(no)));
        let unread = self.messages.values().filter(|row| row.receipt == Receipt::Accepted);
        let unread = unread.map(|row| row.message.clone()).collect();
        let marks = self.message_keys.iter().filter(|((no, _), _)| self.is_alive(Owner::Task(*no)));
        let message_keys = marks.map(|(_, mark)| *mark).collect();
        LoadedSession { row: self.row.clone(), tasks, unread, keys, message_keys }
    }

    pub(crate) fn put_message_key(&mut self, message: &Message) {
        if let Some(mark) = MessageKeyMark::of(message)
            && let Some(no) = mark.scope.task()
        {
            self.message_keys.insert((no, mark.no), mark);
        }
    }

    pub(crate) fn message_key(
        &self,
        scope: MessageKeyScope,
        key: &IdempotencyKey,
    ) -> Option<MessageKeyMark> {
        let no = scope.task()?;
        let marks = self.message_keys.range((no, MessageNo(0))..=(no, MessageNo(u64::MAX)));
        let has_key = |mark: &MessageKeyMark| {
            // A hash may be the same by chance, so the message decides while it is there.
            let message = self.messages.get(&mark.no).map(|row| &row.message);
            let stored = message.and_then(|message| message.key.as_ref());
            mark.matches(scope, key) && stored.is_none_or(|stored| stored.key == *key)
        };
        marks.map(|(_, mark)| *mark).find(has_key)
    }

    /// Returns the top-level ancestor of a task, or the task itself.
    pub(crate) fn top_level_task(&self, mut no: TaskNo) -> TaskNo {
        while let Some(owner) = self.tasks.get(&no).and_then(|row| row.owner.task()) {
            no = owner;
        }
        no
    }

    pub(crate) fn task_row(&self, no: TaskNo) -> Option<TaskRow> {
        self.tasks.get(&no).map(|row| (**row).clone())
    }

    pub(crate) fn is_alive(&self, owner: Owner) -> bool {
        match owner {
            Owner::Session => true,
            Owner::Task(no) => self.tasks.get(&no).is_some_and(|row| row.is_alive()),
        }
    }

    /// Stores the end of a run before the next run replaces it in the row.
    pub(crate) fn store_superseded_runs(&mut self, part: &SessionBatch) {
        let stored = |no| Ok::<_, Infallible>(self.task_row(no));
        let Ok(superseded) = part.superseded_runs(stored);
        for SupersededRun { no, run } in superseded {
            self.runs.entry(no).or_default().push(run);
        }
    }

    /// Writes a task and returns its residency before.
    pub(crate) fn put_task(&mut self, no: TaskNo, row: Arc<TaskRow>) -> Option<Residency> {
        let owner = row.owner;
        self.limited_tasks.extend(limited_by(&row).map(|holder| (holder, no)));
        let before = self.tasks.insert(no, row);
        match &before {
            Some(before) if before.owner == owner => {}
            Some(before) => {
                self.children.remove(&(before.owner, no));
                self.children.insert((owner, no));
            }
            None => {
                self.children.insert((owner, no));
            }
        }
        before.map(|before| Residency::of(&before))
    }

    pub(crate) fn prunable(&self, retention: &Retention, now: Time) -> Vec<TaskNo> {
        let old = |row: &TaskRow| {
            Residency::of(row) == Residency::Finished
                && row.ended().is_some_and(|ended| now.since(ended.at) >= retention.ended)
        };
        self.tasks.iter().filter(|(_, row)| old(row)).map(|(no, _)| *no).collect()
    }

    /// Removes a task with its descendants, unless one of them is alive, lingers or limits a kept
    /// task. Uncollected results of descendants go too: their owner has ended.
    pub(crate) fn remove_subtree(&mut self, no: TaskNo) -> u64 {
        let mut subtree = vec![no];
        let mut at = 0;
        while let Some(&no) = subtree.get(at) {
            let owner = Owner::Task(no);
            let children = self.children.range((owner, TaskNo::FIRST)..);
            subtree.extend(children.take_while(|(of, _)| *of == owner).map(|(_, no)| *no));
            at += 1;
        }
        let is_needed = |no: &TaskNo| {
            self.tasks.get(no).is_some_and(|row| Residency::of(row) < Residency::Pending)
                || self
                    .limited_tasks
                    .range((*no, TaskNo::FIRST)..)
                    .next()
                    .is_some_and(|(of, _)| of == no)
        };
        if subtree.iter().any(is_needed) {
            return 0;
        }
        subtree.into_iter().rev().map(|no| u64::from(self.remove_task(no))).sum()
    }

    pub(crate) fn remove_task(&mut self, no: TaskNo) -> bool {
        let Some(row) = self.tasks.remove(&no) else { return false };
        if let Some(key) = &row.spec.key
            && self.is_alive(row.owner)
        {
            let mark = KeyMark::new(row.owner, row.owner_run, key, no);
            self.key_marks.insert((row.owner, no), mark);
        }
        let removed = Owner::Task(no);
        self.children.remove(&(row.owner, no));
        if let Some(holder) = limited_by(&row) {
            self.limited_tasks.remove(&(holder, no));
        }
        let marks = self.key_marks.range((removed, TaskNo::FIRST)..).map(|(mark, _)| *mark);
        for mark in marks.take_while(|(owner, _)| *owner == removed).collect::<Vec<_>>() {
            self.key_marks.remove(&mark);
        }
        let messages = self.recipients.range((removed, MessageNo(0))..).copied();
        for (_, no) in messages.take_while(|(to, _)| *to == removed).collect::<Vec<_>>() {
            self.remove_message(no);
        }
        let keys = self.message_keys.range((no, MessageNo(0))..=(no, MessageNo(u64::MAX)));
        for mark in keys.map(|(mark, _)| *mark).collect::<Vec<_>>() {
            self.message_keys.remove(&mark);
        }
        self.journal.remove(&no);
        self.runs.remove(&no);
        true
    }

    pub(crate) fn remove_message(&mut self, no: MessageNo) {
        if let Some(row) = self.messages.remove(&no) {
            self.recipients.remove(&(row.message.to, no));
        }
    }
}

/// Returns the task whose limits apply to a kept task that passed to the session.
pub(crate) fn limited_by(row: &TaskRow) -> Option<TaskNo> {
    row.extras.as_ref().and_then(|extra| extra.limited_by)
}
