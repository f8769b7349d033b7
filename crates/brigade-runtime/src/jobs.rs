//! Jobs: async functions as tasks.
//!
//! A *named* job is entered from the top each time it resumes. Recorded calls return their recorded
//! results, so nothing is done twice. While it waits, it has no future. A *closure* keeps its
//! future while it waits, and is lost with the process.
//!
//! - `registry`: the handlers, by name, with the recovery policy of each.
//! - `job`: a name with types, [`Job`]; `job_error`: its failure; `job_retry`: its retries; `step`: its steps, with
//!   `retry_policy`.
//! - `context`: the calls of a job, [`JobContext`]; `messages`: its messages to others.
//! - `calls`: the calls of one attempt: replayed, running or parked.
//! - `performer`: the performer, and the driver that polls one job; `stop_signal`: the request to
//!   stop.

mod calls;
mod child_task;
mod context;
mod job;
mod job_error;
mod job_handler;
mod job_retry;
mod messages;
mod performer;
mod registry;
mod retry_policy;
mod step;
mod stop_signal;

pub use child_task::ChildTask;
pub use context::{ChildWaitResult, JobContext};
pub use job::Job;
pub use job_error::JobError;
pub use job_handler::JobHandler;
pub use retry_policy::RetryPolicy;
pub use step::{RetriedStep, Step, StepBody};

pub(crate) use messages::SendCall;
pub(crate) use performer::JobPerformer;
pub(crate) use registry::{ClosureBody, HandlerRegistry, JobRules};
