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
mod ask;
pub mod backend;
mod calls;
pub mod client_tool;
mod compact;
pub mod definition;
mod ending;
mod hooks;
pub mod host;
mod leave;
pub mod localized;
#[cfg(feature = "mcp")]
pub mod mcp;
pub mod news;
pub mod overrides;
pub mod permission;
pub mod plugin;
pub mod policy;
pub mod reading;
mod remaining;
pub mod state;
pub mod telemetry;
pub mod tool;
pub mod toolbox;
pub mod tools;
mod transcript;
mod turn;
pub mod validate;

pub use agent::{Agent, Begun, Exit, Partial};
pub use backend::{Backend, BackendRun};
pub use brigade_model::arguments;
pub use client_tool::{ClientCall, ClientTool};
pub use host::{Cost, Host, Proceed, Progress, Record, Rest};
pub use localized::{Locale, Localized};
pub use overrides::Overrides;
pub use plugin::{Gate, Hook, Moment, Plugin, PluginError};
pub use policy::Policy;
pub use state::{Scope, SessionState, State, StateError, StateKey};
pub use tool::{
    BoxFuture, Call, Effect, Hints, Outcome, Outliving, Place, Subject, Tool, ToolError,
};
pub use toolbox::{ToolSource, Tools};
