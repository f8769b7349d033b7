//! The tools of an agent: [`Tool`] and its [`ToolHandler`], a call of a tool, and its reply.

use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use brigade_llm::ToolSpec;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::error_details::render_error_chain;
use brigade_model::ids::CallIndex;
use serde_json::Value;

use crate::localization::{Locale, LocalizedText};
use crate::shared_state::StateView;
use crate::tool_context::{CallSignals, ToolContext};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An operation that an agent can call. Clones are cheap and share the handler.
///
/// [`Tool::from_fn`] makes a tool of an async function, which is all that most tools need. A type that
/// implements [`ToolHandler`] is a tool too: `Tool::new(handler)`, or `handler.into()`.
///
/// ```
/// use brigade_agent::{Tool, ToolEffect, ToolError, ToolInvocation, ToolReply};
/// use serde_json::json;
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Weather {
///     city: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let weather = Tool::from_fn(
///     "weather",
///     "Returns the weather of a city.",
///     ToolEffect::Pure,
///     |args: Weather| async move { Ok::<_, ToolError>(format!("sunny in {}", args.city)) },
/// );
/// // A test needs no agent and no model.
/// let reply = weather.call(ToolInvocation::standalone(json!({ "city": "Ghent" }))).await;
/// assert_eq!(reply, Ok(ToolReply::text("sunny in Ghent")));
/// # }
/// ```
#[derive(Clone)]
pub struct Tool {
    handler: Arc<dyn ToolHandler>,
}

impl Tool {
    pub fn new(handler: impl ToolHandler) -> Self {
        Self { handler: Arc::new(handler) }
    }

    pub fn handler(&self) -> &Arc<dyn ToolHandler> {
        &self.handler
    }

    pub fn spec(&self) -> &ToolSpec {
        self.handler.spec()
    }

    pub fn hints(&self) -> ExecutionHints {
        self.handler.hints()
    }

    pub fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        self.handler.call(call)
    }
}

impl<H: ToolHandler> From<H> for Tool {
    fn from(handler: H) -> Self {
        Self::new(handler)
    }
}

impl From<Arc<dyn ToolHandler>> for Tool {
    fn from(handler: Arc<dyn ToolHandler>) -> Self {
        Self { handler }
    }
}

impl Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tool").field(&self.handler).finish()
    }
}

/// The behaviour of a [`Tool`], for tools that need more than a function: a schema that is not known at
/// compile time, a call that parks, or one that records its effect.
///
/// The loop enters a call again after a crash, and when the condition that it parked on is met.
/// [`ToolEffect`] states the consequences of that for the tool.
pub trait ToolHandler: Debug + Send + Sync + 'static {
    fn spec(&self) -> &ToolSpec;

    fn hints(&self) -> ExecutionHints;

    /// Returns the name and description in this language, for user interfaces. A field that is absent
    /// is as in the spec.
    fn localized(&self, _locale: &Locale) -> Option<LocalizedText> {
        None
    }

    /// Returns the text that the pattern of a permission rule is matched against.
    fn subject(&self, _arguments: &Value) -> ToolSubject {
        ToolSubject::Nothing
    }

    /// Returns the kind of work that such a call starts and that outlives the agent.
    fn outliving(&self, _arguments: &Value) -> OutlivingWork {
        OutlivingWork::Nothing
    }

    /// Returns the absolute directory in which a call acts, if it acts in one. An `always` approval in
    /// one directory does not hold in another.
    fn acts_in(&self, _arguments: &Value) -> Option<String> {
        None
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>>;
}

/// Work that outlives the agent that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlivingWork {
    Nothing,
    /// A process, which does only what it was started for.
    Process,
    /// An agent, which spends budget and decides on its own next steps.
    Agent,
}

/// The text that the pattern of a permission rule is matched against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolSubject {
    /// The tool has no argument for a pattern.
    Nothing,
    Text(String),
    /// Text that a shell interprets. It may contain several commands.
    Shell(String),
}

