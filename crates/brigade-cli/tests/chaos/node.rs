//! A node: a real daemon with a state directory of its own.

use std::env::consts::ARCH;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::http_client::{Asked, HttpRequest};
use crate::proxy::FaultProxy;

pub(crate) const BRIGADE: &str = env!("CARGO_BIN_EXE_brigade");

/// The time after which a node that does not answer is a failed run.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A node with its proxies to the two servers of the database.
#[derive(Debug)]
pub(crate) struct ChaosNode {
    pub(crate) name: String,
    pub(crate) proxies: [FaultProxy; 2],
    url: String,
    root: PathBuf,
    address: SocketAddr,
    process: Option<Child>,
    /// The difference of its clock in seconds.
    pub(crate) skew: i64,
    is_paused: bool,
    /// Ends that no fault caused, which are those of starts without a database.
    pub(crate) own_ends: u64,
}

impl ChaosNode {
    /// Returns a node that does not run. All nodes have the configuration below this directory.
    pub(crate) fn new(name: &str, root: &Path, proxies: [FaultProxy; 2], url: String) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        Self {
            name: name.to_owned(),
            proxies,
            url,
            root: root.to_owned(),
            address: listener.local_addr().expect("it listens"),
            process: None,
            skew: 0,
            is_paused: false,
            own_ends: 0,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn state(&self) -> PathBuf {
        self.root.join(&self.name)
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.root.join(format!("{}.log", self.name))
    }

    /// Returns a command of the node's user. It starts no daemon, since it names a database.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(BRIGADE);
        command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", &self.root);
        command.env("BRIGADE_STATE", self.state()).current_dir(&self.root).stdin(Stdio::null());
        command.env("BRIGADE_STORE", &self.url);
        command
    }

    /// Starts the daemon, unless it runs.
    pub(crate) fn start(&mut self) {
        if self.process.is_some() {
            return;
        }
        let log = File::options().create(true).append(true).open(self.log_path());
        let mut command = self.command();
        command.args(["serve", "--node", &self.name, "--listen", &self.address.to_string()]);
        command.arg("--state").arg(self.state());
        command.env("BRIGADE_LOG", "info");
        if self.skew != 0 {
            command.env("LD_PRELOAD", faketime_path());
            command.env("FAKETIME", format!("{:+}s", self.skew));
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command.stdout(Stdio::null()).stderr(log.expect("it is ours"));
        self.process = Some(command.spawn().expect("the daemon is built"));
    }

    /// Starts the daemon again if it has ended by itself: it does when it starts without a database.
    pub(crate) fn keep_running(&mut self) {
        let has_ended = match &mut self.process {
            Some(process) => process.try_wait().expect("it is our child").is_some(),
            None => true,
        };
        if has_ended {
            self.own_ends += u64::from(self.process.take().is_some());
            self.start();
        }
    }

    /// Waits until the node answers a request. Starts it again if it ends before.
    #[track_caller]
    pub(crate) fn wait_until_ready(&mut self, token: &str) {
        let deadline = Instant::now() + START_TIMEOUT;
        let request = HttpRequest::get("/v1/nodes").timeout(Duration::from_secs(5));
        loop {
            let asked = request.send(self.address, token);
            if matches!(asked, Asked::Answered { status: 200, .. }) {
                return;
            }
            assert!(Instant::now() < deadline, "{} does not answer: {asked:?}", self.name);
            self.keep_running();
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Kills the daemon. Its processes run on.
    pub(crate) fn kill(&mut self) {
        self.is_paused = false;
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    pub(crate) fn pause(&mut self) {
        self.is_paused = self.signal(Signal::STOP);
    }

    pub(crate) fn resume(&mut self) {
        if std::mem::take(&mut self.is_paused) {
            self.signal(Signal::CONT);
        }
    }

    /// Shuts the daemon down.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::TERM);
        if let Some(mut process) = self.process.take() {
            let _ = process.wait();
        }
    }

    fn signal(&self, signal: Signal) -> bool {
        let pid = self.process.as_ref().map(Child::id).and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw);
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// Returns the lines of the log that report a defect.
    pub(crate) fn read_defects(&self) -> Vec<String> {
        let log = fs::read_to_string(self.log_path()).unwrap_or_default();
        let signs = ["panicked at", "a commit of an open lane was refused"];
        let is_defect = |line: &&str| signs.iter().any(|sign| line.contains(sign));
        log.lines().filter(is_defect).map(|line| format!("{}: {line}", self.name)).collect()
    }
}

/// Returns true if a process can get another clock.
pub(crate) fn has_faketime() -> bool {
    faketime_path().is_file()
}

/// Returns the path of the library that gives a process another clock, on Debian.
fn faketime_path() -> PathBuf {
    PathBuf::from(format!("/usr/lib/{ARCH}-linux-gnu/faketime/libfaketime.so.1"))
}
