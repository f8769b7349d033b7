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
//! - [`runtime`], [`builder`], [`session`], [`task_handle`], [`new_task`]: the handles that a
//!   program holds.
//! - `supervisor`, `commit`, `perform`: the loop; `recovery`: its work before the first turn.
//! - [`performer`]: the interface of a performer; [`jobs`]: async functions; [`processes`]: OS
//!   processes; [`agents`]: models that delegate.
//! - [`approvals`]: pending approvals and stored grants.
//! - `view`, [`feed`], `client_waits`: committed state for readers.
//! - `sandbox`: a sandbox as requested becomes absolute paths.
//! - [`runtime_metrics`]: counters and gauges.
//! - [`clock`], `ids`, `loop_input`, `error`: time, ids, the loop's input and refusals.

pub mod agents;
pub mod approvals;
pub mod builder;
mod client_waits;
pub mod clock;
mod commit;
mod error;
pub mod feed;
mod ids;
pub mod jobs;
mod loop_input;
pub mod new_task;
mod perform;
pub mod performer;
pub mod processes;
mod recovery;
pub mod runtime;
pub mod runtime_metrics;
mod sandbox;
pub mod session;
mod supervisor;
pub mod task_handle;
mod view;

pub use agents::{
    AgentOptions, ChosenModel, ModelCost, ModelProviders, ModelSource, OneModel, RecordedModels,
};
pub use approvals::PendingApproval;
pub use builder::RuntimeBuilder;
pub use clock::{Clock, SystemClock};
pub use feed::{FeedSubscription, FeedUpdate};
pub use ids::{new_key, new_lease_holder};
pub use jobs::{ChildTask, ChildWaitResult, JobContext, JobError};
pub use new_task::NewTask;
pub use performer::{Delivery, Performer, ReconcileResult, Reporter, StopMode, TaskId};
pub use processes::{
    InputPiece, PeerOrigin, ProcessOptions, ProcessReport, SandboxPart, sandbox_parts,
};
pub use runtime::Runtime;
pub use session::{ForegroundResult, Session, WaitResult};
pub use task_handle::TaskHandle;
