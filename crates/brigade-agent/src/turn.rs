//! The calls of one message: permitted or refused, carried out side by side, answered.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use brigade_llm::conversation::Arguments;
use brigade_llm::{ToolCall, ToolResult};
use brigade_model::call::Answer;
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use crate::agent::{Agent, Ended};
use crate::ask::WORTH_TELLING;
use crate::hooks::{Before, TRIES, When, again_and_again, clash};
use crate::host::{Host, Record};
use crate::leave::Leave;
use crate::plugin::{Gate, Moment};
use crate::state::{Board, Taken};
use crate::telemetry::{self, ToolOutcome, UnlessOver};
use crate::tool::{Call, Effect, Outcome, Tool, ToolError};
use crate::transcript::{Transcript, label};

/// The most that a model is told of one call: the beginning and the end of more than that.
pub(crate) const RESULT_MAX: usize = 64 * 1024;

/// How many calls of one message run side by side.
const AT_ONCE: usize = 64;

/// What became of a call.
enum Done {
    Result {
        result: ToolResult,
        owed: Option<Record>,
    },
    Parked {
        effect: Option<Arc<Answer>>,
    },
    /// It asks for leave.
    Asked,
}

/// What the calls of one message have in common.
struct Round {
    /// Calls that are not over yet.
    left: AtomicUsize,
    run: RunNo,
    step: u32,
    board: Board,
    /// The next index of the conversation that nobody has.
    next: AtomicU32,
}

impl Round {
    /// One call is over, for now. Whether it was the last.
    fn is_last(&self) -> bool {
        self.left.fetch_sub(1, Ordering::Relaxed) == 1
    }

