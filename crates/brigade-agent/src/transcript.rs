//! The transcript: an agent's journal as a conversation.
//!
//! Each entry has an index in the order of the conversation. A message of the model takes the next
//! index. Each of its calls takes the following [`CallSlotRange::SLOTS_PER_CALL`] indexes. The transcript
//! is therefore rebuilt from the entries alone, in whatever order they were committed. Only the state is
//! restored in the order of the commits.

use std::collections::BTreeSet;
use std::sync::Arc;

use brigade_llm::conversation::ToolArguments;
use brigade_llm::{ChatMessage, ModelReply, StopReason, ToolResult, UserMessage};
use brigade_model::call::{CallCompletion, JournalEntry, ParkedCall};
use brigade_model::ids::{CallIndex, RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::truncate::truncate_middle;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget_warning::{BudgetWarning, WarningLevels};
use crate::hooks::{BeforeToolRecord, RunStartRecord, restore_state};
use crate::host::JournalRecord;
use crate::inbox::{self, Quoter};
use crate::shared_state::SharedState;
use crate::step_calls::{CallSlots, CallState, DueCall, ResultEntry, StepCall, StepCalls};
use crate::stop_policy::RunTally;
use crate::tool::{CallSlotRange, ToolInvocation};
use crate::tool_context::CallSignals;
use brigade_model::entry_label::EntryLabel;

/// The message to the model when a later run starts without one.
const RESUME_PROMPT: &str = "Go on with your task.";

/// The beginning of a transcript.
pub(crate) struct TranscriptSeed {
    pub(crate) task: Arc<str>,
    pub(crate) quoter: Quoter,
    pub(crate) state: SharedState,
}

/// A summary that replaces the beginning of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompactionSummary {
    pub(crate) text: Arc<str>,
    /// The index of the first message that is not replaced.
    pub(crate) kept_from: u32,
}

/// A message and its index in the journal.
#[derive(Clone, Debug)]
pub(crate) struct IndexedMessage {
    pub(crate) index: u32,
    pub(crate) message: ChatMessage,
}

/// A message of the model without calls, and the reason why it ended.
#[derive(Clone, Debug)]
pub(crate) struct FinalMessage {
    pub(crate) text: String,
    pub(crate) stop_reason: StopReason,
}

#[derive(Clone, Debug)]
pub(crate) struct Transcript {
    task: Arc<str>,
    quoter: Quoter,
    pub(crate) messages: Vec<IndexedMessage>,
    /// The calls of the last message, until all have results.
    step_calls: Option<StepCalls>,
    next: u32,
    /// The end of the slots of the last message's calls. Entries with smaller indexes belong to calls.
    slots_end: u32,
    pub(crate) run: RunNo,
    pub(crate) tally: RunTally,
    size: ConversationSize,
    stop: StopReason,
    /// The agent has ended its turn and is parked on its inbox.
    pub(crate) waits_for_inbox: bool,
    /// A later run has started, and it has no message yet.
    resumed: bool,
    /// Tasks whose questions the agent has read without a later tool call.
    unanswered: Vec<TaskNo>,
    /// Records that are applied here but not committed. The next commit includes them.
    pub(crate) unflushed: Vec<JournalRecord>,
    pub(crate) state: SharedState,
    /// The plugins whose `run_start` hook has run.
    started_plugins: Vec<String>,
    /// The `step_end` hooks of the last step have run.
    pub(crate) step_end_done: bool,
    /// The budget warnings that the model has seen.
    pub(crate) warning_levels: WarningLevels,
    /// The first model call needs no `begin_step`.
    pub(crate) skip_first_gate: bool,
}

/// The size of the conversation: tokens that the provider counted, and bytes since then.
#[derive(Clone, Copy, Debug, Default)]
struct ConversationSize {
    counted_tokens: u64,
    bytes_since: u64,
}

/// The next action of the loop.
#[derive(Debug)]
pub(crate) enum NextAction {
    /// Execute the calls that have no result.
    RunCalls,
    /// End the turn with the model's last message.
    EndTurn(FinalMessage),
    CallModel,
}

impl Transcript {
    /// Builds the transcript from the journal.
    pub(crate) fn load(
        seed: TranscriptSeed,
        mut journal: Vec<JournalEntry>,
        parked: &[ParkedCall],
    ) -> Result<Self, Refusal> {
        let mut transcript = Self::new(seed);
        journal.sort_by_key(|entry| entry.index);
        let recorded: BTreeSet<CallIndex> = journal.iter().map(|entry| entry.index).collect();
        for entry in &journal {
            transcript.apply_entry(entry.index, &entry.label, &entry.completion)?;
        }
        restore_state(&transcript.state, journal)?;
        for call in parked {
            // A completion that arrived while the journal was read is in it already.
            if !recorded.contains(&call.index) {
                transcript.park_call(call.index, None);
            }
        }
        Ok(transcript)
    }

