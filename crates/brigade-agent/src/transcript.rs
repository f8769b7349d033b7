//! An agent's journal, read as a conversation.
//!
//! Every entry has an index, given out in the order of the conversation. A message of the model has
//! the next one, and behind it each of its calls has [`Place::SLOTS`] of its own; so the whole is
//! built again from the entries alone, in whatever order they were written. Only the state is restored
//! in that order.

use std::collections::BTreeSet;
use std::sync::Arc;

use brigade_llm::conversation::Arguments;
use brigade_llm::{
    AssistantMessage, Message, Reply, StopReason, ToolCall, ToolResult, UserMessage,
};
use brigade_model::call::{Answer, Entry, OpenCall};
use brigade_model::ids::{CallIndex, RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::calls::{CallState, Slots, Turn, TurnCall};
use crate::hooks::{Before, Bound, restore};
use crate::host::Record;
use crate::news::{self, Quoter};
use crate::policy::Tally;
use crate::remaining::{Warned, Warning};
use crate::state::Board;
use crate::tool::{Call, Place};
use crate::turn::shortened;

/// Who resumes an agent without a word wants it to go on.
const GO_ON: &str = "Go on with your task.";

/// Labels of entries, by which they are known again.
pub(crate) mod label {
    pub(crate) const MODEL: &str = "model";
    pub(crate) const NEWS: &str = "news";
    /// Words of the runtime to the model.
    pub(crate) const NOTE: &str = "note";
    /// A later run begins.
    pub(crate) const RUN: &str = "run";
    pub(crate) const SUMMARY: &str = "summary";
    /// What a call came to.
    pub(crate) const RESULT: &str = "result";
    /// What a call waited for, whatever its condition is called.
    pub(crate) const TOLD: &str = "told";
    /// A call that must not happen twice was begun.
    pub(crate) const BEGUN: &str = "begun";
    /// What a call came to, and what it changed of the state.
    pub(crate) const CHANGED: &str = "result and state";
    /// What plugins changed of the state.
    pub(crate) const STATE: &str = "state";
    /// Plugins know of the run.
    pub(crate) const BOUND: &str = "plugins";
    /// Plugins know that a step has ended.
    pub(crate) const STEP: &str = "step";
    /// Budgets run low.
    pub(crate) const WARNING: &str = "budget";
    /// Plugins let a call pass, and changed something of the state.
    pub(crate) const BEFORE: &str = "before";
    /// A plugin did not let the run end.
    pub(crate) const REFUSED: &str = "refused";
}

/// What a conversation begins with.
pub(crate) struct Opening {
    pub(crate) task: Arc<str>,
    pub(crate) quoter: Quoter,
    pub(crate) board: Board,
}

/// What takes the place of everything before an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
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
    pub(crate) messages: Vec<(u32, Message)>,
    /// The calls of the last message, until all are answered.
    turn: Option<Turn>,
    next: u32,
    /// Where the slots of the last message's calls end. What is before it belongs to calls.
    slots_end: u32,
    pub(crate) run: RunNo,
    pub(crate) tally: Tally,
    size: Size,
    stop: StopReason,
    /// The agent has ended its turn and waits for whatever comes.
    pub(crate) waits_for_news: bool,
    /// A run has begun, and nobody has said anything in it.
    resumed: bool,
    /// Tasks whose questions it has heard, and has done nothing since.
    asked: Vec<TaskNo>,
    /// Entries that it has already, and that are not written down: they are with the next thing that
    /// is said to the host.
    pub(crate) owed: Vec<Record>,
    pub(crate) board: Board,
    /// The plugins that know of this run.
    bound: Vec<String>,
    /// Plugins know that the last step has ended.
    pub(crate) stepped: bool,
    /// What it knows of its budgets.
    pub(crate) warned: Warned,
    /// The model may be asked without the host's leave, once.
    pub(crate) at_leave: bool,
}

/// How large the conversation is: as the provider counted it, and bytes since.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    counted: u64,
    bytes_since: u64,
}

