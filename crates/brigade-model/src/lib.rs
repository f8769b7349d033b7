//! What Brigade's tasks are and what may happen to them.
//!
//! Pure: no IO, no async, no clock, no randomness. Time, ids and random numbers arrive inside
//! commands.
//!
//! ```text
//! Command ── decide ──> Draft ── apply ──> Tree
//!    │  refused: Refusal    │                 │
//!    │                      └──── react <─────┘   (more drafts, until there are none)
//!    └─ handle() = all of it ──> Outputs: events and journal to store, then actions to perform
//! ```
//!
//! In reading order:
//! - [`ids`], [`name`], [`json`], [`address`]: the small words.
//! - [`work`], [`enclosure`], [`spec`], [`limits`]: what is asked for.
//! - [`permission`], [`approval`]: what needs leave, and who gave it.
//! - [`plain_text`]: text from outside as a person is shown it.
//! - [`task`], [`call`], [`message`], [`outcome`]: what there is.
//! - [`tree`]: all of it together, in memory.
//! - [`command`], [`event`], [`action`], [`refusal`]: in, stored, out, not.
//! - [`decide`], [`apply`], `react`, [`turn`]: the transitions.
//! - [`needs`]: what must be in memory before a command is decided.
//! - [`arguments`]: the arguments of tools; [`result_text`]: results as text for a model.

pub mod action;
pub mod address;
pub mod apply;
pub mod approval;
pub mod arguments;
pub mod call;
pub mod command;
pub mod decide;
pub mod event;
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
pub mod quote_mark;
mod react;
pub mod refusal;
pub mod result_text;
pub mod sandbox;
pub mod shared_values;
pub mod spawn_rate;
pub mod spec;
pub mod stall;
pub mod task;
mod task_table;
pub mod task_tree;
pub mod transition;
pub mod work;
