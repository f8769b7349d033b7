//! Plugins: extend agents with hooks and tools, without a change to the loop.
//!
//! ```text
//! run_start ─> before_model ─> after_model ─┬─> before_tool ─> after_tool ─> step_end ─┐
//!                   ▲                       └─> run_end                                │
//!                   └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Changes of a plugin to the [`StateView`] are committed with the step that made them. After a crash
//! before that commit, the step and its hooks run again. A plugin that fails, panics or exceeds its
//! timeout fails the run. The failure names the plugin, and the partial result is kept.

use std::fmt::{self, Debug};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use brigade_llm::{ModelReply, ModelRequest, ToolCall, ToolResult};
use brigade_model::ids::RunNo;
use brigade_model::json::Json;
use brigade_model::outcome::{Failure, panic_message};
use futures_util::FutureExt;

use crate::shared_state::StateView;
use crate::tool::{BoxFuture, Tool};

/// The future of a hook.
pub type HookFuture<'a, T> = BoxFuture<'a, Result<T, PluginError>>;

/// An extension of the agent loop, called at fixed places of every step.
///
/// Each hook has a default that does nothing.
///
/// ```
/// use brigade_agent::{HookContext, HookFuture, Plugin};
///
/// #[derive(Debug)]
/// struct Greeter;
///
/// impl Plugin for Greeter {
///     fn name(&self) -> &str {
///         "greeter"
///     }
///
///     fn run_start<'a>(&'a self, _at: &'a HookContext<'a>) -> HookFuture<'a, ()> {
///         Box::pin(async { Ok(println!("a run starts")) })
///     }
/// }
/// assert_eq!(Greeter.name(), "greeter");
/// ```
pub trait Plugin: Debug + Send + Sync + 'static {
    /// Returns the name of the plugin, for messages and journal entries. It must not change between
    /// attempts.
    fn name(&self) -> &str;

    /// Returns true if agents of this definition use the plugin.
    fn is_for(&self, _definition: &str) -> bool {
        true
    }

    /// Returns tools for the agents that use the plugin. Permissions still apply.
    fn tools(&self) -> Vec<Tool> {
        Vec::new()
    }

    /// Returns the timeout of each hook.
    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Runs at the start of a run: once, however many attempts the run has.
    fn run_start<'a>(&'a self, _context: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        no_op()
    }

    /// Runs before a model call, also before the one that summarizes the conversation. A plugin cannot
    /// raise `max_output` above the reserved budget.
    fn before_model<'a>(
        &'a self,
        _context: &'a HookContext<'a>,
        _request: &'a mut ModelRequest,
    ) -> HookFuture<'a, ()> {
        no_op()
    }

    /// Runs after the model's reply, before the reply is committed.
    fn after_model<'a>(
        &'a self,
        _context: &'a HookContext<'a>,
        _reply: &'a ModelReply,
    ) -> HookFuture<'a, ()> {
        no_op()
    }

    /// Runs before the first execution of a call, or before its approval is requested. Permission rules
    /// have not denied the call.
    fn before_tool<'a>(
        &'a self,
        _context: &'a HookContext<'a>,
        _call: &'a ToolCall,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(std::future::ready(Ok(HookDecision::Pass)))
    }

    /// Runs after a call was executed or refused. The model gets the result as the plugins change it.
    fn after_tool<'a>(
        &'a self,
        _context: &'a HookContext<'a>,
        _call: &'a ToolCall,
        _result: &'a mut ToolResult,
    ) -> HookFuture<'a, ()> {
        no_op()
    }

    /// Runs when all calls of a step have results.
    fn step_end<'a>(&'a self, _context: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        no_op()
    }

    /// Runs before the run ends with this result.
    fn run_end<'a>(
        &'a self,
        _context: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(std::future::ready(Ok(HookDecision::Pass)))
    }
}

fn no_op<'a>() -> HookFuture<'a, ()> {
    Box::pin(std::future::ready(Ok(())))
}

/// The decision of a hook about a tool call or the end of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookDecision {
    Pass,
    /// A refusal, with the reason for the model.
    Refuse(String),
}

/// The context of a hook.
#[derive(Debug)]
pub struct HookContext<'a> {
    /// The agent's name.
    pub agent: &'a str,
    pub run: RunNo,
    /// The number of model calls in this run so far.
    pub step: u32,
    pub state: &'a StateView,
}

/// The error of a hook. It fails the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginError(pub String);

impl PluginError {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl<E: std::error::Error> From<E> for PluginError {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Runs a hook with its timeout. Turns an error, a panic or a timeout into a failure of the run.
pub(crate) async fn run_hook<T>(
    plugin: &dyn Plugin,
    point: &str,
    hook: impl Future<Output = Result<T, PluginError>>,
) -> Result<T, Failure> {
    let timeout = plugin.timeout();
    let hook = tokio::time::timeout(timeout, AssertUnwindSafe(hook).catch_unwind());
    let problem = match hook.await {
        Ok(Ok(Ok(done))) => return Ok(done),
        Ok(Ok(Err(PluginError(problem)))) => problem,
        Ok(Err(panic)) => format!("it panicked: {}", panic_message(&*panic)),
        Err(_) => format!("it took longer than {timeout:?}"),
    };
    let name = plugin.name();
    Err(Failure::error(format!("the plugin {name:?}, {point}: {problem}")))
}