/// What is to be done next, as the conversation has it.
#[derive(Debug)]
pub(crate) enum Next {
    /// There are calls without an answer.
    Calls,
    /// The model has ended its turn.
    Ended { said: Arc<AssistantMessage>, stop: StopReason },
    /// It is the model's turn.
    Model,
}

impl Transcript {
    /// Builds the conversation from what was written down.
    pub(crate) fn load(
        Opening { task, quoter, board }: Opening,
        mut journal: Vec<Entry>,
        open: &[OpenCall],
    ) -> Result<Self, Refusal> {
        let mut transcript = Self::new(task, quoter, board);
        journal.sort_by_key(|entry| entry.index);
        let answered: BTreeSet<CallIndex> = journal.iter().map(|entry| entry.index).collect();
        for entry in &journal {
            transcript.enter(entry.index, &entry.label, &entry.answer)?;
        }
        restore(&transcript.board, journal)?;
        for call in open {
            // What came while the journal was read is in it already.
            if !answered.contains(&call.index) {
                transcript.parked(call.index, None);
            }
        }
        Ok(transcript)
    }

    pub(crate) fn new(task: Arc<str>, quoter: Quoter, board: Board) -> Self {
        let mut transcript = Self {
            task: task.clone(),
            quoter,
            messages: Vec::new(),
            turn: None,
            next: 0,
            slots_end: 0,
            run: RunNo::FIRST,
            tally: Tally::default(),
            size: Size::default(),
            stop: StopReason::EndOfTurn,
            waits_for_news: false,
            resumed: false,
            asked: Vec::new(),
            owed: Vec::new(),
            board,
            bound: Vec::new(),
            stepped: true,
            warned: Warned::default(),
            at_leave: false,
        };
        transcript.say(0, &task);
        transcript
    }

    /// The index of the next entry of the conversation.
    pub(crate) fn next_index(&self) -> CallIndex {
        CallIndex(self.next)
    }

    /// Indexes before this one were given out.
    pub(crate) fn go_on_at(&mut self, index: CallIndex) {
        self.next = self.next.max(index.0);
    }

    /// Takes in the answer to something that waits. One that came twice is not heard twice.
    pub(crate) fn told(&mut self, index: CallIndex, answer: &Arc<Answer>) -> Result<(), Refusal> {
        let of_call = self.call_at(index).map(|call| matches!(call.state, CallState::Parked(_)));
        let news = matches!(**answer, Answer::Gathered(_));
        match of_call {
            Some(true) => self.enter(index, label::TOLD, answer),
            None if news && self.waits_for_news => self.enter(index, label::NEWS, answer),
            Some(false) | None => Ok(()),
        }
    }

    fn call_at(&mut self, index: CallIndex) -> Option<&mut TurnCall> {
        let mut calls = self.turn.iter_mut().flat_map(|turn| &mut turn.calls);
        calls.find(|call| call.has(index))
    }

    /// Takes in an entry that was written down.
    pub(crate) fn enter(
        &mut self,
        index: CallIndex,
        label: &str,
        answer: &Arc<Answer>,
    ) -> Result<(), Refusal> {
        // What a call waited for may look like an entry of the conversation.
        if index.0 < self.slots_end {
            return self.enter_call(index, label, answer);
        }
        match (label, &**answer) {
            (label::MODEL, Answer::Value(value)) => self.said(index, value.decode()?),
            (label::NEWS, Answer::Gathered(gathered)) => {
                self.tally.notes = 0;
                self.waits_for_news = false;
                self.asked.extend(news::askers(gathered));
                self.say(index.0, &self.quoter.text(gathered));
            }
            (label::NOTE, Answer::Value(value)) => {
                self.tally.notes += 1;
                self.asked.clear();
                self.say(index.0, &value.decode::<Arc<str>>()?);
            }
            (label::REFUSED, Answer::Value(value)) => {
                self.tally.refusals += 1;
                self.say(index.0, &value.decode::<Arc<str>>()?);
            }
            (label::WARNING, Answer::Value(value)) => {
                let warning: Warning = value.decode()?;
                if self.resumed {
                    self.say(index.0, GO_ON);
                }
                self.warned = warning.warned;
                self.say(index.0, &warning.text);
            }
            (label::BOUND | label::STATE | label::STEP, _) => {
                return self.marked(index, label, answer);
            }
            (label::BEFORE, Answer::Value(value)) => {
                let at = CallIndex(value.decode::<Before>()?.call);
                let call = self.call_at(at).and_then(|call| call.state.slots_mut());
                if let Some(slots) = call {
                    slots.passed = true;
                }
            }
            (label::RUN, Answer::Value(value)) => self.begin_run(value.decode()?),
            (label::SUMMARY, Answer::Value(value)) => self.summarised(&value.decode()?),
            _ => return Ok(()),
        }
        self.next = self.next.max(index.0 + 1);
        Ok(())
    }

