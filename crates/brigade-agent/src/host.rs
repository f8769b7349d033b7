//! What the loop needs of whoever runs it. The loop itself knows no runtime and no store.

use std::fmt::Debug;
use std::sync::Arc;

use brigade_llm::TokenUsage;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::limits::{LimitKind, RemainingBudgets, Usage};
use brigade_model::refusal::Refusal;
use brigade_model::shared_values::SharedWrite;
use serde::{Deserialize, Serialize};

use crate::state::{NoSessionState, SessionStateReader};
use crate::tool::BoxFuture;

/// Keeps the journal of one agent, and its purse.
///
/// A refusal means that the attempt is over: the loop ends with it and says nothing more.
pub trait Host: Debug + Send + Sync {
    /// Writes down what is owed, and in the same commit takes all news under this index, or else
    /// sets aside what the next model call may cost.
    fn begin_step(
        &self,
        owed: Vec<JournalRecord>,
        index: CallIndex,
        cost: CostEstimate,
    ) -> BoxFuture<'_, Result<StepGrant, Refusal>>;

    /// Writes down entries, all or none, and charges what they cost. Refused as a conflict when
    /// somebody else has changed what the session shares: then the attempt is not over.
    fn record(&self, records: Vec<JournalRecord>) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Says what was spent on something that there is no record of.
    fn charge(&self, spent: Usage) -> BoxFuture<'_, Result<(), Refusal>>;

    /// A call waits for this. A refusal is about the call, not about the attempt.
    fn park(&self, index: CallIndex, asked: ConditionRequest)
    -> BoxFuture<'_, Result<(), Refusal>>;

    /// The agent can do nothing until its open calls, so many, are answered.
    fn suspend(&self, open: usize) -> BoxFuture<'_, Result<SuspendResult, Refusal>>;

    /// Writes down what is owed, and in the same commit the work is done. False when there is
    /// something that the agent must hear of first: then nothing was written down.
    fn finish(
        &self,
        owed: Vec<JournalRecord>,
        result: Json,
    ) -> BoxFuture<'_, Result<bool, Refusal>>;

    /// Returns when a message came that is to be heard now.
    fn wait_for_interrupt(&self) -> BoxFuture<'_, ()>;

    /// What the session shares.
    fn session_state(&self) -> Arc<dyn SessionStateReader> {
        Arc::new(NoSessionState)
    }

    /// What the model call under way has cost, as far as that can be known. Whoever ends the agent
    /// within it has nothing better.
    fn report_spending(&self, _known: Usage) {}

    /// The model replied, and that took so much.
    fn report_reply(&self, _tokens: &TokenUsage, _cost: Usage) {}

    /// What the agent is at, for whoever looks. May be left out when much is said.
    fn report_progress(&self, progress: AgentProgress);
}

/// What a model call may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostEstimate {
    pub max: Usage,
    /// Less than this is of no use.
    pub min: Usage,
}

#[derive(Clone, Debug, PartialEq)]
pub enum StepGrant {
    Inbox(Arc<CallCompletion>),
    /// So much may be spent, of what is left.
    Budget {
        amount: Usage,
        remaining: RemainingBudgets,
    },
    Exhausted(LimitKind),
}

/// An entry of the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalRecord {
    pub index: CallIndex,
    pub label: &'static str,
    pub completion: Arc<CallCompletion>,
    pub spent: Option<Usage>,
    pub shared: Vec<SharedWrite>,
}

impl JournalRecord {
    /// At no cost.
    pub fn new(index: CallIndex, label: &'static str, answer: Arc<CallCompletion>) -> Self {
        Self { index, label, completion: answer, spent: None, shared: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum SuspendResult {
    /// Nothing is left to do here: the agent is built anew when all answers are there.
    Suspended,
    /// An answer came at once.
    Completed(CallIndex, Arc<CallCompletion>),
}

/// What an agent is at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentProgress {
    /// Model calls in this run.
    pub step: u32,
    /// In a word or two: thinking, or the tools that run.
    pub activity: String,
    /// The last tools that it used, and that have answered.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_tools: String,
    /// The last words that it said.
    pub last_text: String,
    pub tokens: u64,
}