    fn new(TranscriptSeed { task, quoter, state }: TranscriptSeed) -> Self {
        let mut transcript = Self {
            task: task.clone(),
            quoter,
            messages: Vec::new(),
            step_calls: None,
            next: 0,
            slots_end: 0,
            run: RunNo::FIRST,
            tally: RunTally::default(),
            size: ConversationSize::default(),
            stop: StopReason::EndOfTurn,
            waits_for_inbox: false,
            resumed: false,
            unanswered: Vec::new(),
            unflushed: Vec::new(),
            state,
            started_plugins: Vec::new(),
            step_end_done: true,
            warning_levels: WarningLevels::default(),
            skip_first_gate: false,
        };
        transcript.push_user_text(0, &task);
        transcript
    }

    /// Returns the index of the next entry of the conversation.
    pub(crate) fn next_index(&self) -> CallIndex {
        CallIndex(self.next)
    }

    /// Marks all indexes before this one as used.
    pub(crate) fn advance_index(&mut self, index: CallIndex) {
        self.next = self.next.max(index.0);
    }

    /// Applies the completion of a parked call, or of the wait for the inbox. Ignores a duplicate.
    pub(crate) fn apply_completion(
        &mut self,
        index: CallIndex,
        completion: &Arc<CallCompletion>,
    ) -> Result<(), Refusal> {
        if let Some(call) = self.call_at(index) {
            if matches!(call.state, CallState::Parked(_)) {
                call.complete(index, completion);
            }
        } else if matches!(**completion, CallCompletion::Inbox(_)) && self.waits_for_inbox {
            self.apply_entry(index, &EntryLabel::Inbox, completion)?;
        }
        Ok(())
    }

    fn call_at(&mut self, index: CallIndex) -> Option<&mut StepCall> {
        let mut calls = self.step_calls.iter_mut().flat_map(|step| &mut step.calls);
        calls.find(|call| call.has(index))
    }

    /// Applies a journal entry.
    pub(crate) fn apply_entry(
        &mut self,
        index: CallIndex,
        label: &EntryLabel,
        completion: &Arc<CallCompletion>,
    ) -> Result<(), Refusal> {
        // The completion of a call can have the label of an entry of the conversation.
        if index.0 < self.slots_end {
            return self.apply_call_entry(index, label, completion);
        }
        match (label, &**completion) {
            (EntryLabel::ModelReply, CallCompletion::Value(value)) => {
                self.apply_reply(index, value.decode()?)
            }
            (EntryLabel::Inbox, CallCompletion::Inbox(batch)) => {
                self.tally.notes = 0;
                self.waits_for_inbox = false;
                self.unanswered.extend(inbox::asking_tasks(batch));
                self.push_user_text(index.0, &self.quoter.render_inbox(batch));
            }
            (EntryLabel::Note, CallCompletion::Value(value)) => {
                self.tally.notes += 1;
                self.unanswered.clear();
                self.push_user_text(index.0, &value.decode::<Arc<str>>()?);
            }
            (EntryLabel::EndRefused, CallCompletion::Value(value)) => {
                self.tally.refusals += 1;
                self.push_user_text(index.0, &value.decode::<Arc<str>>()?);
            }
            (EntryLabel::BudgetWarning, CallCompletion::Value(value)) => {
                let warning: BudgetWarning = value.decode()?;
                if self.resumed {
                    self.push_user_text(index.0, RESUME_PROMPT);
                }
                self.warning_levels = warning.levels;
                self.push_user_text(index.0, &warning.text);
            }
            (EntryLabel::PluginsStarted | EntryLabel::State | EntryLabel::StepEnd, _) => {
                return self.apply_plugin_entry(index, label, completion);
            }
            (EntryLabel::BeforeTool, CallCompletion::Value(value)) => {
                let call_index = CallIndex(value.decode::<BeforeToolRecord>()?.call);
                let slots = self.call_at(call_index).and_then(|call| call.state.slots_mut());
                if let Some(slots) = slots {
                    slots.passed_hooks = true;
                }
            }
            (EntryLabel::RunStarted, CallCompletion::Value(value)) => {
                self.begin_run(value.decode()?)
            }
            (EntryLabel::Summary, CallCompletion::Value(value)) => {
                self.apply_summary(&value.decode()?)
            }
            _ => return Ok(()),
        }
        self.next = self.next.max(index.0 + 1);
        Ok(())
    }

