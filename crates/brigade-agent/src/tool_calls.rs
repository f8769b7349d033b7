//! The calls of one message: permitted or refused, carried out side by side, answered.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use brigade_llm::conversation::ToolArguments;
use brigade_llm::{ToolCall, ToolResult};
use brigade_model::call::CallCompletion;
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use crate::agent::{Agent, LoopError};
use crate::authorize::Authorization;
use crate::hooks::{
    BeforeToolRecord, HOOK_TRIES, HookPoint, check_conflict, repeated_conflict_error,
};
use crate::host::{Host, JournalRecord};
use crate::model_call::PROGRESS_DELAY;
use crate::plugin::{HookContext, HookDecision};
use crate::state::{SharedState, StateDiff};
use crate::telemetry::{self, FailOnDrop, ToolCallStatus};
use crate::tool::{Tool, ToolEffect, ToolError, ToolInvocation, ToolReply};
use crate::transcript::{Transcript, label};

/// The most that a model is told of one call: the beginning and the end of more than that.
pub const RESULT_MAX: usize = 64 * 1024;

/// How many calls of one message run side by side.
const CONCURRENT_CALLS_MAX: usize = 64;

/// What became of a call.
enum CallProgress {
    Finished {
        result: ToolResult,
        unflushed: Option<JournalRecord>,
    },
    Parked {
        effect: Option<Arc<CallCompletion>>,
    },
    /// It asks for leave.
    NeedsApproval,
}

/// What the calls of one message have in common.
struct StepScope {
    /// Calls that are not over yet.
    unfinished: AtomicUsize,
    run: RunNo,
    step: u32,
    state: SharedState,
    /// The next index of the conversation that nobody has.
    next: AtomicU32,
}

