//! Finds messages by their keys.
//!
//! A keyed message to an alive recipient leaves a small mark in memory, so that a new key is known
//! to be new without a read. The message itself is loaded only when a key is repeated. The marks of
//! an ended run are dropped; the store finds the message of a key for an ended recipient.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::ids::{MessageNo, Owner, TaskNo};
use crate::message::{Message, MessageKeyScope};
use crate::name::IdempotencyKey;
use crate::task::TaskRow;
use crate::task_tree::TaskTree;
use crate::task_tree::index::KEY_SWEEP_MIN;

/// The mark of a message that was sent with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageKeyMark {
    hash: u64,
    pub scope: MessageKeyScope,
    pub no: MessageNo,
}

impl MessageKeyMark {
    pub fn new(scope: MessageKeyScope, key: &IdempotencyKey, no: MessageNo) -> Self {
        Self { hash: key_hash(scope, key), scope, no }
    }

    /// Returns the mark of a message, if it has a key.
    pub fn of(message: &Message) -> Option<Self> {
        let key = message.key.as_ref()?;
        Some(Self::new(message.key_scope()?, &key.key, message.no))
    }

    /// Returns whether the message has this key, as far as the mark shows.
    pub fn matches(&self, scope: MessageKeyScope, key: &IdempotencyKey) -> bool {
        self.scope == scope && self.hash == key_hash(scope, key)
    }
}

/// The marks of a session.
#[derive(Clone, Debug)]
pub(super) struct MessageKeys {
    marks: HashTable<MessageKeyMark>,
    /// The number of marks at which those of ended runs are removed.
    sweep_at: usize,
}

impl Default for MessageKeys {
    fn default() -> Self {
        Self { marks: HashTable::new(), sweep_at: KEY_SWEEP_MIN }
    }
}

impl TaskTree {
    /// Returns the mark of the message with this key.
    pub(crate) fn find_message_key(
        &self,
        scope: MessageKeyScope,
        key: &IdempotencyKey,
    ) -> Option<MessageKeyMark> {
        let has_key = |mark: &MessageKeyMark| {
            let message = self.find_message(scope.to, mark.no);
            message.and_then(|message| message.key.as_ref()).is_none_or(|other| other.key == *key)
        };
        let found = self
            .message_keys
            .marks
            .find(key_hash(scope, key), |mark| mark.matches(scope, key) && has_key(mark));
        found.copied()
    }

    /// Returns a message to this recipient, if it is in memory.
    pub(crate) fn find_message(&self, to: Owner, no: MessageNo) -> Option<&Arc<Message>> {
        let unread = self.inbox(to);
        let dirty = self.dirty.messages.iter().map(|row| &row.message);
        unread.chain(&self.loaded_messages).chain(dirty).find(|message| message.no == no)
    }

    /// Takes a stored message, to compare it with a repeat.
    pub fn insert_message(&mut self, message: Arc<Message>) {
        self.loaded_messages.push(message);
    }

    /// Takes the mark of a message that the store found for an ended recipient.
    pub fn insert_found_message_key(&mut self, mark: MessageKeyMark) {
        let marks = &mut self.message_keys.marks;
        if marks.find(mark.hash, |other| *other == mark).is_none() {
            marks.insert_unique(mark.hash, mark, |mark| mark.hash);
        }
    }

    /// Takes the mark of a keyed message, unless nobody can repeat the message with it.
    pub fn insert_message_key(&mut self, mark: MessageKeyMark) {
        if self.message_keys.marks.len() >= self.message_keys.sweep_at {
            let mut keys = std::mem::take(&mut self.message_keys);
            // An ended task in memory may not be stored yet, so its marks stay with it.
            keys.marks.retain(|mark| self.scope_task(mark.scope).is_some());
            keys.sweep_at = (keys.marks.len() * 2).max(KEY_SWEEP_MIN);
            self.message_keys = keys;
        }
        if self.has_message_keys(mark.scope) {
            self.insert_found_message_key(mark);
        }
    }

    /// Returns the number of message keys in memory.
    pub fn message_key_count(&self) -> usize {
        self.message_keys.marks.len()
    }

    /// Returns whether all keys of this scope are in memory: its run is the current one of an alive
    /// task.
    pub(crate) fn has_message_keys(&self, scope: MessageKeyScope) -> bool {
        self.scope_task(scope).is_some_and(TaskRow::is_alive)
    }

    /// Returns the task whose run a scope names, if it is in memory and in this run.
    fn scope_task(&self, scope: MessageKeyScope) -> Option<&TaskRow> {
        self.get(scope.task()?).filter(|row| row.run == scope.run)
    }
}

fn key_hash(scope: MessageKeyScope, key: &IdempotencyKey) -> u64 {
    let to = scope.to.task().map_or(0, TaskNo::get);
    let from = scope.from.map_or(0, TaskNo::get);
    let seed = (u64::from(to) << 32 | u64::from(from)) ^ u64::from(scope.run.0).rotate_left(20);
    xxhash_rust::xxh3::xxh3_64_with_seed(key.as_str().as_bytes(), seed)
}