    /// Plugins have had their say, and the state knows what they changed.
    pub(crate) fn marked(
        &mut self,
        index: CallIndex,
        label: &str,
        answer: &Answer,
    ) -> Result<(), Refusal> {
        match (label, answer) {
            (label::BOUND, Answer::Value(value)) => {
                self.bound.extend(value.decode::<Bound>()?.plugins);
            }
            (label::STEP, _) => self.stepped = true,
            _ => {}
        }
        self.next = self.next.max(index.0 + 1);
        Ok(())
    }

    /// Whether a plugin knows of this run.
    pub(crate) fn is_bound(&self, plugin: &str) -> bool {
        self.bound.iter().any(|name| name == plugin)
    }

    /// What the model said, which was written down.
    pub(crate) fn said(&mut self, index: CallIndex, reply: Reply) {
        if self.resumed {
            self.say(index.0, GO_ON);
        }
        let message = Arc::new(reply.message);
        let calls: Vec<TurnCall> = (0..)
            .zip(message.calls())
            .map(|(at, call)| TurnCall {
                call: call.clone(),
                place: Place(index.0 + 1 + at * Place::SLOTS),
                state: CallState::Due(Slots::default()),
            })
            .collect();
        self.next = index.0 + 1 + calls.len() as u32 * Place::SLOTS;
        self.slots_end = self.next;
        self.stop = reply.stop;
        self.tally.steps += 1;
        self.tally.tokens = self.tally.tokens.saturating_add(reply.usage.total());
        if calls.is_empty() {
            self.tally.no_calls();
        } else {
            self.tally.notes = 0;
            self.asked.clear();
        }
        self.messages.push((index.0, Message::Assistant(message)));
        self.size = Size { counted: reply.usage.total(), bytes_since: 0 };
        // Without a count of the provider's, what is sent again is measured.
        if self.size.counted == 0 {
            self.size.bytes_since = self.bytes();
        }
        self.turn = (!calls.is_empty()).then_some(Turn { calls });
    }

    fn begin_run(&mut self, run: RunNo) {
        self.run = run;
        self.tally = Tally::default();
        self.board.begin_run();
        self.bound.clear();
        self.stepped = true;
        self.warned = Warned::default();
        self.asked.clear();
        self.resumed = true;
    }

    fn enter_call(
        &mut self,
        index: CallIndex,
        label: &str,
        answer: &Arc<Answer>,
    ) -> Result<(), Refusal> {
        let Some(call) = self.call_at(index) else { return Ok(()) };
        let (CallState::Due(slots) | CallState::Parked(slots)) = &call.state else {
            return Ok(());
        };
        let mut slots = slots.clone();
        if index == call.place.result() && label == label::RESULT {
            let Answer::Value(value) = &**answer else { return Ok(()) };
            self.answered(index, value.decode()?);
            return Ok(());
        }
        if index == call.place.result() && label == label::CHANGED {
            let Answer::Value(value) = &**answer else { return Ok(()) };
            let (result, _): (ToolResult, IgnoredAny) = value.decode()?;
            self.answered(index, result);
            return Ok(());
        }
        let slot = match index {
            index if index == call.place.effect() => &mut slots.effect,
            index if index == call.place.approval() => &mut slots.verdict,
            _ => &mut slots.told,
        };
        *slot = Some(answer.clone());
        call.state = CallState::Due(slots);
        Ok(())
    }

