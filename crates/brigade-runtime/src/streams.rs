//! Streams of what happens in a session and in one task: for observers and for those who decide.
//!
//! A stream is a reader: dropping it half-way loses nothing, and it holds up nobody. Each one ends
//! with `None` when there is nothing more to come, also because the runtime has shut down. A job
//! that reads a stream does not record what it reads, so its decisions belong into its own calls.
//!
//! - [`events`]: the feed as a stream; `run_events` has the events of one run.
//! - [`progress`]: progress notes of a run; [`usage`]: its tokens and its cost.
//! - [`output`]: lines and bytes of a process.
//! - [`agent_text`]: the text of an agent as its model produces it.
//! - [`pending_calls`]: approvals and client tool calls; [`handlers`]: functions that decide them.

#[cfg(feature = "agents")]
pub mod agent_text;
pub mod events;
pub mod handlers;
#[cfg(feature = "processes")]
pub mod output;
pub mod pending_calls;
pub mod progress;
pub(crate) mod run_events;
pub mod usage;

use brigade_model::refusal::Refusal;
use futures_util::stream::BoxStream;

/// A stream whose items can be refused. It can be moved between threads and needs no pinning.
pub type ResultStream<T> = BoxStream<'static, Result<T, Refusal>>;
