//! The end of a run, as far as plugins have a say in it.

use std::sync::Arc;

use brigade_model::call::Answer;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::outcome::Failure;

use crate::agent::{Agent, Ended};
use crate::hooks::{When, clash};
use crate::host::{Host, Record};
use crate::plugin::{Gate, Moment};
use crate::state::Taken;
use crate::transcript::{Transcript, label};

/// What came of last words.
pub(crate) enum Tried {
    Ended,
    /// The model is sent back to its work, or plugins are to be asked again.
    Again,
    /// There is something that the agent must hear of first.
    Unheard,
}

impl Agent {
    /// Ends with this result, if plugins let it. What they change is in one commit with the ending or
    /// with its refusal: of words that were not the last nothing is kept.
    pub(crate) async fn try_to_end(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        result: Json,
    ) -> Result<Tried, Ended> {
        let state = transcript.board.state();
        let (run, step) = (transcript.run, transcript.tally.steps);
        let at = Moment { agent: &self.name, run, step, state: &state };
        let gate = self.ask_plugins(When::RunEnd(&result), &at, |_| true).await?;
        let taken = transcript.board.take(&state);
        let taken = taken.map_err(|error| Failure::Error(error.to_string().into()))?;
        if let Gate::Refuse(why) = gate {
            return self.refuse_ending(host, transcript, (&why, taken)).await;
        }
        let mut records = transcript.owed.clone();
        records.extend(changed(transcript, &taken)?);
        let tried = match host.finish(records, result).await {
            Ok(true) => return Ok(Tried::Ended),
            Ok(false) if transcript.board.is_behind(&taken) => Tried::Again,
            Ok(false) => Tried::Unheard,
            Err(refusal) if taken.is_refused_by(&refusal) => {
                clash(&refusal)?;
                Tried::Again
            }
            Err(refusal) => return Err(refusal.into()),
        };
        transcript.board.give_back(taken);
        self.write_owed(host, transcript).await?;
        Ok(tried)
    }

    /// Sends the model back to its work, as often as plugins may.
    async fn refuse_ending(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
        (why, taken): (&str, Taken),
    ) -> Result<Tried, Ended> {
        let times = transcript.tally.refusals + 1;
        if times > self.policy.max_refusals {
            let failure = format!("plugins refused its ending {times} times. The last: {why}");
            return Err(Failure::Error(failure.into()).into());
        }
        let mut records = transcript.owed.clone();
        let changed = changed(transcript, &taken)?;
        let index = CallIndex(transcript.next_index().0 + u32::from(changed.is_some()));
        records.extend(changed);
        let told = Json::of(&format!("You cannot end yet: {why}"))?;
        let told = Arc::new(Answer::Value(told));
        records.push(Record::new(index, label::REFUSED, told.clone()));
        match host.record(records).await {
            Err(refusal) if taken.is_refused_by(&refusal) => {
                transcript.board.give_back(taken);
                clash(&refusal)?;
            }
            recorded => {
                recorded?;
                transcript.owed.clear();
                transcript.enter(index, label::REFUSED, &told)?;
            }
        }
        Ok(Tried::Again)
    }
}

/// What plugins changed, as the next entry, if they changed anything.
fn changed(transcript: &Transcript, taken: &Taken) -> Result<Option<Record>, Ended> {
    if taken.is_empty() {
        return Ok(None);
    }
    let answer = Arc::new(Answer::Value(Json::of(&taken.changes)?));
    let record = Record::new(transcript.next_index(), label::STATE, answer);
    Ok(Some(Record { shared: taken.shared.clone(), ..record }))
}
