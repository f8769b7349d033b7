//! Agents: a model in a loop, as tasks.
//!
//! The loop is [`brigade_agent`]'s; here it becomes a kind of work like any other. An agent's journal
//! is its conversation, so one that waits has nothing in memory and is built again when it is woken.
//!
//! - `options`: what a program lets agents have: [`AgentOptions`], [`ModelSource`].
//! - `providers`: the models of real providers: [`Providers`].
//! - `common`: what all agents of a runtime have in common.
//! - `blueprint`: what one agent is made of; `settle`: finding that out when it is spawned, with `rules`,
//!   `models`, `servers` and `trust` for what it may use; `build`: making it for each attempt, with its `prompt`.
//! - `engine`: the performer; `host`: the agent's journal and purse; `spans`: what is seen of it outside.
//! - [`delegation`]: the tools by which agents delegate, through `link`.
//! - `session`: what a session can do with agents beside what it does with every task.

mod blueprint;
mod build;
pub mod delegation;
mod host;
mod mcp_servers;
mod model_files;
mod options;
mod performer;
mod prompt;
mod providers;
mod resolve;
mod rule_checks;
mod services;
mod session;
mod spans;
mod task_link;
mod trust;

pub use options::{
    AgentOptions, ChosenModel, DefinitionFolderLookup, ModelCost, ModelSource, OneModel,
    RecordedModels,
};
pub use providers::ModelProviders;
pub use trust::{DefinitionTrust, TrustNothing};

pub(crate) use blueprint::{Blueprint, SpawnGrant, SpawnParent};
pub(crate) use performer::AgentPerformer;
pub(crate) use services::AgentServices;
pub(crate) use spans::provider_and_model;
pub(crate) use task_link::{DeferredRuntime, retry_while_unavailable};