    fn next_index(&self) -> CallIndex {
        CallIndex(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl Agent {
    /// Carries out what is due: all at once, but for tools that want to be alone.
    pub(crate) async fn carry_out(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), Ended> {
        let due = transcript.due();
        let names: Vec<&str> = due.iter().map(|(call, _)| &*call.name).collect();
        let names = names.join(", ");
        let alone =
            |call: &ToolCall| self.tools.get(&call.name).is_some_and(|tool| tool.hints().alone);
        let (apart, together): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(call, _)| alone(call));
        let round = Round {
            left: AtomicUsize::new(together.len() + apart.len()),
            run: transcript.run,
            step: transcript.tally.steps,
            board: transcript.board.clone(),
            next: AtomicU32::new(transcript.next_index().0),
        };
        let carry_out = |(said, call)| self.carry_out_one((host, &round), said, call);
        let calls = together.into_iter().map(carry_out);
        let apart = apart.into_iter().map(carry_out);
        let together = stream::iter(calls).buffer_unordered(AT_ONCE);
        let mut done = together.chain(stream::iter(apart).buffered(1));
        let beat = Duration::from(self.policy.beat);
        let mut slow = pin!(sleep(WORTH_TELLING));
        let mut is_told = false;
        loop {
            let (call, done) = tokio::select! {
                biased;
                done = done.next() => match done {
                    Some(done) => done?,
                    None => break,
                },
                // What runs is at it, however long it takes.
                () = &mut slow => {
                    is_told = true;
                    slow.as_mut().reset(Instant::now() + beat);
                    host.progress(self.progress(transcript, &*names));
                    continue;
                }
            };
            match done {
                Done::Asked => transcript.parked(call.place.approval(), None),
                Done::Parked { effect } => transcript.parked(call.place.parked(), effect),
                Done::Result { result, owed } => {
                    transcript.answered(call.place.result(), result);
                    transcript.owed.extend(owed);
                }
            }
        }
        drop(done);
        transcript.go_on_at(CallIndex(round.next.into_inner()));
        if !is_told && transcript.open() > 0 {
            host.progress(self.progress(transcript, names));
        }
        Ok(())
    }

    /// Carries out one call as far as it goes now, and writes down what came of it.
    async fn carry_out_one(
        &self,
        (host, round): (&dyn Host, &Round),
        said: ToolCall,
        call: Call,
    ) -> Result<(Call, Done), Ended> {
        let passed = match self.is_cut_off(&call, &said.name) {
            true => return self.cut_off((host, round), said, call).await,
            false => self.let_pass((host, round), &said, &call).await?,
        };
        let outcome = match passed {
            Ok((tool, Leave::Given)) => self.observed(host, tool, (&said, &call)).await?,
            Ok((_, Leave::Asked(asked))) => match host.park(call.place.approval(), asked).await {
                Ok(()) => {
                    round.is_last();
                    self.count_call(&said.name, ToolOutcome::Waits);
                    return Ok((call, Done::Asked));
                }
                Err(refusal) => Err(refusal.into()),
            },
            Err(error) => {
                self.count_call(&said.name, ToolOutcome::Refused);
                Err(error)
            }
        };
        let told = match outcome {
            Ok(Outcome::Text(text)) => Ok(text),
            // Its slot has the first answer, which a second would contradict.
            Ok(Outcome::Park { .. }) if call.told.is_some() => {
                Err(ToolError::new("the tool wants to wait a second time, which no call can"))
            }
            Ok(Outcome::Park { asked, effect }) => {
                match host.park(call.place.parked(), asked).await {
                    Ok(()) => {
                        round.is_last();
                        return Ok((call, Done::Parked { effect }));
                    }
                    Err(refusal) => Err(refusal.into()),
                }
            }
            Err(error) => Err(error),
        };
        self.tell((host, round), (said, call), told).await
    }

    /// A call that must not happen twice had begun before everything ended. What is said of the tool by
    /// now does not count: it may be gone, or said to do no harm.
    async fn cut_off(
        &self,
        at: (&dyn Host, &Round),
        said: ToolCall,
        call: Call,
    ) -> Result<(Call, Done), Ended> {
        telemetry::executed(&telemetry::execute_tool(&said), ToolOutcome::Failed);
        self.count_call(&said.name, ToolOutcome::Failed);
        let unknown = "the call was interrupted, and its effect is unknown: it may have happened, in \
                       whole or in part. Look before you try again.";
        self.tell(at, (said, call), Err(ToolError::new(unknown))).await
    }

    /// Whether it had begun, and that is all that is known of it.
    fn is_cut_off(&self, call: &Call, tool: &str) -> bool {
        let Some(effect) = call.effect.as_deref().filter(|_| call.told.is_none()) else {
            return false;
        };
        let tool = self.tools.get(tool);
        let must_not_repeat = tool.is_some_and(|tool| tool.hints().effect == Effect::Once);
        must_not_repeat || *effect == Answer::Value(Json::null())
    }

    /// Writes down what the model is told of a call.
    async fn tell(
        &self,
        (host, round): (&dyn Host, &Round),
        (said, call): (ToolCall, Call),
        told: Result<String, ToolError>,
    ) -> Result<(Call, Done), Ended> {
        let failed = told.is_err();
        let text = told.unwrap_or_else(|ToolError(text)| text).into();
        let mut result = ToolResult { id: said.id.clone(), name: said.name.clone(), text, failed };
        let after = When::AfterTool(&said, &mut result);
        self.ask_plugins(after, &self.moment(round, &call), |_| true).await?;
        if result.text.len() > RESULT_MAX {
            result.text = shortened(&result.text, RESULT_MAX).into();
        }
        self.answer(host, round, (call, result)).await
    }

    /// Whether a call may be carried out: as the agent's permissions say, then its plugins.
    async fn let_pass(
        &self,
        (host, round): (&dyn Host, &Round),
        said: &ToolCall,
        call: &Call,
    ) -> Result<Result<(&Arc<dyn Tool>, Leave), ToolError>, Ended> {
        let permitted = match self.permitted(said, call) {
            Ok(permitted) => permitted,
            Err(error) => return Ok(Err(error)),
        };
        // Of a call that was begun, or that was asked about, they have been told.
        let slots = [&call.effect, &call.told, &call.verdict];
        if !call.passed
            && slots.into_iter().all(Option::is_none)
            && let Gate::Refuse(why) = self.ask_before((host, round), said, call).await?
        {
            return Ok(Err(ToolError::new(format!("this call is refused: {why}"))));
        }
        Ok(Ok(permitted))
    }

    /// Asks plugins about a call. What they change is written down before it is carried out, for it may
    /// wait for long; of a call that they refuse it is with its result.
    async fn ask_before(
        &self,
        (host, round): (&dyn Host, &Round),
        said: &ToolCall,
        call: &Call,
    ) -> Result<Gate, Ended> {
        for _ in 0..TRIES {
            let at = self.moment(round, call);
            let gate = self.ask_plugins(When::BeforeTool(said), &at, |_| true).await?;
            if gate != Gate::Pass {
                return Ok(gate);
            }
            let Ok(taken) = round.board.take(&call.state) else { continue };
            if taken.is_empty() {
                return Ok(gate);
            }
            let before = Before { call: call.place.0, state: taken.changes.clone() };
            let answer = Arc::new(Answer::Value(Json::of(&before)?));
            let record = Record::new(round.next_index(), label::BEFORE, answer);
            let record = Record { shared: taken.shared.clone(), ..record };
            match host.record(vec![record]).await {
                Err(refusal) if taken.is_refused_by(&refusal) => {
                    round.board.give_back(taken);
                    clash(&refusal)?;
                }
                told => return told.map(|()| gate).map_err(Ended::from),
            }
        }
        Err(again_and_again())
    }

    /// Writes down what a call came to, with what it changed of the state: of the last call of a
    /// message only with what is said next, unless it could not be carried out again.
    async fn answer(
        &self,
        host: &dyn Host,
        round: &Round,
        (call, mut result): (Call, ToolResult),
    ) -> Result<(Call, Done), Ended> {
        let taken = round.board.take(&call.state).unwrap_or_else(|error| {
            fail(&mut result, &error);
            Taken::default()
        });
        let mut record = record_of(&call, &result, &taken)?;
        let is_last = round.is_last();
        let tool = self.tools.get(&result.name);
        let must_not_repeat = tool.is_some_and(|tool| tool.hints().effect == Effect::Once);
        if is_last && !must_not_repeat && taken.shared.is_empty() {
            return Ok((call, Done::Result { result, owed: Some(record) }));
        }
        match host.record(vec![record]).await {
            Err(refusal) if taken.is_refused_by(&refusal) => {
                round.board.give_back(taken);
                fail(&mut result, &refusal);
                record = record_of(&call, &result, &Taken::default())?;
                host.record(vec![record]).await?;
            }
            recorded => recorded?,
        }
        Ok((call, Done::Result { result, owed: None }))
    }

    fn moment<'a>(&'a self, round: &Round, call: &'a Call) -> Moment<'a> {
        Moment { agent: &self.name, run: round.run, step: round.step, state: &call.state }
    }

    /// The tool that is meant, if the agent has it and may use it like this.
    fn permitted(
        &self,
        said: &ToolCall,
        call: &Call,
    ) -> Result<(&Arc<dyn Tool>, Leave), ToolError> {
        let Some(tool) = self.tools.get(&said.name) else {
            let names = self.tools.names().collect::<Vec<_>>().join(", ");
            let name: String = said.name.chars().take(100).collect();
            return Err(ToolError::new(format!("there is no tool {name:?}; you have: {names}")));
        };
        if let Arguments::Malformed { problem } = &said.arguments {
            return Err(ToolError::new(format!("the arguments are malformed: {problem}")));
        }
        if !matches!(call.arguments, Value::Object(_)) {
            return Err(ToolError::new("the arguments must be a JSON object"));
        }
        // What has begun was permitted, and what it did is told in any case.
        let begun = call.effect.is_some() || call.told.is_some();
        let leave = if begun { Leave::Given } else { self.leave(tool, said, call)? };
        Ok((tool, leave))
    }

    /// The same as [`Self::perform`], with what becomes of it seen from outside.
    async fn observed(
        &self,
        host: &dyn Host,
        tool: &Arc<dyn Tool>,
        (said, call): (&ToolCall, &Call),
    ) -> Result<Result<Outcome, ToolError>, Refusal> {
        let span = telemetry::execute_tool(said);
        let cut_off = UnlessOver::of(&span);
        let performed = self.perform(host, tool, call).instrument(span.clone()).await?;
        cut_off.over();
        let outcome = match &performed {
            Ok(Outcome::Text(_)) => ToolOutcome::Succeeded,
            Ok(Outcome::Park { .. }) => ToolOutcome::Waits,
            Err(_) => ToolOutcome::Failed,
        };
        telemetry::executed(&span, outcome);
        self.count_call(&said.name, outcome);
        Ok(performed)
    }

    async fn perform(
        &self,
        host: &dyn Host,
        tool: &Arc<dyn Tool>,
        call: &Call,
    ) -> Result<Result<Outcome, ToolError>, Refusal> {
        // What was told came of a call that had begun, and had got as far as waiting for it.
        if tool.hints().effect == Effect::Once && call.told.is_none() {
            let (index, answer) = (call.place.effect(), Arc::new(Answer::Value(Json::null())));
            host.record(vec![Record::new(index, label::BEGUN, answer)]).await?;
        }
        let performed = AssertUnwindSafe(async { tool.call(call.clone()).await });
        Ok(performed.catch_unwind().await.unwrap_or_else(|panic| {
            Err(ToolError::new(format!("the tool panicked: {}", panic_message(&*panic))))
        }))
    }
}

fn record_of(call: &Call, result: &ToolResult, taken: &Taken) -> Result<Record, Refusal> {
    let (label, answer) = match taken.changes.is_empty() {
        true => (label::RESULT, Json::of(result)?),
        false => (label::CHANGED, Json::of(&(result, &taken.changes))?),
    };
    let answer = Arc::new(Answer::Value(answer));
    let shared = taken.shared.clone();
    Ok(Record { shared, ..Record::new(call.place.result(), label, answer) })
}

/// What the call did stands; what it wanted to keep does not.
fn fail(result: &mut ToolResult, problem: &dyn std::fmt::Display) {
    result.failed = true;
    result.text = format!("{problem}. Apart from that the call returned: {}", result.text).into();
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Room for the words that say what is left out.
const MARK: usize = 100;

/// The beginning and the end of a text that is too long, with what is left out between them.
pub(crate) fn shortened(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    // With the mark it is no longer than that, so that it is not cut at the mark once more.
    let half = bytes.saturating_sub(MARK) / 2;
    let head = &text[..text.floor_char_boundary(half)];
    let tail = &text[text.ceil_char_boundary(text.len() - half)..];
    let cut = text.len() - head.len() - tail.len();
    format!("{head}\n[cut: {cut} of {} bytes are left out here]\n{tail}", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_cut_stays_as_it_is_and_says_how_much_is_missing() {
        let once = shortened(&"x".repeat(10 << 20), RESULT_MAX);
        assert!(once.len() <= RESULT_MAX && once.contains("of 10485760 bytes"), "{}", once.len());
        assert_eq!(shortened(&once, RESULT_MAX), once);
    }
}
