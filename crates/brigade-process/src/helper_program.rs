//! Runs a short program such as git for the runtime itself, within bounds.
//!
//! Such a program is no task: it has no shim, and nothing of it outlives the call.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
#[cfg(target_os = "linux")]
use rustix::process::set_parent_process_death_signal;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::orphans::hold_off_reaping;

/// The pauses between two looks at a running program, each longer than the one before.
const POLL_PAUSE_MIN: Duration = Duration::from_micros(500);
const POLL_PAUSE_MAX: Duration = Duration::from_millis(20);
/// The time between SIGTERM and SIGKILL, in which git removes its temporary files.
const GRACE: Duration = Duration::from_secs(5);
/// The most bytes stored of stderr.
const STDERR_MAX: u64 = 64 * 1024;

/// The bounds of a helper program.
#[derive(Clone, Copy)]
pub struct HelperLimits<'a> {
    pub timeout: Duration,
    /// The most bytes stored of stdout. The rest is read and dropped.
    pub stdout_max: u64,
    /// Returns true if nobody needs the result any more.
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl fmt::Debug for HelperLimits<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("HelperLimits");
        out.field("timeout", &self.timeout).field("stdout_max", &self.stdout_max);
        out.finish_non_exhaustive()
    }
}

/// The end of a helper program.
#[derive(Debug)]
pub struct HelperOutput {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    /// True if stdout had more bytes than are stored.
    pub is_truncated: bool,
    pub stderr: Vec<u8>,
}

/// Runs a program in a process group of its own, without an input. Blocks until the group has
/// ended. Returns `TimedOut` after the timeout and `Interrupted` if it was cancelled; the group is
/// ended then.
pub fn run_helper(command: &mut Command, limits: HelperLimits<'_>) -> io::Result<HelperOutput> {
    // The exit status would be lost if the daemon reaped the child first.
    let _not_reaped = hold_off_reaping();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    end_with_parent(command);
    let mut child = command.spawn()?;
    let stdout = read_in_thread(child.stdout.take(), limits.stdout_max);
    let stderr = read_in_thread(child.stderr.take(), STDERR_MAX);
    let waited = wait_within(&child, limits);
    // Nothing of the group may hold the pipes or outlive the call. The leader is not reaped yet,
    // so that its number is still its own.
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let status = child.wait()?;
    let stdout = stdout.join().unwrap_or_default();
    let stderr = stderr.join().unwrap_or_default();
    waited?;
    let is_truncated = stdout.is_truncated;
    Ok(HelperOutput { status, stdout: stdout.bytes, is_truncated, stderr: stderr.bytes })
}

/// Runs a program in a process group of its own, with an input. Its stdout is dropped. Otherwise as
/// [`run_helper`], except that a descendant outside of the group does not delay the return, even if
/// it holds stderr open.
pub fn feed_helper(
    command: &mut Command,
    input: &[u8],
    limits: HelperLimits<'_>,
) -> io::Result<HelperOutput> {
    let _not_reaped = hold_off_reaping();
    command.stdin(unnamed_file(input)?).stdout(Stdio::null()).stderr(Stdio::piped());
    command.process_group(0);
    end_with_parent(command);
    let mut child = command.spawn()?;
    let mut stderr = child.stderr.take().map(PolledPipe::new).transpose();
    let read = || stderr.iter_mut().flatten().for_each(PolledPipe::read_available);
    let waited = wait_reading(&child, limits, read);
    let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    let status = child.wait()?;
    let stderr = stderr?.map(PolledPipe::into_bytes).unwrap_or_default();
    waited?;
    Ok(HelperOutput { status, stdout: Vec::new(), is_truncated: false, stderr })
}

