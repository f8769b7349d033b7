//! The end of a run, which plugins and the host may refuse.

use std::sync::Arc;

use brigade_model::call::CallCompletion;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;

use crate::agent::{Agent, LoopError};
use crate::hooks::{HookPoint, check_conflict};
use crate::host::{Host, JournalRecord};
use crate::plugin::{HookContext, HookDecision};
use crate::shared_state::StateDiff;
use crate::transcript::Transcript;
use brigade_model::entry_label::EntryLabel;

/// The result of an attempt to end the run.
pub(crate) enum FinishResult {
    Finished,
    /// A plugin refused the end, or the hooks must run again after a conflict.
    Retry,
    /// The agent must process its inbox first.
    InboxUnread,
}

/// A plugin's refusal to end the run, and the state changes of the hooks.
struct FinishRefusal {
    reason: String,
    diff: StateDiff,
}

impl Agent {
    /// Ends the run with this result, unless a plugin refuses. State changes of plugins are in one commit
    /// with the end or its refusal. If the host does not end the run, they are rolled back.
    pub(crate) async fn try_finish(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        result: Json,
    ) -> Result<FinishResult, LoopError> {
        let state = transcript.state.view();
        let context = HookContext {
            agent: &self.name,
            run: transcript.run,
            step: transcript.tally.steps,
            state: &state,
        };
        let point = HookPoint::RunEnd(&result);
        let decision = self.call_plugins(point, &context, |_| true).await?;
        let diff = transcript.state.take_changes(&state);
        let diff = diff.map_err(|error| Failure::error(error.to_string()))?;
        if let HookDecision::Refuse(reason) = decision {
            return self.refuse_finish(host, transcript, FinishRefusal { reason, diff }).await;
        }
        let mut records = transcript.unflushed.clone();
        records.extend(state_record(transcript, &diff)?);
        let finished = match host.finish(records, result).await {
            Ok(true) => return Ok(FinishResult::Finished),
            Ok(false) if transcript.state.is_stale(&diff) => FinishResult::Retry,
            Ok(false) => FinishResult::InboxUnread,
            Err(refusal) if diff.is_refused_by(&refusal) => {
                check_conflict(&refusal)?;
                FinishResult::Retry
            }
            Err(refusal) => return Err(refusal.into()),
        };
        transcript.state.roll_back(diff);
        self.flush_journal(host, transcript).await?;
        Ok(finished)
    }

    /// Records the refusal as a note to the model. Fails the run after too many refusals.
    async fn refuse_finish(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        refused: FinishRefusal,
    ) -> Result<FinishResult, LoopError> {
        let FinishRefusal { reason, diff } = refused;
        let times = transcript.tally.refusals + 1;
        if times > self.stop_policy.max_refusals {
            let failure =
                format!("plugins refused the end of the run {times} times. The last: {reason}");
            return Err(Failure::error(failure).into());
        }
        let mut records = transcript.unflushed.clone();
        let state_record = state_record(transcript, &diff)?;
        let index = CallIndex(transcript.next_index().0 + u32::from(state_record.is_some()));
        records.extend(state_record);
        let note = Json::of(&format!("You cannot end yet: {reason}"))?;
        let note = Arc::new(CallCompletion::Value(note));
        records.push(JournalRecord::new(index, EntryLabel::EndRefused, note.clone()));
        match host.record(records).await {
            Err(refusal) if diff.is_refused_by(&refusal) => {
                transcript.state.roll_back(diff);
                check_conflict(&refusal)?;
            }
            recorded => {
                recorded?;
                transcript.unflushed.clear();
                transcript.apply_entry(index, &EntryLabel::EndRefused, &note)?;
            }
        }
        Ok(FinishResult::Retry)
    }
}

/// Builds the next entry from the state changes of plugins, if there are any.
fn state_record(
    transcript: &Transcript,
    diff: &StateDiff,
) -> Result<Option<JournalRecord>, LoopError> {
    if diff.is_empty() {
        return Ok(None);
    }
    let completion = Arc::new(CallCompletion::Value(Json::of(&diff.changes)?));
    let record = JournalRecord::new(transcript.next_index(), EntryLabel::State, completion);
    Ok(Some(JournalRecord { shared: diff.shared.clone(), ..record }))
}
