//! What carries out a run. Our own loop is one; a program may bring another.
//!
//! Whatever it is, it is told the same, and says the same: it keeps its journal and its purse through
//! the [`Host`], so that what it does is listed, waited for, steered, stopped, charged and recovered
//! like the work of any agent.

use std::fmt::Debug;

use crate::agent::{Agent, AgentExit, AttemptInput, PartialResult};
use crate::host::Host;
use crate::tool::BoxFuture;

pub trait Backend: Debug + Send + Sync + 'static {
    /// Works until the task is done, waits or fails. It is dropped to be stopped, and begun anew
    /// after a crash with what the host has written down.
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit>;
}

/// One attempt of a run.
#[derive(Debug)]
pub struct BackendRun<'a> {
    /// Who the agent is: its task, model, tools and permissions.
    pub agent: &'a Agent,
    pub host: &'a dyn Host,
    pub input: AttemptInput,
    /// What there is of a result, for whoever stops the run.
    pub partial: &'a PartialResult,
}

/// Our own loop.
#[derive(Clone, Copy, Debug)]
pub struct OwnLoop;

impl Backend for OwnLoop {
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit> {
        Box::pin(async move { run.agent.run(run.host, run.input, run.partial).await })
    }
}
