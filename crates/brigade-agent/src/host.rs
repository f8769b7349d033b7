//! The interface between the agent loop and the runtime: journal, inbox and budget.
//!
//! The loop knows no runtime and no store. It sees only [`Host`].

use std::fmt::Debug;
use std::sync::Arc;

use brigade_llm::TokenUsage;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::limits::{CostEstimate, LimitKind, RemainingBudgets, Usage};
use brigade_model::refusal::Refusal;
use brigade_model::shared_values::SharedWrite;
use serde::{Deserialize, Serialize};

use crate::agent_program::ProgramHost;
use crate::shared_state::{NoSessionState, SessionStateReader};
use crate::tool::BoxFuture;
use crate::tool_context::CancellationToken;

/// The part of the runtime that one agent sees: journal, inbox, budget.
///
/// A refusal ends the attempt, unless the method says otherwise. The loop then makes no further calls.
pub trait Host: Debug + Send + Sync {
    /// Commits the buffered records. In the same commit it records the whole inbox under `index`, or
    /// else reserves budget for the next model call.
    fn begin_step(
        &self,
        unflushed: Vec<JournalRecord>,
        index: CallIndex,
        cost: CostEstimate,
    ) -> BoxFuture<'_, Result<StepGrant, Refusal>>;

    /// Refuses if the agent may not act any more, because another process may have continued it. The loop
    /// asks right before each model call and each tool call, since a grant may be older than a pause of
    /// the process.
    fn check_lease(&self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Commits records, all or none, and charges their cost. Writes to the session's state may be
    /// refused as `Conflict` (another writer was first) or `Limit`. That does not end the attempt.
    fn record(&self, records: Vec<JournalRecord>) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Charges the cost of a model call without a record, and releases the reservation.
    fn charge(&self, spent: Usage) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Parks the call of this index on a condition. A refusal concerns the call, not the attempt.
    fn park(
        &self,
        index: CallIndex,
        condition: ConditionRequest,
    ) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Drops parked calls that nobody waits for any more, such as approvals of a program that ended.
    fn abandon(&self, _calls: Vec<CallIndex>) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the budget that is exhausted, if one is, and else reserves this cost.
    fn find_exhausted_budget(
        &self,
        _cost: CostEstimate,
    ) -> BoxFuture<'_, Result<Option<LimitKind>, Refusal>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Suspends the agent until its `parked` calls are complete.
    fn suspend(&self, parked: usize) -> BoxFuture<'_, Result<SuspendResult, Refusal>>;

    /// Waits for the next completion of a parked call, and keeps the attempt and its slot meanwhile.
    /// Only for backends whose work goes on outside.
    fn next_completion(&self) -> BoxFuture<'_, (CallIndex, Arc<CallCompletion>)> {
        Box::pin(std::future::pending())
    }

    /// Commits the buffered records and, in the same commit, the end of the run. Returns false, and
    /// commits nothing, if the agent must process its inbox first.
    fn finish(
        &self,
        unflushed: Vec<JournalRecord>,
        result: Json,
    ) -> BoxFuture<'_, Result<bool, Refusal>>;

    /// Returns when a message arrives that interrupts the model call or the tool calls.
    fn wait_for_interrupt(&self) -> BoxFuture<'_, ()>;

    /// Returns a reader of the state that the session shares.
    fn session_state(&self) -> Arc<dyn SessionStateReader> {
        Arc::new(NoSessionState)
    }

    /// Returns the host's access to programs, if it has any.
    fn programs(&self) -> Option<Arc<dyn ProgramHost>> {
        None
    }

    /// Returns a token that is cancelled when the agent is stopped.
    fn stop_token(&self) -> CancellationToken {
        CancellationToken::new()
    }

    /// Returns a text that identifies the agent's task among those of all sessions. The idempotency keys
    /// of its tool calls start with it.
    fn task_key(&self) -> Arc<str> {
        "agent".into()
    }

    /// Reports the estimated cost of the current model call. It is charged if the agent is stopped
    /// during the call.
    fn report_spending(&self, _known: Usage) {}

    /// Reports the tokens and the cost of a model reply.
    fn report_reply(&self, _tokens: &TokenUsage, _cost: Usage) {}

    /// Reports output of the agent as it is produced, for observers. It must not block.
    fn report_output(&self, _output: AgentOutput) {}

    /// Reports the agent's progress. The host may drop a report when there are many.
    fn report_progress(&self, progress: AgentProgress);
}

/// The reply to [`Host::begin_step`].
#[derive(Clone, Debug, PartialEq)]
pub enum StepGrant {
    Inbox(Arc<CallCompletion>),
    /// The reserved amount, and the budgets that remain.
    Budget {
        amount: Usage,
        remaining: RemainingBudgets,
    },
    Exhausted(LimitKind),
}

/// A journal entry that is to be committed.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalRecord {
    pub index: CallIndex,
    pub label: EntryLabel,
    pub completion: Arc<CallCompletion>,
    pub spent: Option<Usage>,
    pub shared: Vec<SharedWrite>,
}

impl JournalRecord {
    /// Creates a record without cost and without writes to the session's state.
    pub fn new(index: CallIndex, label: EntryLabel, completion: Arc<CallCompletion>) -> Self {
        Self { index, label, completion, spent: None, shared: Vec::new() }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum SuspendResult {
    /// The attempt ends. The next one starts when all parked calls are complete.
    Suspended,
    /// A completion arrived immediately.
    Completed(CallIndex, Arc<CallCompletion>),
}

/// Output of an agent while it runs, for observers. The transcript is the stored form.
///
/// A step whose number was there before replaces that step: a message interrupted it, the runtime was
/// restarted, or the reader was too slow.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AgentOutput {
    /// A model call starts. Steps are counted from 1 in each run.
    Step { step: u32 },
    /// The next piece of the model's text.
    Text(Arc<str>),
    /// The next piece of the model's reasoning.
    Reasoning(Arc<str>),
    /// The model call starts again: all text since the last `Step` is void.
    Restarted,
    /// The model calls a tool. The arguments are JSON, or empty if they are malformed.
    ToolCall { id: Arc<str>, name: Arc<str>, arguments: String },
    /// The result of a tool call, as the model gets it.
    ToolResult { id: Arc<str>, name: Arc<str>, text: Arc<str>, failed: bool },
    /// The reader was too slow, and its current step follows again from the start.
    Lagged,
}

impl AgentOutput {
    /// Returns the text, if the output is text of the model.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The progress of an agent, for observers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentProgress {
    /// The number of model calls in this run.
    pub step: u32,
    /// The current activity: `thinking`, or the names of the running tools, each with the last text that
    /// it reported.
    pub activity: String,
    /// The tools of the last step with results.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_tools: String,
    /// The end of the model's last text.
    pub last_text: String,
    pub tokens: u64,
}