impl StepScope {
    /// One call is over, for now. Whether it was the last.
    fn finish_call(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::Relaxed) == 1
    }

    fn next_index(&self) -> CallIndex {
        CallIndex(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl Agent {
    /// Carries out what is due: all at once, but for tools that want to be alone.
    pub(crate) async fn run_calls(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), LoopError> {
        let due = transcript.due_calls();
        let names: Vec<&str> = due.iter().map(|(call, _)| &*call.name).collect();
        let names = names.join(", ");
        let alone =
            |call: &ToolCall| self.tools.get(&call.name).is_some_and(|tool| tool.hints().exclusive);
        let (apart, together): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(call, _)| alone(call));
        let round = StepScope {
            unfinished: AtomicUsize::new(together.len() + apart.len()),
            run: transcript.run,
            step: transcript.tally.steps,
            state: transcript.state.clone(),
            next: AtomicU32::new(transcript.next_index().0),
        };
        let carry_out = |(said, call)| self.run_call((host, &round), said, call);
        let calls = together.into_iter().map(carry_out);
        let apart = apart.into_iter().map(carry_out);
        let together = stream::iter(calls).buffer_unordered(CONCURRENT_CALLS_MAX);
        let mut done = together.chain(stream::iter(apart).buffered(1));
        let beat = Duration::from(self.stop_policy.progress_interval);
        let mut slow = pin!(sleep(PROGRESS_DELAY));
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
                    host.report_progress(self.progress(transcript, &*names));
                    continue;
                }
            };
            match done {
                CallProgress::NeedsApproval => {
                    transcript.park_call(call.slot_range.approval(), None)
                }
                CallProgress::Parked { effect } => {
                    transcript.park_call(call.slot_range.completion(), effect)
                }
                CallProgress::Finished { result, unflushed: owed } => {
                    transcript.apply_result(call.slot_range.result(), result);
                    transcript.unflushed.extend(owed);
                }
            }
        }
        drop(done);
        transcript.advance_index(CallIndex(round.next.into_inner()));
        if !is_told && transcript.parked_count() > 0 {
            host.report_progress(self.progress(transcript, names));
        }
        Ok(())
    }

    /// Carries out one call as far as it goes now, and writes down what came of it.
    async fn run_call(
        &self,
        (host, round): (&dyn Host, &StepScope),
        said: ToolCall,
        call: ToolInvocation,
    ) -> Result<(ToolInvocation, CallProgress), LoopError> {
        let passed = match self.was_interrupted(&call, &said.name) {
            true => return self.report_interrupted((host, round), said, call).await,
            false => self.admit_call((host, round), &said, &call).await?,
        };
        let outcome = match passed {
            Ok((tool, Authorization::Granted)) => {
                self.perform_observed(host, tool, (&said, &call)).await?
            }
            Ok((_, Authorization::NeedsApproval(asked))) => {
                match host.park(call.slot_range.approval(), asked).await {
                    Ok(()) => {
                        round.finish_call();
                        self.count_call(&said.name, ToolCallStatus::Waiting);
                        return Ok((call, CallProgress::NeedsApproval));
                    }
                    Err(refusal) => Err(refusal.into()),
                }
            }
            Err(error) => {
                self.count_call(&said.name, ToolCallStatus::Refused);
                Err(error)
            }
        };
        let told = match outcome {
            Ok(ToolReply::Text(text)) => Ok(text),
            // Its slot has the first answer, which a second would contradict.
            Ok(ToolReply::Park { .. }) if call.completion.is_some() => {
                Err(ToolError::new("the tool wants to wait a second time, which no call can"))
            }
            Ok(ToolReply::Park { asked, effect }) => {
                match host.park(call.slot_range.completion(), asked).await {
                    Ok(()) => {
                        round.finish_call();
                        return Ok((call, CallProgress::Parked { effect }));
                    }
                    Err(refusal) => Err(refusal.into()),
                }
            }
            Err(error) => Err(error),
        };
        self.record_reply((host, round), (said, call), told).await
    }

    /// A call that must not happen twice had begun before everything ended. What is said of the tool by
    /// now does not count: it may be gone, or said to do no harm.
    async fn report_interrupted(
        &self,
        at: (&dyn Host, &StepScope),
        said: ToolCall,
        call: ToolInvocation,
    ) -> Result<(ToolInvocation, CallProgress), LoopError> {
        telemetry::record_tool_status(&telemetry::tool_span(&said), ToolCallStatus::Failed);
        self.count_call(&said.name, ToolCallStatus::Failed);
        let unknown = "the call was interrupted, and its effect is unknown: it may have happened, in \
                       whole or in part. Look before you try again.";
        self.record_reply(at, (said, call), Err(ToolError::new(unknown))).await
    }

    /// Whether it had begun, and that is all that is known of it.
    fn was_interrupted(&self, call: &ToolInvocation, tool: &str) -> bool {
        let Some(effect) = call.effect.as_deref().filter(|_| call.completion.is_none()) else {
            return false;
        };
        let tool = self.tools.get(tool);
        let must_not_repeat = tool.is_some_and(|tool| tool.hints().effect == ToolEffect::Once);
        must_not_repeat || *effect == CallCompletion::Value(Json::null())
    }

    /// Writes down what the model is told of a call.
    async fn record_reply(
        &self,
        (host, round): (&dyn Host, &StepScope),
        (said, call): (ToolCall, ToolInvocation),
        told: Result<String, ToolError>,
    ) -> Result<(ToolInvocation, CallProgress), LoopError> {
        let failed = told.is_err();
        let text = told.unwrap_or_else(|ToolError(text)| text).into();
        let mut result = ToolResult { id: said.id.clone(), name: said.name.clone(), text, failed };
        let after = HookPoint::AfterTool(&said, &mut result);
        self.call_plugins(after, &self.hook_context(round, &call), |_| true).await?;
        if result.text.len() > RESULT_MAX {
            result.text = truncate_middle(&result.text, RESULT_MAX).into();
        }
        self.record_result(host, round, (call, result)).await
    }

    /// Whether a call may be carried out: as the agent's permissions say, then its plugins.
    async fn admit_call(
        &self,
        (host, round): (&dyn Host, &StepScope),
        said: &ToolCall,
        call: &ToolInvocation,
    ) -> Result<Result<(&Arc<dyn Tool>, Authorization), ToolError>, LoopError> {
        let permitted = match self.authorize_call(said, call) {
            Ok(permitted) => permitted,
            Err(error) => return Ok(Err(error)),
        };
        // Of a call that was begun, or that was asked about, they have been told.
        let slots = [&call.effect, &call.completion, &call.verdict];
        if !call.passed_hooks
            && slots.into_iter().all(Option::is_none)
            && let HookDecision::Refuse(why) =
                self.run_before_tool_hooks((host, round), said, call).await?
        {
            return Ok(Err(ToolError::new(format!("this call is refused: {why}"))));
        }
        Ok(Ok(permitted))
    }

    /// Asks plugins about a call. What they change is written down before it is carried out, for it may
    /// wait for long; of a call that they refuse it is with its result.
    async fn run_before_tool_hooks(
        &self,
        (host, round): (&dyn Host, &StepScope),
        said: &ToolCall,
        call: &ToolInvocation,
    ) -> Result<HookDecision, LoopError> {
        for _ in 0..HOOK_TRIES {
            let at = self.hook_context(round, call);
            let gate = self.call_plugins(HookPoint::BeforeTool(said), &at, |_| true).await?;
            if gate != HookDecision::Pass {
                return Ok(gate);
            }
            let Ok(taken) = round.state.take_changes(&call.state) else { continue };
            if taken.is_empty() {
                return Ok(gate);
            }
            let before = BeforeToolRecord { call: call.slot_range.0, state: taken.changes.clone() };
            let answer = Arc::new(CallCompletion::Value(Json::of(&before)?));
            let record = JournalRecord::new(round.next_index(), label::BEFORE_TOOL, answer);
            let record = JournalRecord { shared: taken.shared.clone(), ..record };
            match host.record(vec![record]).await {
                Err(refusal) if taken.is_refused_by(&refusal) => {
                    round.state.roll_back(taken);
                    check_conflict(&refusal)?;
                }
                told => return told.map(|()| gate).map_err(LoopError::from),
            }
        }
        Err(repeated_conflict_error())
    }

    /// Writes down what a call came to, with what it changed of the state: of the last call of a
    /// message only with what is said next, unless it could not be carried out again.
    async fn record_result(
        &self,
        host: &dyn Host,
        round: &StepScope,
        (call, mut result): (ToolInvocation, ToolResult),
    ) -> Result<(ToolInvocation, CallProgress), LoopError> {
        let taken = round.state.take_changes(&call.state).unwrap_or_else(|error| {
            mark_failed(&mut result, &error);
            StateDiff::default()
        });
        let mut record = result_record(&call, &result, &taken)?;
        let is_last = round.finish_call();
        let tool = self.tools.get(&result.name);
        let must_not_repeat = tool.is_some_and(|tool| tool.hints().effect == ToolEffect::Once);
        if is_last && !must_not_repeat && taken.shared.is_empty() {
            return Ok((call, CallProgress::Finished { result, unflushed: Some(record) }));
        }
        match host.record(vec![record]).await {
            Err(refusal) if taken.is_refused_by(&refusal) => {
                round.state.roll_back(taken);
                mark_failed(&mut result, &refusal);
                record = result_record(&call, &result, &StateDiff::default())?;
                host.record(vec![record]).await?;
            }
            recorded => recorded?,
        }
        Ok((call, CallProgress::Finished { result, unflushed: None }))
    }

    fn hook_context<'a>(&'a self, round: &StepScope, call: &'a ToolInvocation) -> HookContext<'a> {
        HookContext { agent: &self.name, run: round.run, step: round.step, state: &call.state }
    }

    /// The tool that is meant, if the agent has it and may use it like this.
    fn authorize_call(
        &self,
        said: &ToolCall,
        call: &ToolInvocation,
    ) -> Result<(&Arc<dyn Tool>, Authorization), ToolError> {
        let Some(tool) = self.tools.get(&said.name) else {
            let names = self.tools.names().collect::<Vec<_>>().join(", ");
            let name: String = said.name.chars().take(100).collect();
            return Err(ToolError::new(format!("there is no tool {name:?}; you have: {names}")));
        };
        if let ToolArguments::Malformed { problem } = &said.arguments {
            return Err(ToolError::new(format!("the arguments are malformed: {problem}")));
        }
        if !matches!(call.arguments, Value::Object(_)) {
            return Err(ToolError::new("the arguments must be a JSON object"));
        }
        // What has begun was permitted, and what it did is told in any case.
        let begun = call.effect.is_some() || call.completion.is_some();
        let leave = if begun { Authorization::Granted } else { self.authorize(tool, said, call)? };
        Ok((tool, leave))
    }

    /// The same as [`Self::perform`], with what becomes of it seen from outside.
    async fn perform_observed(
        &self,
        host: &dyn Host,
        tool: &Arc<dyn Tool>,
        (said, call): (&ToolCall, &ToolInvocation),
    ) -> Result<Result<ToolReply, ToolError>, Refusal> {
        let span = telemetry::tool_span(said);
        let cut_off = FailOnDrop::new(&span);
        let performed = self.perform_call(host, tool, call).instrument(span.clone()).await?;
        cut_off.disarm();
        let outcome = match &performed {
            Ok(ToolReply::Text(_)) => ToolCallStatus::Succeeded,
            Ok(ToolReply::Park { .. }) => ToolCallStatus::Waiting,
            Err(_) => ToolCallStatus::Failed,
        };
        telemetry::record_tool_status(&span, outcome);
        self.count_call(&said.name, outcome);
        Ok(performed)
    }

    async fn perform_call(
        &self,
        host: &dyn Host,
        tool: &Arc<dyn Tool>,
        call: &ToolInvocation,
    ) -> Result<Result<ToolReply, ToolError>, Refusal> {
        // What was told came of a call that had begun, and had got as far as waiting for it.
        if tool.hints().effect == ToolEffect::Once && call.completion.is_none() {
            let (index, answer) =
                (call.slot_range.effect(), Arc::new(CallCompletion::Value(Json::null())));
            host.record(vec![JournalRecord::new(index, label::STARTED, answer)]).await?;
        }
        let performed = AssertUnwindSafe(async { tool.call(call.clone()).await });
        Ok(performed.catch_unwind().await.unwrap_or_else(|panic| {
            Err(ToolError::new(format!("the tool panicked: {}", panic_message(&*panic))))
        }))
    }
}

