//! The agent loop: news, model, tool calls, results, one turn at a time.
//!
//! ```text
//!   Host (journal, purse)         Model            Tools
//!     │ news, grants                │                │
//!     ▼                             ▼                ▼
//!   Agent::run:  hear ── ask ── record ── permit ── carry out ── record ──┐
//!     ▲                                                                   │
//!     └────────────── until the model has nothing more to do ─────────────┘
//! ```
//!
//! The conversation is the journal: whatever was said or done is written down before anything
//! follows from it, and an agent is built again from that alone. It knows no runtime: delegation
//! reaches it as ordinary tools, everything else through [`Host`].
//!
//! - [`agent`]: the loop; `ask`: one model call; `turn`, `calls`: the calls of one message; `leave`: whether they
//!   may be carried out; `compact`.
//! - `transcript`: the journal, read as a conversation; [`news`]: how results and messages look in it.
//! - [`tool`], [`toolbox`], [`arguments`]: what a tool is, those of an agent, and their arguments.
//! - [`tools`]: the built-in ones, on files of the working directory; `mcp`: tools of MCP servers (feature
//!   `mcp`).
//! - [`host`]: what the loop needs of whoever runs it; [`policy`]: when it is stopped.
//! - [`plugin`]: what a program adds to the loop; [`state`]: what tools and plugins keep.
//! - [`backend`]: what carries out a run, when it is not our loop; [`client_tool`], [`overrides`]: what one
//!   spawn adds and changes.
//! - [`definition`]: who an agent is, before it has a task; [`permission`]: what it may do;
//!   [`validate`]: what its settings and its result must look like.
//! - [`telemetry`]: spans and counts, for whoever watches from outside.
//! - [`localized`]: what definitions and tools are called in other languages.
//! - [`reading`]: a conversation as text, for whoever looks at it.

pub mod agent;
pub mod agent_overrides;
mod authorize;
pub mod backend;
mod budget_warning;
pub mod client_tool;
mod compaction;
pub mod definition;
mod hooks;
pub mod host;
pub mod inbox;
pub mod json_schema;
pub mod localization;
mod model_call;
pub mod permission;
pub mod plugin;
mod run_end;
pub mod state;
mod step_calls;
pub mod stop_policy;
pub mod telemetry;
pub mod tool;
mod tool_calls;
pub mod tool_set;
mod transcript;
pub mod transcript_text;

pub use agent::{Agent, AgentExit, AttemptInput, PartialResult};
pub use agent_overrides::AgentOverrides;
pub use backend::{Backend, BackendRun};
pub use brigade_model::arguments;
pub use client_tool::{ClientTool, ClientToolCall};
pub use host::{AgentProgress, CostEstimate, Host, JournalRecord, StepGrant, SuspendResult};
pub use localization::{Locale, LocalizedText};
pub use plugin::{HookContext, HookDecision, HookFuture, Plugin, PluginError};
pub use state::{SessionStateReader, StateError, StateKey, StateScope, StateView};
pub use stop_policy::StopPolicy;
pub use tool::{
    BoxFuture, CallSlotRange, ExecutionHints, OutlivingWork, Tool, ToolEffect, ToolError,
    ToolInvocation, ToolReply, ToolSubject,
};
pub use tool_calls::{RESULT_MAX, truncate_middle};
pub use tool_set::{ToolSet, ToolSource};
