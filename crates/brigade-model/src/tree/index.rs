//! Finding tasks by their names and keys.

use crate::ids::{Owner, RunNo, TaskNo};
use crate::name::{Key, Name};
use crate::tree::Tree;

pub(super) const KEYS_FULL: usize = 1024;

/// What an evicted keyed child leaves behind, so that its key stays taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMark {
    hash: [u32; 2],
    pub owner: Owner,
    pub no: TaskNo,
}

impl KeyMark {
    pub fn new(owner: Owner, run: RunNo, key: &Key, no: TaskNo) -> Self {
        let hash = key_hash(owner, run, key);
        Self { hash: [(hash >> 32) as u32, hash as u32], owner, no }
    }

    fn hash(&self) -> u64 {
        u64::from(self.hash[0]) << 32 | u64::from(self.hash[1])
    }
}

impl Tree {
    pub(crate) fn living_named(&self, owner: Owner, name: &Name) -> Option<TaskNo> {
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

    pub(crate) fn keyed(&self, owner: Owner, run: RunNo, key: &Key) -> Option<KeyMark> {
        let hash = key_hash(owner, run, key);
        self.keys
            .find(hash, |mark| {
                mark.hash() == hash
                    && self.tasks.get(mark.no).is_none_or(|task| {
                        task.row.owner_run == run && task.row.spec.key.as_ref() == Some(key)
                    })
            })
            .copied()
    }

    /// Keeps an evicted child's key taken.
    pub fn insert_key(&mut self, mark: KeyMark) {
        if self.keys.len() >= self.keys_full {
            let tasks = &self.tasks;
            self.keys.retain(|mark| match mark.owner {
                Owner::Session => true,
                Owner::Task(owner) => tasks.get(owner).is_some_and(|task| task.row.is_living()),
            });
            self.keys_full = (self.keys.len() * 2).max(KEYS_FULL);
        }
        if self.keys.find(mark.hash(), |other| *other == mark).is_none() {
            self.keys.insert_unique(mark.hash(), mark, KeyMark::hash);
        }
    }

    pub(super) fn set_bearer(&mut self, no: TaskNo, bears: bool) {
        let Some(task) = self.tasks.get(no) else { return };
        let Some(name) = &task.row.name else { return };
        let hash = name_hash(task.row.owner, name);
        if bears {
            self.names.insert_unique(hash, (hash, no), |(hash, _)| *hash);
        } else if let Ok(entry) = self.names.find_entry(hash, |&(_, other)| other == no) {
            entry.remove();
        }
    }

    /// Takes the name of a living task away.
    pub(crate) fn rename_none(&mut self, no: TaskNo) {
        self.set_bearer(no, false);
        self.edit(no, |row| row.name = None);
    }
}

fn name_hash(owner: Owner, name: &Name) -> u64 {
    hash_in(owner, 0, name.folded().as_bytes())
}

fn key_hash(owner: Owner, run: RunNo, key: &Key) -> u64 {
    hash_in(owner, run.0, key.as_str().as_bytes())
}

fn hash_in(owner: Owner, run: u32, text: &[u8]) -> u64 {
    let owner = owner.task().map_or(0, TaskNo::get);
    xxhash_rust::xxh3::xxh3_64_with_seed(text, u64::from(owner) << 32 | u64::from(run))
}