fn result_record(
    call: &ToolInvocation,
    result: &ToolResult,
    taken: &StateDiff,
) -> Result<JournalRecord, Refusal> {
    let (label, answer) = match taken.changes.is_empty() {
        true => (label::RESULT, Json::of(result)?),
        false => (label::RESULT_AND_STATE, Json::of(&(result, &taken.changes))?),
    };
    let answer = Arc::new(CallCompletion::Value(answer));
    let shared = taken.shared.clone();
    Ok(JournalRecord { shared, ..JournalRecord::new(call.slot_range.result(), label, answer) })
}

/// What the call did stands; what it wanted to keep does not.
fn mark_failed(result: &mut ToolResult, problem: &dyn std::fmt::Display) {
    result.failed = true;
    result.text = format!("{problem}. Apart from that the call returned: {}", result.text).into();
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Room for the words that say what is left out.
const TRUNCATION_MARK_BYTES: usize = 100;

/// The beginning and the end of a text that is too long, with what is left out between them.
pub fn truncate_middle(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    // With the mark it is no longer than that, so that it is not cut at the mark once more.
    let half = bytes.saturating_sub(TRUNCATION_MARK_BYTES) / 2;
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
        let once = truncate_middle(&"x".repeat(10 << 20), RESULT_MAX);
        assert!(once.len() <= RESULT_MAX && once.contains("of 10485760 bytes"), "{}", once.len());
        assert_eq!(truncate_middle(&once, RESULT_MAX), once);
    }
}
