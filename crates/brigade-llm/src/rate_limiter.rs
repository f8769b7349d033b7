//! One gate per provider, so that all who ask it slow down together.
//!
//! A call enters when it is its turn, fewer than the most calls run, the minute has tokens left and
//! the gate is open. When the provider tells one call that there are too many, the gate closes for
//! all until the time it named, and then opens gradually: each call that succeeds lets two more in.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::conversation::{ChatMessage, ContentBlock, ToolArguments};
use crate::error::{ModelError, ModelErrorKind};
use crate::model::{Model, ModelRequest, PartStream, ReplyPart, TokenUsage};

use limiter_state::{AdmitResult, LimiterState};

mod limiter_state;

/// How often a call that waits says so: who waits for its turn is not to be taken for dead.
const QUEUED_PART_INTERVAL: Duration = Duration::from_secs(30);

/// What a provider is asked at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimiterOptions {
    /// Calls that run at once. 0 counts as 1.
    pub max_running: usize,
    /// Tokens of requests and replies together.
    pub tokens_per_minute: Option<u64>,
    /// How many tokens of a reply are counted on entry, when it may have more: hardly one is as
    /// long as it may be, and what it was is known at its end.
    pub expected_output: u32,
    /// How long the gate stays closed when the provider does not say. Doubles with each closing
    /// that no success came between.
    pub min_pause: Duration,
    /// The gate closes for no longer than this, whatever the provider says.
    pub max_pause: Duration,
    /// While it opens gradually, one more call enters after so long, even if none has ended.
    pub ramp_up_interval: Duration,
}

impl Default for RateLimiterOptions {
    fn default() -> Self {
        Self {
            max_running: 16,
            tokens_per_minute: None,
            expected_output: 4096,
            min_pause: Duration::from_secs(2),
            max_pause: Duration::from_secs(300),
            ramp_up_interval: Duration::from_secs(2),
        }
    }
}

/// The gate. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct RateLimiter(Arc<RateLimiterInner>);

#[derive(Debug)]
struct RateLimiterInner {
    options: RateLimiterOptions,
    state: Mutex<LimiterState>,
    /// Held by the call that is first in line. Fair, and a call that is dropped leaves the line.
    queue: tokio::sync::Mutex<()>,
    /// Tells the first in line that a call has ended.
    call_ended: Notify,
}

/// How things are at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimiterStatus {
    pub running: usize,
    pub waiting: usize,
    /// For how long it is still closed.
    pub closed_for: Option<Duration>,
}

impl RateLimiter {
    pub fn new(options: RateLimiterOptions) -> Self {
        let flow = LimiterState::new(&options, Instant::now());
        Self(Arc::new(RateLimiterInner {
            options,
            state: Mutex::new(flow),
            queue: tokio::sync::Mutex::new(()),
            call_ended: Notify::new(),
        }))
    }

    pub fn status(&self) -> RateLimiterStatus {
        let flow = self.lock_state();
        let now = Instant::now();
        RateLimiterStatus {
            running: flow.running,
            waiting: flow.waiting,
            closed_for: flow.closed_until.and_then(|until| until.checked_duration_since(now)),
        }
    }

    /// Comes back when the call may be made. Dropping the future leaves the line.
    async fn acquire(&self, estimate: u64) -> CallPermit {
        let waiting = QueuedCallGuard::new(self);
        let turn = self.0.queue.lock().await;
        loop {
            let admission = self.lock_state().admit(&self.0.options, estimate, Instant::now());
            match admission {
                AdmitResult::Admitted { entered_at, charged } => {
                    drop(turn);
                    drop(waiting);
                    return CallPermit { limiter: self.clone(), entered_at, charged };
                }
                AdmitResult::NotBefore(time) => {
                    let _ = tokio::time::timeout_at(time, self.0.call_ended.notified()).await;
                }
                AdmitResult::WhenCallEnds => self.0.call_ended.notified().await,
            }
        }
    }

    /// What a panic elsewhere left behind is still a count of calls, so it is used.
    fn lock_state(&self) -> MutexGuard<'_, LimiterState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a call among those that wait, for as long as it does.
struct QueuedCallGuard<'a>(&'a RateLimiter);

impl<'a> QueuedCallGuard<'a> {
    fn new(gate: &'a RateLimiter) -> Self {
        gate.lock_state().waiting += 1;
        Self(gate)
    }
}

impl Drop for QueuedCallGuard<'_> {
    fn drop(&mut self) {
        self.0.lock_state().waiting -= 1;
    }
}