impl From<String> for ToolSubject {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for ToolSubject {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// `None` is [`ToolSubject::Nothing`].
impl<T: Into<Self>> From<Option<T>> for ToolSubject {
    fn from(subject: Option<T>) -> Self {
        subject.map_or(Self::Nothing, Into::into)
    }
}

/// The facts about a tool that are known without a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionHints {
    pub effect: ToolEffect,
    /// The tool changes nothing.
    pub read_only: bool,
    /// The tool may destroy something.
    pub destructive: bool,
    /// The tool must not run at the same time as other calls of its step.
    pub exclusive: bool,
}

impl ExecutionHints {
    pub const fn of(effect: ToolEffect) -> Self {
        Self {
            effect,
            read_only: matches!(effect, ToolEffect::Pure),
            destructive: false,
            exclusive: false,
        }
    }
}

/// The consequence of executing a call twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEffect {
    /// The tool only reads.
    Pure,
    /// Two executions have the effect of one.
    Idempotent,
    /// The tool must not run twice. An interrupted call is not repeated: the model gets an error.
    Once,
    /// The tool records its effect in the slots of its call, and continues from there. Only a
    /// [`ToolHandler`] can do that.
    Recorded,
}

/// One call as its tool gets it, for the first time or again.
#[derive(Clone, Debug)]
pub struct ToolInvocation {
    pub slot_range: CallSlotRange,
    pub arguments: Value,
    /// The recorded effect, if the call was entered before.
    pub effect: Option<Arc<CallCompletion>>,
    /// The completion, if the call was parked before.
    pub completion: Option<Arc<CallCompletion>>,
    /// The decision about the call's approval, if one was requested.
    pub(crate) verdict: Option<Arc<CallCompletion>>,
    /// Plugins admitted the call before, and that is recorded.
    pub(crate) passed_hooks: bool,
    /// State that is shared with other calls and plugins. Changes are stored with the result. Changes
    /// from before a park are lost.
    pub state: StateView,
    pub(crate) signals: CallSignals,
}

/// The phase in which a call is entered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CallPhase<'a> {
    /// The call has neither a recorded effect nor a completion.
    New,
    /// The call was started before, with this recorded effect.
    Started(&'a CallCompletion),
    /// The call was parked before, and this is its completion.
    Resumed(&'a CallCompletion),
}

impl ToolInvocation {
    pub(crate) fn phase(&self) -> CallPhase<'_> {
        match (self.effect.as_deref(), self.completion.as_deref()) {
            (_, Some(completion)) => CallPhase::Resumed(completion),
            (Some(effect), None) => CallPhase::Started(effect),
            (None, None) => CallPhase::New,
        }
    }

    /// Returns the context of the call: progress, state, cancellation and key.
    pub fn context(&self) -> ToolContext {
        ToolContext::new(self)
    }

    /// Creates a first call outside an agent, for tests of a tool. Nobody sees its progress, and nothing
    /// cancels it.
    pub fn standalone(arguments: Value) -> Self {
        Self {
            slot_range: CallSlotRange(0),
            arguments,
            effect: None,
            completion: None,
            verdict: None,
            passed_hooks: false,
            state: StateView::detached(),
            signals: CallSignals::default(),
        }
    }
}

/// The indexes of a call in its agent's journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallSlotRange(pub(crate) u32);

impl CallSlotRange {
    /// The number of indexes of each call.
    pub const SLOTS_PER_CALL: u32 = 4;

    /// Returns the index of the result for the model.
    pub fn result(self) -> CallIndex {
        CallIndex(self.0)
    }

    /// Returns the index of the effect: a spawned task, a sent message, or only the start of the call.
    pub fn effect(self) -> CallIndex {
        CallIndex(self.0 + 1)
    }

    /// Returns the index of the completion of a parked call.
    pub fn completion(self) -> CallIndex {
        CallIndex(self.0 + 2)
    }

    /// Returns the index of the approval.
    pub fn approval(self) -> CallIndex {
        CallIndex(self.0 + 3)
    }
}

/// The reply of a tool to the agent loop.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolReply {
    /// The result for the model.
    Text(String),
    /// The call parks, at most once. It is entered again with its completion and its effect.
    Park { condition: ConditionRequest, effect: Option<Arc<CallCompletion>> },
}

impl ToolReply {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// The error of a failed call. Its text tells the model what is wrong and what to do.
///
/// It is not an error type itself, so that `?` turns every error type into it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolError(pub String);

impl ToolError {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is that of the error and of its sources.
impl<E: std::error::Error> From<E> for ToolError {
    fn from(error: E) -> Self {
        Self(render_error_chain(&error))
    }
}

impl From<ToolError> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: ToolError) -> Self {
        error.0.into()
    }
}

impl From<ToolError> for Box<dyn std::error::Error> {
    fn from(error: ToolError) -> Self {
        error.0.into()
    }
}
