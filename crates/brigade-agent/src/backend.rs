//! Backends: loops that execute agent runs. [`OwnLoop`] is the default; a program can add others.
//!
//! A backend sees only the [`Host`] and records through it. Its runs are therefore listed, waited for,
//! messaged, stopped, charged and recovered like those of any agent.

use std::fmt::Debug;

use brigade_model::program_access::ProgramAccess;
use brigade_model::refusal::Refusal;

use crate::agent::{Agent, AgentExit, AttemptInput, PartialResult};
use crate::host::Host;
use crate::permission::Permissions;
use crate::tool::BoxFuture;

pub trait Backend: Debug + Send + Sync + 'static {
    /// Runs one attempt until the run ends, suspends or fails. The runtime drops the future to stop the
    /// run. After a crash it starts the next attempt from the journal.
    fn run<'a>(&'a self, run: BackendRun<'a>) -> BoxFuture<'a, AgentExit>;

    /// Ends the work of an agent that goes on outside of the runtime, such as a remote task. It is
    /// called after a stop has dropped the future of [`Self::run`], with the key of
    /// [`Host::task_key`]. Returns a description of each part that may still run, which the outcome
    /// names. It should return within the grace period of the stop.
    fn end_remote_work<'a>(&'a self, _task_key: &'a str) -> BoxFuture<'a, Vec<String>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Returns true if it starts work outside of the runtime, which [`Self::end_remote_work`] ends. The
    /// outcome of an agent that was stopped while no backend could be asked then says so.
    fn works_remotely(&self) -> bool {
        false
    }

    /// Returns the models that the backend uses.
    fn models(&self) -> BackendModels {
        BackendModels::OfRuntime
    }

    /// Refuses a new agent with permissions that the backend could not enforce.
    fn check_permissions(&self, _permissions: &Permissions) -> Result<(), Refusal> {
        Ok(())
    }

    /// Returns the access of a program that asks before no call, as the permissions limit it.
    fn program_access(&self, _permissions: &Permissions) -> Option<ProgramAccess> {
        None
    }

    /// Returns true if it asks for an approval wherever a rule says so, before a call is made.
    fn asks_permission(&self) -> bool {
        false
    }
}

/// The models that a backend uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendModels {
    /// It calls [`Agent::model`].
    OfRuntime,
    /// Its program has models of its own and the keys to them. [`Agent::model_name`] is passed to
    /// the program as it is; an empty name is the program's default.
    OfProgram {
        /// True if the program reports what it costs.
        reports_cost: bool,
    },
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
