//! Jobs: async functions as tasks.
//!
//! A *named* job is entered from the top each time it goes on: recorded calls return what they
//! returned before, so it runs past them without doing anything again. While it waits there is no
//! future. A *closure* keeps its future while it waits, and is lost with the process.
//!
//! - `registry`: the handlers, by name, with the recovery policy that each must state.
//! - `context`: what a job can do: [`JobContext`]; `messages`: what it says to others.
//! - `calls`: the calls of one attempt: replayed, under way, parked.
//! - `engine`: the performer, and the driver that polls one job; `stop_signal`: how it is told to end.

mod calls;
mod context;
mod messages;
mod performer;
mod registry;
mod stop_signal;

pub use context::{ChildTask, ChildWaitResult, JobContext};
pub use registry::JobError;

pub(crate) use performer::{JobPerformer, panic_message};
pub(crate) use registry::{ClosureBody, HandlerRegistry};
