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
pub mod clock;
mod commit;
mod enclosing;
mod error;
pub mod feed;
mod ids;
mod input;
pub mod jobs;
pub mod meters;
pub mod new_task;
mod perform;
pub mod performer;
pub mod processes;
mod recovery;
pub mod runtime;
pub mod session;
mod supervisor;
pub mod task_handle;
mod view;
mod waiters;

pub use agents::{
    AgentOptions, ChosenModel, Cost, ModelSource, OneModel, Providers, RecordedModels,
};
pub use approvals::PendingApproval;
pub use builder::Builder;
pub use clock::{Clock, SystemClock};
pub use feed::{FeedMessage, Subscription};
pub use ids::{new_key, new_lease_holder};
pub use jobs::{Child, JobContext, JobError, Waited};
pub use new_task::NewTask;
pub use performer::{Delivery, Performer, Reconciled, Reporter, StopHow, TaskId};
pub use processes::{
    InputPiece, PeerOrigin, ProcessOptions, ProcessReport, SandboxPart, sandbox_of,
};
pub use runtime::Runtime;
pub use session::{Foreground, Session, WaitResult};
pub use task_handle::TaskHandle;
