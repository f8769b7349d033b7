//! Executes the tool calls of one step: authorizes them, runs them concurrently, records their results.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use brigade_llm::ToolResult;
use brigade_llm::conversation::ToolArguments;
use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::ids::{CallIndex, RunNo};
use brigade_model::json::Json;
use brigade_model::outcome::panic_message;
use brigade_model::refusal::Refusal;
use brigade_model::truncate::{truncate_chars, truncate_middle};
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
use crate::output_replay::result_output;
use crate::plugin::{HookContext, HookDecision};
use crate::shared_state::{SharedState, StateDiff};
use crate::step_calls::{DueCall, ResultEntry};
use crate::telemetry::{self, FailOnDrop, ToolCallStatus};
use crate::tool::{CallPhase, Tool, ToolEffect, ToolError, ToolInvocation, ToolReply};
use crate::tool_context::{CallSignals, CancellationToken, StepProgress};
use crate::transcript::Transcript;
use brigade_model::entry_label::EntryLabel;

/// The longest tool result for the model, in bytes. The middle of a longer one is left out.
pub const RESULT_MAX: usize = 64 * 1024;

/// The most calls of one step that run at the same time.
const CONCURRENT_CALLS_MAX: usize = 64;

/// The shortest time between two reports of the progress of tools.
const TOOL_PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// The state of a call after one attempt to execute it.
enum CallProgress {
    Finished {
        result: ToolResult,
        unflushed: Option<JournalRecord>,
    },
    Parked {
        effect: Option<Arc<CallCompletion>>,
    },
    /// The call is parked until its approval is decided.
    NeedsApproval,
}

/// A call and its progress.
struct CallStep {
    invocation: ToolInvocation,
    progress: CallProgress,
}

/// A call and its result, before the result is recorded.
struct FinishedCall {
    invocation: ToolInvocation,
    result: ToolResult,
}

/// The decision of permissions and plugins about one call.
enum CallAdmission<'a> {
    Admitted { tool: &'a Tool, authorization: Authorization },
    Refused(ToolError),
}

/// The reply of an executed tool, with its error as a variant.
enum CallReply {
    Text(String),
    Park { condition: ConditionRequest, effect: Option<Arc<CallCompletion>> },
    Failed(ToolError),
}

impl From<Result<ToolReply, ToolError>> for CallReply {
    fn from(reply: Result<ToolReply, ToolError>) -> Self {
        match reply {
            Ok(ToolReply::Text(text)) => Self::Text(text),
            Ok(ToolReply::Park { condition, effect }) => Self::Park { condition, effect },
            Err(error) => Self::Failed(error),
        }
    }
}

/// The context that the calls of one step share.
struct StepScope<'a> {
    host: &'a dyn Host,
    run: RunNo,
    step: u32,
    state: SharedState,
    /// The number of calls that are neither finished nor parked.
    unfinished: AtomicUsize,
    /// The next free index of the journal.
    next: AtomicU32,
    progress: Arc<StepProgress>,
    /// Cancelled when the agent is stopped or interrupted.
    cancellation: CancellationToken,
    task_key: Arc<str>,
}