/// Returns a file without a name, at the beginning of its content. Nobody has to feed it to its
/// reader, so a program that does not read it blocks nobody.
fn unnamed_file(content: &[u8]) -> io::Result<File> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("brigade-input-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let open = |options: &mut OpenOptions| options.read(true).write(true).mode(0o600).open(&path);
    let opened = match open(OpenOptions::new().create_new(true)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // A killed process with this number has left it. If it is another user's, it stays, and
            // the next call has another number.
            std::fs::remove_file(&path)?;
            open(OpenOptions::new().create_new(true))
        }
        opened => opened,
    };
    let mut file = opened?;
    std::fs::remove_file(&path)?;
    file.write_all(content)?;
    file.rewind()?;
    Ok(file)
}

/// A pipe that is read without waiting. It stores the first bytes and drops the rest.
struct PolledPipe {
    pipe: ChildStderr,
    bytes: Vec<u8>,
}

impl PolledPipe {
    /// The most bytes that are read at a time: a program that writes without end is still seen to
    /// exit, and to exceed its time.
    const READ_MAX: usize = 1024 * 1024;

    fn new(pipe: ChildStderr) -> io::Result<Self> {
        let flags = fcntl_getfl(&pipe)?;
        fcntl_setfl(&pipe, flags | OFlags::NONBLOCK)?;
        Ok(Self { pipe, bytes: Vec::new() })
    }

