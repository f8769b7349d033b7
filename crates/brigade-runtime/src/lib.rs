//! The supervisor: the one door through which work starts, is steered and ends.
//!
//! ```text
//!  Session, JobContext, Reporter          readers
//!        │ inputs                        ▲       ▲
//!        ▼                             view     feed
//!  Supervisor: decide ── commit ── publish ── acknowledge ── perform
//!                          │                                   │
//!                        Store                             Performers (jobs, commands, agents, custom kinds)
//! ```
//!
//! In reading order:
//! - [`runtime`], [`builder`], [`session`], [`task_handle`], [`new_task`]: what a program holds.
//! - `supervisor`, `commit`, `perform`: the loop; `recovery`: what it does before the first turn.
//! - [`performer`]: the contract with whatever carries out work; [`jobs`]: async functions;
//!   [`processes`]: commands; [`agents`]: models that delegate.
//! - [`approvals`]: what waits for leave, and what was allowed for good.
//! - `view`, [`feed`], `waiters`: how committed state reaches readers.
//! - [`meters`]: what is counted.
//! - [`clock`], `ids`, `input`, `error`: the seams.

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
