//! The delegation tools of agents, one file per tool. `brigade-delegation` has their arguments,
//! descriptions and replies.
//!
//! Each tool acts as the agent's own task and submits commands like every other caller. A command
//! records its effect in the slots of the call, so that a call that is entered again finds it.

mod ask_parent;
mod list_tasks;
mod read_output;
pub(super) mod run_process;
mod send_message;
mod spawn_agent;
mod stop_task;
mod summary;
mod wait_tasks;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use brigade_agent::inbox::Quoter;
use brigade_agent::{
    BoxFuture, ExecutionHints, OutlivingWork, Tool, ToolEffect, ToolError, ToolHandler,
    ToolInvocation, ToolReply, ToolSet, ToolSubject,
};
use brigade_delegation::{
    AskParent, Audience, ListTasks, ReadOutput, RunProcess, SendMessage, SpawnAgent, StopTask,
    ToolArgs, ToolDefinition, WaitTasks, define_tool, read_args,
};
pub use brigade_delegation::{BudgetArgs, TOOL_NAMES};
use brigade_llm::ToolSpec;
use serde_json::Value;

use super::blueprint::Blueprint;
use super::services::AgentServices;
use super::task_link::TaskLink;

/// The context of the delegation tools of one agent.
#[derive(Clone, Debug)]
pub(crate) struct DelegationContext {
    pub(crate) link: TaskLink,
    pub(crate) agents: Arc<AgentServices>,
    pub(crate) blueprint: Arc<Blueprint>,
    /// The renderer of texts that are quoted to the agent.
    pub(crate) quoter: Quoter,
}

/// A delegation tool as agents use it.
pub(crate) trait AgentDelegationTool: ToolArgs {
    const EFFECT: ToolEffect;

    /// Returns the text that a permission pattern is matched against, for an agent in this
    /// directory.
    fn subject(&self, _directory: Option<&str>) -> ToolSubject {
        ToolSubject::Nothing
    }

    /// Returns the work that the call starts and that outlives the agent.
    fn outliving(&self) -> OutlivingWork {
        OutlivingWork::Nothing
    }

    /// Returns the directory in which a call acts, for an agent in this directory.
    fn acts_in(&self, directory: Option<&str>) -> Option<String> {
        directory.map(str::to_owned)
    }

    fn run(
        self,
        delegate: &DelegationContext,
        call: &ToolInvocation,
    ) -> impl Future<Output = Result<ToolReply, ToolError>> + Send;
}

/// Returns the eight delegation tools of one agent.
pub(crate) fn delegation_tools(delegate: &Arc<DelegationContext>) -> ToolSet {
    let tools: [Tool; 8] = [
        bind_tool::<SpawnAgent>(delegate),
        bind_tool::<RunProcess>(delegate),
        bind_tool::<ListTasks>(delegate),
        bind_tool::<WaitTasks>(delegate),
        bind_tool::<SendMessage>(delegate),
        bind_tool::<StopTask>(delegate),
        bind_tool::<ReadOutput>(delegate),
        bind_tool::<AskParent>(delegate),
    ];
    tools.into_iter().collect()
}

fn bind_tool<T: AgentDelegationTool>(delegate: &Arc<DelegationContext>) -> Tool {
    let spec = delegate.agents.tool_spec(T::NAME, || {
        let ToolDefinition { name, description, schema, .. } = define_tool::<T>(Audience::Agent);
        ToolSpec {
            name: name.into(),
            description: description.into(),
            parameters: Arc::new(Value::Object(schema)),
        }
    });
    Tool::new(BoundDelegationTool::<T> { delegate: delegate.clone(), spec, arguments: PhantomData })
}

struct BoundDelegationTool<T> {
    delegate: Arc<DelegationContext>,
    spec: ToolSpec,
    arguments: PhantomData<fn() -> T>,
}

impl<T: AgentDelegationTool> ToolHandler for BoundDelegationTool<T> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn hints(&self) -> ExecutionHints {
        ExecutionHints { destructive: T::HINTS.is_destructive, ..ExecutionHints::of(T::EFFECT) }
    }

    fn subject(&self, arguments: &Value) -> ToolSubject {
        match parse_args::<T>(arguments.clone()) {
            Ok(arguments) => arguments.subject(self.delegate.blueprint.directory.as_deref()),
            // The call itself refuses wrong arguments.
            Err(_) => ToolSubject::Nothing,
        }
    }

    fn outliving(&self, arguments: &Value) -> OutlivingWork {
        // The call itself refuses wrong arguments.
        parse_args::<T>(arguments.clone()).map_or(OutlivingWork::Nothing, |args| args.outliving())
    }

    fn acts_in(&self, arguments: &Value) -> Option<String> {
        let own = self.delegate.blueprint.directory.as_deref();
        match parse_args::<T>(arguments.clone()) {
            Ok(arguments) => arguments.acts_in(own),
            Err(_) => own.map(str::to_owned),
        }
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            let arguments = parse_args::<T>(call.arguments.clone())?;
            arguments.run(&self.delegate, &call).await
        })
    }
}

fn parse_args<T: AgentDelegationTool>(arguments: Value) -> Result<T, ToolError> {
    match arguments {
        Value::Object(arguments) => Ok(read_args(Audience::Agent, arguments)?),
        _ => Err(ToolError::new("the arguments must be a JSON object")),
    }
}

impl<T> fmt::Debug for BoundDelegationTool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundDelegationTool").field("tool", &self.spec.name).finish_non_exhaustive()
    }
}
