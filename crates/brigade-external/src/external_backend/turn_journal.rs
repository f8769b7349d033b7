//! The journal of an agent of another vendor: its turns, and how far each one has come.
//!
//! Replies, tool results and messages are entries of the same form as those of Brigade's own agents,
//! so every reader of transcripts understands them. Two further entries hold the state:
//! [`TurnRecord`] before the program of a turn starts, and [`TurnState`] in each commit of a turn.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brigade_agent::agent_program::ProgramEnd;
use brigade_agent::inbox::{Quoter, asking_tasks};
use brigade_agent::{CallSlotRange, JournalRecord};
use brigade_llm::ModelReply;
use brigade_model::call::{CallCompletion, Condition, JournalEntry, ParkedCall};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{CallIndex, RunNo, TaskNo};
use brigade_model::json::Json;
use brigade_model::limits::Money;
use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::adapter::SessionStart;
use crate::journal_base::{BackendJournal, JournalBase};
use crate::turn_events::{RequestedCall, TurnQuestion};
use crate::turn_progress::TurnProgress;
use crate::usage::UsageLedger;

const SIGKILL: i32 = 9;

const TURN_LABEL: &str = "external turn";
const STATE_LABEL: &str = "external turn state";
const REPAIR_LABEL: &str = "external repair";

/// The start of a turn. It is stored before the program starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct TurnRecord {
    /// The number of the turn in its task, from 1.
    pub(super) turn: u32,
    pub(super) run: RunNo,
    pub(super) prompt: Arc<str>,
    pub(super) session: StoredSession,
    /// The money that remained when the turn began, if a budget applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) budget: Option<Money>,
}

/// The session of the vendor in which a turn takes place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredSession {
    New { id: String },
    Resumed { id: String },
}

impl StoredSession {
    pub(super) fn as_start(&self) -> SessionStart<'_> {
        match self {
            Self::New { id } => SessionStart::New { id },
            Self::Resumed { id } => SessionStart::Resumed { id },
        }
    }
}

/// The state of a turn after a commit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct TurnState {
    pub(super) turn: u32,
    /// The output up to here is processed.
    pub(super) output_offset: u64,
    /// The input before `input`, in bytes.
    pub(super) input_offset: u64,
    /// The last input. It may not be written yet.
    #[serde(default)]
    pub(super) input: StoredInput,
    pub(super) conversation: Value,
    pub(super) progress: TurnProgress,
    /// The bytes of the text in `progress` that only earlier states have. It is 0 in memory: only
    /// stored states omit text, so that a long answer is stored once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) earlier_text: usize,
    pub(super) ledger: UsageLedger,
    /// Permission requests without an answer, by the index of their approval.
    #[serde(default)]
    pub(super) open_requests: BTreeMap<u32, OpenRequest>,
    /// Questions without an answer, by the index of their call.
    #[serde(default)]
    pub(super) open_questions: BTreeMap<u32, TurnQuestion>,
    /// Tool calls without a result, by their ids.
    #[serde(default)]
    pub(super) open_calls: BTreeMap<String, OpenCall>,
    /// The end of the standard error.
    #[serde(default)]
    pub(super) stderr: String,
    /// The standard error up to here is processed.
    #[serde(default)]
    pub(super) stderr_offset: u64,
    /// The reason why Brigade stopped the program, if it did.
    #[serde(default)]
    pub(super) stop: Option<StopCause>,
    /// The outcome, when the program has ended.
    #[serde(default)]
    pub(super) outcome: Option<StoredOutcome>,
}