    /// Applies an entry of plugins, apart from its state changes.
    pub(crate) fn apply_plugin_entry(
        &mut self,
        index: CallIndex,
        label: &EntryLabel,
        completion: &CallCompletion,
    ) -> Result<(), Refusal> {
        match (label, completion) {
            (EntryLabel::PluginsStarted, CallCompletion::Value(value)) => {
                self.started_plugins.extend(value.decode::<RunStartRecord>()?.plugins);
            }
            (EntryLabel::StepEnd, _) => self.step_end_done = true,
            _ => {}
        }
        self.next = self.next.max(index.0 + 1);
        Ok(())
    }

    /// Returns true if the plugin's `run_start` hook has run in this run.
    pub(crate) fn is_plugin_started(&self, plugin: &str) -> bool {
        self.started_plugins.iter().any(|name| name == plugin)
    }

    /// Applies a reply of the model.
    pub(crate) fn apply_reply(&mut self, index: CallIndex, reply: ModelReply) {
        if self.resumed {
            self.push_user_text(index.0, RESUME_PROMPT);
        }
        let message = Arc::new(reply.message);
        let calls: Vec<StepCall> = (0..)
            .zip(message.calls())
            .map(|(at, call)| StepCall {
                call: call.clone(),
                slot_range: CallSlotRange(index.0 + 1 + at * CallSlotRange::SLOTS_PER_CALL),
                state: CallState::Due(CallSlots::default()),
            })
            .collect();
        self.next = index.0 + 1 + calls.len() as u32 * CallSlotRange::SLOTS_PER_CALL;
        self.slots_end = self.next;
        self.stop = reply.stop;
        self.tally.steps += 1;
        self.tally.tokens = self.tally.tokens.saturating_add(reply.usage.total());
        if calls.is_empty() {
            self.tally.reset_repeats();
        } else {
            self.tally.notes = 0;
            self.unanswered.clear();
        }
        let message = ChatMessage::Assistant(message);
        self.messages.push(IndexedMessage { index: index.0, message });
        self.size = ConversationSize { counted_tokens: reply.usage.total(), bytes_since: 0 };
        // Without a count of the provider, the whole conversation is measured.
        if self.size.counted_tokens == 0 {
            self.size.bytes_since = self.bytes();
        }
        self.step_calls = (!calls.is_empty()).then_some(StepCalls { calls });
    }

    fn begin_run(&mut self, run: RunNo) {
        self.run = run;
        self.tally = RunTally::default();
        self.state.begin_run();
        self.started_plugins.clear();
        self.step_end_done = true;
        self.warning_levels = WarningLevels::default();
        self.unanswered.clear();
        self.resumed = true;
    }

    fn apply_call_entry(
        &mut self,
        index: CallIndex,
        label: &EntryLabel,
        completion: &Arc<CallCompletion>,
    ) -> Result<(), Refusal> {
        let Some(call) = self.call_at(index) else { return Ok(()) };
        if matches!(call.state, CallState::Answered(_)) {
            return Ok(());
        }
        let value = match &**completion {
            CallCompletion::Value(value) if index == call.slot_range.result() => Some(value),
            _ => None,
        };
        match (label, value) {
            (EntryLabel::ToolResult, Some(value)) => self.apply_result(index, value.decode()?),
            (EntryLabel::ToolResultAndState, Some(value)) => {
                self.apply_result(index, value.decode::<ResultEntry>()?.result);
            }
            _ => call.complete(index, completion),
        }
        Ok(())
    }

    /// Applies the result of a call.
    pub(crate) fn apply_result(&mut self, index: CallIndex, result: ToolResult) {
        let Some(call) = self.call_at(index) else { return };
        call.state = CallState::Answered(result.clone());
        self.tally.count_result(&result);
        self.close_step();
    }

    /// Marks the call of this index as parked. An index of no call is the wait for the inbox.
    pub(crate) fn park_call(&mut self, index: CallIndex, effect: Option<Arc<CallCompletion>>) {
        let mut calls = self.step_calls.iter_mut().flat_map(|step| &mut step.calls);
        let parks = |call: &CallSlotRange| [call.completion(), call.approval()].contains(&index);
        match calls.find(|call| parks(&call.slot_range)) {
            Some(call) => {
                let mut slots = call.state.slots();
                slots.effect = effect.or(slots.effect);
                call.state = CallState::Parked(slots);
            }
            None => self.waits_for_inbox = true,
        }
        self.next = self.next.max(index.0 + 1);
    }

