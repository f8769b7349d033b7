//! The end of a run, as far as plugins have a say in it.

use std::sync::Arc;

use brigade_model::call::CallCompletion;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;

use crate::agent::{Agent, LoopError};
use crate::hooks::{HookPoint, check_conflict};
use crate::host::{Host, JournalRecord};
use crate::plugin::{HookContext, HookDecision};
use crate::state::StateDiff;
use crate::transcript::{Transcript, label};

/// What came of last words.
pub(crate) enum FinishResult {
    Finished,
    /// The model is sent back to its work, or plugins are to be asked again.
    Retry,
    /// There is something that the agent must hear of first.
    InboxUnread,
}

impl Agent {
    /// Ends with this result, if plugins let it. What they change is in one commit with the ending or
    /// with its refusal: of words that were not the last nothing is kept.
    pub(crate) async fn try_finish(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        result: Json,
    ) -> Result<FinishResult, LoopError> {
        let state = transcript.state.view();
        let (run, step) = (transcript.run, transcript.tally.steps);
        let at = HookContext { agent: &self.name, run, step, state: &state };
        let gate = self.call_plugins(HookPoint::RunEnd(&result), &at, |_| true).await?;
        let taken = transcript.state.take_changes(&state);
        let taken = taken.map_err(|error| Failure::Error(error.to_string().into()))?;
        if let HookDecision::Refuse(why) = gate {
            return self.refuse_finish(host, transcript, (&why, taken)).await;
        }
        let mut records = transcript.unflushed.clone();
        records.extend(state_record(transcript, &taken)?);
        let tried = match host.finish(records, result).await {
            Ok(true) => return Ok(FinishResult::Finished),
            Ok(false) if transcript.state.is_stale(&taken) => FinishResult::Retry,
            Ok(false) => FinishResult::InboxUnread,
            Err(refusal) if taken.is_refused_by(&refusal) => {
                check_conflict(&refusal)?;
                FinishResult::Retry
            }
            Err(refusal) => return Err(refusal.into()),
        };
        transcript.state.roll_back(taken);
        self.flush_journal(host, transcript).await?;
        Ok(tried)
    }

    /// Sends the model back to its work, as often as plugins may.
    async fn refuse_finish(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (why, taken): (&str, StateDiff),
    ) -> Result<FinishResult, LoopError> {
        let times = transcript.tally.refusals + 1;
        if times > self.stop_policy.max_refusals {
            let failure = format!("plugins refused its ending {times} times. The last: {why}");
            return Err(Failure::Error(failure.into()).into());
        }
        let mut records = transcript.unflushed.clone();
        let changed = state_record(transcript, &taken)?;
        let index = CallIndex(transcript.next_index().0 + u32::from(changed.is_some()));
        records.extend(changed);
        let told = Json::of(&format!("You cannot end yet: {why}"))?;
        let told = Arc::new(CallCompletion::Value(told));
        records.push(JournalRecord::new(index, label::END_REFUSED, told.clone()));
        match host.record(records).await {
            Err(refusal) if taken.is_refused_by(&refusal) => {
                transcript.state.roll_back(taken);
                check_conflict(&refusal)?;
            }
            recorded => {
                recorded?;
                transcript.unflushed.clear();
                transcript.apply_entry(index, label::END_REFUSED, &told)?;
            }
        }
        Ok(FinishResult::Retry)
    }
}

/// What plugins changed, as the next entry, if they changed anything.
fn state_record(
    transcript: &Transcript,
    taken: &StateDiff,
) -> Result<Option<JournalRecord>, LoopError> {
    if taken.is_empty() {
        return Ok(None);
    }
    let answer = Arc::new(CallCompletion::Value(Json::of(&taken.changes)?));
    let record = JournalRecord::new(transcript.next_index(), label::STATE, answer);
    Ok(Some(JournalRecord { shared: taken.shared.clone(), ..record }))
}
