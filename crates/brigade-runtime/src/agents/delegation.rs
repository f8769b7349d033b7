//! Delegation as tools: what each call does, a file each. Their arguments, descriptions and replies are
//! those of `brigade-delegation`.
//!
//! Each acts as the agent's own task, through the same door as everybody else. What a call did is
//! recorded in its slots with the deed itself, so that a call that is entered again finds it.

mod ask_parent;
mod list_tasks;
mod read_output;
mod run_process;
mod send_message;
mod spawn_agent;
mod stop_task;
mod summary;
mod wait_tasks;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use brigade_agent::news::Quoter;
use brigade_agent::{
    BoxFuture, Call, Effect, Hints, Outcome, Outliving, Subject, Tool, ToolError, Tools,
};
use brigade_delegation::{
    AskParent, Audience, ListTasks, ReadOutput, RunProcess, SendMessage, SpawnAgent, StopTask,
    ToolArgs, ToolDefinition, WaitTasks, define, read_args,
};
pub use brigade_delegation::{Budget, NAMES};
use brigade_llm::ToolSpec;
use serde_json::Value;

use super::blueprint::Blueprint;
use super::common::Agents;
use super::link::TaskLink;

/// What every delegation tool has.
#[derive(Clone, Debug)]
pub(crate) struct Delegate {
    pub(crate) link: TaskLink,
    pub(crate) agents: Arc<Agents>,
    pub(crate) blueprint: Arc<Blueprint>,
    /// How words of its tasks are quoted to the agent.
    pub(crate) quoter: Quoter,
}

/// What a delegation tool does for an agent.
pub(crate) trait Delegation: ToolArgs {
    const EFFECT: Effect;

    /// What a permission's pattern is held against, for an agent that works in this directory.
    fn subject(&self, _directory: Option<&str>) -> Subject {
        Subject::Nothing
    }

    /// What it starts that goes on after the agent has ended.
    fn outliving(&self) -> Outliving {
        Outliving::Nothing
    }

    /// The directory in which a call acts, for an agent that works in this directory.
    fn acts_in(&self, directory: Option<&str>) -> Option<String> {
        directory.map(str::to_owned)
    }

    fn run(
        self,
        delegate: &Delegate,
        call: &Call,
    ) -> impl Future<Output = Result<Outcome, ToolError>> + Send;
}

/// The eight, for one agent.
pub(crate) fn tools(delegate: &Arc<Delegate>) -> Tools {
    let tools: [Arc<dyn Tool>; 8] = [
        bound::<SpawnAgent>(delegate),
        bound::<RunProcess>(delegate),
        bound::<ListTasks>(delegate),
        bound::<WaitTasks>(delegate),
        bound::<SendMessage>(delegate),
        bound::<StopTask>(delegate),
        bound::<ReadOutput>(delegate),
        bound::<AskParent>(delegate),
    ];
    tools.into_iter().collect()
}

fn bound<T: Delegation>(delegate: &Arc<Delegate>) -> Arc<dyn Tool> {
    let spec = delegate.agents.spec(T::NAME, || {
        let ToolDefinition { name, description, schema, .. } = define::<T>(Audience::Agent);
        ToolSpec {
            name: name.into(),
            description: description.into(),
            parameters: Arc::new(Value::Object(schema)),
        }
    });
    Arc::new(Bound::<T> { delegate: delegate.clone(), spec, arguments: PhantomData })
}

struct Bound<T> {
    delegate: Arc<Delegate>,
    spec: ToolSpec,
    arguments: PhantomData<fn() -> T>,
}

impl<T: Delegation> Tool for Bound<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> Hints {
        Hints { destructive: T::HINTS.is_destructive, ..Hints::of(T::EFFECT) }
    }

    fn subject(&self, arguments: &Value) -> Subject {
        match parse::<T>(arguments.clone()) {
            Ok(arguments) => arguments.subject(self.delegate.blueprint.directory.as_deref()),
            // It is refused for another reason.
            Err(_) => Subject::Nothing,
        }
    }

    fn outliving(&self, arguments: &Value) -> Outliving {
        // What cannot be read is refused for another reason.
        parse::<T>(arguments.clone()).map_or(Outliving::Nothing, |asked| asked.outliving())
    }

    fn acts_in(&self, arguments: &Value) -> Option<String> {
        let own = self.delegate.blueprint.directory.as_deref();
        match parse::<T>(arguments.clone()) {
            Ok(arguments) => arguments.acts_in(own),
            Err(_) => own.map(str::to_owned),
        }
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Outcome, ToolError>> {
        Box::pin(async move {
            let arguments = parse::<T>(call.arguments.clone())?;
            arguments.run(&self.delegate, &call).await
        })
    }
}

fn parse<T: Delegation>(arguments: Value) -> Result<T, ToolError> {
    match arguments {
        Value::Object(arguments) => Ok(read_args(Audience::Agent, arguments)?),
        _ => Err(ToolError::new("the arguments must be a JSON object")),
    }
}

impl<T> fmt::Debug for Bound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation").field("tool", &self.spec.name).finish_non_exhaustive()
    }
}