    /// Returns the number of parked calls, including the wait for the inbox.
    pub(crate) fn parked_count(&self) -> usize {
        let calls = self.step_calls.iter().flat_map(|step| &step.calls);
        let parked = calls.filter(|call| matches!(call.state, CallState::Parked(_))).count();
        parked + usize::from(self.waits_for_inbox)
    }

    /// Appends the results of a step as one message, when all of them are there.
    fn close_step(&mut self) {
        let Some(step) = &self.step_calls else { return };
        let results: Vec<ToolResult> = step
            .calls
            .iter()
            .filter_map(|call| match &call.state {
                CallState::Answered(result) => Some(result.clone()),
                CallState::Due(_) | CallState::Parked(_) => None,
            })
            .collect();
        if results.len() < step.calls.len() {
            return;
        }
        let index = step.calls.last().map_or(0, |call| call.slot_range.0);
        self.tally.count_calls(&step.calls, &results);
        self.size.bytes_since += results.iter().map(|result| result.text.len() as u64).sum::<u64>();
        self.messages.push(IndexedMessage { index, message: ChatMessage::Results(results) });
        self.step_calls = None;
        self.step_end_done = false;
    }

    /// Appends a user message. Consecutive user messages become one.
    fn push_user_text(&mut self, index: u32, text: &str) {
        self.resumed = false;
        self.size.bytes_since += text.len() as u64;
        match self.messages.last_mut() {
            Some(IndexedMessage { message: ChatMessage::User(last), .. }) => {
                last.text = format!("{}\n\n{text}", last.text).into();
            }
            _ => {
                let message = ChatMessage::User(UserMessage { text: text.into() });
                self.messages.push(IndexedMessage { index, message });
            }
        }
    }

    fn apply_summary(&mut self, summary: &CompactionSummary) {
        let kept = std::mem::take(&mut self.messages);
        let opening = format!(
            "{}\n\n[Summary of the conversation since then:]\n{}\n[list_tasks shows the tasks \
             that you started.]",
            self.task, summary.text
        );
        self.size = ConversationSize::default();
        // A later run still needs its first message.
        let resumed = self.resumed;
        self.push_user_text(0, &opening);
        for entry in kept.into_iter().filter(|entry| entry.index >= summary.kept_from) {
            match entry.message {
                ChatMessage::User(user) => self.push_user_text(entry.index, &user.text),
                message => self.messages.push(IndexedMessage { index: entry.index, message }),
            }
        }
        self.resumed = resumed;
        self.size.bytes_since = self.bytes();
    }

    /// Returns true if a call is to be executed.
    pub(crate) fn has_due_calls(&self) -> bool {
        let mut calls = self.step_calls.iter().flat_map(|step| &step.calls);
        calls.any(|call| matches!(call.state, CallState::Due(_)))
    }

    /// Returns the calls that are to be executed, each with its recorded slots.
    pub(crate) fn due_calls(&self) -> Vec<DueCall> {
        let calls = self.step_calls.iter().flat_map(|step| &step.calls);
        let due = calls.filter_map(|call| match &call.state {
            CallState::Due(slots) => Some(self.due_call(call, slots.clone())),
            CallState::Parked(_) | CallState::Answered(_) => None,
        });
        due.collect()
    }

    fn due_call(&self, call: &StepCall, slots: CallSlots) -> DueCall {
        let arguments = match &call.call.arguments {
            ToolArguments::Json(arguments) => arguments.clone(),
            ToolArguments::Malformed { .. } => Value::Null,
        };
        let invocation = ToolInvocation {
            slot_range: call.slot_range,
            arguments,
            effect: slots.effect,
            completion: slots.completion,
            verdict: slots.verdict,
            passed_hooks: slots.passed_hooks,
            state: self.state.view(),
            signals: CallSignals::default(),
        };
        DueCall { tool_call: call.call.clone(), invocation }
    }

    pub(crate) fn next_action(&self) -> NextAction {
        if self.step_calls.is_some() {
            return NextAction::RunCalls;
        }
        match self.messages.last().map(|entry| &entry.message) {
            Some(ChatMessage::Assistant(last)) if !self.resumed => {
                NextAction::EndTurn(FinalMessage { text: last.text(), stop_reason: self.stop })
            }
            _ => NextAction::CallModel,
        }
    }

    /// Returns the conversation for a model request.
    pub(crate) fn messages(&self) -> Vec<ChatMessage> {
        let prompt = self.resumed.then(|| ChatMessage::user(RESUME_PROMPT));
        self.sent_messages().map(|entry| entry.message.clone()).chain(prompt).collect()
    }

