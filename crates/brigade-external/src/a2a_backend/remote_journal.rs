//! The journal of a remote agent: its messages, its tasks, and its questions.

use std::sync::Arc;

use brigade_agent::JournalRecord;
use brigade_agent::inbox::Quoter;
use brigade_llm::ModelReply;
use brigade_model::call::{CallCompletion, JournalEntry, ParkedCall};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::answer_text;
use crate::journal_base::{BackendJournal, JournalBase};

const MESSAGE_LABEL: &str = "a2a message";
const TASK_LABEL: &str = "a2a task";
const QUESTION_LABEL: &str = "a2a question";
const END_LABEL: &str = "a2a end";
const REPAIR_LABEL: &str = "a2a repair";

/// A message. It is stored before it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MessageRecord {
    /// The number of the message in its task, from 1.
    pub(super) number: u32,
    pub(super) id: String,
    pub(super) text: String,
    /// The remote task that it answers.
    #[serde(default)]
    pub(super) task_id: Option<String>,
    #[serde(default)]
    pub(super) context_id: Option<String>,
}

/// The remote task of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TaskRecord {
    pub(super) task_id: String,
    pub(super) context_id: String,
    /// The number of the message.
    pub(super) number: u32,
}

/// The progress of the conversation with the remote side.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// A message must be written.
    Write,
    Send(MessageRecord),
    Follow,
    /// The question waits for its answer at this index.
    Ask(CallIndex),
    Ended,
}

#[derive(Clone, Debug)]
pub(super) struct RemoteJournal {
    pub(super) base: JournalBase,
    phase: Phase,
    pub(super) message_count: u32,
    /// The last remote task.
    pub(super) task: Option<TaskRecord>,
    pub(super) question_text: String,
    pub(super) is_question_parked: bool,
    /// The answer that the next message is.
    pub(super) answer: Option<String>,
    pub(super) result: Option<String>,
}

impl RemoteJournal {
    pub(super) fn load(
        entries: Vec<JournalEntry>,
        parked: &[ParkedCall],
        quoter: Quoter,
    ) -> Result<Self, Refusal> {
        let mut journal = Self {
            base: JournalBase::new(quoter),
            phase: Phase::Write,
            message_count: 0,
            task: None,
            question_text: String::new(),
            is_question_parked: false,
            answer: None,
            result: None,
        };
        journal.apply_all(entries, parked)?;
        Ok(journal)
    }

    fn begin(&mut self, message: MessageRecord) {
        self.message_count = message.number;
        // An answer leaves messages that arrived meanwhile for the next one.
        if self.answer.take().is_none() {
            self.base.unsent.clear();
        }
        self.phase = Phase::Send(message);
    }

    /// Returns the message that has no task yet.
    pub(super) fn unaccepted(&self) -> Option<&MessageRecord> {
        match &self.phase {
            Phase::Send(message) => Some(message),
            _ => None,
        }
    }

    pub(super) fn open_question(&self) -> Option<CallIndex> {
        match self.phase {
            Phase::Ask(index) => Some(index),
            _ => None,
        }
    }

    pub(super) fn running_task(&self) -> Option<&TaskRecord> {
        self.task.as_ref().filter(|_| self.phase == Phase::Follow)
    }

    /// Returns the id of the remote task that goes on, if it is known.
    pub(super) fn live_task(&self) -> Option<&str> {
        match &self.phase {
            Phase::Send(message) => message.task_id.as_deref(),
            // A task whose question was answered waits for the answer.
            Phase::Write if self.answer.is_none() => None,
            Phase::Write | Phase::Follow | Phase::Ask(_) => {
                self.task.as_ref().map(|task| &*task.task_id)
            }
            Phase::Ended => None,
        }
    }

    pub(super) fn wants_message(&self) -> bool {
        self.phase == Phase::Write || self.phase == Phase::Ended && !self.base.unsent.is_empty()
    }

    pub(super) fn message_record(&mut self, it: &MessageRecord) -> Result<JournalRecord, Refusal> {
        self.base.record(EntryLabel::custom(MESSAGE_LABEL), 1, it)
    }

    pub(super) fn task_record(&mut self, it: &TaskRecord) -> Result<JournalRecord, Refusal> {
        self.base.record(EntryLabel::custom(TASK_LABEL), 1, it)
    }

    /// Takes an index for a question and one for its answer, and returns the record of the question.
    pub(super) fn question_record(&mut self, text: &str) -> Result<JournalRecord, Refusal> {
        self.base.record(EntryLabel::custom(QUESTION_LABEL), 2, text)
    }

    pub(super) fn end_record(&mut self, result: &str) -> Result<JournalRecord, Refusal> {
        self.base.record(EntryLabel::custom(END_LABEL), 1, result)
    }

    pub(super) fn repair_record(&mut self, text: &str) -> Result<JournalRecord, Refusal> {
        self.base.record(EntryLabel::custom(REPAIR_LABEL), 1, text)
    }

    /// Returns the record of a text for people, which the remote agent does not get.
    pub(super) fn note_record(&mut self, text: &str) -> Result<JournalRecord, Refusal> {
        self.base.record(EntryLabel::Note, 1, text)
    }

    pub(super) fn reply_record(&mut self, reply: &ModelReply) -> Result<JournalRecord, Refusal> {
        self.base.record(EntryLabel::ModelReply, 1, reply)
    }

    pub(super) fn run_record(&mut self, run: RunNo) -> Result<JournalRecord, Refusal> {
        self.base.record(EntryLabel::RunStarted, 1, &run)
    }
}

impl BackendJournal for RemoteJournal {
    fn base(&mut self) -> &mut JournalBase {
        &mut self.base
    }

    fn apply(
        &mut self,
        index: CallIndex,
        label: &EntryLabel,
        completion: &Arc<CallCompletion>,
    ) -> Result<(), Refusal> {
        self.base.reserve(index, 1);
        if self.phase == Phase::Ask(index) {
            self.answer = Some(answer_text(completion));
            self.phase = Phase::Write;
            return Ok(());
        }
        match (label, &**completion) {
            (EntryLabel::Custom(name), CallCompletion::Value(value)) => match &**name {
                MESSAGE_LABEL => self.begin(value.decode()?),
                TASK_LABEL => {
                    self.task = Some(value.decode()?);
                    self.phase = Phase::Follow;
                }
                QUESTION_LABEL => {
                    self.question_text = value.decode()?;
                    self.is_question_parked = false;
                    self.base.reserve(index, 2);
                    self.phase = Phase::Ask(CallIndex(index.0 + 1));
                }
                END_LABEL => {
                    self.result = Some(value.decode()?);
                    self.phase = Phase::Ended;
                }
                REPAIR_LABEL => {
                    self.base.repairs += 1;
                    self.base.unsent.push(value.decode()?);
                    self.phase = Phase::Write;
                }
                _ => {}
            },
            (EntryLabel::Inbox, CallCompletion::Inbox(batch)) => {
                self.base.add_inbox(batch);
                if self.phase == Phase::Ended {
                    self.phase = Phase::Write;
                }
            }
            (EntryLabel::RunStarted, CallCompletion::Value(value)) => {
                self.base.start_run(value.decode()?);
                // The remote task of the run before may still go on; a new message is for a new one.
                self.phase = Phase::Write;
                self.answer = None;
            }
            _ => {}
        }
        Ok(())
    }

    fn apply_parked(&mut self, call: &ParkedCall) {
        match self.phase {
            Phase::Ask(index) if index == call.index => self.is_question_parked = true,
            _ => self.base.inbox_wait = Some(call.index),
        }
    }
}
