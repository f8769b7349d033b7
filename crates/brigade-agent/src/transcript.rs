//! An agent's journal, read as a conversation.
//!
//! Every entry has an index, given out in the order of the conversation. A message of the model has
//! the next one, and behind it each of its calls has [`Place::SLOTS`] of its own; so the whole is
//! built again from the entries alone, in whatever order they were written. Only the state is restored
//! in that order.

use std::collections::BTreeSet;
use std::sync::Arc;

use brigade_llm::conversation::ToolArguments;
use brigade_llm::{
    AssistantMessage, ChatMessage, ModelReply, StopReason, ToolCall, ToolResult, UserMessage,
};
use brigade_model::call::{CallCompletion, JournalEntry, ParkedCall};
use brigade_model::ids::{CallIndex, RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::budget_warning::{BudgetWarning, WarningLevels};
use crate::hooks::{BeforeToolRecord, RunStartRecord, restore_state};
use crate::host::JournalRecord;
use crate::inbox::{self, Quoter};
use crate::state::SharedState;
use crate::step_calls::{CallSlots, CallState, StepCall, StepCalls};
use crate::stop_policy::RunTally;
use crate::tool::{CallSlotRange, ToolInvocation};
use crate::tool_calls::truncate_middle;

/// Who resumes an agent without a word wants it to go on.
const RESUME_PROMPT: &str = "Go on with your task.";

/// Labels of entries, by which they are known again.
pub(crate) mod label {
    pub(crate) const MODEL: &str = "model";
    pub(crate) const INBOX: &str = "news";
    /// Words of the runtime to the model.
    pub(crate) const NOTE: &str = "note";
    /// A later run begins.
    pub(crate) const RUN: &str = "run";
    pub(crate) const SUMMARY: &str = "summary";
    /// What a call came to.
    pub(crate) const RESULT: &str = "result";
    /// What a call waited for, whatever its condition is called.
    pub(crate) const COMPLETION: &str = "told";
    /// A call that must not happen twice was begun.
    pub(crate) const STARTED: &str = "begun";
    /// What a call came to, and what it changed of the state.
    pub(crate) const RESULT_AND_STATE: &str = "result and state";
    /// What plugins changed of the state.
    pub(crate) const STATE: &str = "state";
    /// Plugins know of the run.
    pub(crate) const PLUGINS_STARTED: &str = "plugins";
    /// Plugins know that a step has ended.
    pub(crate) const STEP_END: &str = "step";
    /// Budgets run low.
    pub(crate) const WARNING: &str = "budget";
    /// Plugins let a call pass, and changed something of the state.
    pub(crate) const BEFORE_TOOL: &str = "before";
    /// A plugin did not let the run end.
    pub(crate) const END_REFUSED: &str = "refused";
}

/// What a conversation begins with.
pub(crate) struct TranscriptSeed {
    pub(crate) task: Arc<str>,
    pub(crate) quoter: Quoter,
    pub(crate) state: SharedState,
}

/// What takes the place of everything before an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CompactionSummary {
    pub(crate) text: Arc<str>,
    /// What has this index or a later one is kept.
    pub(crate) kept_from: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Transcript {
    task: Arc<str>,
    /// How words of tasks are quoted in it.
    quoter: Quoter,
    /// With the index of each.
    pub(crate) messages: Vec<(u32, ChatMessage)>,
    /// The calls of the last message, until all are answered.
    step_calls: Option<StepCalls>,
    next: u32,
    /// Where the slots of the last message's calls end. What is before it belongs to calls.
    slots_end: u32,
    pub(crate) run: RunNo,
    pub(crate) tally: RunTally,
    size: ConversationSize,
    stop: StopReason,
    /// The agent has ended its turn and waits for whatever comes.
    pub(crate) waits_for_inbox: bool,
    /// A run has begun, and nobody has said anything in it.
    resumed: bool,
    /// Tasks whose questions it has heard, and has done nothing since.
    unanswered: Vec<TaskNo>,
    /// Entries that it has already, and that are not written down: they are with the next thing that
    /// is said to the host.
    pub(crate) unflushed: Vec<JournalRecord>,
    pub(crate) state: SharedState,
    /// The plugins that know of this run.
    started_plugins: Vec<String>,
    /// Plugins know that the last step has ended.
    pub(crate) step_end_done: bool,
    /// What it knows of its budgets.
    pub(crate) warning_levels: WarningLevels,
    /// The model may be asked without the host's leave, once.
    pub(crate) skip_first_gate: bool,
}

/// How large the conversation is: as the provider counted it, and bytes since.
#[derive(Clone, Copy, Debug, Default)]
struct ConversationSize {
    counted_tokens: u64,
    bytes_since: u64,
}

/// What is to be done next, as the conversation has it.
#[derive(Debug)]
pub(crate) enum NextAction {
    /// There are calls without an answer.
    RunCalls,
    /// The model has ended its turn.
    EndTurn { said: Arc<AssistantMessage>, stop: StopReason },
    /// It is the model's turn.
    CallModel,
}

impl Transcript {
    /// Builds the conversation from what was written down.
    pub(crate) fn load(
        TranscriptSeed { task, quoter, state: board }: TranscriptSeed,
        mut journal: Vec<JournalEntry>,
        open: &[ParkedCall],
    ) -> Result<Self, Refusal> {
        let mut transcript = Self::new(task, quoter, board);
        journal.sort_by_key(|entry| entry.index);
        let answered: BTreeSet<CallIndex> = journal.iter().map(|entry| entry.index).collect();
        for entry in &journal {
            transcript.apply_entry(entry.index, &entry.label, &entry.completion)?;
        }
        restore_state(&transcript.state, journal)?;
        for call in open {
            // What came while the journal was read is in it already.
            if !answered.contains(&call.index) {
                transcript.park_call(call.index, None);
            }
        }
        Ok(transcript)
    }

    pub(crate) fn new(task: Arc<str>, quoter: Quoter, board: SharedState) -> Self {
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
            state: board,
            started_plugins: Vec::new(),
            step_end_done: true,
            warning_levels: WarningLevels::default(),
            skip_first_gate: false,
        };
        transcript.push_user_text(0, &task);
        transcript
    }

    /// The index of the next entry of the conversation.
    pub(crate) fn next_index(&self) -> CallIndex {
        CallIndex(self.next)
    }

    /// Indexes before this one were given out.
    pub(crate) fn advance_index(&mut self, index: CallIndex) {
        self.next = self.next.max(index.0);
    }

    /// Takes in the answer to something that waits. One that came twice is not heard twice.
    pub(crate) fn apply_completion(
        &mut self,
        index: CallIndex,
        answer: &Arc<CallCompletion>,
    ) -> Result<(), Refusal> {
        let of_call = self.call_at(index).map(|call| matches!(call.state, CallState::Parked(_)));
        let is_inbox = matches!(**answer, CallCompletion::Inbox(_));
        match of_call {
            Some(true) => self.apply_entry(index, label::COMPLETION, answer),
            None if is_inbox && self.waits_for_inbox => {
                self.apply_entry(index, label::INBOX, answer)
            }
            Some(false) | None => Ok(()),
        }
    }

    fn call_at(&mut self, index: CallIndex) -> Option<&mut StepCall> {
        let mut calls = self.step_calls.iter_mut().flat_map(|turn| &mut turn.calls);
        calls.find(|call| call.has(index))
    }

    /// Takes in an entry that was written down.
    pub(crate) fn apply_entry(
        &mut self,
        index: CallIndex,
        label: &str,
        answer: &Arc<CallCompletion>,
    ) -> Result<(), Refusal> {
        // What a call waited for may look like an entry of the conversation.
        if index.0 < self.slots_end {
            return self.apply_call_entry(index, label, answer);
        }
        match (label, &**answer) {
            (label::MODEL, CallCompletion::Value(value)) => {
                self.apply_reply(index, value.decode()?)
            }
            (label::INBOX, CallCompletion::Inbox(gathered)) => {
                self.tally.notes = 0;
                self.waits_for_inbox = false;
                self.unanswered.extend(inbox::asking_tasks(gathered));
                self.push_user_text(index.0, &self.quoter.render_inbox(gathered));
            }
            (label::NOTE, CallCompletion::Value(value)) => {
                self.tally.notes += 1;
                self.unanswered.clear();
                self.push_user_text(index.0, &value.decode::<Arc<str>>()?);
            }
            (label::END_REFUSED, CallCompletion::Value(value)) => {
                self.tally.refusals += 1;
                self.push_user_text(index.0, &value.decode::<Arc<str>>()?);
            }
            (label::WARNING, CallCompletion::Value(value)) => {
                let warning: BudgetWarning = value.decode()?;
                if self.resumed {
                    self.push_user_text(index.0, RESUME_PROMPT);
                }
                self.warning_levels = warning.levels;
                self.push_user_text(index.0, &warning.text);
            }
            (label::PLUGINS_STARTED | label::STATE | label::STEP_END, _) => {
                return self.apply_plugin_entry(index, label, answer);
            }
            (label::BEFORE_TOOL, CallCompletion::Value(value)) => {
                let at = CallIndex(value.decode::<BeforeToolRecord>()?.call);
                let call = self.call_at(at).and_then(|call| call.state.slots_mut());
                if let Some(slots) = call {
                    slots.passed_hooks = true;
                }
            }
            (label::RUN, CallCompletion::Value(value)) => self.begin_run(value.decode()?),
            (label::SUMMARY, CallCompletion::Value(value)) => self.apply_summary(&value.decode()?),
            _ => return Ok(()),
        }
        self.next = self.next.max(index.0 + 1);
        Ok(())
    }

    /// Plugins have had their say, and the state knows what they changed.
    pub(crate) fn apply_plugin_entry(
        &mut self,
        index: CallIndex,
        label: &str,
        answer: &CallCompletion,
    ) -> Result<(), Refusal> {
        match (label, answer) {
            (label::PLUGINS_STARTED, CallCompletion::Value(value)) => {
                self.started_plugins.extend(value.decode::<RunStartRecord>()?.plugins);
            }
            (label::STEP_END, _) => self.step_end_done = true,
            _ => {}
        }
        self.next = self.next.max(index.0 + 1);
        Ok(())
    }

    /// Whether a plugin knows of this run.
    pub(crate) fn is_plugin_started(&self, plugin: &str) -> bool {
        self.started_plugins.iter().any(|name| name == plugin)
    }

    /// What the model said, which was written down.
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
        self.messages.push((index.0, ChatMessage::Assistant(message)));
        self.size = ConversationSize { counted_tokens: reply.usage.total(), bytes_since: 0 };
        // Without a count of the provider's, what is sent again is measured.
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
        label: &str,
        answer: &Arc<CallCompletion>,
    ) -> Result<(), Refusal> {
        let Some(call) = self.call_at(index) else { return Ok(()) };
        let (CallState::Due(slots) | CallState::Parked(slots)) = &call.state else {
            return Ok(());
        };
        let mut slots = slots.clone();
        if index == call.slot_range.result() && label == label::RESULT {
            let CallCompletion::Value(value) = &**answer else { return Ok(()) };
            self.apply_result(index, value.decode()?);
            return Ok(());
        }
        if index == call.slot_range.result() && label == label::RESULT_AND_STATE {
            let CallCompletion::Value(value) = &**answer else { return Ok(()) };
            let (result, _): (ToolResult, IgnoredAny) = value.decode()?;
            self.apply_result(index, result);
            return Ok(());
        }
        let slot = match index {
            index if index == call.slot_range.effect() => &mut slots.effect,
            index if index == call.slot_range.approval() => &mut slots.verdict,
            _ => &mut slots.completion,
        };
        *slot = Some(answer.clone());
        call.state = CallState::Due(slots);
        Ok(())
    }

    /// What a call came to, which was written down.
    pub(crate) fn apply_result(&mut self, index: CallIndex, result: ToolResult) {
        let Some(call) = self.call_at(index) else { return };
        call.state = CallState::Answered(result.clone());
        self.tally.count_result(&result);
        self.close_step();
    }

    /// A call waits for its answer.
    pub(crate) fn park_call(&mut self, index: CallIndex, effect: Option<Arc<CallCompletion>>) {
        let mut calls = self.step_calls.iter_mut().flat_map(|turn| &mut turn.calls);
        let waits = |call: &CallSlotRange| [call.completion(), call.approval()].contains(&index);
        match calls.find(|call| waits(&call.slot_range)) {
            Some(call) => {
                let mut slots = call.state.slots();
                slots.effect = effect.or(slots.effect);
                call.state = CallState::Parked(slots);
            }
            None => self.waits_for_inbox = true,
        }
        self.next = self.next.max(index.0 + 1);
    }

    /// How many calls wait for their answers.
    pub(crate) fn parked_count(&self) -> usize {
        let calls = self.step_calls.iter().flat_map(|turn| &turn.calls);
        let parked = calls.filter(|call| matches!(call.state, CallState::Parked(_))).count();
        parked + usize::from(self.waits_for_inbox)
    }

    /// The results are said when all of them are there.
    fn close_step(&mut self) {
        let Some(turn) = &self.step_calls else { return };
        let results: Vec<ToolResult> = turn
            .calls
            .iter()
            .filter_map(|call| match &call.state {
                CallState::Answered(result) => Some(result.clone()),
                CallState::Due(_) | CallState::Parked(_) => None,
            })
            .collect();
        if results.len() < turn.calls.len() {
            return;
        }
        let index = turn.calls.last().map_or(0, |call| call.slot_range.0);
        self.tally.count_calls(&turn.calls, &results);
        self.size.bytes_since += results.iter().map(|result| result.text.len() as u64).sum::<u64>();
        self.messages.push((index, ChatMessage::Results(results)));
        self.step_calls = None;
        self.step_end_done = false;
    }

    /// Words to the model. One person speaks at a time: what follows is added.
    fn push_user_text(&mut self, index: u32, text: &str) {
        self.resumed = false;
        self.size.bytes_since += text.len() as u64;
        match self.messages.last_mut() {
            Some((_, ChatMessage::User(last))) => {
                last.text = format!("{}\n\n{text}", last.text).into();
            }
            _ => self.messages.push((index, ChatMessage::User(UserMessage { text: text.into() }))),
        }
    }

    fn apply_summary(&mut self, summary: &CompactionSummary) {
        let kept = std::mem::take(&mut self.messages);
        let opening = format!(
            "{}\n\n[What was said and done since then, in short:]\n{}\n[list_tasks shows the tasks \
             that you started.]",
            self.task, summary.text
        );
        self.size = ConversationSize::default();
        // A run that has begun still waits for its first words.
        let resumed = self.resumed;
        self.push_user_text(0, &opening);
        for (index, message) in kept.into_iter().filter(|(index, _)| *index >= summary.kept_from) {
            match message {
                ChatMessage::User(user) => self.push_user_text(index, &user.text),
                other => self.messages.push((index, other)),
            }
        }
        self.resumed = resumed;
        self.size.bytes_since = self.bytes();
    }

    /// Whether something is to be carried out.
    pub(crate) fn has_due_calls(&self) -> bool {
        let mut calls = self.step_calls.iter().flat_map(|turn| &turn.calls);
        calls.any(|call| matches!(call.state, CallState::Due(_)))
    }

    /// The calls that are to be carried out, as far as they came before.
    pub(crate) fn due_calls(&self) -> Vec<(ToolCall, ToolInvocation)> {
        let calls = self.step_calls.iter().flat_map(|turn| &turn.calls);
        let due = calls.filter_map(|call| match &call.state {
            CallState::Due(slots) => {
                let arguments = match &call.call.arguments {
                    ToolArguments::Json(arguments) => arguments.clone(),
                    ToolArguments::Malformed { .. } => Value::Null,
                };
                let (place, CallSlots { effect, completion: told, verdict, passed_hooks: passed }) =
                    (call.slot_range, slots.clone());
                let state = self.state.view();
                let call_again = ToolInvocation {
                    slot_range: place,
                    arguments,
                    effect,
                    completion: told,
                    verdict,
                    passed_hooks: passed,
                    state,
                };
                Some((call.call.clone(), call_again))
            }
            CallState::Parked(_) | CallState::Answered(_) => None,
        });
        due.collect()
    }

    pub(crate) fn next_action(&self) -> NextAction {
        if self.step_calls.is_some() {
            return NextAction::RunCalls;
        }
        match self.messages.last() {
            Some((_, ChatMessage::Assistant(said))) if !self.resumed => {
                NextAction::EndTurn { said: said.clone(), stop: self.stop }
            }
            _ => NextAction::CallModel,
        }
    }

    /// The conversation as a request has it.
    pub(crate) fn messages(&self) -> Vec<ChatMessage> {
        let go_on = self.resumed.then(|| ChatMessage::user(RESUME_PROMPT));
        self.sent_messages().map(|(_, message)| message.clone()).chain(go_on).collect()
    }

    /// The part of it that a summary is to take the place of, with so much left out of results that
    /// it has about so many bytes.
    pub(crate) fn messages_before(&self, index: u32, bytes: u64) -> Vec<ChatMessage> {
        let before = self.sent_messages().filter(|(at, _)| *at < index);
        let mut messages: Vec<ChatMessage> = before.map(|(_, message)| message.clone()).collect();
        let results = |message: &ChatMessage| match message {
            ChatMessage::Results(results) => results.len() as u64,
            ChatMessage::User(_) | ChatMessage::Assistant(_) => 0,
        };
        let size: u64 = messages.iter().map(message_bytes).sum();
        let count: u64 = messages.iter().map(results).sum();
        if size > bytes && count > 0 {
            let others = messages.iter().filter(|message| results(message) == 0);
            let left = bytes.saturating_sub(others.map(message_bytes).sum());
            truncate_results(&mut messages, usize::try_from(left / count).unwrap_or(usize::MAX));
        }
        messages
    }

    /// A message without anything in it is not sent.
    fn sent_messages(&self) -> impl Iterator<Item = &(u32, ChatMessage)> {
        self.messages.iter().filter(|(_, message)| match message {
            ChatMessage::Assistant(said) => !said.content.is_empty(),
            ChatMessage::User(_) | ChatMessage::Results(_) => true,
        })
    }

    /// Whom it owes an answer, as far as the conversation tells.
    pub(crate) fn unanswered(&self) -> &[TaskNo] {
        &self.unanswered
    }

    /// The names of the tools that have answered last.
    pub(crate) fn last_tools(&self) -> String {
        let results = self.messages.iter().rev().find_map(|(_, message)| match message {
            ChatMessage::Results(results) => Some(results),
            ChatMessage::User(_) | ChatMessage::Assistant(_) => None,
        });
        let names = results.into_iter().flatten().map(|result| &*result.name);
        names.collect::<Vec<_>>().join(", ")
    }

    /// What the model said last.
    pub(crate) fn last_text(&self) -> Option<String> {
        self.messages.iter().rev().find_map(|(_, message)| match message {
            ChatMessage::Assistant(said) => {
                Some(said.text()).filter(|text| !text.trim().is_empty())
            }
            ChatMessage::User(_) | ChatMessage::Results(_) => None,
        })
    }

    pub(crate) fn partial_result(&self) -> Option<Json> {
        self.last_text().and_then(|words| Json::of(&words).ok())
    }

    /// About how many tokens the conversation has.
    pub(crate) fn tokens(&self) -> u64 {
        self.size.counted_tokens.saturating_add(estimate_tokens(self.size.bytes_since))
    }

    fn bytes(&self) -> u64 {
        self.messages.iter().map(|(_, message)| message_bytes(message)).sum()
    }

    /// From which index on about the last `bytes` are, not cutting a message from its results.
    /// `None` when there is nothing before it worth a summary.
    pub(crate) fn find_compaction_index(&self, bytes: u64) -> Option<u32> {
        let mut left = bytes;
        let mut cut = None;
        for (at, (index, message)) in self.messages.iter().enumerate().rev() {
            let size = message_bytes(message);
            if size > left {
                break;
            }
            left -= size;
            if !matches!(message, ChatMessage::Results(_)) {
                cut = Some((at, *index));
            }
        }
        match cut {
            Some((at, index)) => (at > 1).then_some(index),
            None => (self.messages.len() > 1).then_some(self.next),
        }
    }
}

/// Leaves out the middle of results that are longer than that.
fn truncate_results(messages: &mut [ChatMessage], bytes: usize) {
    for message in messages {
        let ChatMessage::Results(results) = message else { continue };
        for result in results {
            result.text = truncate_middle(&result.text, bytes).into();
        }
    }
}

/// About how many tokens so many bytes are.
pub(crate) fn estimate_tokens(bytes: u64) -> u64 {
    bytes / 3
}

pub(crate) fn message_bytes(message: &ChatMessage) -> u64 {
    let bytes = match message {
        ChatMessage::User(user) => user.text.len(),
        ChatMessage::Assistant(said) => serde_json::to_string(&**said).map_or(0, |text| text.len()),
        ChatMessage::Results(results) => results.iter().map(|result| result.text.len()).sum(),
    };
    bytes as u64
}
