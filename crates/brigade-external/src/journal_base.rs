//! The part of a journal that all backends of this crate have: indexes and records, the current run,
//! and the texts for the next prompt.

use std::sync::Arc;

use brigade_agent::inbox::Quoter;
use brigade_agent::{Host, JournalRecord, SuspendResult};
use brigade_model::call::{CallCompletion, ConditionRequest, InboxBatch, JournalEntry, ParkedCall};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use serde::Serialize;

/// The state that every journal has.
#[derive(Clone, Debug)]
pub(crate) struct JournalBase {
    next: u32,
    quoter: Quoter,
    pub(crate) run: RunNo,
    /// The texts since the last prompt, of which the next one consists.
    pub(crate) unsent: Vec<String>,
    /// The requests to repair a result, in this run.
    pub(crate) repairs: u32,
    /// The index of the wait for the inbox, if the agent is parked on it.
    pub(crate) inbox_wait: Option<CallIndex>,
}

/// A journal that its entries can be applied to.
pub(crate) trait BackendJournal: Send {
    fn base(&mut self) -> &mut JournalBase;

    /// Applies an entry.
    fn apply(
        &mut self,
        index: CallIndex,
        label: &EntryLabel,
        completion: &Arc<CallCompletion>,
    ) -> Result<(), Refusal>;

    /// Applies a call that waits for its completion.
    fn apply_parked(&mut self, call: &ParkedCall);

    /// Applies a record that was committed.
    fn apply_record(&mut self, record: &JournalRecord) -> Result<(), Refusal> {
        self.apply(record.index, &record.label, &record.completion)
    }

    /// Applies all entries of an attempt, then the calls that wait.
    fn apply_all(
        &mut self,
        mut entries: Vec<JournalEntry>,
        parked: &[ParkedCall],
    ) -> Result<(), Refusal> {
        entries.sort_by_key(|entry| entry.index);
        for entry in &entries {
            self.apply(entry.index, &entry.label, &entry.completion)?;
        }
        // A completion that arrived while the journal was read is in it already.
        let is_recorded = |index| entries.iter().any(|entry| entry.index == index);
        for call in parked.iter().filter(|call| !is_recorded(call.index)) {
            self.base().reserve(call.index, 1);
            self.apply_parked(call);
        }
        Ok(())
    }
}

impl JournalBase {
    pub(crate) fn new(quoter: Quoter) -> Self {
        Self {
            next: 0,
            quoter,
            run: RunNo::FIRST,
            unsent: Vec::new(),
            repairs: 0,
            inbox_wait: None,
        }
    }

    /// Returns the next free index.
    pub(crate) fn next_index(&self) -> CallIndex {
        CallIndex(self.next)
    }

    /// Takes the next indexes.
    pub(crate) fn take_indexes(&mut self, count: u32) -> CallIndex {
        let first = CallIndex(self.next);
        self.next += count;
        first
    }

    /// Marks indexes as taken.
    pub(crate) fn reserve(&mut self, index: CallIndex, count: u32) {
        self.next = self.next.max(index.0.saturating_add(count));
    }

    /// Takes indexes, and returns the record of a value at the first one.
    pub(crate) fn record(
        &mut self,
        label: EntryLabel,
        indexes: u32,
        value: &(impl Serialize + ?Sized),
    ) -> Result<JournalRecord, Refusal> {
        let value = Json::of(value)?;
        let index = self.take_indexes(indexes);
        Ok(JournalRecord::new(index, label, Arc::new(CallCompletion::Value(value))))
    }

    /// Takes an index for an encoded entry, and returns its record.
    pub(crate) fn json_record(&mut self, label: EntryLabel, value: Json) -> JournalRecord {
        let index = self.take_indexes(1);
        JournalRecord::new(index, label, Arc::new(CallCompletion::Value(value)))
    }

    /// Adds the messages and results of an inbox to the next prompt.
    pub(crate) fn add_inbox(&mut self, batch: &InboxBatch) {
        self.inbox_wait = None;
        self.unsent.push(self.quoter.render_inbox(batch));
    }

    pub(crate) fn start_run(&mut self, run: RunNo) {
        self.run = run;
        self.repairs = 0;
    }
}

/// Commits records, and applies them to the journal.
pub(crate) async fn commit_records(
    host: &dyn Host,
    journal: &mut impl BackendJournal,
    records: Vec<JournalRecord>,
) -> Result<(), Refusal> {
    host.record(records.clone()).await?;
    records.iter().try_for_each(|record| journal.apply_record(record))
}

/// Parks the agent on its inbox, when its work is done but its tasks are not.
pub(crate) async fn park_on_inbox(
    host: &dyn Host,
    journal: &mut impl BackendJournal,
) -> Result<(), Refusal> {
    let index = journal.base().take_indexes(1);
    host.park(index, ConditionRequest::Inbox).await?;
    journal.base().inbox_wait = Some(index);
    Ok(())
}

/// Waits for the inbox. Returns false if the agent is suspended meanwhile.
pub(crate) async fn wait_for_inbox(
    host: &dyn Host,
    journal: &mut impl BackendJournal,
) -> Result<bool, Refusal> {
    match host.suspend(1).await? {
        SuspendResult::Suspended => Ok(false),
        SuspendResult::Completed(index, completion) => {
            journal.apply(index, &EntryLabel::Inbox, &completion)?;
            Ok(true)
        }
    }
}