    /// What a call came to, which was written down.
    pub(crate) fn answered(&mut self, index: CallIndex, result: ToolResult) {
        let Some(call) = self.call_at(index) else { return };
        call.state = CallState::Answered(result.clone());
        self.tally.count_result(&result);
        self.close_turn();
    }

    /// A call waits for its answer.
    pub(crate) fn parked(&mut self, index: CallIndex, effect: Option<Arc<Answer>>) {
        let mut calls = self.turn.iter_mut().flat_map(|turn| &mut turn.calls);
        let waits = |call: &Place| [call.parked(), call.approval()].contains(&index);
        match calls.find(|call| waits(&call.place)) {
            Some(call) => {
                let mut slots = call.state.slots();
                slots.effect = effect.or(slots.effect);
                call.state = CallState::Parked(slots);
            }
            None => self.waits_for_news = true,
        }
        self.next = self.next.max(index.0 + 1);
    }

    /// How many calls wait for their answers.
    pub(crate) fn open(&self) -> usize {
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let parked = calls.filter(|call| matches!(call.state, CallState::Parked(_))).count();
        parked + usize::from(self.waits_for_news)
    }

    /// The results are said when all of them are there.
    fn close_turn(&mut self) {
        let Some(turn) = &self.turn else { return };
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
        let index = turn.calls.last().map_or(0, |call| call.place.0);
        self.tally.count_turn(&turn.calls, &results);
        self.size.bytes_since += results.iter().map(|result| result.text.len() as u64).sum::<u64>();
        self.messages.push((index, Message::Results(results)));
        self.turn = None;
        self.stepped = false;
    }

    /// Words to the model. One person speaks at a time: what follows is added.
    fn say(&mut self, index: u32, text: &str) {
        self.resumed = false;
        self.size.bytes_since += text.len() as u64;
        match self.messages.last_mut() {
            Some((_, Message::User(last))) => {
                last.text = format!("{}\n\n{text}", last.text).into();
            }
            _ => self.messages.push((index, Message::User(UserMessage { text: text.into() }))),
        }
    }

    fn summarised(&mut self, summary: &Summary) {
        let kept = std::mem::take(&mut self.messages);
        let opening = format!(
            "{}\n\n[What was said and done since then, in short:]\n{}\n[list_tasks shows the tasks \
             that you started.]",
            self.task, summary.text
        );
        self.size = Size::default();
        // A run that has begun still waits for its first words.
        let resumed = self.resumed;
        self.say(0, &opening);
        for (index, message) in kept.into_iter().filter(|(index, _)| *index >= summary.kept_from) {
            match message {
                Message::User(user) => self.say(index, &user.text),
                other => self.messages.push((index, other)),
            }
        }
        self.resumed = resumed;
        self.size.bytes_since = self.bytes();
    }

    /// Whether something is to be carried out.
    pub(crate) fn is_due(&self) -> bool {
        let mut calls = self.turn.iter().flat_map(|turn| &turn.calls);
        calls.any(|call| matches!(call.state, CallState::Due(_)))
    }

    /// The calls that are to be carried out, as far as they came before.
    pub(crate) fn due(&self) -> Vec<(ToolCall, Call)> {
        let calls = self.turn.iter().flat_map(|turn| &turn.calls);
        let due = calls.filter_map(|call| match &call.state {
            CallState::Due(slots) => {
                let arguments = match &call.call.arguments {
                    Arguments::Json(arguments) => arguments.clone(),
                    Arguments::Malformed { .. } => Value::Null,
                };
                let (place, Slots { effect, told, verdict, passed }) = (call.place, slots.clone());
                let state = self.board.state();
                let call_again = Call { place, arguments, effect, told, verdict, passed, state };
                Some((call.call.clone(), call_again))
            }
            CallState::Parked(_) | CallState::Answered(_) => None,
        });
        due.collect()
    }

    pub(crate) fn next(&self) -> Next {
        if self.turn.is_some() {
            return Next::Calls;
        }
        match self.messages.last() {
            Some((_, Message::Assistant(said))) if !self.resumed => {
                Next::Ended { said: said.clone(), stop: self.stop }
            }
            _ => Next::Model,
        }
    }

