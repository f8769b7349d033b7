//! How a daemon comes to be: whoever needs one starts it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use brigade_process::private_file::open_private;

use crate::daemon_connection::{ClientError, DaemonConnection};
use crate::daemon_lock::{DaemonPhase, LockHolder, find_lock_holder};
use crate::frames::{ClientIntroduction, ClientRole};
use crate::requests::ShutdownRequest;
use crate::state_dir::StateDir;

/// How long a daemon may take to come up. Recovery of a large store is part of it.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it is waited for a daemon that somebody else has to start.
const FOREIGN_START_TIMEOUT: Duration = Duration::from_secs(5);
/// How long somebody else's daemon that has the folder may take before it is tried once more.
const LOCK_RETRY_AFTER: Duration = Duration::from_millis(300);
/// How long a daemon may run without a socket. It binds a removed one again within a second.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(4);
/// How often it is looked whether it is there.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(2);
const POLL_INTERVAL_MAX: Duration = Duration::from_millis(20);
/// When the log has become longer than this, the next daemon begins a new one.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// How much of the log's end is looked at for what went wrong.
const LOG_TAIL_BYTES: u64 = 4 * 1024;

/// The exit code of a daemon that found the folder taken. Nothing else ends with it: it is a reason to wait for
/// another daemon, and any other failure is not.
pub const STATE_DIR_TAKEN_EXIT: u8 = 119;

/// The variable that names the state folder, for the daemon and the commands that it runs.
pub const STATE_VARIABLE: &str = "BRIGADE_STATE";

/// The variable that names the file of the configuration.
pub const CONFIG_VARIABLE: &str = "BRIGADE_CONFIG";

/// How many pools the C library's allocator keeps memory in, where there is one that does.
const ARENA_MAX_VARIABLE: &str = "MALLOC_ARENA_MAX";

/// How to start a daemon.
#[derive(Clone, Debug)]
pub struct DaemonLauncher {
    pub state_dir: StateDir,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Not within a task: the daemon would be a part of it, and end with it.
    pub may_start: bool,
    /// Shows a line to the person at the terminal.
    pub notice: fn(&str),
}

