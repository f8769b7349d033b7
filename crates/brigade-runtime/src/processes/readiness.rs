//! Watches a process until it is ready.
//!
//! A watch ends with the process, and begins again when a later runtime adopts a process that is not
//! ready. It then reads the stored output once more from its beginning.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use brigade_model::refusal::Refusal;
use brigade_model::task::{TaskRow, TaskState};
use brigade_model::work::ReadinessCheck;
use brigade_process::listening_port::{PortOwner, find_port_owner};
use brigade_process::loopback_probe::{accepts_connection, answers_request};
use brigade_process::loopback_url::{LOOPBACK, LoopbackUrl};
use brigade_process::output::LineWatch;
use brigade_process::{ProcessId, ProcessOutput};

use super::task_output::search_refusal;

/// The pauses between two probes, each longer than the one before.
const PROBE_PAUSE_MIN: Duration = Duration::from_millis(50);
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(1);

/// A watch for the readiness of one process.
#[derive(Clone, Debug)]
pub(crate) enum ReadinessWatch {
    Output(LineWatch),
    Port(u16),
    Http(LoopbackUrl),
}

impl ReadinessWatch {
    /// Returns the watch of a check. Stored checks were accepted before, so one that cannot be used
    /// is of another version; its process never becomes ready.
    pub(super) fn new(check: &ReadinessCheck) -> Option<Self> {
        match check {
            ReadinessCheck::Output(pattern) => LineWatch::new(pattern).ok().map(Self::Output),
            ReadinessCheck::Port(port) => Some(Self::Port(*port)),
            ReadinessCheck::Http(url) => LoopbackUrl::parse(url).ok().map(Self::Http),
            _ => None,
        }
    }

    /// Returns the watch of an adopted process that is not ready yet.
    pub(super) fn of_row(row: &TaskRow) -> Option<Self> {
        let is_open = row.ready_at().is_none() && !matches!(row.state, TaskState::Stopping(_));
        row.spec.work.readiness_check().filter(|_| is_open).and_then(Self::new)
    }

    pub(super) fn reads_output(&self) -> bool {
        matches!(self, Self::Output(_))
    }

    /// Waits until the process is ready. Returns false if it can no longer become so. The process is
    /// a descendant of this shim.
    pub(super) async fn wait(&self, dir: &Path, shim: ProcessId) -> bool {
        match self {
            Self::Output(lines) => {
                let found = lines.wait(&ProcessOutput::open_expected(dir)).await;
                found.unwrap_or_else(|error| {
                    tracing::warn!(%error, "the output of a process cannot be searched");
                    false
                })
            }
            Self::Port(_) | Self::Http(_) => {
                let mut pause = PROBE_PAUSE_MIN;
                while !self.probe(shim).await {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PROBE_PAUSE_MAX);
                }
                true
            }
        }
    }

    async fn probe(&self, shim: ProcessId) -> bool {
        match self {
            Self::Output(_) => false,
            Self::Port(port) => {
                let port = *port;
                if !accepts_connection(&loopback_addresses(port)).await {
                    return false;
                }
                let owner = tokio::task::spawn_blocking(move || find_port_owner(port, shim)).await;
                !matches!(owner, Ok(PortOwner::Other) | Err(_))
            }
            Self::Http(LoopbackUrl { addresses, authority, target }) => {
                answers_request(addresses, authority, target).await
            }
        }
    }
}

/// Refuses a pattern or URL that cannot be used, before anything is started.
pub(crate) fn check_usable(check: &ReadinessCheck) -> Result<(), Refusal> {
    check.check()?;
    match check {
        ReadinessCheck::Output(pattern) => {
            LineWatch::new(pattern).map(|_| ()).map_err(|error| search_refusal(&error))
        }
        ReadinessCheck::Http(url) => {
            LoopbackUrl::parse(url).map(|_| ()).map_err(|error| Refusal::invalid(error.to_string()))
        }
        _ => Ok(()),
    }
}

/// Returns the problem if another process answers where this one is to become ready.
pub(super) async fn check_ports_free(check: Option<&ReadinessCheck>) -> Result<(), String> {
    let addresses = match check {
        Some(ReadinessCheck::Port(port)) => loopback_addresses(*port).to_vec(),
        Some(ReadinessCheck::Http(url)) => match LoopbackUrl::parse(url) {
            Ok(url) => url.addresses,
            Err(error) => return Err(error.to_string()),
        },
        _ => return Ok(()),
    };
    match addresses.first() {
        Some(first) if accepts_connection(&addresses).await => Err(format!(
            "port {} is already in use by another process; end that process or choose another port",
            first.port()
        )),
        _ => Ok(()),
    }
}

fn loopback_addresses(port: u16) -> [SocketAddr; 2] {
    LOOPBACK.map(|ip| SocketAddr::new(ip, port))
}