/// The outcome of a turn. Its result, also a partial one, is the answer in [`TurnState::progress`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StoredOutcome {
    Succeeded {},
    Failed {
        text: String,
    },
    /// The program was lost with its machine, so nobody knows how far it came.
    Lost {
        text: String,
    },
    /// A message interrupted the turn.
    Interrupted,
    /// The agent ended the turn since the money of its budget was spent.
    BudgetSpent,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredInput {
    pub(super) text: String,
    #[serde(default)]
    pub(super) ends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum StopCause {
    /// A message interrupted the turn.
    Interrupted,
    /// The turn was closed, and the program did not exit.
    Lingered,
    LineTooLong,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct OpenRequest {
    pub(super) id: String,
    pub(super) call: RequestedCall,
    pub(super) arguments: Value,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenCall {
    /// The first index of the call's slots.
    pub(super) slots: u32,
    pub(super) name: Arc<str>,
}

/// A turn in the journal.
#[derive(Clone, Debug)]
pub(super) struct StoredTurn {
    /// The index of its record. The start of its program and its end have the next two.
    pub(super) index: u32,
    pub(super) record: TurnRecord,
    pub(super) state: TurnState,
    pub(super) program: Option<Arc<CallCompletion>>,
    pub(super) end: Option<Arc<CallCompletion>>,
    /// The calls of the turn that wait for a completion.
    pub(super) parked: BTreeSet<u32>,
    /// The completions of its permission requests and questions, by their index.
    pub(super) answers: BTreeMap<u32, Arc<CallCompletion>>,
}

impl StoredTurn {
    pub(super) fn program_index(&self) -> CallIndex {
        CallIndex(self.index + 1)
    }

    pub(super) fn end_index(&self) -> CallIndex {
        CallIndex(self.index + 2)
    }

    /// Checks that the turn ended before its work did.
    pub(super) fn is_cut_off(&self) -> bool {
        let outcome = self.state.outcome.as_ref();
        matches!(outcome, Some(StoredOutcome::Interrupted | StoredOutcome::Lost { .. }))
    }

    /// Checks that the program ended without a chance to store anything, as far as is known.
    fn was_killed(&self) -> bool {
        let end = self.end.as_deref().and_then(ProgramEnd::of);
        end.is_some_and(|end| {
            let is_unknown = end.signal.is_none() && end.exit_code.is_none();
            is_unknown || end.signal == Some(SIGKILL)
        })
    }

    fn has_call(&self, index: CallIndex) -> bool {
        index == self.end_index()
            || self.state.open_requests.contains_key(&index.0)
            || self.state.open_questions.contains_key(&index.0)
    }
}

/// The journal of a task, as far as the next turn needs it.
#[derive(Clone, Debug)]
pub(super) struct TurnJournal {
    pub(super) base: JournalBase,
    pub(super) last_turn: Option<StoredTurn>,
    /// True if the agent has replied since the last turn began.
    pub(super) has_reply: bool,
    /// The tasks that asked something since the last turn began.
    pub(super) asking: Vec<TaskNo>,
    /// The turns of this run whose program was lost.
    pub(super) lost_turns: u32,
    pub(super) steps: u32,
    pub(super) tokens: u64,
    /// Parked calls of earlier turns, which nobody waits for.
    pub(super) stale_calls: Vec<CallIndex>,
}

impl TurnJournal {
    pub(super) fn load(
        entries: Vec<JournalEntry>,
        parked: &[ParkedCall],
        quoter: Quoter,
    ) -> Result<Self, Refusal> {
        let mut loaded = Self {
            base: JournalBase::new(quoter),
            last_turn: None,
            has_reply: false,
            asking: Vec::new(),
            lost_turns: 0,
            steps: 0,
            tokens: 0,
            stale_calls: Vec::new(),
        };
        loaded.apply_all(entries, parked)?;
        Ok(loaded)
    }

    /// Applies the completion of a call of the last turn. Returns false if it is none.
    fn apply_turn_entry(&mut self, index: CallIndex, completion: &Arc<CallCompletion>) -> bool {
        let Some(turn) = &mut self.last_turn else { return false };
        if index == turn.program_index() {
            turn.program = Some(completion.clone());
        } else if index == turn.end_index() {
            turn.end = Some(completion.clone());
        } else if is_answer(completion) {
            turn.answers.insert(index.0, completion.clone());
        } else {
            return false;
        }
        true
    }

    fn begin_turn(&mut self, index: CallIndex, record: TurnRecord) {
        // The commit of a turn's start has its first state too.
        self.last_turn = Some(StoredTurn {
            index: index.0,
            record,
            state: TurnState::default(),
            program: None,
            end: None,
            parked: BTreeSet::new(),
            answers: BTreeMap::new(),
        });
        self.base.unsent.clear();
        self.has_reply = false;
        self.asking.clear();
    }

    /// Takes indexes for a turn, its program and its end, and returns the record of its start.
    pub(super) fn turn_record(&mut self, record: &TurnRecord) -> Result<JournalRecord, Refusal> {
        self.base.record(EntryLabel::custom(TURN_LABEL), 3, record)
    }

    /// Takes an index for a state, and returns its record.
    pub(super) fn state_record(&mut self, state: &TurnState) -> Result<JournalRecord, Refusal> {
        let mut state = state.clone();
        if let Some(turn) = self.last_turn.as_ref().filter(|turn| turn.state.turn == state.turn) {
            state.earlier_text = state.progress.remove_earlier_text(&turn.state.progress);
        }
        let state = &state;
        self.base.record(EntryLabel::custom(STATE_LABEL), 1, state)
    }

    /// Returns the records of a request to repair a result: a note to the agent, and a mark that it is
    /// one.
    pub(super) fn repair_records(&mut self, problem: &str) -> Result<Vec<JournalRecord>, Refusal> {
        let note = self.base.record(EntryLabel::Note, 1, problem)?;
        Ok(vec![note, self.base.json_record(EntryLabel::custom(REPAIR_LABEL), Json::null())])
    }

    /// Returns the last id of the vendor's session that a program has used.
    pub(super) fn last_session_id(&self) -> Option<&str> {
        let turn = self.last_turn.as_ref()?;
        turn.state.progress.session_id().or(match &turn.record.session {
            StoredSession::Resumed { id } => Some(id),
            // Brigade chose the id, and the program may have ended before it used it.
            StoredSession::New { .. } => None,
        })
    }

    /// Returns the answer of the last turn.
    pub(super) fn answer(&self) -> &str {
        self.last_turn.as_ref().map_or("", |turn| turn.state.progress.answer())
    }

    /// Returns the usage that was counted so far, for the next turn. The totals of its program do not
    /// contain the calls of one that could not store them.
    pub(super) fn next_ledger(&self) -> UsageLedger {
        let Some(turn) = &self.last_turn else { return UsageLedger::default() };
        let mut ledger = turn.state.ledger.clone();
        if turn.was_killed() {
            ledger.forget_calls();
        }
        ledger
    }
}

impl BackendJournal for TurnJournal {
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
        if self.apply_turn_entry(index, completion) {
            return Ok(());
        }
        match (label, &**completion) {
            (EntryLabel::Custom(name), CallCompletion::Value(value)) if &**name == TURN_LABEL => {
                self.base.reserve(index, 3);
                self.begin_turn(index, value.decode()?);
            }
            (EntryLabel::Custom(name), CallCompletion::Value(value)) if &**name == STATE_LABEL => {
                let mut state: TurnState = value.decode()?;
                let open = state.open_requests.keys().chain(state.open_questions.keys());
                for call in open {
                    self.base.reserve(CallIndex(*call), 1);
                }
                // The outcome is part of the last state of a turn only.
                self.lost_turns +=
                    u32::from(matches!(state.outcome, Some(StoredOutcome::Lost { .. })));
                if let Some(turn) = &mut self.last_turn {
                    let earlier = std::mem::take(&mut turn.state.progress);
                    let length = std::mem::take(&mut state.earlier_text);
                    if !state.progress.restore_earlier_text(earlier, length) {
                        return Err(Refusal::internal("the stored answer of a turn has a gap"));
                    }
                    turn.state = state;
                }
            }
            (EntryLabel::ModelReply, CallCompletion::Value(value)) => {
                let reply: ModelReply = value.decode()?;
                let calls = u32::try_from(reply.message.calls().count()).unwrap_or(u32::MAX);
                self.base.reserve(index, 1 + calls.saturating_mul(CallSlotRange::SLOTS_PER_CALL));
                self.steps += 1;
                self.has_reply = true;
            }
            (EntryLabel::Inbox, CallCompletion::Inbox(batch)) => {
                self.asking.extend(asking_tasks(batch));
                self.base.add_inbox(batch);
            }
            (EntryLabel::Custom(name), _) if &**name == REPAIR_LABEL => self.base.repairs += 1,
            (EntryLabel::Note, CallCompletion::Value(value)) => {
                self.base.unsent.push(value.decode()?)
            }
            (EntryLabel::RunStarted, CallCompletion::Value(value)) => {
                self.base.start_run(value.decode()?);
                self.lost_turns = 0;
                self.steps = 0;
                self.tokens = 0;
            }
            _ => {}
        }
        Ok(())
    }

    fn apply_parked(&mut self, call: &ParkedCall) {
        let index = call.index;
        match &mut self.last_turn {
            Some(turn) if turn.has_call(index) => {
                turn.parked.insert(index.0);
            }
            _ if matches!(call.condition, Condition::Inbox) => self.base.inbox_wait = Some(index),
            // A request of an earlier turn, whose program is gone.
            _ => self.stale_calls.push(index),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Checks that a completion is one of a permission request or a question.
fn is_answer(completion: &CallCompletion) -> bool {
    matches!(
        completion,
        CallCompletion::Verdict(_) | CallCompletion::Reply(_) | CallCompletion::Refused(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_journal() -> TurnJournal {
        TurnJournal::load(Vec::new(), &[], Quoter::new(None)).unwrap()
    }

    fn end_turn(journal: &mut TurnJournal, outcome: StoredOutcome) -> Vec<JournalRecord> {
        let session = StoredSession::New { id: "s".into() };
        let run = journal.base.run;
        let record = TurnRecord { turn: 1, run, prompt: "p".into(), session, budget: None };
        let state = TurnState { outcome: Some(outcome), ..TurnState::default() };
        vec![journal.turn_record(&record).unwrap(), journal.state_record(&state).unwrap()]
    }

    #[test]
    fn each_state_stores_only_the_new_part_of_an_answer() {
        let mut journal = new_journal();
        let mut records = end_turn(&mut journal, StoredOutcome::Interrupted);
        for record in records.drain(..1) {
            journal.apply_record(&record).unwrap();
        }
        let mut state = TurnState { turn: 1, ..TurnState::default() };
        let mut stored = 0;
        let mut entries = Vec::new();
        for _ in 0..100 {
            let text = "0123456789".repeat(100);
            let part = crate::turn_events::TextPart { text, is_delta: false };
            state.progress.observe_event(&crate::turn_events::TurnEvent::Text(part));
            let record = journal.state_record(&state).unwrap();
            stored += serde_json::to_string(&record.completion).unwrap().len();
            journal.apply_record(&record).unwrap();
            entries.push(record);
            let last = journal.last_turn.as_ref().unwrap();
            assert_eq!(last.state, state);
        }
        assert!(stored < 200_000, "{stored}");
        // A state that is missing is noticed.
        let mut damaged = new_journal();
        let turn = end_turn(&mut damaged, StoredOutcome::Interrupted);
        damaged.apply_record(&turn[0]).unwrap();
        assert!(damaged.apply_record(&entries[1]).is_err());
    }

    #[test]
    fn notes_repairs_and_lost_turns_are_counted_apart() {
        let mut journal = new_journal();
        let mut records = Vec::new();
        for _ in 0..3 {
            records.push(journal.base.record(EntryLabel::Note, 1, "Go on.").unwrap());
        }
        records.extend(journal.repair_records("It does not fit.").unwrap());
        for _ in 0..2 {
            records.extend(end_turn(&mut journal, StoredOutcome::Lost { text: "gone".into() }));
        }
        records.extend(end_turn(&mut journal, StoredOutcome::Interrupted));
        for record in &records {
            journal.apply_record(record).unwrap();
        }
        assert_eq!(journal.base.repairs, 1);
        assert_eq!(journal.lost_turns, 2);
        let started = journal.base.record(EntryLabel::RunStarted, 1, &RunNo::FIRST).unwrap();
        journal.apply_record(&started).unwrap();
        assert_eq!(journal.base.repairs + journal.lost_turns, 0, "they are those of one run");
    }
}
