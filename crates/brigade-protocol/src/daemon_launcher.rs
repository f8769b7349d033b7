//! Connects to the daemon, and starts one if none runs.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use brigade_process::private_file::open_private;
use brigade_process::process_identity::{HeldProcess, identify_process};
use rustix::process::Signal;

use crate::daemon_connection::{ClientError, DaemonConnection};
use crate::daemon_lock::{DaemonPhase, LockHolder, find_lock_holder};
use crate::frames::{ClientIntroduction, ClientRole};
use crate::requests::ShutdownRequest;
use crate::state_dir::StateDir;

/// The time for a daemon to start, including the recovery of a large store.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// The time to wait for a daemon that another process must start.
const FOREIGN_START_TIMEOUT: Duration = Duration::from_secs(5);
/// The time until the next start attempt after another daemon held the lock.
const LOCK_RETRY_AFTER: Duration = Duration::from_millis(300);
/// The time that a daemon may run without a socket. It binds a removed one again within a second.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(4);
/// The pause between two attempts to connect.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(2);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(20);
/// The size of the log over which the next daemon starts a new one.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// The part of the log's end that is searched for an error.
const LOG_TAIL_BYTES: u64 = 4 * 1024;

/// The exit code of a daemon that found the state directory locked. It is used for nothing else,
/// since only this failure is a reason to wait for another daemon.
pub const STATE_DIR_TAKEN_EXIT: u8 = 119;

/// The variable that names the state directory, for the daemon and its processes.
pub const STATE_VARIABLE: &str = "BRIGADE_STATE";

/// The variable that names the configuration file.
pub const CONFIG_VARIABLE: &str = "BRIGADE_CONFIG";

/// The variable that names the store of a daemon. It may contain a password.
pub const STORE_VARIABLE: &str = "BRIGADE_STORE";

/// The value of [`STORE_VARIABLE`] for the file in the state directory.
pub const SQLITE_STORE: &str = "sqlite";

/// The variable that sets the number of arenas of glibc's allocator.
const ARENA_MAX_VARIABLE: &str = "MALLOC_ARENA_MAX";

/// Connects to the daemon of a state directory, and starts it with this program if needed.
#[derive(Clone, Debug)]
pub struct DaemonLauncher {
    pub state_dir: StateDir,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub start_policy: StartPolicy,
    /// Shows a line to the person at the terminal.
    pub notice: fn(&str),
}

/// Whether a client may start a daemon, and replace an older one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartPolicy {
    Start,
    /// Inside a task: the daemon would be part of the task and end with it.
    WithinTask,
    /// The daemon of this store is started and replaced by its operator only.
    Never(ForeignStore),
}

/// A store outside of the state directory, as an error message names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignStore {
    /// The store, without a password.
    pub name: String,
    /// The command line that starts its daemon.
    pub command: String,
}

impl StartPolicy {
    pub fn may_start(&self) -> bool {
        *self == Self::Start
    }

    pub fn is_within_task(&self) -> bool {
        *self == Self::WithinTask
    }
}

