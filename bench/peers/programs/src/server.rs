//! A server that a runner starts.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use peers_harness::BoxError;

/// The time that a server has to start.
const START_LIMIT: Duration = Duration::from_secs(10);
/// The pause between two attempts to reach a server.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running server. The process tree of the runner ends it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    log: PathBuf,
}

impl Server {
    /// Starts a server whose output goes to the file `LOG_NAME.log`. A pipe that nobody reads would
    /// block it.
    pub fn start(command: &mut Command, dir: &Path, log_name: &str) -> Result<Self, BoxError> {
        let log = dir.join(format!("{log_name}.log"));
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(Self { child: command.spawn()?, log })
    }

    /// Waits until the server accepts connections at a port of the loopback interface.
    pub fn wait_for_port(&mut self, port: u16) -> Result<(), BoxError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        self.wait_until(|| TcpStream::connect(address).is_ok())
    }

    /// Waits until a check succeeds.
    pub fn wait_until(&mut self, check: impl Fn() -> bool) -> Result<(), BoxError> {
        let started_at = Instant::now();
        while !check() {
            let ended = self.child.try_wait()?.is_some();
            if ended || started_at.elapsed() > START_LIMIT {
                return Err(format!("no start: {}", last_line(&self.log)).into());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }
}

/// Returns a free port of the loopback interface.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Returns the last line of a log.
pub(crate) fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no output").to_owned()
}
