//! Plugins: what a program adds to its agents without touching the loop.
//!
//! ```text
//! run_start ─> before_model ─> after_model ─┬─> before_tool ─> after_tool ─> step_end ─┐
//!                   ▲                       └─> run_end                                │
//!                   └──────────────────────────────────────────────────────────────────┘
//! ```
//!
//! What a plugin changes of the [`State`] is written down with the step that it belongs to. A hook
//! runs again when its step does: after a crash before that was written down. A plugin that fails,
//! panics or takes too long ends the run, which says so and keeps what there is of a result.

use std::fmt::{self, Debug};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use brigade_llm::{ModelReply, ModelRequest, ToolCall, ToolResult};
use brigade_model::ids::RunNo;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;
use futures_util::FutureExt;

use crate::state::StateView;
use crate::tool::{BoxFuture, Tool};

/// What comes of a hook, in time.
pub type HookFuture<'a, T> = BoxFuture<'a, Result<T, PluginError>>;

pub trait Plugin: Debug + Send + Sync + 'static {
    /// By which it is known in messages, and again when an agent goes on.
    fn name(&self) -> &str;

    /// Whether agents of this definition have it.
    fn is_for(&self, _definition: &str) -> bool {
        true
    }

    /// Tools that agents have by it, as far as they may use them.
    fn tools(&self) -> Vec<Arc<dyn Tool>> {
        Vec::new()
    }

    /// How long a hook may take.
    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// A run begins. Called once in a run, however often the agent is begun anew in it.
    fn run_start<'a>(&'a self, _at: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        no_op()
    }

    /// The model is about to be asked, or to sum the conversation up. A reply is never longer than what
    /// is paid for.
    fn before_model<'a>(
        &'a self,
        _at: &'a HookContext<'a>,
        _request: &'a mut ModelRequest,
    ) -> HookFuture<'a, ()> {
        no_op()
    }

    /// The model has replied; this is not written down yet.
    fn after_model<'a>(
        &'a self,
        _at: &'a HookContext<'a>,
        _reply: &'a ModelReply,
    ) -> HookFuture<'a, ()> {
        no_op()
    }

    /// A call that the permissions let pass is about to be carried out for the first time.
    fn before_tool<'a>(
        &'a self,
        _at: &'a HookContext<'a>,
        _call: &'a ToolCall,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(std::future::ready(Ok(HookDecision::Pass)))
    }

    /// A call has been carried out, or refused. What is written here is what the model is told.
    fn after_tool<'a>(
        &'a self,
        _at: &'a HookContext<'a>,
        _call: &'a ToolCall,
        _result: &'a mut ToolResult,
    ) -> HookFuture<'a, ()> {
        no_op()
    }

    /// All calls of a message are answered.
    fn step_end<'a>(&'a self, _at: &'a HookContext<'a>) -> HookFuture<'a, ()> {
        no_op()
    }

    /// The agent has a result and is about to end with it.
    fn run_end<'a>(
        &'a self,
        _at: &'a HookContext<'a>,
        _result: &'a Json,
    ) -> HookFuture<'a, HookDecision> {
        Box::pin(std::future::ready(Ok(HookDecision::Pass)))
    }
}

fn no_op<'a>() -> HookFuture<'a, ()> {
    Box::pin(std::future::ready(Ok(())))
}

/// Whether something goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookDecision {
    Pass,
    /// It does not, and the model is told why.
    Refuse(String),
}

/// Where in its work an agent is.
#[derive(Debug)]
pub struct HookContext<'a> {
    /// The agent's name.
    pub agent: &'a str,
    pub run: RunNo,
    /// Model calls so far in this run.
    pub step: u32,
    pub state: &'a StateView,
}

/// Why a plugin could not do its part.
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

/// Lets a plugin do its part, within its time and whatever it does.
pub(crate) async fn run_hook<T>(
    plugin: &dyn Plugin,
    when: &str,
    hook: impl Future<Output = Result<T, PluginError>>,
) -> Result<T, Failure> {
    let patience = plugin.timeout();
    let hook = tokio::time::timeout(patience, AssertUnwindSafe(hook).catch_unwind());
    let problem = match hook.await {
        Ok(Ok(Ok(done))) => return Ok(done),
        Ok(Ok(Err(PluginError(problem)))) => problem,
        Ok(Err(panic)) => format!("it panicked: {}", crate::tool_calls::panic_message(&*panic)),
        Err(_) => format!("it took longer than {patience:?}"),
    };
    let name = plugin.name();
    Err(Failure::Error(format!("the plugin {name:?}, {when}: {problem}").into()))
}
