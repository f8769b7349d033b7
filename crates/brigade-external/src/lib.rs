//! Agents of other vendors as agents of Brigade.
//!
//! Such an agent has its own loop. Brigade runs its program for each turn, reads its events,
//! answers its requests, and decides the outcome of the turn.
//!
//! ```text
//! stdout ─> EventReader ─> CliAdapter::read_event ─> TurnEvent ─> TurnProgress ─> TurnOutcome
//! ```
//!
//! - [`adapter`]: the description of a command-line agent in a TOML file; [`built_in`]: the files
//!   for Claude Code, Codex, Gemini CLI, opencode and Qwen Code. `event_rules`, `json_path`,
//!   `json_pattern`, `path_list` and `placeholders` are parts of an adapter.
//! - [`event_reader`]: bounded lines of the standard output, with their offsets.
//! - [`turn_events`]: the events of a turn, the same for every vendor; [`turn_progress`]: the facts
//!   that they amount to.
//! - [`turn_outcome`]: the truth about the end of a turn.
//! - [`usage`]: tokens and money of each turn.
//!
//! Nothing here starts a process or needs a runtime.

pub mod adapter;
pub mod built_in;
pub mod event_reader;
mod event_rules;
mod json_path;
mod json_pattern;
mod path_list;
mod placeholders;
pub mod turn_events;
pub mod turn_outcome;
pub mod turn_progress;
pub mod usage;
