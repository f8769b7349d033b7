//! The runtime: it starts, steers and ends tasks.
//!
//! ```text
//!  Session, JobContext, Reporter          readers
//!        │ inputs                        ▲       ▲
//!        ▼                             view     feed
//!  Supervisor: decide ── commit ── publish ── acknowledge ── perform
//!                          │                                   │
//!                        Store                             Performers (jobs, processes, agents, custom kinds)
//! ```
//!
//! In reading order:
//! - [`runtime`], [`builder`], [`session`], `session_waits`, `readiness_waits`, [`task_handle`],
//!   [`new_task`], [`task_error`]: the handles that a
//!   program holds.
//! - `supervisor`, `commit`, `perform`: the loop; `held_sessions`: the sessions that it holds;
//!   `recovery`: its work before the first turn; `shutdown`: after the last.
//! - [`fleet`]: the runtime as a node that shares its store with others.
//! - [`performer`]: the interface of a performer; [`jobs`]: async functions; [`processes`]: OS
//!   processes; [`agents`]: models that delegate.
//! - [`approvals`]: pending approvals and stored grants.
//! - `view`, [`feed`], `client_waits`: committed state for readers; [`streams`]: the same as streams,
//!   and the output of processes and agents.
//! - [`records`]: records of the store, by the runtime's clock.
//! - `sandbox`: a sandbox as requested becomes absolute paths; `spawn_parent`: the parent of a new
//!   task.
//! - `worktrees`: git worktrees of processes and agents.
//! - [`runtime_metrics`]: counters and gauges.
//! - [`clock`], `session_timers`, `ids`, `loop_input`, `error`: time, ids, the loop's input and refusals.

#[cfg(feature = "agents")]
pub mod agents;
pub mod approvals;
pub mod builder;
mod client_waits;
pub mod clock;
mod commit;
mod drain;
mod error;
pub mod feed;
pub mod fleet;
mod held_sessions;
mod ids;
pub mod jobs;
pub mod join_all;
mod loop_input;
mod loops;
pub mod new_task;
mod open_session;
mod perform;
pub mod performer;
#[cfg(feature = "processes")]
pub mod processes;
mod readiness_waits;
pub mod records;
mod recovery;
mod retention;
mod running_slots;
pub mod runtime;
pub mod runtime_metrics;
#[cfg(feature = "processes")]
mod sandbox;
pub mod send_message;
pub mod session;
mod session_stops;
mod session_tasks;
mod session_timers;
mod session_waits;
mod shutdown;
mod spawn_parent;
pub mod streams;
mod supervisor;
pub mod task_error;
pub mod task_handle;
mod view;
#[cfg(feature = "processes")]
mod worktrees;

#[cfg(feature = "agents")]
pub use agents::{
    AgentOptions, ChosenModel, ModelCost, ModelProviders, ModelSource, OneModel, RecordedModels,
};
pub use approvals::PendingApproval;
pub use builder::RuntimeBuilder;
pub use clock::{Clock, SystemClock};
pub use drain::{AliveTask, DrainResult};
pub use feed::{FeedSubscription, FeedUpdate};
pub use fleet::{NodeInfo, NodeOptions};
pub use ids::{new_key, new_lease_holder};
pub use jobs::{
    ChildTask, ChildWaitResult, Job, JobContext, JobError, JobHandler, RetriedStep, RetryPolicy,
    Step, StepBody,
};
pub use join_all::{JoinAll, JoinedResults};
#[cfg(feature = "agents")]
pub use new_task::AgentTask;
pub use new_task::{AnyTask, CustomTask, JobTask, NewTask, TaskType};
#[cfg(feature = "processes")]
pub use new_task::{ProcessTask, RunsProcesses};
pub use open_session::{OpenSession, OpenedSession};
pub use performer::{
    Delivery, Performer, ReconcileResult, RemoteError, RemotePerformer, RemoteService,
    RemoteStatus, Reporter, StopMode, TaskId,
};
#[cfg(feature = "processes")]
pub use processes::{
    InputPiece, PeerOrigin, ProcessOptions, ProcessReport, SandboxPart, TaskOutput,
    TaskOutputFollower, TaskOutputSearch, sandbox_parts,
};
pub use readiness_waits::ReadinessWaitResult;
pub use records::RuntimeRecords;
pub use runtime::Runtime;
pub use send_message::SendMessage;
pub use session::{ForegroundResult, Session};
pub use session_waits::WaitResult;
pub use streams::ResultStream;
pub use streams::events::EventStream;
pub use streams::handlers::HandlerGuard;
#[cfg(feature = "processes")]
pub use streams::output::{OutputLine, OutputReader};
#[cfg(feature = "agents")]
pub use streams::pending_calls::PendingClientCall;
pub use streams::usage::TaskUsage;
pub use task_error::TaskError;
pub use task_handle::TaskHandle;
