//! The context of a running tool call: progress, state, cancellation and key.

use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brigade_model::truncate::truncate_end;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
pub use tokio_util::sync::CancellationToken;

use crate::shared_state::StateView;
use crate::step_calls::DueCall;
use crate::tool::{CallSlotRange, ToolInvocation};

/// The bytes of a tool's progress text that are shown.
const PROGRESS_TEXT_MAX: usize = 160;

/// The context of one call of a tool. Clones belong to the same call and can move into spawned work.
///
/// ```
/// use brigade_agent::{StateKey, Tool, ToolContext, ToolEffect, ToolError};
///
/// #[derive(Default, serde::Serialize, serde::Deserialize)]
/// struct SentCount(u32);
///
/// impl StateKey for SentCount {
///     const NAME: &'static str = "sent_count";
/// }
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Mail {
///     recipients: Vec<String>,
/// }
///
/// async fn send(context: ToolContext, mail: Mail) -> Result<String, ToolError> {
///     let count = mail.recipients.len();
///     for (index, recipient) in mail.recipients.iter().enumerate() {
///         // The agent was stopped, or has an urgent message.
///         if context.is_cancelled() {
///             return Ok(format!("stopped early: {index} of {count} are sent"));
///         }
///         context.progress(format!("{index} of {count} are sent"));
///         // The receiver recognizes a call that a crash repeated.
///         println!("{recipient}, idempotency key {}-{index}", context.key());
///     }
///     // Stored with the result of the call.
///     context.state().update(|sent: &mut SentCount| sent.0 += count as u32)?;
///     Ok(format!("{count} are sent"))
/// }
///
/// let tool = Tool::from_fn_with("send_mail", "Sends a mail.", ToolEffect::Idempotent, send);
/// # let _ = tool;
/// ```
#[derive(Clone)]
pub struct ToolContext {
    slot_range: CallSlotRange,
    state: StateView,
    signals: CallSignals,
}

impl ToolContext {
    pub(crate) fn new(call: &ToolInvocation) -> Self {
        let signals = call.signals.clone();
        Self { slot_range: call.slot_range, state: call.state.clone(), signals }
    }

    /// Reports the progress of the call to those who observe the agent. The newest text replaces an
    /// earlier one, and texts that follow each other quickly are not all shown. The model does not see
    /// them.
    pub fn progress(&self, text: impl Into<String>) {
        if let Some(progress) = &self.signals.progress {
            progress.report(self.slot_range, text.into());
        }
    }

    /// Returns the state that is shared with other calls and plugins. Changes are stored with the result
    /// of the call.
    pub fn state(&self) -> &StateView {
        &self.state
    }

    /// Returns a token that is cancelled when the agent is stopped or interrupted by an urgent message,
    /// when the runtime shuts down, and when the function panics.
    ///
    /// A stop also drops the function's future. The token is for work that this drop does not reach:
    /// spawned tasks, threads and loops that do not yield. After an interrupt the function may return
    /// early, and its result is used.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.signals.cancellation
    }

    /// Returns true if [`ToolContext::cancellation`] is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.signals.cancellation.is_cancelled()
    }

    /// Waits until [`ToolContext::cancellation`] is cancelled.
    pub async fn cancelled(&self) {
        self.signals.cancellation.cancelled().await;
    }

    /// Returns the idempotency key of the call. It is the same when a crash repeats the call, and no other
    /// call of any agent has it.
    pub fn key(&self) -> String {
        let task = self.signals.task_key.as_deref().unwrap_or("standalone");
        format!("{task}/call:{}", self.slot_range.result())
    }
}

impl Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext").field("key", &self.key()).finish_non_exhaustive()
    }
}

/// The connections of a call with the loop. The default has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSignals {
    pub(crate) cancellation: CancellationToken,
    pub(crate) progress: Option<Arc<StepProgress>>,
    pub(crate) task_key: Option<Arc<str>>,
}

/// The progress of all calls of one step.
#[derive(Debug)]
pub(crate) struct StepProgress {
    calls: Mutex<Vec<CallActivity>>,
    changed: Notify,
}

#[derive(Debug)]
struct CallActivity {
    slot_range: CallSlotRange,
    name: Arc<str>,
    phase: ActivityPhase,
}

#[derive(Debug)]
enum ActivityPhase {
    /// The call has not started, or it has ended.
    Idle,
    Running {
        text: Option<String>,
    },
}

impl StepProgress {
    pub(crate) fn new(due: &[DueCall]) -> Self {
        let calls = due.iter().map(|due| CallActivity {
            slot_range: due.invocation.slot_range,
            name: due.tool_call.name.clone(),
            phase: ActivityPhase::Idle,
        });
        Self { calls: Mutex::new(calls.collect()), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CallActivity>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_phase(&self, slot_range: CallSlotRange, phase: ActivityPhase) {
        let mut calls = self.lock();
        if let Some(call) = calls.iter_mut().find(|call| call.slot_range == slot_range) {
            call.phase = phase;
        }
    }

    pub(crate) fn start_call(&self, slot_range: CallSlotRange) {
        self.set_phase(slot_range, ActivityPhase::Running { text: None });
    }

    /// Ends a call. Later reports of its spawned work are ignored.
    pub(crate) fn end_call(&self, slot_range: CallSlotRange) {
        self.set_phase(slot_range, ActivityPhase::Idle);
    }

    fn report(&self, slot_range: CallSlotRange, new_text: String) {
        let mut calls = self.lock();
        let call = calls.iter_mut().find(|call| call.slot_range == slot_range);
        let Some(CallActivity { phase: ActivityPhase::Running { text }, .. }) = call else {
            return;
        };
        *text = Some(truncate_end(&new_text, PROGRESS_TEXT_MAX));
        drop(calls);
        self.changed.notify_one();
    }

    /// Waits for a report that came after the last wait.
    pub(crate) fn wait_for_report(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Renders the calls of the step: their names, each with the last text that it reported.
    pub(crate) fn activity(&self) -> String {
        let calls = self.lock();
        let texts = calls.iter().map(|call| match &call.phase {
            ActivityPhase::Running { text: Some(text) } => format!("{}: {text}", call.name),
            ActivityPhase::Running { text: None } | ActivityPhase::Idle => call.name.to_string(),
        });
        texts.collect::<Vec<_>>().join(", ")
    }
}
