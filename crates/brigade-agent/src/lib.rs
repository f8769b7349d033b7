//! The agent loop: inbox, model call, tool calls, results, one step at a time.
//!
//! ```text
//!   Host (journal, inbox, budget)     Model              Tools
//!     │ StepGrant                       │                  │
//!     ▼                                 ▼                  ▼
//!   Agent::run:  begin_step ── call_model ── record ── authorize ── call ── record ──┐
//!     ▲                                                                              │
//!     └───────────────────────── until the model ends its turn ──────────────────────┘
//! ```
//!
//! The journal is the transcript. Each reply and each result is recorded before the loop acts on it, and
//! the next attempt is rebuilt from the journal alone. This crate knows no runtime: it gets delegation as
//! ordinary tools, and everything else through [`Host`].
//!
//! - [`agent`]: the loop. `model_call`: one model call. `tool_calls`, `step_calls`: the calls of one step.
//!   `authorize`: their authorization. `compaction`: summaries of long conversations. `run_end`: the end.
//! - `transcript`: the journal as a conversation. [`inbox`]: messages and results as quoted text.
//!   `budget_warning`: warnings of low budgets.
//! - [`host`]: the interface to the runtime. [`stop_policy`]: limits of one run.
//! - [`tool`], [`tool_set`], [`arguments`]: a tool, the tools of an agent, their arguments.
//!   `function_tool`, [`tool_context`]: a tool from a function, and what the function gets.
//! - [`plugin`], `hooks`: extensions of the loop. [`shared_state`]: state of tools and plugins.
//! - [`backend`]: other loops. [`client_tool`], [`agent_overrides`]: tools and settings of one spawn.
//! - [`definition`]: agent definitions. [`permission`]: permission rules. [`json_schema`]: validation.
//! - [`localization`]: names and descriptions in other languages.
//! - [`telemetry`]: spans and metrics. [`transcript_text`]: a transcript as text.
//!   [`transcript_page`]: a transcript in pages.

pub mod agent;
pub mod agent_overrides;
pub mod agent_program;
mod authorize;
pub mod backend;
mod budget_warning;
pub mod client_tool;
mod compaction;
pub mod definition;
mod function_tool;
mod hooks;
pub mod host;
pub mod inbox;
pub mod json_schema;
pub mod localization;
mod model_call;
mod output_replay;
pub mod permission;
pub mod plugin;
mod run_end;
pub mod shared_state;
mod step_calls;
pub mod stop_policy;
pub mod telemetry;
pub mod tool;
mod tool_calls;
pub mod tool_context;
pub mod tool_set;
mod transcript;
pub mod transcript_page;
pub mod transcript_text;

pub use agent::{Agent, AgentExit, AttemptInput, PartialResult};
pub use agent_overrides::AgentOverrides;
pub use backend::{Backend, BackendModels, BackendRun};
pub use brigade_model::arguments;
pub use brigade_model::limits::CostEstimate;
pub use client_tool::{ClientTool, ClientToolCall};
pub use host::{AgentOutput, AgentProgress, Host, JournalRecord, StepGrant, SuspendResult};
pub use localization::{Locale, LocalizedText};
pub use model_call::fit_to_journal;
pub use output_replay::replay_output;
pub use plugin::{HookContext, HookDecision, HookFuture, Plugin, PluginError};
pub use shared_state::{SessionStateReader, StateError, StateKey, StateScope, StateView};
pub use stop_policy::StopPolicy;
pub use tool::{
    BoxFuture, CallSlotRange, ExecutionHints, OutlivingWork, Tool, ToolEffect, ToolError,
    ToolHandler, ToolInvocation, ToolReply, ToolSubject,
};
pub use tool_calls::RESULT_MAX;
pub use tool_context::{CancellationToken, ToolContext};
pub use tool_set::{ToolSet, ToolSource};