    fn read_available(&mut self) {
        let mut buffer = [0; 16 * 1024];
        let mut total = 0;
        while total < Self::READ_MAX {
            match self.pipe.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    total += count;
                    let free = STDERR_MAX as usize - self.bytes.len();
                    self.bytes.extend(&buffer[..count.min(free)]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn into_bytes(mut self) -> Vec<u8> {
        self.read_available();
        self.bytes
    }
}

/// Lets the kernel end the program with SIGTERM if this process is killed. The thread that starts it
/// waits for its end, so it is not taken for a process that has ended.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "runs code between fork and exec")]
fn end_with_parent(command: &mut Command) {
    let parent = rustix::process::getpid();
    let setup = move || {
        set_parent_process_death_signal(Some(Signal::TERM))?;
        match rustix::process::getppid() == Some(parent) {
            true => Ok(()),
            false => Err(io::ErrorKind::Interrupted.into()),
        }
    };
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(setup) };
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent(_: &mut Command) {}

/// Waits until the program has exited and does not reap it. Ends it at the timeout.
fn wait_within(child: &Child, limits: HelperLimits<'_>) -> io::Result<()> {
    wait_reading(child, limits, || {})
}

/// Waits as [`wait_within`], and calls a function between two looks at the program.
fn wait_reading(child: &Child, limits: HelperLimits<'_>, mut read: impl FnMut()) -> io::Result<()> {
    let deadline = Instant::now() + limits.timeout;
    let mut pause = POLL_PAUSE_MIN;
    let problem = loop {
        if has_exited(child)? {
            return Ok(());
        }
        read();
        if (limits.is_cancelled)() {
            break io::ErrorKind::Interrupted;
        }
        if Instant::now() > deadline {
            break io::ErrorKind::TimedOut;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(POLL_PAUSE_MAX);
    };
    let _ = kill_process_group(Pid::from_child(child), Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline && !has_exited(child)? {
        read();
        thread::sleep(POLL_PAUSE_MAX);
    }
    Err(problem.into())
}

fn has_exited(child: &Child) -> io::Result<bool> {
    let exited = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    Ok(waitid(WaitId::Pid(Pid::from_child(child)), exited)?.is_some())
}

#[derive(Default)]
struct StoredOutput {
    bytes: Vec<u8>,
    is_truncated: bool,
}

fn read_in_thread(
    pipe: Option<impl Read + Send + 'static>,
    max: u64,
) -> thread::JoinHandle<StoredOutput> {
    thread::spawn(move || {
        let mut stored = StoredOutput::default();
        let Some(mut pipe) = pipe else { return stored };
        let _ = pipe.by_ref().take(max).read_to_end(&mut stored.bytes);
        let dropped = io::copy(&mut pipe, &mut io::sink());
        stored.is_truncated = dropped.is_ok_and(|count| count > 0);
        stored
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]);
        command
    }

    fn limits(timeout: Duration) -> HelperLimits<'static> {
        HelperLimits { timeout, stdout_max: 10, is_cancelled: &|| false }
    }

    #[test]
    fn output_is_stored_up_to_its_bound() {
        let long = Duration::from_secs(60);
        let output = run_helper(&mut shell("echo soup; echo salt >&2; exit 3"), limits(long));
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(3));
        assert_eq!((&*output.stdout, &*output.stderr), (&b"soup\n"[..], &b"salt\n"[..]));
        assert!(!output.is_truncated);
        let output = run_helper(&mut shell("head -c 1000000 /dev/zero"), limits(long)).unwrap();
        assert_eq!((output.stdout.len(), output.is_truncated), (10, true));
    }

    #[test]
    fn a_program_reads_its_input_or_not() {
        let long = Duration::from_secs(60);
        let input = vec![b'x'; 300_000];
        let line = "wc -c >&2; echo dropped";
        let output = feed_helper(&mut shell(line), &input, limits(long)).unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), "300000");
        assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b""[..]));
        let output = feed_helper(&mut shell("exit 3"), &input, limits(long)).unwrap();
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn a_flood_of_stderr_is_stored_up_to_its_bound() {
        let line = "head -c 10000000 /dev/zero >&2; head -c 10000000 /dev/zero";
        let output = feed_helper(&mut shell(line), b"", limits(Duration::from_secs(60))).unwrap();
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), STDERR_MAX as usize));
        let endless = feed_helper(&mut shell("exec yes >&2"), b"", limits(Duration::ZERO));
        assert_eq!(endless.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn a_descendant_that_left_the_group_delays_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        // It holds stdin and stderr.
        let line = format!(
            "setsid sh -c 'echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600' & \
            until test -e {0}; do :; done; echo salt >&2",
            file.display()
        );
        let begun = Instant::now();
        let output = feed_helper(&mut shell(&line), b"soup", limits(Duration::from_secs(60)));
        assert_eq!(output.unwrap().stderr, b"salt\n");
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
        let pid: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn nothing_of_the_group_outlives_the_call() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let line = format!("sleep 600 & echo $! > {}; exit 0", file.display());
        run_helper(&mut shell(&line), limits(Duration::from_secs(60))).unwrap();
        let pid: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        until_ended(pid);
    }

    /// Waits for the end of a process that was killed.
    fn until_ended(pid: i32) {
        until(&|| {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z") || state.contains(") X")
        });
    }

    fn until(is_done: &dyn Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_done() {
            assert!(Instant::now() < deadline);
            thread::sleep(POLL_PAUSE_MAX);
        }
    }

    #[test]
    fn a_program_ends_at_its_timeout_or_when_it_is_cancelled() {
        let timed = run_helper(&mut shell("exec sleep 600"), limits(Duration::ZERO));
        assert_eq!(timed.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let cancelled = HelperLimits { is_cancelled: &|| true, ..limits(Duration::from_secs(600)) };
        let cancelled = run_helper(&mut shell("exec sleep 600"), cancelled);
        assert_eq!(cancelled.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_ends_with_the_process_that_started_it() {
        const FILE: &str = "BRIGADE_TEST_HELPER_PID";
        if let Some(file) = std::env::var_os(FILE) {
            let line = format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 600", file.display());
            let _ = run_helper(&mut shell(&line), limits(Duration::from_secs(600)));
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let name = "helper_program::tests::a_program_ends_with_the_process_that_started_it";
        let mut parent = Command::new(std::env::current_exe().unwrap());
        parent.args(["--exact", name]).env(FILE, &file).stdout(Stdio::null());
        let mut parent = parent.spawn().unwrap();
        until(&|| file.exists());
        parent.kill().unwrap();
        parent.wait().unwrap();
        let pid: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        until_ended(pid);
    }
}
