//! One run of tests, and the processes that it leaves behind.
//!
//! A run has a directory for temporary files of its own. Whatever its tests start has that directory in
//! its environment or, as a shim has, in its arguments: so a process is known to be of this run, however
//! it was started and whoever its parent is by now.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long what was killed last may take to be gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct TestRun {
    directory: PathBuf,
}

/// A process that is still there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StrayProcess {
    pid: u32,
    command_line: String,
}

impl TestRun {
    pub(crate) fn begin() -> Result<Self, String> {
        // Short, because sockets are made below it.
        let directory = std::env::temp_dir().join(format!("brigade-run-{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&directory);
        // As open as the directory whose place it takes: some tests become another user.
        let opened =
            made.and_then(|()| fs::set_permissions(&directory, PermissionsExt::from_mode(0o1777)));
        opened.map_err(|e| format!("{}: {e}", directory.display()))?;
        Ok(Self { directory })
    }

    /// Runs something of which all processes are of this run.
    pub(crate) fn run(&self, command: &mut Command) -> Result<(), String> {
        let status = command.env("TMPDIR", &self.directory).status();
        match status.map_err(|e| format!("{command:?}: {e}"))?.success() {
            true => Ok(()),
            false => Err(format!("{command:?} failed")),
        }
    }

    /// Fails with the processes that are left of it.
    pub(crate) fn finish(self) -> Result<(), String> {
        let left = self.wait_for_strays(EXIT_TIMEOUT);
        if left.is_empty() {
            // A file that a test left unreadable is no failure.
            let _ = fs::remove_dir_all(&self.directory);
            return Ok(());
        }
        let lines = left.iter().map(|one| format!("\n  {} {}", one.pid, one.command_line));
        Err(format!("the tests left these processes behind:{}", lines.collect::<String>()))
    }

    fn wait_for_strays(&self, patience: Duration) -> Vec<StrayProcess> {
        let give_up = Instant::now() + patience;
        loop {
            let left = find_strays(&self.directory);
            if left.is_empty() || Instant::now() >= give_up {
                return left;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Runs something as a run of tests of its own.
pub(crate) fn run_alone(command: &mut Command) -> Result<(), String> {
    let run = TestRun::begin()?;
    let passed = run.run(command);
    // What is left of tests that failed is told too.
    match (passed, run.finish()) {
        (Err(failed), Err(left)) => Err(format!("{failed}; {left}")),
        (passed, finished) => passed.and(finished),
    }
}

/// The living processes that have this directory in their environment or their arguments. Where the system
/// does not tell, there are none.
fn find_strays(directory: &Path) -> Vec<StrayProcess> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut left: Vec<_> =
        pids.filter_map(|pid| read_process(pid, directory.as_os_str())).collect();
    left.sort_unstable_by_key(|one| one.pid);
    left
}

/// None of a process that has ended, whose files are empty, or of another run.
fn read_process(pid: u32, mark: &OsStr) -> Option<StrayProcess> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    if !has_path(&words, mark.as_bytes()) && !has_path(&variables, mark.as_bytes()) {
        return None;
    }
    let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    Some(StrayProcess { pid, command_line: words.join(" ").trim_end().to_owned() })
}

/// Whether the path, or one below it, is there: not one that only begins like it.
fn has_path(text: &[u8], path: &[u8]) -> bool {
    text.windows(path.len()).enumerate().any(|(at, part)| {
        let next = text.get(at + path.len());
        part == path && next.is_none_or(|byte| !byte.is_ascii_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_not_taken_for_one_that_begins_like_it() {
        for (text, expect) in [
            ("TMPDIR=/tmp/run-7", true),
            ("run\0/tmp/run-7/state\0", true),
            ("TMPDIR=/tmp/run-71", false),
            ("TMPDIR=/tmp/run-", false),
        ] {
            assert_eq!(has_path(text.as_bytes(), b"/tmp/run-7"), expect, "{text}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_is_found_by_its_run_and_no_other_one_is() {
        let run = TestRun { directory: "/nonexistent/run-1".into() };
        let mut sleeping = Command::new("sleep");
        sleeping.arg("1000").env("TMPDIR", "/nonexistent/run-1/deeper");
        let mut ours = sleeping.spawn().expect("sleep");
        let mut foreign = sleeping.env("TMPDIR", "/nonexistent/run-12").spawn().expect("sleep");
        let mut by_arguments = Command::new("sh");
        by_arguments.args(["-c", "read line", "/nonexistent/run-1/claim"]).env_clear();
        by_arguments.stdin(std::process::Stdio::piped());
        let mut named = by_arguments.spawn().expect("sh");
        // A process has its arguments when it has executed them, which `spawn` has waited for.
        let left = run.wait_for_strays(Duration::ZERO);
        for child in [&mut ours, &mut foreign, &mut named] {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
        }
        let mut pids = [ours.id(), named.id()];
        pids.sort_unstable();
        assert_eq!(left.iter().map(|one| one.pid).collect::<Vec<_>>(), pids, "{left:?}");
        assert!(left.iter().any(|one| one.command_line == "sleep 1000"), "{left:?}");
        assert_eq!(run.wait_for_strays(Duration::from_secs(20)), [], "and they are gone");
    }
}
