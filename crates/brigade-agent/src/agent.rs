//! The loop: news, model, record, tools, record, until the model has nothing more to do.

use std::sync::Arc;
use std::{fmt, mem};

use brigade_llm::{
    ChatMessage, Model, ModelError, ModelErrorKind, ReasoningEffort, StopReason, TokenUsage,
};
use brigade_model::call::{CallCompletion, ConditionRequest, JournalEntry, ParkedCall};
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::{Remaining, RemainingBudgets, Usage};
use brigade_model::outcome::Failure;
use brigade_model::quote_mark::QuoteMark;
use brigade_model::refusal::Refusal;
use serde_json::Value;

use crate::budget_warning::BudgetStatus;
use crate::hooks::HookPoint;
use crate::host::{self, AgentProgress, Host, JournalRecord, StepGrant};
use crate::inbox::Quoter;
use crate::json_schema::Schema;
use crate::model_call::ChargedReply;
use crate::permission::Permissions;
use crate::plugin::Plugin;
use crate::run_end::FinishResult;
use crate::state::SharedState;
use crate::stop_policy::StopPolicy;
use crate::tool_set::ToolSet;
use crate::transcript::{NextAction, Transcript, TranscriptSeed, label};

/// How many bytes of the last words, and of what it is at, whoever looks is shown.
const LAST_TEXT_SHOWN: usize = 400;
const ACTIVITY_SHOWN: usize = 200;

/// One agent, ready to work: everything that it is, but for what it has said and done.
#[derive(Clone)]
pub struct Agent {
    /// Its name or address, for scripts and people.
    pub name: Arc<str>,
    /// What it was asked to do.
    pub task: Arc<str>,
    pub system_prompt: Arc<str>,
    pub model: Arc<dyn Model>,
    /// Who provides it, as telemetry names providers.
    pub provider: Arc<str>,
    /// The provider's name of the model.
    pub model_name: Arc<str>,
    pub tools: ToolSet,
    pub plugins: Vec<Arc<dyn Plugin>>,
    pub permissions: Permissions,
    /// Nobody is there to approve what is to be asked about.
    pub unattended: bool,
    /// What stands around everything that is quoted to it. Its system prompt names it.
    pub quote_mark: Option<QuoteMark>,
    pub stop_policy: StopPolicy,
    /// What its result must look like; words, when there is none.
    pub result_schema: Option<Schema>,
    pub temperature: Option<f64>,
    pub effort: Option<ReasoningEffort>,
    /// The most tokens of one reply.
    pub max_output: u32,
    /// Tokens that the model takes in all.
    pub context_window: u64,
    pub cost: Arc<dyn Fn(&TokenUsage) -> Usage + Send + Sync>,
}

/// What an agent begins an attempt with.
#[derive(Clone, Debug)]
pub struct AttemptInput {
    pub run: RunNo,
    pub journal: Vec<JournalEntry>,
    pub parked_calls: Vec<ParkedCall>,
    /// The model may be asked at once: there is nothing to hear before, and no budget.
    pub skip_first_gate: bool,
}

/// How an attempt came out.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentExit {
    /// The work is done, and the host knows.
    Finished,
    /// It waits, and there is nothing left of it here.
    Suspended,
    Failed {
        failure: Failure,
        partial: Option<Json>,
    },
    /// The host would not go on: the attempt is over.
    Refused(Refusal),
}