    /// Returns the messages that a summary is to replace. Truncates their results so that all of them
    /// have about `bytes` bytes.
    pub(crate) fn messages_before(&self, index: u32, bytes: u64) -> Vec<ChatMessage> {
        let before = self.sent_messages().filter(|entry| entry.index < index);
        let mut messages: Vec<ChatMessage> = before.map(|entry| entry.message.clone()).collect();
        let results = |message: &ChatMessage| match message {
            ChatMessage::Results(results) => results.len() as u64,
            ChatMessage::User(_) | ChatMessage::Assistant(_) => 0,
        };
        let size: u64 = messages.iter().map(message_bytes).sum();
        let count: u64 = messages.iter().map(results).sum();
        if size > bytes && count > 0 {
            let others = messages.iter().filter(|message| results(message) == 0);
            let budget = bytes.saturating_sub(others.map(message_bytes).sum());
            truncate_results(&mut messages, usize::try_from(budget / count).unwrap_or(usize::MAX));
        }
        messages
    }

    /// Returns all messages except empty ones of the model.
    fn sent_messages(&self) -> impl Iterator<Item = &IndexedMessage> {
        self.messages.iter().filter(|entry| match &entry.message {
            ChatMessage::Assistant(message) => !message.content.is_empty(),
            ChatMessage::User(_) | ChatMessage::Results(_) => true,
        })
    }

    /// Returns the tasks that seem to wait for an answer of this agent.
    pub(crate) fn unanswered(&self) -> &[TaskNo] {
        &self.unanswered
    }

    /// Returns the names of the tools of the last step with results.
    pub(crate) fn last_tools(&self) -> String {
        let results = self.messages.iter().rev().find_map(|entry| match &entry.message {
            ChatMessage::Results(results) => Some(results),
            ChatMessage::User(_) | ChatMessage::Assistant(_) => None,
        });
        let names = results.into_iter().flatten().map(|result| &*result.name);
        names.collect::<Vec<_>>().join(", ")
    }

    /// Returns the model's last text that is not blank.
    pub(crate) fn last_text(&self) -> Option<String> {
        self.messages.iter().rev().find_map(|entry| match &entry.message {
            ChatMessage::Assistant(message) => {
                Some(message.text()).filter(|text| !text.trim().is_empty())
            }
            ChatMessage::User(_) | ChatMessage::Results(_) => None,
        })
    }

    pub(crate) fn partial_result(&self) -> Option<Json> {
        self.last_text().and_then(|text| Json::of(&text).ok())
    }

    /// Estimates the tokens of the conversation.
    pub(crate) fn tokens(&self) -> u64 {
        self.size.counted_tokens.saturating_add(estimate_tokens(self.size.bytes_since))
    }

    fn bytes(&self) -> u64 {
        self.messages.iter().map(|entry| message_bytes(&entry.message)).sum()
    }

    /// Returns the index from which about the last `bytes` bytes are kept. Calls and their results are
    /// not separated. Returns `None` if too little precedes them for a summary.
    pub(crate) fn find_compaction_index(&self, bytes: u64) -> Option<u32> {
        let mut remaining = bytes;
        let mut kept_from = None;
        for (position, entry) in self.messages.iter().enumerate().rev() {
            let size = message_bytes(&entry.message);
            if size > remaining {
                break;
            }
            remaining -= size;
            if !matches!(entry.message, ChatMessage::Results(_)) {
                kept_from = Some((position, entry.index));
            }
        }
        match kept_from {
            Some((position, index)) => (position > 1).then_some(index),
            None => (self.messages.len() > 1).then_some(self.next),
        }
    }
}

/// Truncates each result to `bytes` bytes.
fn truncate_results(messages: &mut [ChatMessage], bytes: usize) {
    for message in messages {
        let ChatMessage::Results(results) = message else { continue };
        for result in results {
            result.text = truncate_middle(&result.text, bytes).into();
        }
    }
}

/// Estimates the tokens of so many bytes.
pub(crate) fn estimate_tokens(bytes: u64) -> u64 {
    bytes / 3
}

pub(crate) fn message_bytes(message: &ChatMessage) -> u64 {
    let bytes = match message {
        ChatMessage::User(user) => user.text.len(),
        ChatMessage::Assistant(message) => {
            serde_json::to_string(&**message).map_or(0, |text| text.len())
        }
        ChatMessage::Results(results) => results.iter().map(|result| result.text.len()).sum(),
    };
    bytes as u64
}
