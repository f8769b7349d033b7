//! One run of tests, and the check that it leaves no processes behind.
//!
//! A run has its own directory for temporary files. A process of the run has that directory in its
//! environment, or in its arguments as a shim has. So the run finds its processes whatever their
//! parent is.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The time for processes to exit after a run. A private database also removes its files: there are many, and the
/// disk may be busy.
const EXIT_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A run of tests with its own directory.
#[derive(Debug)]
pub(crate) struct TestRun {
    directory: PathBuf,
}

/// A process that outlived its tests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StrayProcess {
    pid: u32,
    command_line: String,
}

impl TestRun {
    pub(crate) fn begin() -> Result<Self, String> {
        // A short name: tests create sockets in the directory, and a socket's path is limited.
        let directory = std::env::temp_dir().join(format!("brigade-run-{}", std::process::id()));
        let created = fs::DirBuilder::new().mode(0o700).create(&directory);
        // The mode of `/tmp`: some tests run programs as another user.
        let opened = created
            .and_then(|()| fs::set_permissions(&directory, PermissionsExt::from_mode(0o1777)));
        opened.map_err(|e| format!("{}: {e}", directory.display()))?;
        Ok(Self { directory })
    }

    /// Returns the directory of the run, for processes that the caller starts.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the command lines of the run's living processes.
    pub(crate) fn command_lines(&self) -> Vec<String> {
        find_strays(&self.directory).into_iter().map(|process| process.command_line).collect()
    }

    /// Runs a command whose processes belong to this run.
    pub(crate) fn run(&self, command: &mut Command) -> Result<(), String> {
        let status = command.env("TMPDIR", &self.directory).status();
        match status.map_err(|e| format!("{command:?}: {e}"))?.success() {
            true => Ok(()),
            false => Err(format!("{command:?} failed")),
        }
    }

    /// Ends the run. Fails if processes of the run are still alive, and lists them.
    pub(crate) fn finish(self) -> Result<(), String> {
        let strays = self.wait_for_strays(EXIT_TIMEOUT);
        if strays.is_empty() {
            // An unreadable file of a test is no failure.
            let _ = fs::remove_dir_all(&self.directory);
            return Ok(());
        }
        let lines = strays.iter().map(|stray| format!("\n  {} {}", stray.pid, stray.command_line));
        Err(format!("the tests left these processes behind:{}", lines.collect::<String>()))
    }

    fn wait_for_strays(&self, timeout: Duration) -> Vec<StrayProcess> {
        let deadline = Instant::now() + timeout;
        loop {
            let strays = find_strays(&self.directory);
            if strays.is_empty() || Instant::now() >= deadline {
                return strays;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Runs a command as a test run of its own.
pub(crate) fn run_alone(command: &mut Command) -> Result<(), String> {
    let run = TestRun::begin()?;
    let passed = run.run(command);
    // Strays of failed tests are reported too.
    match (passed, run.finish()) {
        (Err(failed), Err(strays)) => Err(format!("{failed}; {strays}")),
        (passed, finished) => passed.and(finished),
    }
}

/// Returns the running processes that have this directory in their environment or their arguments.
/// Without `/proc` there are none.
fn find_strays(directory: &Path) -> Vec<StrayProcess> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let mut strays: Vec<_> =
        pids.filter_map(|pid| read_process(pid, directory.as_os_str())).collect();
    strays.sort_unstable_by_key(|stray| stray.pid);
    strays
}

/// Returns a process of the run with this directory. A process of another run is `None`, and so is
/// an ended process, whose files are empty.
fn read_process(pid: u32, directory: &OsStr) -> Option<StrayProcess> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    if !has_path(&words, directory.as_bytes()) && !has_path(&variables, directory.as_bytes()) {
        return None;
    }
    let words: Vec<_> = words.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
    Some(StrayProcess { pid, command_line: words.join(" ").trim_end().to_owned() })
}

/// Checks that the text holds the path or a path inside it. A path that only begins with the same
/// characters does not count.
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
    fn a_path_with_the_same_prefix_does_not_count() {
        for (text, expected) in [
            ("TMPDIR=/tmp/run-7", true),
            ("run\0/tmp/run-7/state\0", true),
            ("TMPDIR=/tmp/run-71", false),
            ("TMPDIR=/tmp/run-", false),
        ] {
            assert_eq!(has_path(text.as_bytes(), b"/tmp/run-7"), expected, "{text}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_processes_of_the_run_are_found() {
        let run = TestRun { directory: "/nonexistent/run-1".into() };
        let mut sleeping = Command::new("sleep");
        sleeping.arg("1000").env("TMPDIR", "/nonexistent/run-1/deeper");
        let mut ours = sleeping.spawn().expect("sleep");
        let mut foreign = sleeping.env("TMPDIR", "/nonexistent/run-12").spawn().expect("sleep");
        let mut by_arguments = Command::new("sh");
        by_arguments.args(["-c", "read line", "/nonexistent/run-1/claim"]).env_clear();
        by_arguments.stdin(std::process::Stdio::piped());
        let mut named = by_arguments.spawn().expect("sh");
        // `spawn` returns after the exec, so the arguments are visible.
        let strays = run.wait_for_strays(Duration::ZERO);
        for child in [&mut ours, &mut foreign, &mut named] {
            child.kill().expect("a child can be killed");
            child.wait().expect("a child can be reaped");
        }
        let mut pids = [ours.id(), named.id()];
        pids.sort_unstable();
        assert_eq!(strays.iter().map(|stray| stray.pid).collect::<Vec<_>>(), pids, "{strays:?}");
        assert!(strays.iter().any(|stray| stray.command_line == "sleep 1000"), "{strays:?}");
        assert_eq!(run.wait_for_strays(Duration::from_secs(20)), [], "the processes have exited");
    }
}
