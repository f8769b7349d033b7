//! Processes as tasks, with real OS processes.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod adoption;
mod environment;
mod input;
mod lost;
mod outcomes;
mod output;
mod pruning;
mod readiness;
mod sandbox;
mod shells;
mod stop;
mod streams;
mod support;
mod trouble;
mod two_hosts;
mod worktree_attacks;
mod worktree_releases;
mod worktrees;
