//! The agent loop: inbox, model call, record, tool calls, record, until the model ends its turn.

use std::sync::Arc;
use std::{fmt, mem};

use brigade_llm::{
    ChatMessage, Model, ModelError, ModelErrorKind, ReasoningEffort, StopReason, TokenUsage,
};
use brigade_model::call::{CallCompletion, ConditionRequest, JournalEntry, ParkedCall};
use brigade_model::error_details::ErrorDetails;
use brigade_model::ids::RunNo;
use brigade_model::json::Json;
use brigade_model::limits::{Remaining, RemainingBudgets, Usage};
use brigade_model::outcome::Failure;
use brigade_model::quote_mark::QuoteMark;
use brigade_model::refusal::Refusal;
use brigade_model::truncate::{tail_bytes, truncate_end};
use serde_json::Value;

use crate::budget_warning::BudgetStatus;
use crate::hooks::HookPoint;
use crate::host::{self, AgentOutput, AgentProgress, Host, JournalRecord, StepGrant};
use crate::inbox::{Quoter, unanswered_reminder};
use crate::json_schema::Schema;
use crate::model_call::{CallPurpose, ChargedReply, ModelCallResult, fit_to_journal};
use crate::output_replay::call_output;
use crate::permission::Permissions;
use crate::plugin::Plugin;
use crate::run_end::FinishResult;
use crate::shared_state::SharedState;
use crate::stop_policy::StopPolicy;
use crate::tool_set::ToolSet;
use crate::transcript::{FinalMessage, IndexedMessage, NextAction, Transcript, TranscriptSeed};
use brigade_model::entry_label::EntryLabel;

/// The bytes of the last text that a progress report contains.
pub(crate) const LAST_TEXT_SHOWN: usize = 400;
/// The bytes of the activity that a progress report contains.
const ACTIVITY_SHOWN: usize = 200;

/// One agent, ready to run. Its transcript is not part of it.
#[derive(Clone)]
pub struct Agent {
    /// The agent's name or address, for scripts and people.
    pub name: Arc<str>,
    /// The task that the agent was given.
    pub task: Arc<str>,
    pub system_prompt: Arc<str>,
    pub model: Arc<dyn Model>,
    /// The model's provider, by its name in telemetry.
    pub provider: Arc<str>,
    /// The provider's name of the model.
    pub model_name: Arc<str>,
    pub tools: ToolSet,
    pub plugins: Vec<Arc<dyn Plugin>>,
    pub permissions: Permissions,
    /// Nobody is there to decide approvals.
    pub unattended: bool,
    /// The mark around all text that is quoted to the agent. The system prompt names it.
    pub quote_mark: Option<QuoteMark>,
    pub stop_policy: StopPolicy,
    /// The schema of the result. Without one the result is text.
    pub result_schema: Option<Schema>,
    pub temperature: Option<f64>,
    pub effort: Option<ReasoningEffort>,
    /// The most tokens of one reply.
    pub max_output: u32,
    /// The size of the model's context window in tokens.
    pub context_window: u64,
    pub cost: Arc<dyn Fn(&TokenUsage) -> Usage + Send + Sync>,
}

/// The input of one attempt.
#[derive(Clone, Debug)]
pub struct AttemptInput {
    pub run: RunNo,
    pub journal: Vec<JournalEntry>,
    pub parked_calls: Vec<ParkedCall>,
    /// The first model call needs no `begin_step`: the inbox is empty, and there is no budget.
    pub skip_first_gate: bool,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentExit {
    /// The run has ended, and its end is committed.
    Finished,
    /// All calls are parked. The runtime starts the next attempt when they are complete.
    Suspended,
    Failed {
        failure: Failure,
        partial: Option<Json>,
    },
    /// The host refused a request, which ends the attempt.
    Refused(Refusal),
}

/// The context of one attempt.
struct RunContext<'a> {
    host: &'a dyn Host,
    run: RunNo,
    partial: &'a PartialResult,
}

/// The result in the model's final message.
enum ParsedResult {
    Usable(Json),
    /// The model must repair the result. The text tells it what is wrong.
    NeedsRepair(String),
}

