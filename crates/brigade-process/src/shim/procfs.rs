//! Reads process identities and descendants from /proc.

use std::collections::{HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};

use super::record::ProcessId;

/// The fields of `/proc/PID/stat` that Brigade uses.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ProcessStat {
    pub(crate) name: String,
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) session: u32,
    /// The device number of the controlling terminal; 0 if there is none.
    pub(crate) terminal: u32,
    /// Clock ticks since boot.
    pub(crate) start: u64,
}

impl ProcessStat {
    /// Returns true for a process that has exited and is not reaped yet.
    pub(crate) fn has_exited(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// A descendant of the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeMember {
    pub(crate) pid: u32,
    /// Its parent at the time of the scan.
    pub(crate) parent: u32,
}

/// Returns `None` if there is no such process or it cannot be read.
pub(crate) fn stat_if_readable(pid: u32) -> Option<ProcessStat> {
    read_stat(pid).ok().flatten()
}

/// Returns `None` if there is no such process. After an error, nothing is known about it.
pub(crate) fn read_stat(pid: u32) -> io::Result<Option<ProcessStat>> {
    const NO_SUCH_PROCESS: i32 = 3;
    let mut line = [0; 1024];
    let read = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut line));
    match read {
        Ok(length) => Ok(parse_stat(&line[..length])),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn own_id() -> ProcessId {
    let pid = std::process::id();
    ProcessId { pid, start: stat_if_readable(pid).map_or(0, |stat| stat.start) }
}

/// Returns all descendants of a process, parents before children. May miss processes that start or
/// change their parent meanwhile.
pub(crate) fn descendants(root: u32) -> Vec<TreeMember> {
    let mut found = Vec::new();
    walk_descendants(root, |member| found.push(member));
    found
}

/// Visits each descendant as soon as it is found, because listing a large tree takes longer than
/// some processes live.
pub(crate) fn walk_descendants(root: u32, visit: impl FnMut(TreeMember)) {
    let lister = ChildLister::new(root);
    walk_descendants_with(root, |parent| lister.children(parent), visit);
}

pub(crate) fn walk_descendants_with(
    root: u32,
    mut children: impl FnMut(u32) -> Vec<TreeMember>,
    mut visit: impl FnMut(TreeMember),
) {
    let mut seen = HashSet::from([root]);
    let mut parents = VecDeque::from([root]);
    while let Some(parent) = parents.pop_front() {
        for child in children(parent) {
            if seen.insert(child.pid) {
                visit(child);
                parents.push_back(child.pid);
            }
        }
    }
}

enum ChildLister {
    /// The kernel lists the children of each thread.
    Files,
    /// The kernel does not: all processes with their parents.
    Table(Vec<TreeMember>),
}

impl ChildLister {
    fn new(alive_pid: u32) -> Self {
        let sample = format!("/proc/{alive_pid}/task/{alive_pid}/children");
        if File::open(sample).is_ok() { Self::Files } else { Self::Table(all_processes()) }
    }

    fn children(&self, parent: u32) -> Vec<TreeMember> {
        match self {
            Self::Table(all) => {
                all.iter().filter(|member| member.parent == parent).copied().collect()
            }
            Self::Files => {
                let threads = numeric_entries(&format!("/proc/{parent}/task"));
                let lists = threads.filter_map(|thread| {
                    fs::read(format!("/proc/{parent}/task/{thread}/children")).ok()
                });
                let mut found = Vec::new();
                for list in lists {
                    let pids = list.split(|byte| *byte == b' ').filter_map(parse_number);
                    found.extend(pids.map(|pid| TreeMember { pid: pid as u32, parent }));
                }
                found
            }
        }
    }
}

fn all_processes() -> Vec<TreeMember> {
    numeric_entries("/proc")
        .filter_map(|pid| Some(TreeMember { pid, parent: stat_if_readable(pid)?.parent }))
        .collect()
}

/// Returns the entries of a directory that are numbers.
pub(crate) fn numeric_entries(path: &str) -> impl Iterator<Item = u32> + use<> {
    let entries = fs::read_dir(path).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// Parses a stat line. The name is in parentheses and may itself contain parentheses.
fn parse_stat(line: &[u8]) -> Option<ProcessStat> {
    let open = line.iter().position(|byte| *byte == b'(')?;
    let close = line.iter().rposition(|byte| *byte == b')')?;
    let mut fields = line.get(close + 2..)?.split(|byte| *byte == b' ');
    Some(ProcessStat {
        name: String::from_utf8_lossy(line.get(open + 1..close)?).into_owned(),
        state: *fields.next()?.first()?,
        parent: parse_number(fields.next()?)? as u32,
        session: parse_number(fields.nth(1)?)? as u32,
        terminal: parse_device(fields.next()?),
        start: parse_number(fields.nth(14)?)?,
    })
}

/// Parses the number of a device, which the kernel prints with a sign.
fn parse_device(digits: &[u8]) -> u32 {
    let number: Option<i32> = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    number.map_or(0, i32::cast_unsigned)
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_contain_anything() {
        let line =
            b"41 (a) R 7 (b c)) S 40 41 41 34819 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 2 3";
        let expected = ProcessStat {
            name: "a) R 7 (b c)".into(),
            state: b'S',
            parent: 40,
            session: 41,
            terminal: 34_819,
            start: 987654,
        };
        assert_eq!(parse_stat(line), Some(expected));
        for cut in 0..60 {
            assert_eq!(parse_stat(&line[..cut]), None, "{cut} bytes");
        }
    }

    #[test]
    fn this_process_is_found() {
        let me = own_id();
        assert!(me.start > 0);
        let parent = stat_if_readable(me.pid).unwrap().parent;
        let found = |members: Vec<TreeMember>| members.iter().any(|member| member.pid == me.pid);
        assert!(found(ChildLister::Table(all_processes()).children(parent)));
        assert!(
            found(ChildLister::Files.children(parent))
                || !matches!(ChildLister::new(1), ChildLister::Files)
        );
    }
}
