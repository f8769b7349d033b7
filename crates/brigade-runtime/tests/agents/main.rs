//! Agents as tasks, with the scripted model.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod approvals;
mod budgets;
mod definitions;
mod delegating;
mod extending;
mod files;
mod found_backends;
mod function_tools;
mod limits;
mod liveness;
mod messages;
mod permissions;
mod processes;
mod programs;
mod sandbox;
mod seams;
mod slow_readers;
mod stopping;
mod streams;
mod support;
mod tools;
mod trust;
mod waiting;
mod working;
mod worktrees;
