//! Backends: loops that execute agent runs. [`OwnLoop`] is the default; a program can add others.
//!
//! A backend sees only the [`Host`] and records through it. Its runs are therefore listed, waited for,
//! messaged, stopped, charged and recovered like those of any agent.

use std::fmt::Debug;

use crate::agent::{Agent, AgentExit, AttemptInput, PartialResult};
use crate::host::Host;
use crate::tool::BoxFuture;

pub trait Backend: Debug + Send + Sync + 'static {
    /// Runs one attempt until the run ends, suspends or fails. The runtime drops the future to stop the
    /// run. After a crash it starts the next attempt from the journal.
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit>;
}

/// One attempt of a run.
#[derive(Debug)]
pub struct BackendRun<'a> {
    /// The agent with its task, model, tools and permissions.
    pub agent: &'a Agent,
    pub host: &'a dyn Host,
    pub input: AttemptInput,
    /// The partial result, which is part of the outcome if the run is stopped.
    pub partial: &'a PartialResult,
}

/// The loop of this crate.
#[derive(Clone, Copy, Debug)]
pub struct OwnLoop;

impl Backend for OwnLoop {
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async move { run.agent.run(run.host, run.input, run.partial).await })
    }
}
