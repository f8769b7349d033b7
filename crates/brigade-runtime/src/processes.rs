//! Processes as tasks, each with a shim that outlives this process.
//!
//! - [`options`]: the directories and settings of processes.
//! - `performer`: the performer; `driver`: follows one process; `probe`: turns an execution's
//!   record or its absence into an end report.
//! - `readiness`: watches a process until it is ready.
//! - `session`: the methods of a session that are for processes only.
//! - `peer_origin`: the origin of a connected process; `departed_readers`: readers of output that left
//!   before the start.
//! - [`task_output`]: the output of a process, also on another host; `host_request`, `host_server`: the
//!   requests of other nodes about the processes of this host.
//! - `watched_processes`: the processes that are followed; `stale_executions`: those whose tasks have
//!   ended without them.
//! - `state_dir`, `environment`, `execution_dirs`, `prepared_sandbox`: variables, directories, sandbox.
//! - [`report`]: the report about a process that ended.

mod departed_readers;
mod driver;
mod environment;
mod execution_dirs;
pub(crate) mod host_request;
mod host_server;
pub mod options;
mod peer_origin;
mod performer;
mod prepared_sandbox;
mod probe;
pub(crate) mod readiness;
pub mod report;
mod session;
mod stale_executions;
mod state_dir;
pub mod task_output;
mod watched_processes;

pub use brigade_model::process_report::{ProcessReport, SandboxPart, sandbox_parts};
pub(crate) use driver::{NO_INPUT, StartRecorded, render_line};
pub(crate) use execution_dirs::ProcessExecution;
pub(crate) use host_request::{
    FIND_ENDS_MAX, HostEnd, HostMessage, HostProcess, HostPushResult, HostReply, HostRequest,
};
pub use options::ProcessOptions;
pub use peer_origin::PeerOrigin;
pub(crate) use performer::{ProcessPerformer, ProcessService};
pub(crate) use report::CommandDescription;
pub use session::InputPiece;
pub use task_output::{TaskOutput, TaskOutputFollower, TaskOutputSearch};
