//! Delegation as tools: the whole set, a file each.
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
mod wait_tasks;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use brigade_agent::arguments::{read, schema_of};
use brigade_agent::news::Quoter;
use brigade_agent::{BoxFuture, Call, Hints, Outcome, Outliving, Subject, Tool, ToolError, Tools};
use brigade_llm::ToolSpec;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::spawn_agent::Budget;
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

/// A delegation tool: its arguments, read by a strict schema, and what it does.
pub(crate) trait Delegation: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    const NAME: &'static str;
    /// When to use it, and when not.
    const DESCRIPTION: &'static str;
    const HINTS: Hints;

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
        bound::<spawn_agent::SpawnAgent>(delegate),
        bound::<run_process::RunProcess>(delegate),
        bound::<list_tasks::ListTasks>(delegate),
        bound::<wait_tasks::WaitTasks>(delegate),
        bound::<send_message::SendMessage>(delegate),
        bound::<stop_task::StopTask>(delegate),
        bound::<read_output::ReadOutput>(delegate),
        bound::<ask_parent::AskParent>(delegate),
    ];
    tools.into_iter().collect()
}

/// The names of the eight.
pub const NAMES: [&str; 8] = [
    spawn_agent::SpawnAgent::NAME,
    run_process::RunProcess::NAME,
    list_tasks::ListTasks::NAME,
    wait_tasks::WaitTasks::NAME,
    send_message::SendMessage::NAME,
    stop_task::StopTask::NAME,
    read_output::ReadOutput::NAME,
    ask_parent::AskParent::NAME,
];

fn bound<T: Delegation>(delegate: &Arc<Delegate>) -> Arc<dyn Tool> {
    let spec = delegate.agents.spec(T::NAME, || ToolSpec {
        name: T::NAME.into(),
        description: T::DESCRIPTION.into(),
        parameters: Arc::new(Value::Object(schema_of::<T>())),
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
        T::HINTS
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
        Value::Object(arguments) => read(arguments).map_err(ToolError),
        _ => Err(ToolError::new("the arguments must be a JSON object")),
    }
}

impl<T> fmt::Debug for Bound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delegation").field("tool", &self.spec.name).finish_non_exhaustive()
    }
}

/// Refuses an argument that is there but says nothing.
fn not_blank(name: &str, text: &str) -> Result<(), ToolError> {
    if text.trim().is_empty() {
        return Err(ToolError::new(format!("the argument `{name}` is blank")));
    }
    Ok(())
}
