//! Agents as tasks: a model in a loop.
//!
//! The loop is in [`brigade_agent`]; this module makes it a kind of work. An agent's journal is its
//! transcript, so a suspended agent is not in memory and is rebuilt when it wakes.
//!
//! - `options`: the settings of a program for its agents: [`AgentOptions`], [`ModelSource`].
//! - `providers`: the models of real providers: [`ModelProviders`].
//! - `backend_source`: backends that are found by name: [`BackendSource`].
//! - `services`: everything that the agents of a runtime share.
//! - `blueprint`: an agent as resolved for one spawn; `resolve`: its creation, with `rule_checks`,
//!   `model_choice`, `model_files`, `mcp_servers` and `trust`; `build`: the agent of each attempt,
//!   with its `prompt`.
//! - `performer`: the performer; `host`: the agent's journal, inbox and budget; `spans`: its
//!   telemetry.
//! - [`delegation`]: the delegation tools of agents, on `task_link`.
//! - `session`: the methods of a session that are for agents only.

mod backend_source;
mod blueprint;
mod build;
pub mod delegation;
mod host;
pub(crate) mod live_output;
#[cfg_attr(not(feature = "mcp"), path = "agents/no_mcp_client.rs")]
mod mcp_client;
mod mcp_servers;
mod model_choice;
mod model_files;
mod options;
mod performer;
mod program_rules;
mod programs;
mod prompt;
mod providers;
mod resolve;
mod rule_checks;
mod services;
mod session;
mod spans;
mod task_link;
mod trust;

pub use backend_source::{BackendChoice, BackendSource};
pub use brigade_file_tools::PrivateDirectory;
pub use options::{
    AgentOptions, ChosenModel, DefinitionFolderLookup, ModelCost, ModelSource, OneModel,
    RecordedModels,
};
pub use providers::ModelProviders;
pub use trust::{DefinitionTrust, TrustNothing};

pub(crate) use blueprint::{Blueprint, SpawnGrant};
pub(crate) use performer::AgentPerformer;
pub(crate) use services::AgentServices;
pub(crate) use task_link::DeferredRuntime;
