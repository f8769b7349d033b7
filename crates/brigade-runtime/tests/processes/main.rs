//! Commands as tasks, with real processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod adoption;
mod enclosure;
mod endings;
mod input;
mod lost;
mod output;
mod pruning;
mod shells;
mod stop;
mod support;
mod surroundings;
mod trouble;
