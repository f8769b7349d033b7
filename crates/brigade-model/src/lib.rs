//! The state machine of tasks.
//!
//! The crate is pure: no IO, no async, no clock, no randomness. Time, ids and random numbers arrive
//! inside commands.
//!
//! ```text
//! Command ── decide ──> Draft ── apply ──> TaskTree
//!    │  refused: Refusal    │                 │
//!    │                      └──── react <─────┘   (more drafts, until there are none)
//!    └─ handle_command() = all of it ──> CommandOutputs: events and journal to store, then actions
//! ```
//!
//! In reading order:
//! - [`ids`], [`name`], [`json`], [`address`]: basic types.
//! - [`work`], [`sandbox`], [`spec`], [`limits`], [`stall`], [`spawn_rate`]: a task as requested.
//! - [`permission`], [`approval`]: permission rules and the approvals that they require.
//! - [`plain_text`]: foreign text, filtered for display to a person.
//! - [`task`], [`call`], [`message`], [`outcome`], [`error_details`], [`worktree`],
//!   [`readiness`]: a task as stored.
//! - [`task_tree`]: a session and its tasks in memory; [`shared_values`]: values that the tasks
//!   share.
//! - [`command`], [`event`], [`event_author`], [`action`], [`refusal`]: inputs, stored facts and their
//!   authors, effects and errors.
//! - [`decide`], [`apply`], `react`, [`transition`]: the transitions.
//! - [`needs`]: the rows that must be in memory before a command is decided.
//! - [`arguments`]: arguments of tools; [`result_text`], [`quote_mark`]: text for a model.
//! - [`truncate`]: text cut to a limit; [`suggestion`]: "did you mean" for mistyped names. Both are
//!   for all crates.

pub mod action;
pub mod address;
pub mod apply;
pub mod approval;
#[cfg(feature = "schema")]
pub mod arguments;
pub mod call;
pub mod command;
pub mod decide;
pub mod duration;
pub mod entry_label;
pub mod error_details;
pub mod event;
pub mod event_author;
pub mod feed_cursor;
pub mod id_map;
pub mod ids;
pub mod json;
pub mod limits;
pub mod message;
pub mod name;
mod name_letters;
pub mod needs;
pub mod outcome;
pub mod permission;
pub mod plain_text;
pub mod process_report;
pub mod program_access;
pub mod quote_mark;
mod react;
pub mod readiness;
pub mod refusal;
pub mod result_text;
pub mod sandbox;
pub mod secret_redactor;
pub mod shared_values;
pub mod spawn_rate;
pub mod spec;
pub mod stall;
pub mod suggestion;
pub mod task;
mod task_table;
pub mod task_tree;
pub mod token_count;
pub mod transition;
pub mod truncate;
mod utc_time;
pub mod work;
pub mod worktree;
