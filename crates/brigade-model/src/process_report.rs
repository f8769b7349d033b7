//! The stored state and the result of a process, as the runtime writes them and clients read them.

use serde::{Deserialize, Serialize};

use crate::ids::Attempt;
use crate::outcome::Outcome;
use crate::task::TaskRow;

/// The result of a process, succeeded or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessReport {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The bytes that each stream produced, stored or not.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub duration_ms: u64,
    /// The end of its output, both streams in order.
    pub tail: String,
    /// The parts of its sandbox that were in effect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sandbox: Vec<SandboxPart>,
    /// Its processes that could not be ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub survivors: Vec<String>,
}

/// One part of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxPart {
    /// Rules for files, signals and sockets.
    Landlock,
    /// A filter of system calls.
    Seccomp,
    /// A mount namespace: nothing outside can be changed, and some of it is hidden.
    Mount,
    /// An empty network namespace.
    Network,
    /// A control group, which a process without a sandbox may have too.
    ControlGroup,
    /// A memory limit for all its processes together.
    MemoryLimit,
}

/// The stored state of a process's task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartedProcess {
    pub attempt: Attempt,
    pub shim_pid: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox: Vec<SandboxPart>,
}

/// Returns the parts of the sandbox that are in effect for a process. Empty without a sandbox, and
/// until they are known.
pub fn sandbox_parts(row: &TaskRow) -> Vec<SandboxPart> {
    let state = row.extras.as_ref().and_then(|extra| extra.state.as_ref());
    let started = state.and_then(|state| state.decode::<StartedProcess>().ok());
    if let Some(started) = started.filter(|started| started.attempt == row.attempt) {
        return started.sandbox;
    }
    let report = row.ended().and_then(|ended| match &*ended.outcome {
        Outcome::Succeeded { result } => Some(result),
        Outcome::Failed(failed) => failed.partial.as_ref(),
        Outcome::Cancelled(cancelled) => cancelled.partial.as_ref(),
    });
    let report = report.and_then(|report| report.decode::<ProcessReport>().ok());
    report.map(|report| report.sandbox).unwrap_or_default()
}
