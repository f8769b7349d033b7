//! The process of a server with a stdio transport: it runs in its own process group, is stopped
//! first gracefully and then by force, and its stderr is logged.

use std::collections::VecDeque;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade_model::truncate::truncate_end;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::signal::unix;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::server_config::McpTransport;
use super::server_processes::{PidFile, ServerProcesses};
use brigade_model::secret_redactor::SecretRedactor;

/// The variables of our environment that a server inherits. Others may contain keys.
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

/// The time for a process to exit after its input was closed.
const STDIN_CLOSE_GRACE: Duration = Duration::from_millis(500);
/// The time from SIGTERM to SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// The maximum length of a stderr line.
const LINE_MAX: usize = 1_000;
const STDERR_LINES_KEPT: usize = 5;
const LOGGED_LINES_MAX: u32 = 100;
const LOG_WINDOW: Duration = Duration::from_secs(60);

/// A running process. It ends when `stop` is cancelled.
#[derive(Debug)]
pub(super) struct StdioProcess {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) exit: ChildExit,
    pub(super) stop: CancellationToken,
}

/// The exit of a process, to explain a lost connection.
#[derive(Clone, Debug, Default)]
pub(super) struct ChildExit {
    pub(super) exited: CancellationToken,
    status: Arc<Mutex<Option<ExitStatus>>>,
    /// The last lines of stderr.
    stderr_tail: Arc<Mutex<VecDeque<String>>>,
}

impl ChildExit {
    /// Describes the exit status and the last stderr lines, if known.
    pub(super) fn describe(&self) -> String {
        let status = *self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = self.stderr_tail.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = lines.iter().map(String::as_str).collect::<Vec<_>>().join(" | ");
        let status = status.map(|status| format!("the process ended with {status}"));
        let lines = (!lines.is_empty()).then(|| format!("its last output: {lines}"));
        status.into_iter().chain(lines).collect::<Vec<_>>().join("; ")
    }
}

/// Starts the process. Tasks of `processes` supervise it until it has ended.
pub(super) fn spawn_process(
    name: &Arc<str>,
    transport: &McpTransport,
    secrets: &SecretRedactor,
    processes: &ServerProcesses,
) -> Result<StdioProcess, String> {
    let mut child = build_command(transport)?.spawn().map_err(|error| match transport {
        McpTransport::Stdio { program, .. } => format!("cannot start {program}: {error}"),
        McpTransport::Http { .. } => error.to_string(),
    })?;
    let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
        return Err("the process has no standard streams".to_owned());
    };
    let group = ProcessGroup::new(&child, processes)?;
    let exit = ChildExit::default();
    let stop = processes.shutdown_token.child_token();
    let stderr_tail = exit.stderr_tail.clone();
    processes.tasks.spawn(read_stderr(name.clone(), stderr, secrets.clone(), stderr_tail));
    processes.tasks.spawn(supervise(child, group, stop.clone(), exit.clone()));
    Ok(StdioProcess { stdin, stdout, exit, stop })
}

fn build_command(transport: &McpTransport) -> Result<Command, String> {
    let McpTransport::Stdio { program, arguments, env, cwd } = transport else {
        return Err("the server has no stdio transport".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    for (name, value) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        let is_passed = PASSED_VARIABLES.contains(&&*name_text)
            || PASSED_VARIABLE_PREFIXES.iter().any(|prefix| name_text.starts_with(prefix));
        if is_passed {
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

/// The process group of an unreaped child: until it is reaped, its pid is not reused.
#[derive(Debug)]
struct ProcessGroup {
    leader: Pid,
    /// The stream of SIGCHLD.
    children: unix::Signal,
    is_reaped: bool,
    _pid_file: Option<PidFile>,
}

impl ProcessGroup {
    fn new(child: &Child, processes: &ServerProcesses) -> Result<Self, String> {
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let leader = pid.ok_or("the process ended at once")?;
        let children = unix::signal(unix::SignalKind::child());
        let children = children.map_err(|error| format!("cannot watch the process: {error}"))?;
        let _pid_file =
            processes.pid_registry.as_ref().and_then(|registry| registry.register(leader));
        Ok(Self { leader, children, is_reaped: false, _pid_file })
    }

    /// Waits for the exit of the leader without reaping it.
    async fn wait_for_exit(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        while let Ok(None) = waitid(WaitId::Pid(self.leader), options) {
            self.children.recv().await;
        }
    }

    fn signal(&self, signal: Signal) {
        if !self.is_reaped {
            let _ = kill_process_group(self.leader, signal);
        }
    }
}

/// Kills the whole group.
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Waits for the exit of a process, and kills the rest of its group.
async fn supervise(
    mut child: Child,
    mut group: ProcessGroup,
    stop: CancellationToken,
    exit: ChildExit,
) {
    tokio::select! {
        () = group.wait_for_exit() => {}
        () = stop.cancelled() => {
            // Closing the connection has closed its input, which is the first request to exit.
            if timeout(STDIN_CLOSE_GRACE, group.wait_for_exit()).await.is_err() {
                group.signal(Signal::TERM);
                let _ = timeout(TERM_GRACE, group.wait_for_exit()).await;
            }
        }
    }
    group.signal(Signal::KILL);
    let status = child.wait().await;
    group.is_reaped = true;
    *exit.status.lock().unwrap_or_else(PoisonError::into_inner) = status.ok();
    exit.exited.cancel();
}

/// Reads stderr: stores the last lines and logs a limited number of lines.
async fn read_stderr(
    name: Arc<str>,
    stderr: ChildStderr,
    secrets: SecretRedactor,
    tail: Arc<Mutex<VecDeque<String>>>,
) {
    let mut reader = BufReader::new(stderr);
    let mut window_start = Instant::now();
    let mut logged = 0_u32;
    let mut line = Vec::new();
    // A secret is found only if all of it was read.
    let max = (LINE_MAX + secrets.longest_secret()) as u64;
    loop {
        line.clear();
        match (&mut reader).take(max).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if !line.ends_with(b"\n") && skip_line(&mut reader).await.is_err() {
            return;
        }
        let text = secrets.redact(String::from_utf8_lossy(&line).trim_end().to_owned());
        let text = truncate_end(&text, LINE_MAX);
        if text.is_empty() {
            continue;
        }
        if window_start.elapsed() >= LOG_WINDOW {
            window_start = Instant::now();
            logged = 0;
        }
        logged = logged.saturating_add(1);
        match logged {
            ..LOGGED_LINES_MAX => tracing::info!(server = %name, "{text}"),
            LOGGED_LINES_MAX => {
                tracing::warn!(server = %name, "writes too much to stderr; further lines are not logged for a while")
            }
            _ => {}
        }
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.len() == STDERR_LINES_KEPT {
            tail.pop_front();
        }
        tail.push_back(text);
    }
}

/// Skips the rest of a line that is too long.
async fn skip_line(reader: &mut BufReader<ChildStderr>) -> std::io::Result<()> {
    loop {
        let available = reader.fill_buf().await?;
        let end = available.iter().position(|byte| *byte == b'\n');
        let skipped = end.map_or(available.len(), |end| end + 1);
        reader.consume(skipped);
        if end.is_some() || skipped == 0 {
            return Ok(());
        }
    }
}
