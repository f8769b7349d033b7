//! What an agent can do: tools, and how a call of one is carried out, again if need be.

use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use brigade_llm::ToolSpec;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::ids::CallIndex;
use brigade_model::refusal::Refusal;
use serde_json::Value;

use crate::localization::{Locale, LocalizedText};
use crate::state::StateView;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Something an agent can ask for.
///
/// A call is entered again after a crash, and after what it waited for has come. [`Effect`] says
/// what that means for the tool.
pub trait Tool: Debug + Send + Sync + 'static {
    fn spec(&self) -> &ToolSpec;

    fn hints(&self) -> ExecutionHints;

    /// What a user interface calls it in this language; what is left out is as in its spec.
    fn localized(&self, _locale: &Locale) -> Option<LocalizedText> {
        None
    }

    /// What the argument pattern of a permission is held against.
    fn subject(&self, _arguments: &Value) -> ToolSubject {
        ToolSubject::Nothing
    }

    /// What such a call starts that goes on after the agent has ended.
    fn outliving(&self, _arguments: &Value) -> OutlivingWork {
        OutlivingWork::Nothing
    }

    /// The absolute directory in which a call acts, of a tool that acts in one. What is allowed for
    /// good there is not allowed in another.
    fn acts_in(&self, _arguments: &Value) -> Option<String> {
        None
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>>;
}

/// The work that outlives the agent that started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutlivingWork {
    Nothing,
    /// It does what it was started for and nothing else.
    Process,
    /// It spends, and decides for itself what to do next.
    Agent,
}

/// What a permission's pattern is held against.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolSubject {
    /// The tool has no argument that a pattern could mean.
    Nothing,
    Text(String),
    /// Text that a shell reads: it may say more than it seems to.
    Shell(String),
}

/// What is known of a tool without calling it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionHints {
    pub effect: ToolEffect,
    /// It changes nothing.
    pub read_only: bool,
    /// It may destroy something.
    pub destructive: bool,
    /// It must not run beside other calls of the same message.
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

/// What it means to carry out a call twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolEffect {
    /// It only looks.
    Pure,
    /// Twice is the same as once.
    Idempotent,
    /// It must not happen twice: a call that was cut off is not repeated, and the model is told.
    Once,
    /// It keeps a record of what it did in the slots of its call, and goes on from there.
    Recorded,
}

/// One call, entered for the first time or again.
#[derive(Clone, Debug)]
pub struct ToolInvocation {
    pub slot_range: CallSlotRange,
    pub arguments: Value,
    /// What the slot for its effect has, if it was entered before.
    pub effect: Option<Arc<CallCompletion>>,
    /// What it was told, if it was parked before.
    pub completion: Option<Arc<CallCompletion>>,
    /// What was said to it, if it asked for leave before.
    pub(crate) verdict: Option<Arc<CallCompletion>>,
    /// Plugins let it pass before, and that is written down.
    pub(crate) passed_hooks: bool,
    /// What it shares with other calls and plugins. Changes are kept with the result; those from
    /// before a park are not.
    pub state: StateView,
}

impl ToolInvocation {
    /// One that is entered for the first time, by itself: for who tries out a tool.
    pub fn standalone(arguments: Value) -> Self {
        Self {
            slot_range: CallSlotRange(0),
            arguments,
            effect: None,
            completion: None,
            verdict: None,
            passed_hooks: false,
            state: StateView::detached(),
        }
    }
}

/// Where a call is in its agent's journal: a few indexes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallSlotRange(pub(crate) u32);

impl CallSlotRange {
    /// Indexes that each call has.
    pub(crate) const SLOTS_PER_CALL: u32 = 4;

    /// Of what the model is told.
    pub fn result(self) -> CallIndex {
        CallIndex(self.0)
    }

    /// Of what the call did: a task spawned, a message sent; or just that it was begun.
    pub fn effect(self) -> CallIndex {
        CallIndex(self.0 + 1)
    }

    /// Of what the call waits for.
    pub fn completion(self) -> CallIndex {
        CallIndex(self.0 + 2)
    }

    /// Of the leave that the call asks for.
    pub fn approval(self) -> CallIndex {
        CallIndex(self.0 + 3)
    }
}

/// What a call came to.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolReply {
    /// What the model is told.
    Text(String),
    /// The call waits, once. It is entered again with the answer, and with what it did so far.
    Park { asked: ConditionRequest, effect: Option<Arc<CallCompletion>> },
}

impl ToolReply {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// A call that failed, in words for the model: what was wrong and what would be right.
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

impl From<Refusal> for ToolError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal.to_string())
    }
}