impl DaemonLauncher {
    /// Connects to the running daemon, or starts one. Replaces an older daemon, whatever protocol
    /// it uses; processes keep running. A caller that may not start a daemon waits a moment for
    /// one.
    pub async fn connect(
        &self,
        introduction: impl Into<ClientIntroduction>,
    ) -> Result<DaemonConnection, ClientError> {
        let introduction = introduction.into();
        let role = &introduction.role;
        let may_start = self.start_policy.may_start();
        let timeout = if may_start { START_TIMEOUT } else { FOREIGN_START_TIMEOUT };
        let deadline = Instant::now() + timeout;
        let mut start = LaunchState::NotStarted;
        let mut pause = POLL_INTERVAL_MIN;
        let mut unreachable = UnreachableTimer::default();
        let mut terminated = None;
        loop {
            let error = match DaemonConnection::connect(&self.state_dir, introduction.clone()).await
            {
                Ok(client) if may_start && is_to_be_replaced(&client, role) => {
                    self.shut_down_older_daemon(client, role).await?;
                    continue;
                }
                Ok(client) => {
                    client.check_protocol()?;
                    start.reap();
                    return Ok(client);
                }
                Err(ClientError::NoDaemon(error)) => error,
                Err(error @ ClientError::VersionMismatch { .. })
                    if may_start && Instant::now() < deadline =>
                {
                    self.terminate_obsolete_daemon(&mut terminated, error)?;
                    tokio::time::sleep(POLL_INTERVAL_MAX).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let holder = find_lock_holder(&self.state_dir.lock_path());
            if let Some(holder) = holder
                && (Instant::now() > deadline || unreachable.is_too_long(holder))
            {
                return Err(ClientError::Unreachable {
                    holder,
                    socket: self.state_dir.socket_path(),
                });
            }
            if Instant::now() > deadline {
                return Err(self.explain_failure(error));
            }
            start = match start.poll() {
                LaunchState::NotStarted if holder.is_some() || !may_start => {
                    LaunchState::NotStarted
                }
                LaunchState::NotStarted => LaunchState::Starting(
                    self.spawn_daemon().map_err(|error| self.start_error(error))?,
                ),
                LaunchState::Failed(status) => {
                    return Err(
                        self.explain_failure(io::Error::other(format!("it ended with {status}")))
                    );
                }
                waiting => waiting,
            };
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(POLL_INTERVAL_MAX);
        }
    }

    /// Explains a failed start. A sandbox often forbids writing, and a daemon would not outlive it.
    fn start_error(&self, error: io::Error) -> ClientError {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let path = self.state_dir.path().display();
        if !matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) {
            return ClientError::NotStarted(format!("the state directory {path}: {error}"));
        }
        let problem = format!(
            "no daemon is running, and this process may not start one in the state directory {path}: \
             {error}"
        );
        ClientError::NotPermitted(io::Error::new(error.kind(), problem))
    }

    /// Shuts down an older daemon. Only the operator may do so; a client that may start daemons
    /// connects as the operator.
    async fn shut_down_older_daemon(
        &self,
        client: DaemonConnection,
        role: &ClientRole,
    ) -> Result<(), ClientError> {
        let operator = match role {
            ClientRole::Operator => client,
            ClientRole::Client(_) | ClientRole::SharedClient(_) => {
                match DaemonConnection::connect(&self.state_dir, ClientRole::Operator).await {
                    Ok(operator) if is_older(operator.daemon_version()) => operator,
                    // Another client has asked it before.
                    Ok(_) | Err(ClientError::NoDaemon(_)) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        };
        match operator.call(ShutdownRequest {}).await {
            // A daemon that ends at once may not send its reply.
            Ok(()) | Err(ClientError::Lost | ClientError::NotReceived) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Terminates a daemon that does not understand the hello frame, unless that was done before.
    fn terminate_obsolete_daemon(
        &self,
        terminated: &mut Option<u32>,
        error: ClientError,
    ) -> Result<(), ClientError> {
        if terminated.is_none() {
            let pid = terminate_lock_holder(&self.state_dir).ok_or(error)?;
            (self.notice)(&format!("stopping the daemon (pid {pid}): it is of an earlier version"));
            *terminated = Some(pid);
        }
        Ok(())
    }

    fn spawn_daemon(&self) -> io::Result<Child> {
        self.state_dir.create()?;
        let log = self.state_dir.log_path();
        if std::fs::metadata(&log).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
            let _ = std::fs::rename(&log, log.with_extension("log.old"));
        }
        let log = open_private(&log, OpenOptions::new().append(true))?;
        let mut daemon = Command::new(&self.program);
        if std::env::var_os(ARENA_MAX_VARIABLE).is_none() {
            // A daemon is mostly idle. Few arenas return the memory of a burst to the system.
            daemon.env(ARENA_MAX_VARIABLE, "2");
        }
        if let Some(config) = std::env::var_os(CONFIG_VARIABLE).filter(|path| !path.is_empty()) {
            // The daemon has another working directory.
            daemon.env(CONFIG_VARIABLE, std::path::absolute(config)?);
        }
        daemon
            .args(&self.args)
            .env(STATE_VARIABLE, self.state_dir.path())
            // A client starts no daemon of another store, whatever the configuration says by then.
            .env(STORE_VARIABLE, SQLITE_STORE)
            // A working directory elsewhere could not be removed or unmounted.
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
    }

    /// Explains why no daemon runs: with the last line of its log, or with the action to take.
    fn explain_failure(&self, error: io::Error) -> ClientError {
        match &self.start_policy {
            StartPolicy::Start => {}
            StartPolicy::WithinTask => {
                return ClientError::NoDaemon(io::Error::other(
                    "one that is started from within a task would end with it; start it elsewhere: \
                     `brigade daemon start`",
                ));
            }
            StartPolicy::Never(ForeignStore { name, command }) => {
                return ClientError::NoDaemon(io::Error::other(format!(
                    "the store is {name}, and its daemon does not start by itself; run `{command}`"
                )));
            }
        }
        match read_log_tail(&self.state_dir.log_path()).unwrap_or_default().lines().last() {
            Some(line) => ClientError::NotStarted(line.to_owned()),
            None => ClientError::NotStarted(error.to_string()),
        }
    }
}

/// Connects to the running daemon. If its socket is missing, waits until the daemon has bound it
/// again.
pub async fn connect_running(
    state_dir: &StateDir,
    role: ClientRole,
) -> Result<DaemonConnection, ClientError> {
    let deadline = Instant::now() + SOCKET_TIMEOUT;
    let mut pause = POLL_INTERVAL_MIN;
    loop {
        let error = match DaemonConnection::connect(state_dir, role.clone()).await {
            Err(ClientError::NoDaemon(error)) => error,
            other => return other,
        };
        let holder = match find_lock_holder(&state_dir.lock_path()) {
            Some(holder) => holder,
            None => return Err(ClientError::NoDaemon(error)),
        };
        if holder.phase == Some(DaemonPhase::ShuttingDown) || Instant::now() > deadline {
            return Err(ClientError::Unreachable { holder, socket: state_dir.socket_path() });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_INTERVAL_MAX);
    }
}

/// Sends SIGTERM to the process that holds the lock of a state directory, and returns its pid. It stops
/// daemons that do not understand the hello frame.
pub fn terminate_lock_holder(state_dir: &StateDir) -> Option<u32> {
    let lock = state_dir.lock_path();
    let pid = find_lock_holder(&lock)?.pid?;
    let process = HeldProcess::open(identify_process(pid)?).ok()??;
    // While the daemon holds the lock, the number is its own.
    find_lock_holder(&lock).filter(|holder| holder.pid == Some(pid))?;
    process.send_signal(Signal::TERM).ok()?;
    Some(pid)
}

/// Measures the time that one daemon has been without a socket.
#[derive(Debug, Default)]
struct UnreachableTimer {
    since: Option<UnreachableSince>,
}

/// A daemon without a socket, and the time of the first failed connection.
#[derive(Clone, Copy, Debug)]
struct UnreachableSince {
    holder: LockHolder,
    since: Instant,
}

impl UnreachableTimer {
    /// Returns true if a serving daemon has been without a socket for too long. A daemon that
    /// recovers a large store, or drains its clients, takes longer. An older daemon does not write
    /// its phase.
    fn is_too_long(&mut self, holder: LockHolder) -> bool {
        let first = match self.since {
            Some(first) if first.holder == holder => first,
            _ => *self.since.insert(UnreachableSince { holder, since: Instant::now() }),
        };
        holder.phase == Some(DaemonPhase::Serving) && first.since.elapsed() > SOCKET_TIMEOUT
    }
}

/// The progress of starting a daemon.
#[derive(Debug)]
enum LaunchState {
    NotStarted,
    Starting(Child),
    /// Another daemon holds the lock, and is starting or shutting down.
    StateDirTaken {
        since: Instant,
    },
    Failed(ExitStatus),
}

impl LaunchState {
    fn poll(self) -> Self {
        match self {
            Self::Starting(mut child) => match child.try_wait() {
                Ok(Some(status)) if status.code() == Some(i32::from(STATE_DIR_TAKEN_EXIT)) => {
                    Self::StateDirTaken { since: Instant::now() }
                }
                // It was shut down or killed before this client connected.
                Ok(Some(status)) if status.success() || was_killed(status) => Self::NotStarted,
                Ok(Some(status)) => Self::Failed(status),
                Ok(None) | Err(_) => Self::Starting(child),
            },
            Self::StateDirTaken { since } if since.elapsed() > LOCK_RETRY_AFTER => Self::NotStarted,
            other => other,
        }
    }

    fn reap(self) {
        if let Self::Starting(mut child) = self {
            // The thread reaps the daemon if it ends before this process; otherwise init does.
            let _ = std::thread::Builder::new().spawn(move || child.wait());
        }
    }
}

/// Returns true if another process killed the daemon, so that a new start may succeed.
fn was_killed(status: ExitStatus) -> bool {
    let signals = [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP];
    status.signal().is_some_and(|signal| signals.iter().any(|one| one.as_raw() == signal))
}

fn read_log_tail(log: &std::path::Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// Returns true if this client replaces an older daemon. The operator always does so, a client only
/// if the daemon cannot serve it.
fn is_to_be_replaced(client: &DaemonConnection, role: &ClientRole) -> bool {
    let may_replace = *role == ClientRole::Operator || client.check_protocol().is_err();
    may_replace && is_older(client.daemon_version())
}

fn is_older(daemon: &str) -> bool {
    version_numbers(daemon) < version_numbers(env!("CARGO_PKG_VERSION"))
}

fn version_numbers(version: &str) -> Vec<u64> {
    let plain = version.split(['-', '+']).next().unwrap_or_default();
    plain.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(version_numbers("0.9.10") > version_numbers("0.9.9"));
        assert!(version_numbers("1.0.0") > version_numbers("0.10.0"));
        assert_eq!(version_numbers("0.1.0-pre"), version_numbers("0.1.0"));
        assert!(!is_older(env!("CARGO_PKG_VERSION")));
    }
}