impl DaemonLauncher {
    /// A connection to the daemon that runs, or to one that is started for it. An older daemon is
    /// asked to make way for a newer one, whatever protocol it speaks; commands do not notice.
    /// Who may start none waits for a moment: the next one may be on its way.
    pub async fn connect(
        &self,
        who: impl Into<ClientIntroduction>,
    ) -> Result<DaemonConnection, ClientError> {
        let introduction = who.into();
        let who = &introduction.role;
        let patience = if self.may_start { START_TIMEOUT } else { FOREIGN_START_TIMEOUT };
        let deadline = Instant::now() + patience;
        let mut start = LaunchState::NotStarted;
        let mut pause = POLL_INTERVAL_MIN;
        let mut unreachable = UnreachableTimer::default();
        let mut terminated = None;
        loop {
            let error = match DaemonConnection::connect(&self.state_dir, introduction.clone()).await
            {
                Ok(client) if self.may_start && is_to_be_replaced(&client, who) => {
                    self.shut_down_older_daemon(client, who).await?;
                    continue;
                }
                Ok(client) => {
                    client.check_protocol()?;
                    start.reap();
                    return Ok(client);
                }
                Err(ClientError::NoDaemon(error)) => error,
                Err(error @ ClientError::VersionMismatch { .. })
                    if self.may_start && Instant::now() < deadline =>
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
                LaunchState::NotStarted if holder.is_some() || !self.may_start => {
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

    /// Within a sandbox there is often nothing to be written, and no process that would outlive it.
    fn start_error(&self, error: io::Error) -> ClientError {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let folder = self.state_dir.path().display();
        if !matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem) {
            return ClientError::NotStarted(format!("the state folder {folder}: {error}"));
        }
        let problem = format!(
            "no daemon is running, and this process may not start one in the state folder {folder}: {error}"
        );
        ClientError::NotPermitted(io::Error::new(error.kind(), problem))
    }

    /// Only the operator may ask for it, and whoever starts daemons is no less.
    async fn shut_down_older_daemon(
        &self,
        client: DaemonConnection,
        who: &ClientRole,
    ) -> Result<(), ClientError> {
        let operator = match who {
            ClientRole::Operator => client,
            ClientRole::Client(_) | ClientRole::SharedClient(_) => {
                match DaemonConnection::connect(&self.state_dir, ClientRole::Operator).await {
                    Ok(operator) if is_older(operator.daemon_version()) => operator,
                    // Somebody else has asked it before.
                    Ok(_) | Err(ClientError::NoDaemon(_)) => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        };
        match operator.call(ShutdownRequest {}).await {
            // One that goes away at once does not always come to say so.
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
        if std::fs::metadata(&log).is_ok_and(|about| about.len() > LOG_BYTES_MAX) {
            let _ = std::fs::rename(&log, log.with_extension("log.old"));
        }
        let log = open_private(&log, OpenOptions::new().append(true))?;
        let mut daemon = Command::new(&self.program);
        if std::env::var_os(ARENA_MAX_VARIABLE).is_none() {
            // It idles most of its life: what a burst of work took is to be given back.
            daemon.env(ARENA_MAX_VARIABLE, "2");
        }
        if let Some(config) = std::env::var_os(CONFIG_VARIABLE).filter(|path| !path.is_empty()) {
            // The daemon is at home elsewhere.
            daemon.env(CONFIG_VARIABLE, std::path::absolute(config)?);
        }
        daemon
            .args(&self.args)
            .env(STATE_VARIABLE, self.state_dir.path())
            // So that it keeps no directory of somebody's from being removed or unmounted.
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
    }

    /// What is to be done, or the last line of the log, which is what the daemon had to say.
    fn explain_failure(&self, error: io::Error) -> ClientError {
        if !self.may_start {
            return ClientError::NoDaemon(io::Error::other(
                "one that is started from within a task would end with it; start it elsewhere: \
                 `brigade daemon start`",
            ));
        }
        match read_log_tail(&self.state_dir.log_path()).unwrap_or_default().lines().last() {
            Some(line) => ClientError::NotStarted(line.to_owned()),
            None => ClientError::NotStarted(error.to_string()),
        }
    }
}

/// A connection to the daemon that runs. One whose socket is missing is waited for, as long as it takes to bind it
/// again.
pub async fn connect_running(
    places: &StateDir,
    who: ClientRole,
) -> Result<DaemonConnection, ClientError> {
    let deadline = Instant::now() + SOCKET_TIMEOUT;
    let mut pause = POLL_INTERVAL_MIN;
    loop {
        let error = match DaemonConnection::connect(places, who.clone()).await {
            Err(ClientError::NoDaemon(error)) => error,
            other => return other,
        };
        let holder = match find_lock_holder(&places.lock_path()) {
            Some(holder) => holder,
            None => return Err(ClientError::NoDaemon(error)),
        };
        if holder.phase == Some(DaemonPhase::ShuttingDown) || Instant::now() > deadline {
            return Err(ClientError::Unreachable { holder, socket: places.socket_path() });
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(POLL_INTERVAL_MAX);
    }
}

/// Sends SIGTERM to the process that holds the lock of a state directory, and returns its pid. It stops
/// daemons that do not understand the hello frame.
pub fn terminate_lock_holder(state_dir: &StateDir) -> Option<u32> {
    let pid = find_lock_holder(&state_dir.lock_path())?.pid?;
    let process = rustix::process::Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::kill_process(process, rustix::process::Signal::TERM).ok()?;
    Some(pid)
}

/// How long one and the same daemon has been without a socket.
#[derive(Debug, Default)]
struct UnreachableTimer {
    since: Option<(LockHolder, Instant)>,
}

impl UnreachableTimer {
    /// Returns whether it has been too long for a daemon that serves. One that recovers a large store, or lets
    /// clients finish, takes longer; an older one does not say which it is.
    fn is_too_long(&mut self, holder: LockHolder) -> bool {
        let since = match self.since {
            Some((other, since)) if other == holder => since,
            _ => self.since.insert((holder, Instant::now())).1,
        };
        holder.phase == Some(DaemonPhase::Serving) && since.elapsed() > SOCKET_TIMEOUT
    }
}

/// How far the start of a daemon is.
#[derive(Debug)]
enum LaunchState {
    NotStarted,
    Starting(Child),
    /// Somebody else has the folder: a daemon on its way up, or one on its way out.
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
                // It was told to leave before we came, or killed.
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
            // It outlives this process, or is waited for by this thread. Without one init does it later.
            let _ = std::thread::Builder::new().spawn(move || child.wait());
        }
    }
}

/// Not by its own fault, which would only come again.
fn was_killed(status: ExitStatus) -> bool {
    use rustix::process::Signal;
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

/// Whether an older daemon is to make way: for the operator always, for others where it could not
/// serve them.
fn is_to_be_replaced(client: &DaemonConnection, who: &ClientRole) -> bool {
    let for_whom = *who == ClientRole::Operator || client.check_protocol().is_err();
    for_whom && is_older(client.daemon_version())
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