impl Agent {
    /// Works until the task is done, waits, or fails. Dropped at any point it can be begun anew from
    /// what the host has written down. `partial` is kept at what there is of a result.
    pub async fn run(
        &self,
        host: &dyn Host,
        begun: AttemptInput,
        partial: &PartialResult,
    ) -> AgentExit {
        let (task, quoter) = (self.task.clone(), Quoter::new(self.quote_mark));
        let opening =
            TranscriptSeed { task, quoter, state: SharedState::new(host.session_state()) };
        let mut transcript = match Transcript::load(opening, begun.journal, &begun.parked_calls) {
            Ok(transcript) => transcript,
            Err(refusal) => {
                return AgentExit::failed(format!("its journal cannot be read: {refusal}"));
            }
        };
        transcript.skip_first_gate = begun.skip_first_gate;
        partial.set(transcript.partial_result());
        self.tools.wait_until_ready().await;
        let exit = self.run_loop(host, &mut transcript, (begun.run, partial)).await;
        match exit {
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
        host: &dyn Host,
        transcript: &mut Transcript,
        (run, partial): (RunNo, &PartialResult),
    ) -> Result<AgentExit, LoopError> {
        if transcript.run < run {
            self.record_note(host, transcript, label::RUN, &run).await?;
        }
        self.run_start_hooks(host, transcript).await?;
        loop {
            while transcript.parked_count() > 0 && !transcript.has_due_calls() {
                self.flush_journal(host, transcript).await?;
                match host.suspend(transcript.parked_count()).await? {
                    host::SuspendResult::Suspended => return Ok(AgentExit::Suspended),
                    host::SuspendResult::Completed(index, answer) => {
                        transcript.apply_completion(index, &answer)?
                    }
                }
            }
            match transcript.next_action() {
                NextAction::RunCalls => self.run_calls(host, transcript).await?,
                NextAction::EndTurn { said, stop } => {
                    if self.end_turn(host, transcript, (&said.text(), stop)).await? {
                        return Ok(AgentExit::Finished);
                    }
                }
                NextAction::CallModel => {
                    if !transcript.step_end_done {
                        self.run_hooks(host, transcript, HookPoint::StepEnd).await?;
                        transcript.step_end_done = true;
                    }
                    self.run_step(host, transcript, partial).await?;
                }
            }
        }
    }

    /// One step: hear the news, or else ask the model and write down what it says.
    async fn run_step(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        partial: &PartialResult,
    ) -> Result<(), LoopError> {
        if let Some(failure) = self.stop_policy.check_limits(&transcript.tally) {
            return Err(failure.into());
        }
        if self.needs_compaction(transcript)
            && let Some(cut) = self.compaction_index(transcript)
        {
            return self.compact(host, transcript, cut).await;
        }
        let Some(granted) = self.begin_step(host, transcript).await? else { return Ok(()) };
        let mut request = self.build_request(transcript, transcript.messages(), granted);
        self.run_before_model_hooks(host, transcript, &mut request).await?;
        let progress = AgentProgress {
            step: transcript.tally.steps + 1,
            ..self.progress(transcript, "thinking")
        };
        match self.call_model(host, progress, Arc::new(request)).await? {
            Ok(Some(ChargedReply { reply, spent })) => {
                let (reply, written) = self.fit_to_journal(reply)?;
                let written = (label::MODEL, written);
                let index =
                    self.run_after_model_hooks(host, transcript, (&reply, spent), written).await?;
                // Nothing is done before it is written down. Last words are written down with the
                // ending that they are.
                if reply.message.calls().next().is_some() {
                    self.flush_journal(host, transcript).await?;
                }
                transcript.apply_reply(index, reply);
                partial.set(transcript.partial_result());
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => self.recover_from_error(host, transcript, error).await,
        }
    }

    /// Hears the news; or else says what may be spent.
    pub(crate) async fn begin_step(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<Option<Usage>, LoopError> {
        let (index, cost) = (transcript.next_index(), self.estimate_cost(transcript));
        // That plugins know of the run is written down first, or they would be told of it again after
        // a crash during the call.
        if mem::take(&mut transcript.skip_first_gate) && transcript.unflushed.is_empty() {
            return Ok(Some(cost.max));
        }
        match host.begin_step(mem::take(&mut transcript.unflushed), index, cost).await? {
            StepGrant::Inbox(news) => {
                transcript.apply_entry(index, label::INBOX, &news)?;
                Ok(None)
            }
            StepGrant::Exhausted(limit) => Err(Failure::Budget { limit }.into()),
            StepGrant::Budget { amount, remaining: left } => {
                self.warn_of_budgets(transcript, left)?;
                Ok(Some(amount))
            }
        }
    }

    /// Tells the model of budgets that run low. Written down with what it replies: without a reply it
    /// is to be told again.
    fn warn_of_budgets(
        &self,
        transcript: &mut Transcript,
        left: RemainingBudgets,
    ) -> Result<(), Refusal> {
        let of = u64::from(self.stop_policy.max_steps);
        let steps = of.saturating_sub(transcript.tally.steps.into());
        let standing = BudgetStatus {
            remaining: left,
            steps: Remaining { amount: steps, limit: of, shared: false },
        };
        let Some(warning) =
            standing.new_warning(transcript.warning_levels, Quoter::new(self.quote_mark))
        else {
            // What was raised in the meantime is told anew when it runs low.
            transcript.warning_levels = standing.warning_levels();
            return Ok(());
        };
        let (index, answer) = (transcript.next_index(), CallCompletion::Value(Json::of(&warning)?));
        let record = JournalRecord::new(index, label::WARNING, Arc::new(answer));
        transcript.apply_entry(index, label::WARNING, &record.completion)?;
        transcript.unflushed.push(record);
        Ok(())
    }

    /// Writes down what could wait for the next thing to be said, when that is something else.
    pub(crate) async fn flush_journal(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), Refusal> {
        match mem::take(&mut transcript.unflushed) {
            owed if owed.is_empty() => Ok(()),
            owed => host.record(owed).await,
        }
    }

    /// A conversation that is too long is made shorter; anything else has been tried often enough.
    async fn recover_from_error(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        error: ModelError,
    ) -> Result<(), LoopError> {
        let failure = match (error.kind, self.compaction_index(transcript)) {
            (ModelErrorKind::TooLong, Some(cut)) => return self.compact(host, transcript, cut).await,
            (ModelErrorKind::TooLong, None) => {
                "the conversation does not fit into the model's window, and there is nothing left in \
                 it to sum up"
                    .to_owned()
            }
            _ => format!("the model: {error}"),
        };
        Err(Failure::Error(failure.into()).into())
    }

    /// The model has nothing more to do. True when the task is done with that.
    async fn end_turn(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (text, stop): (&str, StopReason),
    ) -> Result<bool, LoopError> {
        match self.parse_result(text, stop, transcript).await? {
            Err(problem) => self.record_note(host, transcript, label::NOTE, &problem).await?,
            Ok(result) => {
                match self.try_finish(host, transcript, result).await? {
                    FinishResult::Finished => return Ok(true),
                    FinishResult::Retry => return Ok(false),
                    FinishResult::InboxUnread => {}
                }
                match unanswered_reminder(transcript.unanswered()) {
                    Some(owed) => self.record_note(host, transcript, label::NOTE, &owed).await?,
                    None => self.wait_for_inbox(host, transcript).await?,
                }
            }
        }
        Ok(false)
    }

    /// The result that the last words are; or what is wrong with them, to be mended.
    async fn parse_result(
        &self,
        text: &str,
        stop: StopReason,
        transcript: &Transcript,
    ) -> Result<Result<Json, String>, LoopError> {
        let problem = match (stop, &self.result_schema) {
            (StopReason::Filtered, _) => {
                let held_back = "the provider held the model's reply back";
                return Err(Failure::Error(held_back.into()).into());
            }
            (StopReason::Length, _) => {
                "Your reply was cut off at the most tokens that one may have. Go on, in shorter \
                 pieces."
                    .to_owned()
            }
            (StopReason::EndOfTurn, None) if text.trim().is_empty() => {
                "Your reply was empty. Say what came of your task, or go on with it.".to_owned()
            }
            (StopReason::EndOfTurn, None) => return Ok(Ok(Json::of(text)?)),
            (StopReason::EndOfTurn, Some(schema)) => match parse_json_result(schema, text).await {
                Ok(result) => return Ok(Ok(Json::of(&result)?)),
                Err(problem) => format!(
                    "Your result does not fit: {problem}\nReply with the whole result again, as JSON \
                     that fits the schema and nothing else."
                ),
            },
        };
        if transcript.tally.notes >= self.stop_policy.max_repairs {
            let times = transcript.tally.notes + 1;
            let failure = format!("no usable result after {times} tries. The last: {problem}");
            return Err(Failure::Error(failure.into()).into());
        }
        Ok(Err(problem))
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
        label: &'static str,
        what: &impl serde::Serialize,
    ) -> Result<(), LoopError> {
        let (index, answer) =
            (transcript.next_index(), Arc::new(CallCompletion::Value(Json::of(what)?)));
        // In one commit with what is owed: what plugins know of a refused ending, for one, must not be
        // there without the refusal.
        transcript.unflushed.push(JournalRecord::new(index, label, answer.clone()));
        self.flush_journal(host, transcript).await?;
        Ok(transcript.apply_entry(index, label, &answer)?)
    }

    pub(crate) fn progress(
        &self,
        transcript: &Transcript,
        doing: impl Into<String>,
    ) -> AgentProgress {
        AgentProgress {
            step: transcript.tally.steps,
            activity: truncate_end(doing.into(), ACTIVITY_SHOWN),
            last_tools: truncate_end(transcript.last_tools(), ACTIVITY_SHOWN),
            last_text: truncate_start(&current_text(&transcript.messages)),
            tokens: transcript.tally.tokens,
        }
    }
}

/// The words of the newest message of the model, as long as nobody spoke after it: what it said before
/// is no word of what it is at now.
fn current_text(messages: &[(u32, ChatMessage)]) -> String {
    let newest = messages.iter().rev().find_map(|(_, message)| match message {
        ChatMessage::Assistant(said) => Some(said.text()),
        ChatMessage::User(_) => Some(String::new()),
        ChatMessage::Results(_) => None,
    });
    newest.unwrap_or_default()
}

/// Reminds of questions: who waits for tasks that wait for it would wait for ever.
fn unanswered_reminder(asked: &[TaskNo]) -> Option<String> {
    let tasks: Vec<String> = asked.iter().map(|no| format!("task {no}")).collect();
    (!tasks.is_empty()).then(|| {
        format!(
            "You have ended your turn without an answer for {}, which asked you something and may \
             wait for it. Answer with send_message, or stop the task; if it has its answer by now, \
             just end your turn again.",
            tasks.join(", ")
        )
    })
}

fn truncate_end(mut text: String, bytes: usize) -> String {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push_str("..");
    }
    text
}

/// The last words of a text, as many as whoever looks is shown.
pub(crate) fn truncate_start(text: &str) -> String {
    text[text.ceil_char_boundary(text.len().saturating_sub(LAST_TEXT_SHOWN))..].to_owned()
}

/// The JSON in a reply, which may stand in a code block, as far as it fits the schema.
async fn parse_json_result(schema: &Schema, text: &str) -> Result<Value, String> {
    let text = text.trim();
    let inner = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    let text = inner.map_or(text, |inner| inner.strip_prefix("json").unwrap_or(inner));
    let value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
    schema.check_async(&value).await.map_err(|mismatch| mismatch.to_string())?;
    Ok(value)
}

impl AgentExit {
    fn failed(message: impl Into<Arc<str>>) -> Self {
        Self::Failed { failure: Failure::Error(message.into()), partial: None }
    }
}

/// Why the loop does not go on.
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

/// What there is of a result, for whoever ends the agent from outside.
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