    /// The conversation as a request has it.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let go_on = self.resumed.then(|| Message::user(GO_ON));
        self.sent().map(|(_, message)| message.clone()).chain(go_on).collect()
    }

    /// The part of it that a summary is to take the place of, with so much left out of results that
    /// it has about so many bytes.
    pub(crate) fn messages_before(&self, index: u32, bytes: u64) -> Vec<Message> {
        let before = self.sent().filter(|(at, _)| *at < index);
        let mut messages: Vec<Message> = before.map(|(_, message)| message.clone()).collect();
        let results = |message: &Message| match message {
            Message::Results(results) => results.len() as u64,
            Message::User(_) | Message::Assistant(_) => 0,
        };
        let size: u64 = messages.iter().map(bytes_of).sum();
        let count: u64 = messages.iter().map(results).sum();
        if size > bytes && count > 0 {
            let others = messages.iter().filter(|message| results(message) == 0);
            let left = bytes.saturating_sub(others.map(bytes_of).sum());
            shorten_results(&mut messages, usize::try_from(left / count).unwrap_or(usize::MAX));
        }
        messages
    }

    /// A message without anything in it is not sent.
    fn sent(&self) -> impl Iterator<Item = &(u32, Message)> {
        self.messages.iter().filter(|(_, message)| match message {
            Message::Assistant(said) => !said.content.is_empty(),
            Message::User(_) | Message::Results(_) => true,
        })
    }

    /// Whom it owes an answer, as far as the conversation tells.
    pub(crate) fn asked(&self) -> &[TaskNo] {
        &self.asked
    }

    /// The names of the tools that have answered last.
    pub(crate) fn last_tools(&self) -> String {
        let results = self.messages.iter().rev().find_map(|(_, message)| match message {
            Message::Results(results) => Some(results),
            Message::User(_) | Message::Assistant(_) => None,
        });
        let names = results.into_iter().flatten().map(|result| &*result.name);
        names.collect::<Vec<_>>().join(", ")
    }

    /// What the model said last.
    pub(crate) fn last_words(&self) -> Option<String> {
        self.messages.iter().rev().find_map(|(_, message)| match message {
            Message::Assistant(said) => Some(said.text()).filter(|text| !text.trim().is_empty()),
            Message::User(_) | Message::Results(_) => None,
        })
    }

    pub(crate) fn partial(&self) -> Option<Json> {
        self.last_words().and_then(|words| Json::of(&words).ok())
    }

    /// About how many tokens the conversation has.
    pub(crate) fn tokens(&self) -> u64 {
        self.size.counted.saturating_add(tokens_of(self.size.bytes_since))
    }

    fn bytes(&self) -> u64 {
        self.messages.iter().map(|(_, message)| bytes_of(message)).sum()
    }

    /// From which index on about the last `bytes` are, not cutting a message from its results.
    /// `None` when there is nothing before it worth a summary.
    pub(crate) fn cut_before(&self, bytes: u64) -> Option<u32> {
        let mut left = bytes;
        let mut cut = None;
        for (at, (index, message)) in self.messages.iter().enumerate().rev() {
            let size = bytes_of(message);
            if size > left {
                break;
            }
            left -= size;
            if !matches!(message, Message::Results(_)) {
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
fn shorten_results(messages: &mut [Message], bytes: usize) {
    for message in messages {
        let Message::Results(results) = message else { continue };
        for result in results {
            result.text = shortened(&result.text, bytes).into();
        }
    }
}

/// About how many tokens so many bytes are.
pub(crate) fn tokens_of(bytes: u64) -> u64 {
    bytes / 3
}

pub(crate) fn bytes_of(message: &Message) -> u64 {
    let bytes = match message {
        Message::User(user) => user.text.len(),
        Message::Assistant(said) => serde_json::to_string(&**said).map_or(0, |text| text.len()),
        Message::Results(results) => results.iter().map(|result| result.text.len()).sum(),
    };
    bytes as u64
}
