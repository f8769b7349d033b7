//! The process of a server that is spoken to over its standard streams: in a group of its own, kindly
//! and then firmly ended, with what it says on the side.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::secrets::SecretRedactor;
use super::server_config::McpTransport;
use super::server_processes::{PidFile, ServerProcesses};
use super::tool_list::truncate;

/// What a program sees of our environment beside what it is given. The rest is ours: it has keys.
const PASSED_VARIABLES: [&str; 13] = [
    "HOME",
    "LANG",
    "LANGUAGE",
    "LOGNAME",
    "NODE_EXTRA_CA_CERTS",
    "PATH",
    "SHELL",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
];
const PASSED_VARIABLE_PREFIXES: [&str; 2] = ["LC_", "XDG_"];

/// Until a program ends by itself whose input has ended.
const STDIN_CLOSE_GRACE: Duration = Duration::from_millis(500);
/// From TERM to KILL.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// Of what it says on the side.
const LINE_MAX: usize = 1_000;
const STDERR_LINES_KEPT: usize = 5;
const LOGGED_LINES_MAX: u32 = 100;
const LOG_WINDOW: Duration = Duration::from_secs(60);

/// A program that runs. It ends when `stop` is cancelled.
#[derive(Debug)]
pub(super) struct StdioProcess {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) exit: ChildExit,
    pub(super) stop: CancellationToken,
}

/// What became of a program, for whoever asks why it does not answer.
#[derive(Clone, Debug, Default)]
pub(super) struct ChildExit {
    pub(super) exited: CancellationToken,
    status: Arc<Mutex<Option<ExitStatus>>>,
    /// The last lines that it said on the side.
    stderr_tail: Arc<Mutex<VecDeque<String>>>,
}

impl ChildExit {
    /// How it ended and what it said last, as far as that is known.
    pub(super) fn describe(&self) -> String {
        let status = *self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let words = self.stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
        let words = words.iter().map(String::as_str).collect::<Vec<_>>().join(" | ");
        let status = status.map(|status| format!("it ended with {status}"));
        let words = (!words.is_empty()).then(|| format!("it said: {words}"));
        status.into_iter().chain(words).collect::<Vec<_>>().join("; ")
    }
}

/// Starts the program; the tasks of the house see to it until it has ended.
pub(super) fn spawn_process(
    name: &Arc<str>,
    how: &McpTransport,
    secrets: &SecretRedactor,
    house: &ServerProcesses,
) -> Result<StdioProcess, String> {
    let mut child = build_command(how)?.spawn().map_err(|error| match how {
        McpTransport::Stdio { program, .. } => format!("{program} cannot be started: {error}"),
        McpTransport::Http { .. } => error.to_string(),
    })?;
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
        return Err("its streams are not there".to_owned());
    };
    let group = ProcessGroup::of(&child, house)?;
    let (fate, stop) = (ChildExit::default(), house.shutdown_token.child_token());
    house.tasks.spawn(read_stderr(name.clone(), stderr, secrets.clone(), fate.stderr_tail.clone()));
    house.tasks.spawn(supervise(child, group, stop.clone(), fate.clone()));
    Ok(StdioProcess { stdin, stdout, exit: fate, stop })
}

fn build_command(how: &McpTransport) -> Result<Command, String> {
    let McpTransport::Stdio { program, arguments, env, cwd } = how else {
        return Err("this is no program".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    for (name, value) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        let is_usual = PASSED_VARIABLES.contains(&&*name_text)
            || PASSED_VARIABLE_PREFIXES.iter().any(|beginning| name_text.starts_with(beginning));
        if is_usual {
            command.env(name, value);
        }
    }
    for (name, value) in env {
        command.env(name, value.read().map_err(|problem| format!("`{name}`: {problem}"))?);
    }
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    Ok(command)
}

/// The group of a child that nobody has reaped: until then its number is nobody else's.
#[derive(Debug)]
struct ProcessGroup {
    leader: Pid,
    /// Says that some child of ours has changed.
    children: unix::Signal,
    is_reaped: bool,
    _pid_file: Option<PidFile>,
}

impl ProcessGroup {
    fn of(child: &Child, house: &ServerProcesses) -> Result<Self, String> {
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let leader = pid.ok_or("it ended at once")?;
        let children = unix::signal(unix::SignalKind::child());
        let children = children.map_err(|error| format!("it cannot be watched: {error}"))?;
        let _entered = house.pid_registry.as_ref().and_then(|book| book.register(leader));
        Ok(Self { leader, children, is_reaped: false, _pid_file: _entered })
    }

    /// Returns when the leader has ended, and leaves it to be reaped.
    async fn wait_for_exit(&mut self) {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while let Ok(None) = waitid(WaitId::Pid(self.leader), look) {
            self.children.recv().await;
        }
    }

    fn signal(&self, signal: Signal) {
        if !self.is_reaped {
            let _ = kill_process_group(self.leader, signal);
        }
    }
}

/// Whoever drops it takes the whole group along.
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Sees a program through, and ends whatever it leaves behind in its group.
async fn supervise(
    mut child: Child,
    mut group: ProcessGroup,
    stop: CancellationToken,
    fate: ChildExit,
) {
    tokio::select! {
        () = group.wait_for_exit() => {}
        () = stop.cancelled() => {
            // Its input ends with the connection, which is how it is asked first.
            if timeout(STDIN_CLOSE_GRACE, group.wait_for_exit()).await.is_err() {
                group.signal(Signal::TERM);
                let _ = timeout(TERM_GRACE, group.wait_for_exit()).await;
            }
        }
    }
    group.signal(Signal::KILL);
    let status = child.wait().await;
    group.is_reaped = true;
    *fate.status.lock().unwrap_or_else(PoisonError::into_inner) = status.ok();
    fate.exited.cancel();
}

/// Hears what a program says on the side: the last of it is kept, and not too much of it logged.
async fn read_stderr(
    name: Arc<str>,
    stderr: ChildStderr,
    secrets: SecretRedactor,
    words: Arc<Mutex<VecDeque<String>>>,
) {
    let mut reader = BufReader::new(stderr);
    let (mut since, mut told) = (Instant::now(), 0_u32);
    let mut line = Vec::new();
    // A secret is found where all of it is there.
    let most = (LINE_MAX + secrets.longest_secret()) as u64;
    loop {
        line.clear();
        match (&mut reader).take(most).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if !line.ends_with(b"\n") && skip_line(&mut reader).await.is_err() {
            return;
        }
        let text = secrets.redact(String::from_utf8_lossy(&line).trim_end().to_owned());
        let text = truncate(&text, LINE_MAX);
        if text.is_empty() {
            continue;
        }
        if since.elapsed() >= LOG_WINDOW {
            (since, told) = (Instant::now(), 0);
        }
        told = told.saturating_add(1);
        match told {
            ..LOGGED_LINES_MAX => tracing::info!(server = %name, "{text}"),
            LOGGED_LINES_MAX => {
                tracing::warn!(server = %name, "says much: more is left out for a while")
            }
            _ => {}
        }
        let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
        if words.len() == STDERR_LINES_KEPT {
            words.pop_front();
        }
        words.push_back(text);
    }
}

/// Passes over the rest of a line that is too long.
async fn skip_line(reader: &mut BufReader<ChildStderr>) -> std::io::Result<()> {
    loop {
        let there = reader.fill_buf().await?;
        let end = there.iter().position(|byte| *byte == b'\n');
        let passed = end.map_or(there.len(), |end| end + 1);
        reader.consume(passed);
        if end.is_some() || passed == 0 {
            return Ok(());
        }
    }
}