impl Agent {
    /// Runs one attempt until the run ends, suspends or fails. The future can be dropped at any point:
    /// the next attempt continues from the journal. `partial` always holds the latest partial result.
    pub async fn run(
        &self,
        host: &dyn Host,
        input: AttemptInput,
        partial: &PartialResult,
    ) -> AgentExit {
        let seed = TranscriptSeed {
            task: self.task.clone(),
            quoter: Quoter::new(self.quote_mark),
            state: SharedState::new(host.session_state()),
        };
        let mut transcript = match Transcript::load(seed, input.journal, &input.parked_calls) {
            Ok(transcript) => transcript,
            Err(refusal) => {
                return AgentExit::failed(format!("the journal cannot be read: {refusal}"));
            }
        };
        transcript.skip_first_gate = input.skip_first_gate;
        partial.set(transcript.partial_result());
        self.tools.wait_until_ready().await;
        let context = RunContext { host, run: input.run, partial };
        match self.run_loop(&context, &mut transcript).await {
            Ok(exit) => exit,
            Err(LoopError::Failure(failure)) => {
                match self.flush_journal(host, &mut transcript).await {
                    Ok(()) => AgentExit::Failed { failure, partial: transcript.partial_result() },
                    Err(refusal) => AgentExit::Refused(refusal),
                }
            }
            Err(LoopError::Refused(refusal)) => AgentExit::Refused(refusal),
        }
    }

    async fn run_loop(
        &self,
        context: &RunContext<'_>,
        transcript: &mut Transcript,
    ) -> Result<AgentExit, LoopError> {
        let host = context.host;
        if transcript.run < context.run {
            self.record_note(host, transcript, EntryLabel::RunStarted, &context.run).await?;
        }
        self.run_start_hooks(host, transcript).await?;
        loop {
            while transcript.parked_count() > 0 && !transcript.has_due_calls() {
                self.flush_journal(host, transcript).await?;
                match host.suspend(transcript.parked_count()).await? {
                    host::SuspendResult::Suspended => return Ok(AgentExit::Suspended),
                    host::SuspendResult::Completed(index, completion) => {
                        transcript.apply_completion(index, &completion)?
                    }
                }
            }
            match transcript.next_action() {
                NextAction::RunCalls => self.run_calls(host, transcript).await?,
                NextAction::EndTurn(message) => {
                    if self.end_turn(host, transcript, &message).await? {
                        return Ok(AgentExit::Finished);
                    }
                }
                NextAction::CallModel => {
                    if !transcript.step_end_done {
                        self.run_hooks(host, transcript, HookPoint::StepEnd).await?;
                        transcript.step_end_done = true;
                    }
                    self.run_step(context, transcript).await?;
                }
            }
        }
    }

    /// Runs one step: takes the inbox, or else calls the model and records its reply.
    async fn run_step(
        &self,
        context: &RunContext<'_>,
        transcript: &mut Transcript,
    ) -> Result<(), LoopError> {
        let host = context.host;
        if let Some(failure) = self.stop_policy.check_limits(&transcript.tally) {
            return Err(failure.into());
        }
        if self.needs_compaction(transcript)
            && let Some(kept_from) = self.compaction_index(transcript)
        {
            return self.compact(host, transcript, kept_from).await;
        }
        let Some(granted) = self.begin_step(host, transcript).await? else { return Ok(()) };
        let mut request = self.build_request(transcript, transcript.messages(), granted);
        self.run_before_model_hooks(host, transcript, &mut request).await?;
        let progress = AgentProgress {
            step: transcript.tally.steps + 1,
            ..self.progress(transcript, "thinking")
        };
        host.report_output(AgentOutput::Step { step: progress.step });
        let purpose = CallPurpose::Step;
        match self.call_model(host, purpose, progress, Arc::new(request)).await? {
            ModelCallResult::Reply(ChargedReply { reply, spent }) => {
                let (reply, value) = fit_to_journal(reply)?;
                let charged = ChargedReply { reply, spent };
                let entry = NewEntry { label: EntryLabel::ModelReply, value };
                let index = self.run_after_model_hooks(host, transcript, &charged, entry).await?;
                // Calls are committed before they are executed. A final message is committed with the
                // end of the run.
                if charged.reply.message.calls().next().is_some() {
                    self.flush_journal(host, transcript).await?;
                }
                for call in charged.reply.message.calls() {
                    host.report_output(call_output(call));
                }
                transcript.apply_reply(index, charged.reply);
                context.partial.set(transcript.partial_result());
                Ok(())
            }
            ModelCallResult::Interrupted => Ok(()),
            ModelCallResult::Failed(error) => {
                self.recover_from_error(host, transcript, error).await
            }
        }
    }