/// A call that is inside. Dropping it lets the next one in, and keeps the estimate as what it used:
/// what a call that was cut off has cost is not known.
struct CallPermit {
    limiter: RateLimiter,
    entered_at: Instant,
    charged: u64,
}

impl CallPermit {
    fn record_success(self, usage: &TokenUsage) {
        self.limiter.lock_state().record_success(self.entered_at, self.charged, usage.total());
    }

    /// `answered` says whether any part of a reply came.
    fn record_failure(self, error: &ModelError, answered: bool) {
        let mut flow = self.limiter.lock_state();
        if !answered {
            flow.refund(self.charged);
        }
        if error.kind == ModelErrorKind::RateLimited || error.retry_after.is_some() {
            flow.close(&self.limiter.0.options, self.entered_at, error.retry_after, Instant::now());
        }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        self.limiter.lock_state().running -= 1;
        self.limiter.0.call_ended.notify_one();
    }
}

/// A model whose calls pass a gate.
#[derive(Clone, Debug)]
pub struct RateLimitedModel {
    inner: Arc<dyn Model>,
    limiter: RateLimiter,
}

impl RateLimitedModel {
    pub fn wrap(inner: Arc<dyn Model>, gate: RateLimiter) -> Self {
        Self { inner, limiter: gate }
    }
}

impl Model for RateLimitedModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let (gate, guess) = (self.limiter.clone(), self.limiter.0.options.expected_output);
        let estimate = estimate_tokens(&request, guess);
        let entering = Box::pin(async move { gate.acquire(estimate).await });
        let call = RateLimitedCall::Queued { inner: self.inner.clone(), request, entering };
        Box::pin(stream::unfold(call, |mut call| async move {
            let item = call.next().await?;
            Some((item, call))
        }))
    }
}

/// Its place in line is kept while others are told of it.
type AcquireFuture = Pin<Box<dyn Future<Output = CallPermit> + Send>>;

enum RateLimitedCall {
    Queued { inner: Arc<dyn Model>, request: Arc<ModelRequest>, entering: AcquireFuture },
    Running { entered: CallPermit, parts: PartStream, answered: bool },
    Finished,
}

impl RateLimitedCall {
    async fn next(&mut self) -> Option<Result<ReplyPart, ModelError>> {
        if let Self::Queued { inner, request, entering } = self {
            let Ok(entered) = timeout(QUEUED_PART_INTERVAL, entering.as_mut()).await else {
                return Some(Ok(ReplyPart::Queued));
            };
            let parts = inner.call(Arc::clone(request));
            *self = Self::Running { entered, parts, answered: false };
        }
        let Self::Running { parts, answered, .. } = self else { return None };
        let item = parts.next().await;
        let answered = std::mem::replace(answered, true);
        // The place is given up with the last part, not when somebody gets round to dropping the
        // stream.
        if !matches!(item, Some(Ok(ReplyPart::Finished(_)) | Err(_)) | None) {
            return item;
        }
        if let Self::Running { entered, .. } = std::mem::replace(self, Self::Finished) {
            match &item {
                Some(Ok(ReplyPart::Finished(reply))) => entered.record_success(&reply.usage),
                Some(Err(error)) => entered.record_failure(error, answered),
                _ => drop(entered),
            }
        }
        item
    }
}

/// A token is about four bytes of text.
fn estimate_tokens(request: &ModelRequest, output_guess: u32) -> u64 {
    let tools: usize =
        request.tools.iter().map(|tool| tool.name.len() + tool.description.len() + 256).sum();
    let messages: usize = request.messages.iter().map(message_size).sum();
    let bytes = request.system.len() + tools + messages;
    bytes as u64 / 4 + u64::from(request.max_output.min(output_guess))
}

fn message_size(message: &ChatMessage) -> usize {
    match message {
        ChatMessage::User(user) => user.text.len(),
        ChatMessage::Results(results) => results.iter().map(|result| result.text.len()).sum(),
        ChatMessage::Assistant(said) => said.content.iter().map(content_size).sum(),
    }
}

fn content_size(content: &ContentBlock) -> usize {
    match content {
        ContentBlock::Text(text) => text.len(),
        ContentBlock::Reasoning(reasoning) => reasoning.text.len(),
        ContentBlock::Call(call) => match &call.arguments {
            ToolArguments::Json(value) => call.name.len() + json_size(value),
            ToolArguments::Malformed { problem } => call.name.len() + problem.len(),
        },
    }
}

/// About as long as it would be written, without writing it.
fn json_size(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => 2 + items.iter().map(json_size).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(key, value)| key.len() + 4 + json_size(value)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests;
