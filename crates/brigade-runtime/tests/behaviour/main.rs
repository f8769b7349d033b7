//! Behaviour of the runtime, with the real loop and real job futures.
//!
//! Most tests use paused time, where an hour passes as soon as all tasks are idle. Tests of races
//! use several threads.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod faulty_store;
mod support;

mod ambient;
mod authors;
mod bad_input;
mod counting;
mod custom_kinds;
mod extending;
mod failing_store;
mod feed;
mod forced_stop;
mod jobs;
mod joining;
mod leaks;
mod limits;
mod load;
mod loops;
mod messages;
mod names;
mod outage;
mod performers;
mod races;
mod records;
mod remote;
mod replay;
mod restart;
mod retrying;
mod runtime_slots;
mod runtime_wide;
mod scope;
mod shutdown;
mod spawning;
mod stopping;
mod streams;
mod turns;
mod two_runtimes;
mod waiting;
