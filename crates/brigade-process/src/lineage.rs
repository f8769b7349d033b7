//! The ancestors of a process, from the process up to the first one.
//!
//! A parent can die between two looks, and its pid can go to another process. So the ancestors are
//! walked twice: a parent that both walks agree on was the parent all the time between them, and the
//! first walk looked at it in that time.

#[cfg(full_linux)]
use rustix::process::{Pid, test_kill_process};

use crate::shim::record::ProcessId;

/// More ancestors than any honest process has.
const ANCESTORS_MAX: usize = 256;
/// A parent that ends while its child is traced is common; several in a row are not.
const TRIES: u32 = 5;

/// The process table as a walk reads it. A seam: tests let processes die between two looks.
pub(crate) trait ProcessTable {
    fn look(&self, pid: u32) -> TableEntry;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableEntry {
    /// A parent of 0 is none: the first process, or one of an outer namespace.
    Found {
        start: u64,
        parent: u32,
    },
    /// Another user's, where the system hides those: no shim of ours, and none above it to be seen.
    Hidden,
    Missing,
}

/// Returns a process and its ancestors, or nothing when they could not be told with certainty.
pub(crate) fn trace(table: &impl ProcessTable, of: u32) -> Option<Vec<ProcessId>> {
    (0..TRIES).find_map(|_| {
        let first = walk(table, of)?;
        let second = walk(table, of)?;
        (first == second).then_some(first)
    })
}

/// One walk. Nothing when it met a gap.
fn walk(table: &impl ProcessTable, of: u32) -> Option<Vec<ProcessId>> {
    let mut found = Vec::new();
    let mut pid = of;
    while found.len() < ANCESTORS_MAX {
        match table.look(pid) {
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

/// The kernel's table.
#[derive(Debug)]
pub(crate) struct SystemTable;

#[cfg(full_linux)]
impl ProcessTable for SystemTable {
    fn look(&self, pid: u32) -> TableEntry {
        match crate::shim::procfs::read_stat(pid) {
            Ok(Some(stat)) => TableEntry::Found { start: stat.start, parent: stat.parent },
            Ok(None) if is_anothers(pid) => TableEntry::Hidden,
            Ok(None) | Err(_) => TableEntry::Missing,
        }
    }
}

#[cfg(not(full_linux))]
impl ProcessTable for SystemTable {
    fn look(&self, _pid: u32) -> TableEntry {
        TableEntry::Missing
    }
}

/// Whether a process of another user has this pid.
#[cfg(full_linux)]
fn is_anothers(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::PERM))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;

    /// Answers looks in order, each with the pid that it must be about.
    struct ScriptedTable(RefCell<VecDeque<(u32, TableEntry)>>);

    impl ScriptedTable {
        fn new(looks: impl IntoIterator<Item = (u32, TableEntry)>) -> Self {
            Self(RefCell::new(looks.into_iter().collect()))
        }
    }

    impl ProcessTable for ScriptedTable {
        fn look(&self, pid: u32) -> TableEntry {
            let (expected, entry) = self.0.borrow_mut().pop_front().expect("no further look");
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

    /// Process 9 runs below shim 5 by way of 7. While it is traced, 7 dies and its pid goes to a child
    /// of 1, so that the first walk leads past the shim.
    #[test]
    fn a_parent_whose_pid_is_reused_between_two_looks_is_not_believed() {
        let table = ScriptedTable::new([
            (9, found(90, 7)),
            (7, found(95, 1)),
            (1, found(1, 0)),
            // The second walk: 9 has been handed to the shim.
            (9, found(90, 5)),
            (5, found(50, 1)),
            (1, found(1, 0)),
            // Once more, and both agree.
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
    fn a_gap_is_tried_again_and_then_told() {
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
    fn a_line_without_end_is_a_gap() {
        struct Endless;
        impl ProcessTable for Endless {
            fn look(&self, pid: u32) -> TableEntry {
                found(1, pid + 1)
            }
        }
        assert_eq!(trace(&Endless, 9), None);
    }
}
