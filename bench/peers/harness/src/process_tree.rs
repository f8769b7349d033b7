//! The processes that a peer starts: their CPU time, and their end.
//!
//! ```text
//! runner ─┬─ client ── job           a process that detaches itself becomes a child of the runner,
//!         ├─ server ─┬─ worker       because the runner is a child subreaper
//!         └─ daemon  └─ worker
//! ```

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

use crate::RUN_LIMIT;
use crate::sample::{Sample, cpu_time};

/// The time that processes have after SIGINT.
const GRACE: Duration = Duration::from_secs(2);
/// The pause between two looks at the processes.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// All descendants of this process, also those that detach themselves. They end with the guard.
#[derive(Debug)]
pub struct ProcessTree {
    expired: Arc<AtomicBool>,
}

impl ProcessTree {
    /// Makes this process the reaper of its descendants. They are killed before the driver's limit,
    /// so that no wait for one of them lasts longer, and none is left behind.
    pub fn adopt() -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let expired = Arc::new(AtomicBool::new(false));
        let expired_setter = Arc::clone(&expired);
        std::thread::Builder::new().name("limit".to_owned()).spawn(move || {
            std::thread::sleep(RUN_LIMIT - 2 * GRACE);
            expired_setter.store(true, Ordering::SeqCst);
            loop {
                end_descendants(GRACE);
                std::thread::sleep(POLL_INTERVAL);
            }
        })?;
        Ok(Self { expired })
    }

    /// Says whether the limit has passed.
    pub fn is_expired(&self) -> bool {
        self.expired.load(Ordering::SeqCst)
    }

    /// Starts both clocks. Processes that run already count with what they use from now on.
    pub fn start_stopwatch(&self) -> TreeStopwatch {
        let cpu_at_start = tree_cpu_time();
        TreeStopwatch { started_at: Instant::now(), cpu_at_start }
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        end_descendants(GRACE);
        reap_children(GRACE);
    }
}

/// Both clocks of a process tree, running.
#[derive(Debug)]
pub struct TreeStopwatch {
    started_at: Instant,
    cpu_at_start: Duration,
}

impl TreeStopwatch {
    pub fn stop(self) -> Sample {
        let wall = self.started_at.elapsed();
        let cpu = tree_cpu_time().saturating_sub(self.cpu_at_start);
        Sample { wall, cpu, resident_bytes: None, count: None }
    }
}

/// Returns the user and system time of this process and all its descendants, the ended ones too.
fn tree_cpu_time() -> Duration {
    let stats = read_all_stats();
    let own = getpid().as_raw_pid();
    let reaped = stats.iter().find(|stat| stat.pid == own).map_or(0, |stat| stat.reaped_ticks);
    let others: u64 = descendants(&stats, own).map(|stat| stat.own_ticks + stat.reaped_ticks).sum();
    let ticks = (reaped + others) as f64;
    cpu_time() + Duration::from_secs_f64(ticks / clock_ticks_per_second() as f64)
}

/// Ends all descendants of this process: SIGINT, which PostgreSQL needs to remove its shared
/// memory, then SIGKILL.
fn end_descendants(grace: Duration) {
    signal_descendants(Signal::INT);
    let started_at = Instant::now();
    while has_descendants() && started_at.elapsed() < grace {
        std::thread::sleep(POLL_INTERVAL);
    }
    signal_descendants(Signal::KILL);
    while has_descendants() && started_at.elapsed() < grace * 2 {
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Reaps all children. A process whose main thread has ended may still have other threads.
fn reap_children(timeout: Duration) {
    let started_at = Instant::now();
    while started_at.elapsed() < timeout {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => std::thread::sleep(POLL_INTERVAL),
            Err(_) => return,
        }
    }
}

fn signal_descendants(signal: Signal) {
    for pid in running_descendants() {
        // The process may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

fn has_descendants() -> bool {
    !running_descendants().is_empty()
}

/// Returns all descendants that have not ended.
fn running_descendants() -> Vec<Pid> {
    let stats = read_all_stats();
    let running = descendants(&stats, getpid().as_raw_pid()).filter(|stat| !stat.is_zombie);
    running.filter_map(|stat| Pid::from_raw(stat.pid)).collect()
}

/// A line of `/proc/PID/stat`. Times are in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ProcessStat {
    pid: i32,
    parent: i32,
    is_zombie: bool,
    own_ticks: u64,
    /// The times of its ended children, and of theirs.
    reaped_ticks: u64,
}

impl ProcessStat {
    fn parse(line: &str) -> Option<Self> {
        let (pid, _) = line.split_once(' ')?;
        // The name of the program may contain spaces and parentheses.
        let (_, after_name) = line.rsplit_once(") ")?;
        let fields: Vec<&str> = after_name.split(' ').collect();
        let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            is_zombie: matches!(*fields.first()?, "Z" | "X"),
            own_ticks: ticks(11)? + ticks(12)?,
            reaped_ticks: ticks(13)? + ticks(14)?,
        })
    }
}

fn read_all_stats() -> Vec<ProcessStat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let read = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("stat")).ok();
    let lines = entries.flatten().filter_map(read);
    lines.filter_map(|line| ProcessStat::parse(&line)).collect()
}

/// Returns the processes whose chain of parents leads to `root`.
fn descendants(stats: &[ProcessStat], root: i32) -> impl Iterator<Item = &ProcessStat> {
    let parent_of = |pid: i32| stats.iter().find(|stat| stat.pid == pid).map(|stat| stat.parent);
    stats.iter().filter(move |stat| {
        let mut parent = Some(stat.parent);
        // A chain is shorter than the list, unless a process id was reused while it was read.
        for _ in 0..stats.len() {
            match parent {
                Some(pid) if pid == root => return true,
                Some(pid) => parent = parent_of(pid),
                None => return false,
            }
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(pid: i32, parent: i32) -> ProcessStat {
        ProcessStat { pid, parent, is_zombie: false, own_ticks: 1, reaped_ticks: 0 }
    }

    #[test]
    fn a_line_with_an_odd_name_is_parsed() {
        let line = "42 (a) b (c)) Z 7 1 1 0 -1 0 0 0 0 0 10 20 3 4 20 0 1 0 99";
        let expected =
            ProcessStat { pid: 42, parent: 7, is_zombie: true, own_ticks: 30, reaped_ticks: 7 };
        assert_eq!(ProcessStat::parse(line), Some(expected));
        assert_eq!(ProcessStat::parse("42 (cut"), None);
    }

    #[test]
    fn descendants_are_children_and_their_children() {
        let stats = [stat(1, 0), stat(5, 1), stat(6, 5), stat(7, 6), stat(8, 1)];
        let pids: Vec<i32> = descendants(&stats, 5).map(|stat| stat.pid).collect();
        assert_eq!(pids, [6, 7]);
    }

    #[test]
    fn a_circle_of_parents_is_no_descendant() {
        let stats = [stat(5, 1), stat(6, 7), stat(7, 6)];
        assert_eq!(descendants(&stats, 5).count(), 0);
    }
}
