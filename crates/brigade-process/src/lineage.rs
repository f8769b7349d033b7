//! The ancestors of a process, up to the first process.
//!
//! A parent can die between two reads, and its pid can pass to another process. So the ancestors
//! are walked twice. A parent found by both walks was the parent all the time between them, and the
//! first walk read it in that time.

#[cfg(full_linux)]
use rustix::process::{Pid, test_kill_process};

use crate::shim::record::ProcessId;

/// The limit against endless chains, above any real number of ancestors.
const ANCESTORS_MAX: usize = 256;
/// The number of attempts. A parent often ends during a trace, but seldom several in a row.
const TRIES: u32 = 5;

/// The process table. Tests replace it to let processes die between two reads.
pub(crate) trait ProcessTable {
    fn entry(&self, pid: u32) -> TableEntry;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableEntry {
    /// A running process. Parent 0 means none: the first process, or a parent in an outer
    /// namespace.
    Found {
        start: u64,
        parent: u32,
    },
    /// A process of another user on a system that hides those. No shim of ours is at it or above
    /// it.
    Hidden,
    Missing,
}

/// Returns a process and its ancestors, or `None` if two walks never agree.
pub(crate) fn trace(table: &impl ProcessTable, start_pid: u32) -> Option<Vec<ProcessId>> {
    (0..TRIES).find_map(|_| {
        let first = walk(table, start_pid)?;
        let second = walk(table, start_pid)?;
        (first == second).then_some(first)
    })
}

/// Walks once. Returns `None` at a missing process.
fn walk(table: &impl ProcessTable, start_pid: u32) -> Option<Vec<ProcessId>> {
    let mut found = Vec::new();
    let mut pid = start_pid;
    while found.len() < ANCESTORS_MAX {
        match table.entry(pid) {
            TableEntry::Found { start, parent } => {
                found.push(ProcessId { pid, start });
                if parent == 0 {
                    return Some(found);
                }
                pid = parent;
            }
            TableEntry::Hidden => return Some(found),
            TableEntry::Missing => return None,
        }
    }
    None
}

/// The kernel's process table.
#[derive(Debug)]
pub(crate) struct SystemTable;

#[cfg(full_linux)]
impl ProcessTable for SystemTable {
    fn entry(&self, pid: u32) -> TableEntry {
        match crate::process_identity::read_stat(pid) {
            Ok(Some(stat)) => TableEntry::Found { start: stat.start, parent: stat.parent },
            Ok(None) if is_other_users(pid) => TableEntry::Hidden,
            Ok(None) | Err(_) => TableEntry::Missing,
        }
    }
}

#[cfg(not(full_linux))]
impl ProcessTable for SystemTable {
    fn entry(&self, _pid: u32) -> TableEntry {
        TableEntry::Missing
    }
}

/// Returns true if a process of another user has this pid.
#[cfg(full_linux)]
fn is_other_users(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::PERM))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;

    /// A table that answers lookups in order and checks their pids.
    struct ScriptedTable(RefCell<VecDeque<(u32, TableEntry)>>);

    impl ScriptedTable {
        fn new(entries: impl IntoIterator<Item = (u32, TableEntry)>) -> Self {
            Self(RefCell::new(entries.into_iter().collect()))
        }
    }

    impl ProcessTable for ScriptedTable {
        fn entry(&self, pid: u32) -> TableEntry {
            let (expected, entry) = self.0.borrow_mut().pop_front().expect("no further lookup");
            assert_eq!(pid, expected);
            entry
        }
    }

    fn found(start: u64, parent: u32) -> TableEntry {
        TableEntry::Found { start, parent }
    }

    fn ids(pairs: &[(u32, u64)]) -> Vec<ProcessId> {
        pairs.iter().map(|(pid, start)| ProcessId { pid: *pid, start: *start }).collect()
    }

    #[test]
    fn two_walks_that_agree_are_believed() {
        let walk = [(9, found(90, 5)), (5, found(50, 1)), (1, found(1, 0))];
        let table = ScriptedTable::new([walk, walk].concat());
        assert_eq!(trace(&table, 9), Some(ids(&[(9, 90), (5, 50), (1, 1)])));
    }

    /// Process 9 is a grandchild of shim 5, by way of 7. During the trace 7 dies and its pid passes
    /// to a child of 1, so the first walk misses the shim.
    #[test]
    fn a_parent_whose_pid_is_reused_between_two_reads_is_not_believed() {
        let table = ScriptedTable::new([
            (9, found(90, 7)),
            (7, found(95, 1)),
            (1, found(1, 0)),
            // The second walk: 9 has become a child of the shim.
            (9, found(90, 5)),
            (5, found(50, 1)),
            (1, found(1, 0)),
            // The third and fourth walk agree.
            (9, found(90, 5)),
            (5, found(50, 1)),
            (1, found(1, 0)),
            (9, found(90, 5)),
            (5, found(50, 1)),
            (1, found(1, 0)),
        ]);
        assert_eq!(trace(&table, 9), Some(ids(&[(9, 90), (5, 50), (1, 1)])));
    }

    #[test]
    fn a_pid_that_goes_to_another_process_between_the_walks_is_not_believed() {
        let once = [(9, found(90, 1)), (1, found(1, 0)), (9, found(91, 1)), (1, found(1, 0))];
        let table = ScriptedTable::new(once.repeat(TRIES as usize));
        assert_eq!(trace(&table, 9), None);
    }

    #[test]
    fn a_gap_is_retried_and_then_reported() {
        let gap = [(9, found(90, 7)), (7, TableEntry::Missing)];
        let walk = [(9, found(90, 1)), (1, found(1, 0))];
        let table = ScriptedTable::new([gap, walk, walk].concat());
        assert_eq!(trace(&table, 9), Some(ids(&[(9, 90), (1, 1)])));
        let table = ScriptedTable::new(gap.repeat(TRIES as usize));
        assert_eq!(trace(&table, 9), None);
    }

    #[test]
    fn another_users_hidden_process_is_the_top() {
        let walk = [(9, found(90, 4)), (4, TableEntry::Hidden)];
        let table = ScriptedTable::new([walk, walk].concat());
        assert_eq!(trace(&table, 9), Some(ids(&[(9, 90)])));
    }

    #[test]
    fn an_endless_chain_is_a_gap() {
        struct Endless;
        impl ProcessTable for Endless {
            fn entry(&self, pid: u32) -> TableEntry {
                found(1, pid + 1)
            }
        }
        assert_eq!(trace(&Endless, 9), None);
    }
}
