//! What the runtime promises, on the real loop with real job futures.
//!
//! Most stand on paused time, where an hour passes as soon as nobody has anything to do; those
//! about races stand on several threads.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod faulty_store;
mod slow_store;
mod support;

mod ambient;
mod bad_input;
mod counting;
mod extending;
mod failing_store;
mod feed;
mod jobs;
mod leaks;
mod limits;
mod messages;
mod names;
mod outage;
mod performers;
mod races;
mod replay;
mod restart;
mod scope;
mod shutdown;
mod spawning;
mod stop_firmly;
mod stopping;
mod turns;
mod waiting;
