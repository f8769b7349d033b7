//! Finds the processes of a client by the home directory in their environment.

use std::fs;
use std::path::Path;

/// A process of a client.
#[derive(Clone, Debug)]
pub(crate) struct FoundProcess {
    pub(crate) pid: i32,
    parent: i32,
    #[expect(dead_code, reason = "a failed test shows it")]
    command_line: String,
}

/// Returns the living processes whose home is this directory.
pub(crate) fn find_processes(home: &Path) -> Vec<FoundProcess> {
    let variable = format!("HOME={}", home.display()).into_bytes();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| read_process(pid, &variable)).collect()
}

/// Returns the processes that no other found process started.
pub(crate) fn find_leaders(home: &Path) -> Vec<FoundProcess> {
    let found = find_processes(home);
    let is_leader = |process: &&FoundProcess| !found.iter().any(|one| one.pid == process.parent);
    found.iter().filter(is_leader).cloned().collect()
}

/// Returns a process with this variable. The environment of an ended process is empty.
fn read_process(pid: i32, variable: &[u8]) -> Option<FoundProcess> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environ.split(|byte| *byte == 0).find(|found| *found == variable)?;
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command_line = String::from_utf8_lossy(&words).replace('\0', " ");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses and may contain anything.
    let fields = &stat[stat.rfind(')')? + 1..];
    let parent = fields.split_whitespace().nth(1)?.parse().ok()?;
    Some(FoundProcess { pid, parent, command_line })
}