impl StepScope<'_> {
    /// Counts one call as finished or parked. Returns true for the last call of the step.
    fn finish_call(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// Creates the connections of one call with the loop.
    fn call_signals(&self) -> CallSignals {
        CallSignals {
            cancellation: self.cancellation.child_token(),
            progress: Some(self.progress.clone()),
            task_key: Some(self.task_key.clone()),
        }
    }

    fn next_index(&self) -> CallIndex {
        CallIndex(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

impl Agent {
    /// Executes all due calls: concurrently, then the calls of exclusive tools one after the other.
    pub(crate) async fn run_calls(
        &self,
        host: &dyn Host,
        transcript: &mut Transcript,
    ) -> Result<(), LoopError> {
        let due = transcript.due_calls();
        let progress = Arc::new(StepProgress::new(&due));
        let is_exclusive = |due: &DueCall| {
            self.tools.get(&due.tool_call.name).is_some_and(|tool| tool.hints().exclusive)
        };
        let (exclusive, concurrent): (Vec<_>, Vec<_>) = due.into_iter().partition(is_exclusive);
        let scope = StepScope {
            host,
            run: transcript.run,
            step: transcript.tally.steps,
            state: transcript.state.clone(),
            unfinished: AtomicUsize::new(concurrent.len() + exclusive.len()),
            next: AtomicU32::new(transcript.next_index().0),
            progress: progress.clone(),
            cancellation: host.stop_token().child_token(),
            task_key: host.task_key(),
        };
        let run_call = |due| self.run_call(&scope, due);
        let concurrent = concurrent.into_iter().map(run_call);
        let exclusive = exclusive.into_iter().map(run_call);
        let concurrent = stream::iter(concurrent).buffer_unordered(CONCURRENT_CALLS_MAX);
        let mut steps = concurrent.chain(stream::iter(exclusive).buffered(1));
        let interval = Duration::from(self.stop_policy.progress_interval);
        let mut next_report = pin!(sleep(PROGRESS_DELAY));
        let mut last_report: Option<Instant> = None;
        let mut interrupt = pin!(host.wait_for_interrupt());
        // A buffered result is committed after the others, so observers get it after them.
        let mut buffered_result = None;
        let mut failure = None;
        loop {
            let CallStep { invocation, progress: call_progress } = tokio::select! {
                biased;
                step = steps.next() => match step {
                    Some(Ok(step)) => step,
                    Some(Err(error)) => {
                        failure = Some(error);
                        break;
                    }
                    None => break,
                },
                // The message is in the inbox, which the agent reads after these calls.
                () = &mut interrupt, if !scope.cancellation.is_cancelled() => {
                    scope.cancellation.cancel();
                    continue;
                }
                () = progress.wait_for_report() => {
                    let earliest = last_report.map(|last| last + TOOL_PROGRESS_INTERVAL);
                    let due = earliest.unwrap_or_else(Instant::now);
                    let due = due.min(next_report.deadline());
                    next_report.as_mut().reset(due);
                    continue;
                }
                // A running tool is progress, however long it takes.
                () = &mut next_report => {
                    let now = Instant::now();
                    last_report = Some(now);
                    next_report.as_mut().reset(now + interval);
                    host.report_progress(self.progress(transcript, progress.activity()));
                    continue;
                }
            };
            let slots = invocation.slot_range;
            match call_progress {
                CallProgress::NeedsApproval => transcript.park_call(slots.approval(), None),
                CallProgress::Parked { effect } => transcript.park_call(slots.completion(), effect),
                CallProgress::Finished { result, unflushed } => {
                    let output = result_output(result.clone());
                    match unflushed {
                        Some(_) => buffered_result = Some(output),
                        None => host.report_output(output),
                    }
                    transcript.apply_result(slots.result(), result);
                    transcript.unflushed.extend(unflushed);
                }
            }
        }
        drop(steps);
        if let Some(output) = buffered_result {
            host.report_output(output);
        }
        if let Some(error) = failure {
            return Err(error);
        }
        transcript.advance_index(CallIndex(scope.next.into_inner()));
        if last_report.is_none() && transcript.parked_count() > 0 {
            host.report_progress(self.progress(transcript, progress.activity()));
        }
        Ok(())
    }

    /// Executes one call until it finishes or parks, and records its result.
    async fn run_call(
        &self,
        scope: &StepScope<'_>,
        mut due: DueCall,
    ) -> Result<CallStep, LoopError> {
        if self.was_interrupted(&due) {
            return self.report_interrupted(scope, due).await;
        }
        let name = due.tool_call.name.clone();
        let slots = due.invocation.slot_range;
        let reply = match self.admit_call(scope, &due).await? {
            CallAdmission::Admitted { tool, authorization: Authorization::Granted } => {
                due.invocation.signals = scope.call_signals();
                self.perform_observed(scope, tool, &due).await?
            }
            CallAdmission::Admitted {
                authorization: Authorization::NeedsApproval(condition),
                ..
            } => match scope.host.park(slots.approval(), condition).await {
                Ok(()) => {
                    scope.finish_call();
                    self.count_call(&name, ToolCallStatus::Waiting);
                    let progress = CallProgress::NeedsApproval;
                    return Ok(CallStep { invocation: due.invocation, progress });
                }
                Err(refusal) => CallReply::Failed(refusal.into()),
            },
            CallAdmission::Refused(error) => {
                self.count_call(&name, ToolCallStatus::Refused);
                CallReply::Failed(error)
            }
        };
        let text = match reply {
            CallReply::Text(text) => Ok(text),
            // The slot holds the first completion, which a second one would contradict.
            CallReply::Park { .. } if matches!(due.invocation.phase(), CallPhase::Resumed(_)) => {
                Err(ToolError::new(
                    "the tool asked to wait a second time; a call can wait only once",
                ))
            }
            CallReply::Park { condition, effect } => {
                match scope.host.park(slots.completion(), condition).await {
                    Ok(()) => {
                        scope.finish_call();
                        let progress = CallProgress::Parked { effect };
                        return Ok(CallStep { invocation: due.invocation, progress });
                    }
                    Err(refusal) => Err(refusal.into()),
                }
            }
            CallReply::Failed(error) => Err(error),
        };
        self.record_reply(scope, due, text).await
    }

    /// Reports an interrupted call of an unrepeatable tool as failed, with an unknown effect.
    async fn report_interrupted(
        &self,
        scope: &StepScope<'_>,
        due: DueCall,
    ) -> Result<CallStep, LoopError> {
        let span = telemetry::tool_span(&due.tool_call);
        telemetry::record_tool_status(&span, ToolCallStatus::Failed);
        self.count_call(&due.tool_call.name, ToolCallStatus::Failed);
        let unknown = "the call was interrupted, and its effect is unknown: it may have happened, in \
                       whole or in part. Check before you try again.";
        self.record_reply(scope, due, Err(ToolError::new(unknown))).await
    }

    /// Returns true if the call was started, must not be repeated, and has no completion.
    fn was_interrupted(&self, due: &DueCall) -> bool {
        let CallPhase::Started(effect) = due.invocation.phase() else { return false };
        // The record counts too: by now the tool may be gone, or may declare another effect.
        let was_once = *effect == CallCompletion::Value(Json::null());
        self.must_not_repeat(&due.tool_call.name) || was_once
    }

    fn must_not_repeat(&self, tool: &str) -> bool {
        self.tools.get(tool).is_some_and(|tool| tool.hints().effect == ToolEffect::Once)
    }

    /// Builds the result of a call, runs the `after_tool` hooks on it, and records it.
    async fn record_reply(
        &self,
        scope: &StepScope<'_>,
        due: DueCall,
        reply: Result<String, ToolError>,
    ) -> Result<CallStep, LoopError> {
        let DueCall { tool_call, invocation } = due;
        let failed = reply.is_err();
        let text = reply.unwrap_or_else(|ToolError(text)| text).into();
        let mut result =
            ToolResult { id: tool_call.id.clone(), name: tool_call.name.clone(), text, failed };
        let point = HookPoint::AfterTool(&tool_call, &mut result);
        self.call_plugins(point, &self.hook_context(scope, &invocation), |_| true).await?;
        if result.text.len() > RESULT_MAX {
            result.text = truncate_middle(&result.text, RESULT_MAX).into();
        }
        self.record_result(scope, FinishedCall { invocation, result }).await
    }

    /// Admits a call if the agent's permissions and then its plugins do.
    async fn admit_call(
        &self,
        scope: &StepScope<'_>,
        due: &DueCall,
    ) -> Result<CallAdmission<'_>, LoopError> {
        let admission = self.authorize_call(due);
        if matches!(admission, CallAdmission::Refused(_)) {
            return Ok(admission);
        }
        // Plugins were asked before the call started, or before its approval was requested.
        let call = &due.invocation;
        let is_new = matches!(call.phase(), CallPhase::New) && call.verdict.is_none();
        if is_new
            && !call.passed_hooks
            && let HookDecision::Refuse(reason) = self.run_before_tool_hooks(scope, due).await?
        {
            let refused = format!("this call is refused: {reason}");
            return Ok(CallAdmission::Refused(ToolError::new(refused)));
        }
        Ok(admission)
    }

    /// Runs the `before_tool` hooks. Their state changes are recorded before the call runs, because the
    /// call may park for a long time. For a refused call, they are recorded with its result.
    async fn run_before_tool_hooks(
        &self,
        scope: &StepScope<'_>,
        due: &DueCall,
    ) -> Result<HookDecision, LoopError> {
        let call = &due.invocation;
        for _ in 0..HOOK_TRIES {
            let context = self.hook_context(scope, call);
            let point = HookPoint::BeforeTool(&due.tool_call);
            let decision = self.call_plugins(point, &context, |_| true).await?;
            if decision != HookDecision::Pass {
                return Ok(decision);
            }
            let Ok(diff) = scope.state.take_changes(&call.state) else { continue };
            if diff.is_empty() {
                return Ok(decision);
            }
            let before = BeforeToolRecord { call: call.slot_range.0, state: diff.changes.clone() };
            let completion = Arc::new(CallCompletion::Value(Json::of(&before)?));
            let record = JournalRecord::new(scope.next_index(), EntryLabel::BeforeTool, completion);
            let record = JournalRecord { shared: diff.shared.clone(), ..record };
            match scope.host.record(vec![record]).await {
                Err(refusal) if diff.is_refused_by(&refusal) => {
                    scope.state.roll_back(diff);
                    check_conflict(&refusal)?;
                }
                recorded => return recorded.map(|()| decision).map_err(LoopError::from),
            }
        }
        Err(repeated_conflict_error())
    }

    /// Records the result of a call together with its state changes. The last result of a step is
    /// buffered for the next commit, unless the call cannot be repeated.
    async fn record_result(
        &self,
        scope: &StepScope<'_>,
        finished: FinishedCall,
    ) -> Result<CallStep, LoopError> {
        let FinishedCall { invocation, mut result } = finished;
        let diff = scope.state.take_changes(&invocation.state).unwrap_or_else(|error| {
            mark_failed(&mut result, &error);
            StateDiff::default()
        });
        let mut record = result_record(&invocation, &result, &diff)?;
        let is_last = scope.finish_call();
        if is_last && !self.must_not_repeat(&result.name) && diff.shared.is_empty() {
            let progress = CallProgress::Finished { result, unflushed: Some(record) };
            return Ok(CallStep { invocation, progress });
        }
        match scope.host.record(vec![record]).await {
            Err(refusal) if diff.is_refused_by(&refusal) => {
                scope.state.roll_back(diff);
                mark_failed(&mut result, &refusal);
                record = result_record(&invocation, &result, &StateDiff::default())?;
                scope.host.record(vec![record]).await?;
            }
            recorded => recorded?,
        }
        let progress = CallProgress::Finished { result, unflushed: None };
        Ok(CallStep { invocation, progress })
    }

    fn hook_context<'a>(
        &'a self,
        scope: &StepScope<'_>,
        call: &'a ToolInvocation,
    ) -> HookContext<'a> {
        HookContext { agent: &self.name, run: scope.run, step: scope.step, state: &call.state }
    }

    /// Finds the tool of a call and checks the call's arguments and permissions.
    fn authorize_call(&self, due: &DueCall) -> CallAdmission<'_> {
        let refused = |text: String| CallAdmission::Refused(ToolError(text));
        let DueCall { tool_call, invocation } = due;
        let Some(tool) = self.tools.get(&tool_call.name) else {
            let names = self.tools.names().collect::<Vec<_>>().join(", ");
            let name = truncate_chars(&tool_call.name, 100);
            return refused(format!("there is no tool {name:?}; you have: {names}"));
        };
        if let ToolArguments::Malformed { problem } = &tool_call.arguments {
            return refused(format!("the arguments are malformed: {problem}"));
        }
        if !matches!(invocation.arguments, Value::Object(_)) {
            return refused("the arguments must be a JSON object".to_owned());
        }
        // A started call was authorized then, and the model gets its result in any case.
        let authorization = match invocation.phase() {
            CallPhase::New => self.authorize(tool, due),
            CallPhase::Started(_) | CallPhase::Resumed(_) => Ok(Authorization::Granted),
        };
        match authorization {
            Ok(authorization) => CallAdmission::Admitted { tool, authorization },
            Err(error) => CallAdmission::Refused(error),
        }
    }

    /// Calls [`Self::perform_call`] within a span, and counts the status of the call.
    async fn perform_observed(
        &self,
        scope: &StepScope<'_>,
        tool: &Tool,
        due: &DueCall,
    ) -> Result<CallReply, Refusal> {
        let span = telemetry::tool_span(&due.tool_call);
        let guard = FailOnDrop::new(&span);
        let performed = self.perform_call(scope, tool, &due.invocation);
        let reply = performed.instrument(span.clone()).await?;
        guard.disarm();
        let status = match &reply {
            CallReply::Text(_) => ToolCallStatus::Succeeded,
            CallReply::Park { .. } => ToolCallStatus::Waiting,
            CallReply::Failed(_) => ToolCallStatus::Failed,
        };
        telemetry::record_tool_status(&span, status);
        self.count_call(&due.tool_call.name, status);
        Ok(reply)
    }

    async fn perform_call(
        &self,
        scope: &StepScope<'_>,
        tool: &Tool,
        call: &ToolInvocation,
    ) -> Result<CallReply, Refusal> {
        // A resumed call has recorded its start already.
        let is_resumed = matches!(call.phase(), CallPhase::Resumed(_));
        if tool.hints().effect == ToolEffect::Once && !is_resumed {
            let index = call.slot_range.effect();
            let completion = Arc::new(CallCompletion::Value(Json::null()));
            let started = JournalRecord::new(index, EntryLabel::ToolStarted, completion);
            scope.host.record(vec![started]).await?;
        }
        scope.host.check_lease()?;
        // A call that does not return, because it is dropped or panics, is cancelled: its spawned work
        // must not outlive it.
        let cancel_on_drop = call.signals.cancellation.clone().drop_guard();
        scope.progress.start_call(call.slot_range);
        let performed = AssertUnwindSafe(async { tool.call(call.clone()).await });
        let performed = performed.catch_unwind().await;
        scope.progress.end_call(call.slot_range);
        let reply = match performed {
            Ok(reply) => {
                cancel_on_drop.disarm();
                reply
            }
            Err(panic) => {
                drop(cancel_on_drop);
                Err(ToolError::new(format!("the tool panicked: {}", panic_message(&*panic))))
            }
        };
        Ok(reply.into())
    }
}

fn result_record(
    call: &ToolInvocation,
    result: &ToolResult,
    diff: &StateDiff,
) -> Result<JournalRecord, Refusal> {
    let index = call.slot_range.result();
    let value = |json| Arc::new(CallCompletion::Value(json));
    let record = if diff.changes.is_empty() {
        JournalRecord::new(index, EntryLabel::ToolResult, value(Json::of(result)?))
    } else {
        let entry = ResultEntry { result: result.clone(), state: diff.changes.clone() };
        JournalRecord::new(index, EntryLabel::ToolResultAndState, value(Json::of(&entry)?))
    };
    Ok(JournalRecord { shared: diff.shared.clone(), ..record })
}

/// Marks a result as failed because its state changes were not stored. The call itself did run.
fn mark_failed(result: &mut ToolResult, problem: &dyn std::fmt::Display) {
    result.failed = true;
    result.text = format!("{problem}. Apart from that the call returned: {}", result.text).into();
}
