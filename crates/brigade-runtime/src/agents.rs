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
mod common;
pub mod delegation;
mod engine;
mod host;
mod link;
mod models;
mod options;
mod prompt;
mod providers;
mod rules;
mod servers;
mod session;
mod settle;
mod spans;
mod trust;

pub use options::{
    AgentOptions, ChosenModel, Cost, Folders, ModelSource, OneModel, RecordedModels,
};
pub use providers::Providers;
pub use trust::{DefinitionTrust, TrustNothing};

pub(crate) use blueprint::{Blueprint, Grant, Parent};
pub(crate) use common::Agents;
pub(crate) use engine::AgentEngine;
pub(crate) use link::{LateRuntime, insist};
pub(crate) use spans::provider_and_model;
