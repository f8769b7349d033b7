//! The directory of a run. Every process of the run has it in its arguments or its environment.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use tempfile::TempDir;

/// Waits for the end of the test program, however it ends. Then it ends every process that has the
/// directory in its arguments or its environment. It reads the directory, so that it has it in neither.
///
/// PostgreSQL removes its shared memory after SIGQUIT.
const WATCHDOG: &str = r#"
read -r dir
cat >/dev/null
for signal in QUIT KILL KILL KILL; do
    pids=$(printf '%s' "$dir" | grep -lsF -f - /proc/[0-9]*/cmdline /proc/[0-9]*/environ |
        cut -d / -f 3 | sort -u)
    [ -n "$pids" ] || break
    kill -$signal $pids 2>/dev/null
    sleep 0.5
done
for place in "$dir"/*/wal; do umount -l "$place" 2>/dev/null; done
rm -rf "$dir"
"#;

/// A directory for the files of a run, with a watchdog that ends the run's processes and removes it.
#[derive(Debug)]
pub(crate) struct RunDirectory {
    path: PathBuf,
    watchdog: Child,
    input: Option<ChildStdin>,
}

impl RunDirectory {
    pub(crate) fn create() -> Self {
        let directory = TempDir::with_prefix("chaos-").expect("a directory").keep();
        let path = directory.canonicalize().expect("it exists");
        // The servers of the database run as another user.
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("it is ours");
        let mut command = Command::new("sh");
        command.args(["-c", WATCHDOG]).stdin(Stdio::piped()).current_dir("/");
        // A signal for the group of the test program ends only that.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut watchdog = command.spawn().expect("a shell is started");
        let mut input = watchdog.stdin.take().expect("its input is a pipe");
        writeln!(input, "{}", path.display()).expect("it reads");
        Self { path, watchdog, input: Some(input) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the running processes of the run, with their arguments.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        let entries = fs::read_dir("/proc").into_iter().flatten();
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter_map(|pid: u32| Some((pid, self.read_process(pid)?))).collect()
    }

    fn read_process(&self, pid: u32) -> Option<String> {
        let directory = self.path.as_os_str().as_encoded_bytes();
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let arguments = read("cmdline");
        let has = |text: &[u8]| text.windows(directory.len()).any(|part| part == directory);
        // An ended process has no arguments.
        let is_ours = !arguments.is_empty() && (has(&arguments) || has(&read("environ")));
        let text = String::from_utf8_lossy(&arguments).replace('\0', " ");
        is_ours.then(|| text.trim_end().to_owned())
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.watchdog.wait();
    }
}
