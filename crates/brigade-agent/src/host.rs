//! What the loop needs of whoever runs it. The loop itself knows no runtime and no store.

use std::fmt::Debug;
use std::sync::Arc;

use brigade_llm::TokenUsage;
use brigade_model::call::{Answer, Asked};
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::limits::{Left, LimitKind, Usage};
use brigade_model::refusal::Refusal;
use brigade_model::shared::SharedWrite;
use serde::{Deserialize, Serialize};

use crate::state::{Alone, SessionState};
use crate::tool::BoxFuture;

/// Keeps the journal of one agent, and its purse.
///
/// A refusal means that the attempt is over: the loop ends with it and says nothing more.
pub trait Host: Debug + Send + Sync {
    /// Writes down what is owed, and in the same commit takes all news under this index, or else
    /// sets aside what the next model call may cost.
    fn proceed(
        &self,
        owed: Vec<Record>,
        index: CallIndex,
        cost: Cost,
    ) -> BoxFuture<'_, Result<Proceed, Refusal>>;

    /// Writes down entries, all or none, and charges what they cost. Refused as a conflict when
    /// somebody else has changed what the session shares: then the attempt is not over.
    fn record(&self, records: Vec<Record>) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Says what was spent on something that there is no record of.
    fn charge(&self, spent: Usage) -> BoxFuture<'_, Result<(), Refusal>>;

    /// A call waits for this. A refusal is about the call, not about the attempt.
    fn park(&self, index: CallIndex, asked: Asked) -> BoxFuture<'_, Result<(), Refusal>>;

    /// The agent can do nothing until its open calls, so many, are answered.
    fn rest(&self, open: usize) -> BoxFuture<'_, Result<Rest, Refusal>>;

    /// Writes down what is owed, and in the same commit the work is done. False when there is
    /// something that the agent must hear of first: then nothing was written down.
    fn finish(&self, owed: Vec<Record>, result: Json) -> BoxFuture<'_, Result<bool, Refusal>>;

    /// Returns when a message came that is to be heard now.
    fn interrupted(&self) -> BoxFuture<'_, ()>;

    /// What the session shares.
    fn session_state(&self) -> Arc<dyn SessionState> {
        Arc::new(Alone)
    }

    /// What the model call under way has cost, as far as that can be known. Whoever ends the agent
    /// within it has nothing better.
    fn spending(&self, _known: Usage) {}

    /// The model replied, and that took so much.
    fn replied(&self, _tokens: &TokenUsage, _cost: Usage) {}

    /// What the agent is at, for whoever looks. May be left out when much is said.
    fn progress(&self, progress: Progress);
}

/// What a model call may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    pub most: Usage,
    /// Less than this is of no use.
    pub least: Usage,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Proceed {
    News(Arc<Answer>),
    /// So much may be spent, of what is left.
    Granted {
        amount: Usage,
        left: Left,
    },
    Exhausted(LimitKind),
}

/// An entry of the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub index: CallIndex,
    pub label: &'static str,
    pub answer: Arc<Answer>,
    pub spent: Option<Usage>,
    pub shared: Vec<SharedWrite>,
}

impl Record {
    /// At no cost.
    pub fn new(index: CallIndex, label: &'static str, answer: Arc<Answer>) -> Self {
        Self { index, label, answer, spent: None, shared: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Rest {
    /// Nothing is left to do here: the agent is built anew when all answers are there.
    Suspended,
    /// An answer came at once.
    Answered(CallIndex, Arc<Answer>),
}

/// What an agent is at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// Model calls in this run.
    pub step: u32,
    /// In a word or two: thinking, or the tools that run.
    pub doing: String,
    /// The last tools that it used, and that have answered.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub used: String,
    /// The last words that it said.
    pub words: String,
    pub tokens: u64,
}
