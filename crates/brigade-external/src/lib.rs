//! Agents of other vendors as agents of Brigade.
//!
//! Such an agent has its own loop. Brigade runs its program for each turn, reads its events,
//! answers its requests, and decides the outcome of the turn.
//!
//! ```text
//! stdout ─> EventReader ─> TurnConversation ─> TurnEvent ─> TurnProgress ─> TurnOutcome
//! ```
//!
//! - [`external_agent`]: the interface to each vendor's agent, and the conversation of one turn.
//! - [`adapter`]: the description of a command-line agent in a TOML file; [`built_in`]: the files
//!   for Claude Code, Codex, Gemini CLI, opencode and Qwen Code. `event_rules`, `json_path`,
//!   `json_pattern`, `path_list`, `placeholders` and `tool_names` are parts of an adapter; `cli_conversation` is its
//!   conversation.
//! - [`acp`]: agents that speak the Agent Client Protocol; [`agent_file`]: the file of either kind.
//! - [`external_backend`]: executes the turns of an agent, each with its program, and records them in
//!   its journal.
//! - [`agent_catalog`]: the built-in programs and those of the user's files; [`login_marks`]: marks of
//!   a login with a program.
//! - [`a2a_backend`]: delegates to remote agents that speak A2A. `journal_base` and `attempt_error` are
//!   parts of both backends.
//! - [`event_reader`]: bounded lines of the standard output, with their offsets.
//! - [`turn_events`]: the events of a turn, the same for every vendor; [`turn_progress`]: the facts
//!   that they amount to.
//! - [`turn_outcome`]: the truth about the end of a turn. `answer_text`: the bound on an answer.
//! - [`usage`]: tokens and money of each turn.
//!
//! Nothing here needs a runtime: a backend sees only its host.

pub mod a2a_backend;
pub mod acp;
pub mod adapter;
pub mod agent_catalog;
pub mod agent_file;
mod answer_text;
mod attempt_error;
pub mod built_in;
mod cli_conversation;
pub mod event_reader;
mod event_rules;
pub mod external_agent;
pub mod external_backend;
mod journal_base;
mod json_path;
mod json_pattern;
pub mod login_marks;
mod path_list;
mod placeholders;
mod tool_names;
pub mod turn_events;
pub mod turn_outcome;
pub mod turn_progress;
pub mod usage;
