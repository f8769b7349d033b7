//! Finds tasks by name and key.

use crate::ids::{Owner, RunNo, TaskNo};
use crate::name::{IdempotencyKey, TaskName};
use crate::task_tree::TaskTree;

pub(super) const KEY_SWEEP_MIN: usize = 1024;

/// The mark of an evicted child with a key, so that the key stays taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMark {
    hash: [u32; 2],
    pub owner: Owner,
    pub no: TaskNo,
}
/// The scope in which a key is unique: one run of an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyScope {
    pub(crate) owner: Owner,
    pub(crate) run: RunNo,
}

impl KeyMark {
    pub fn new(owner: Owner, run: RunNo, key: &IdempotencyKey, no: TaskNo) -> Self {
        let hash = key_hash(KeyScope { owner, run }, key);
        Self { hash: [(hash >> 32) as u32, hash as u32], owner, no }
    }

    fn hash(&self) -> u64 {
        u64::from(self.hash[0]) << 32 | u64::from(self.hash[1])
    }
}

impl TaskTree {
    pub(crate) fn find_alive_by_name(&self, owner: Owner, name: &TaskName) -> Option<TaskNo> {
        let hash = name_hash(owner, name);
        let found = self.names.find(hash, |&(other, no)| {
            other == hash
                && self.tasks.get(no).is_some_and(|task| {
                    task.row.owner == owner
                        && task.row.name.as_ref().is_some_and(|n| n.same_as(name))
                })
        });
        found.map(|(_, no)| *no)
    }

    pub(crate) fn find_by_key(&self, scope: KeyScope, key: &IdempotencyKey) -> Option<KeyMark> {
        let hash = key_hash(scope, key);
        self.keys
            .find(hash, |mark| {
                mark.hash() == hash
                    && self.tasks.get(mark.no).is_none_or(|task| {
                        task.row.owner_run == scope.run && task.row.spec.key.as_ref() == Some(key)
                    })
            })
            .copied()
    }

    /// Keeps the key of an evicted child taken.
    pub fn insert_key(&mut self, mark: KeyMark) {
        if self.keys.len() >= self.key_sweep_at {
            let tasks = &self.tasks;
            self.keys.retain(|mark| match mark.owner {
                Owner::Session => true,
                Owner::Task(owner) => tasks.get(owner).is_some_and(|task| task.row.is_alive()),
            });
            self.key_sweep_at = (self.keys.len() * 2).max(KEY_SWEEP_MIN);
        }
        if self.keys.find(mark.hash(), |other| *other == mark).is_none() {
            self.keys.insert_unique(mark.hash(), mark, KeyMark::hash);
        }
    }

    pub(super) fn set_name_indexed(&mut self, no: TaskNo, indexed: bool) {
        let Some(task) = self.tasks.get(no) else { return };
        let Some(name) = &task.row.name else { return };
        let hash = name_hash(task.row.owner, name);
        if indexed {
            self.names.insert_unique(hash, (hash, no), |(hash, _)| *hash);
        } else if let Ok(entry) = self.names.find_entry(hash, |&(_, other)| other == no) {
            entry.remove();
        }
    }

    /// Removes the name of an alive task.
    pub(crate) fn clear_name(&mut self, no: TaskNo) {
        self.set_name_indexed(no, false);
        self.edit(no, |row| row.name = None);
    }
}

fn name_hash(owner: Owner, name: &TaskName) -> u64 {
    hash_for_owner(owner, 0, name.folded().as_bytes())
}

fn key_hash(scope: KeyScope, key: &IdempotencyKey) -> u64 {
    hash_for_owner(scope.owner, scope.run.0, key.as_str().as_bytes())
}

fn hash_for_owner(owner: Owner, run: u32, text: &[u8]) -> u64 {
    let owner = owner.task().map_or(0, TaskNo::get);
    xxhash_rust::xxh3::xxh3_64_with_seed(text, u64::from(owner) << 32 | u64::from(run))
}