    /// Takes the inbox and returns `None`, or else returns the reserved budget.
    pub(crate) async fn begin_step(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<Option<Usage>, LoopError> {
        let index = transcript.next_index();
        let cost = self.estimate_cost(transcript);
        // Records of `run_start` hooks are committed first. Otherwise the hooks would run again after a
        // crash during the model call.
        if mem::take(&mut transcript.skip_first_gate) && transcript.unflushed.is_empty() {
            return Ok(Some(cost.max));
        }
        match host.begin_step(mem::take(&mut transcript.unflushed), index, cost).await? {
            StepGrant::Inbox(batch) => {
                transcript.apply_entry(index, &EntryLabel::Inbox, &batch)?;
                Ok(None)
            }
            StepGrant::Exhausted(limit) => Err(Failure::Budget { limit }.into()),
            StepGrant::Budget { amount, remaining } => {
                self.warn_of_budgets(transcript, remaining)?;
                Ok(Some(amount))
            }
        }
    }

    /// Warns the model of low budgets. The warning is committed with the model's reply: without a
    /// reply, the model gets it again.
    fn warn_of_budgets(
        &self,
        transcript: &mut Transcript,
        remaining: RemainingBudgets,
    ) -> Result<(), Refusal> {
        let limit = u64::from(self.stop_policy.max_steps);
        let amount = limit.saturating_sub(transcript.tally.steps.into());
        let steps = Remaining { amount, limit, shared: false };
        let status = BudgetStatus { remaining, steps };
        let quoter = Quoter::new(self.quote_mark);
        let Some(warning) = status.new_warning(transcript.warning_levels, quoter) else {
            // A budget that was raised is warned of again when it runs low.
            transcript.warning_levels = status.warning_levels();
            return Ok(());
        };
        let index = transcript.next_index();
        let completion = CallCompletion::Value(Json::of(&warning)?);
        let record = JournalRecord::new(index, EntryLabel::BudgetWarning, Arc::new(completion));
        transcript.apply_entry(index, &EntryLabel::BudgetWarning, &record.completion)?;
        transcript.unflushed.push(record);
        Ok(())
    }

    /// Commits the buffered records, if there are any.
    pub(crate) async fn flush_journal(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), Refusal> {
        match mem::take(&mut transcript.unflushed) {
            unflushed if unflushed.is_empty() => Ok(()),
            unflushed => host.record(unflushed).await,
        }
    }

    /// Compacts a conversation that is too long. Any other error fails the run, since the model was
    /// retried already.
    async fn recover_from_error(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        error: ModelError,
    ) -> Result<(), LoopError> {
        let failure = match (error.kind, self.compaction_index(transcript)) {
            (ModelErrorKind::TooLong, Some(kept_from)) => {
                return self.compact(host, transcript, kept_from).await;
            }
            (ModelErrorKind::TooLong, None) => {
                "the conversation does not fit into the model's context window, and no part of it can \
                 be summarized"
                    .to_owned()
            }
            _ => format!("the model: {error}"),
        };
        Err(Failure::error(failure).into())
    }

    /// Ends the model's turn. Returns true if the run ended with it.
    async fn end_turn(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        message: &FinalMessage,
    ) -> Result<bool, LoopError> {
        match self.parse_result(message, transcript).await? {
            ParsedResult::NeedsRepair(problem) => {
                self.record_note(host, transcript, EntryLabel::Note, &problem).await?
            }
            ParsedResult::Usable(result) => {
                match self.try_finish(host, transcript, result).await? {
                    FinishResult::Finished => return Ok(true),
                    FinishResult::Retry => return Ok(false),
                    FinishResult::InboxUnread => {}
                }
                match unanswered_reminder(transcript.unanswered()) {
                    Some(reminder) => {
                        self.record_note(host, transcript, EntryLabel::Note, &reminder).await?
                    }
                    None => self.wait_for_inbox(host, transcript).await?,
                }
            }
        }
        Ok(false)
    }

    /// Reads the result in the model's final message. Fails the run after too many unusable results.
    async fn parse_result(
        &self,
        message: &FinalMessage,
        transcript: &Transcript,
    ) -> Result<ParsedResult, LoopError> {
        let text = message.text.as_str();
        let problem = match (message.stop_reason, &self.result_schema) {
            (StopReason::Filtered, _) => {
                let failure = "the provider's content filter withheld the model's reply";
                return Err(Failure::error(failure).into());
            }
            (StopReason::Length, _) => {
                "Your reply was cut off at the token limit of one reply. Continue in shorter replies."
                    .to_owned()
            }
            (StopReason::EndOfTurn, None) if text.trim().is_empty() => {
                "Your reply was empty. Give the result of your task, or continue with it.".to_owned()
            }
            (StopReason::EndOfTurn, _) => match self.read_result(text).await {
                Ok(result) => return Ok(ParsedResult::Usable(result)),
                Err(problem) => problem,
            },
        };
        if transcript.tally.notes >= self.stop_policy.max_repairs {
            let times = transcript.tally.notes + 1;
            let failure = format!("no usable result after {times} tries. The last: {problem}");
            return Err(Failure::error(failure).into());
        }
        Ok(ParsedResult::NeedsRepair(problem))
    }

    /// Reads the result in an agent's last text. An error tells the agent what is wrong.
    pub async fn read_result(&self, text: &str) -> Result<Json, String> {
        let Some(schema) = &self.result_schema else {
            return Json::of(text).map_err(|error| error.to_string());
        };
        let result = parse_json_result(schema, text).await.map_err(|problem| {
            format!(
                "Your result does not fit: {problem}\nReply with the whole result again, as JSON \
                 that fits the schema and nothing else."
            )
        })?;
        Json::of(&result).map_err(|error| error.to_string())
    }

    async fn wait_for_inbox(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), LoopError> {
        let index = transcript.next_index();
        host.park(index, ConditionRequest::Inbox).await?;
        transcript.park_call(index, None);
        host.report_progress(self.progress(transcript, "waiting for its tasks"));
        Ok(())
    }

    async fn record_note(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        label: EntryLabel,
        note: &impl serde::Serialize,
    ) -> Result<(), LoopError> {
        let index = transcript.next_index();
        let completion = Arc::new(CallCompletion::Value(Json::of(note)?));
        // The note is in one commit with the buffered records: state changes of plugins must not be
        // there without the note that they belong to.
        transcript.unflushed.push(JournalRecord::new(index, label.clone(), completion.clone()));
        self.flush_journal(host, transcript).await?;
        Ok(transcript.apply_entry(index, &label, &completion)?)
    }

    pub(crate) fn progress(
        &self,
        transcript: &Transcript,
        activity: impl Into<String>,
    ) -> AgentProgress {
        AgentProgress {
            step: transcript.tally.steps,
            activity: truncate_end(&activity.into(), ACTIVITY_SHOWN),
            last_tools: truncate_end(&transcript.last_tools(), ACTIVITY_SHOWN),
            last_text: tail_bytes(&current_text(&transcript.messages), LAST_TEXT_SHOWN).to_owned(),
            tokens: transcript.tally.tokens,
        }
    }
}

/// Returns the text of the model's newest message. Returns an empty text if a user message follows it,
/// since the text does not describe the current activity then.
fn current_text(messages: &[IndexedMessage]) -> String {
    let newest = messages.iter().rev().find_map(|entry| match &entry.message {
        ChatMessage::Assistant(message) => Some(message.text()),
        ChatMessage::User(_) => Some(String::new()),
        ChatMessage::Results(_) => None,
    });
    newest.unwrap_or_default()
}

/// Parses the JSON in a reply, with or without a code block around it, and validates it.
async fn parse_json_result(schema: &Schema, text: &str) -> Result<Value, String> {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let text = inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner));
    let value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    schema.check_async(&value).await.map_err(|mismatch| mismatch.to_string())?;
    Ok(value)
}

impl AgentExit {
    fn failed(message: impl Into<ErrorDetails>) -> Self {
        Self::Failed { failure: Failure::error(message), partial: None }
    }
}

/// A journal entry without its index.
pub(crate) struct NewEntry {
    pub(crate) label: EntryLabel,
    pub(crate) value: Json,
}

/// The reason why the loop stops early.
#[derive(Debug)]
pub(crate) enum LoopError {
    Failure(Failure),
    Refused(Refusal),
}

impl From<Failure> for LoopError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl From<Refusal> for LoopError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The partial result of a run. It is part of the outcome if the run is stopped.
#[derive(Clone, Debug, Default)]
pub struct PartialResult(Arc<std::sync::Mutex<Option<Json>>>);

impl PartialResult {
    pub fn set(&self, partial: Option<Json>) {
        *self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = partial;
    }

    pub fn get(&self) -> Option<Json> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    pub fn take(&self) -> Option<Json> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Agent").field("name", &self.name).finish_non_exhaustive()
    }
}
