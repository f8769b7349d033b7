//! A rate limiter for each provider, shared by all its callers.
//!
//! Calls are admitted in order. A call is admitted while fewer than `max_running` calls run, tokens
//! of the current minute remain, and the limiter is open. When the provider rejects one call as too
//! many, the limiter closes for all calls until the time that the provider named. It then opens
//! gradually: each successful call admits two more.
//!
//! Several processes can keep the limits together. Each one then has a share of them, which another part of
//! the program sets through a [`LimiterShare`].

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

mod limiter_share;
mod limiter_state;
mod rate_bucket;

pub use limiter_share::{
    CallDemand, LimitShare, LimiterShare, OpeningTurn, ShareGrant, ShareLevels, ShareReport,
    SharedLimits,
};

/// The interval at which a waiting call reports itself, so that it does not count as stalled.
const QUEUED_PART_INTERVAL: Duration = Duration::from_secs(30);

/// Limits on the calls to one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimiterOptions {
    /// The maximum number of concurrent calls. 0 counts as 1.
    pub max_running: usize,
    /// The maximum number of requests.
    pub requests_per_minute: Option<u64>,
    /// The maximum number of tokens of requests and replies together.
    pub tokens_per_minute: Option<u64>,
    /// The maximum number of reply tokens charged on admission. Few replies are as long as allowed,
    /// and the real usage is known at the end.
    pub expected_output: u32,
    /// The time that the limiter stays closed if the provider names none. It doubles with each
    /// closing that follows without a success.
    pub min_pause: Duration,
    /// The longest time that the limiter stays closed, also if the provider asks for more.
    pub max_pause: Duration,
    /// The interval at which one more call is admitted while the limiter opens gradually, even if
    /// none has ended.
    pub ramp_up_interval: Duration,
}

impl Default for RateLimiterOptions {
    fn default() -> Self {
        Self {
            max_running: 16,
            requests_per_minute: None,
            tokens_per_minute: None,
            expected_output: 4096,
            min_pause: Duration::from_secs(2),
            max_pause: Duration::from_secs(300),
            ramp_up_interval: Duration::from_secs(2),
        }
    }
}

/// The rate limiter of one provider. Clones share their state.
#[derive(Clone, Debug)]
pub struct RateLimiter(Arc<RateLimiterInner>);

#[derive(Debug)]
struct RateLimiterInner {
    options: RateLimiterOptions,
    state: Mutex<LimiterState>,
    /// A lock held by the first waiting call. It is fair, and a dropped call leaves the queue.
    queue: tokio::sync::Mutex<()>,
    /// A notification for the first waiting call that a call has ended, or that the share changed.
    changed: Notify,
    /// A notification for whoever divides the limits that a call waits, or that the limiter was closed.
    share_needed: Notify,
}

/// The state of a rate limiter, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimiterStatus {
    pub running: usize,
    pub waiting: usize,
    /// The remaining time for which it is closed.
    pub closed_for: Option<Duration>,
    /// The part of the limits that this process has, if it divides them with others.
    pub share: Option<LimitShare>,
}

impl RateLimiter {
    pub fn new(options: RateLimiterOptions) -> Self {
        let state = LimiterState::new(&options, Instant::now());
        Self(Arc::new(RateLimiterInner {
            options,
            state: Mutex::new(state),
            queue: tokio::sync::Mutex::new(()),
            changed: Notify::new(),
            share_needed: Notify::new(),
        }))
    }

    pub fn status(&self) -> RateLimiterStatus {
        let state = self.lock_state();
        let now = Instant::now();
        RateLimiterStatus {
            running: state.running,
            waiting: state.waiting,
            closed_for: state.closed_until.and_then(|until| until.checked_duration_since(now)),
            share: state.share,
        }
    }

    /// Waits until the call may start. Dropping the future leaves the queue.
    async fn acquire(&self, estimate: u64) -> CallPermit {
        let waiting = QueuedCallGuard::new(self, estimate);
        self.0.share_needed.notify_one();
        let queue_lock = self.0.queue.lock().await;
        loop {
            let admission = self.lock_state().admit(&self.0.options, estimate, Instant::now());
            match admission {
                AdmitResult::Admitted { entered_at, charged } => {
                    drop(queue_lock);
                    drop(waiting);
                    return CallPermit { limiter: self.clone(), entered_at, estimate, charged };
                }
                AdmitResult::NotBefore(time) => {
                    let _ = tokio::time::timeout_at(time, self.0.changed.notified()).await;
                }
                AdmitResult::WhenChanged => self.0.changed.notified().await,
            }
        }
    }

    /// Locks the state, also after a panic elsewhere: its counts remain valid.
    fn lock_state(&self) -> MutexGuard<'_, LimiterState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that counts a call as waiting.
struct QueuedCallGuard<'a> {
    limiter: &'a RateLimiter,
    estimate: u64,
}

impl<'a> QueuedCallGuard<'a> {
    fn new(limiter: &'a RateLimiter, estimate: u64) -> Self {
        let mut state = limiter.lock_state();
        state.waiting += 1;
        state.expected_tokens += estimate;
        Self { limiter, estimate }
    }
}

impl Drop for QueuedCallGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.limiter.lock_state();
        state.waiting -= 1;
        state.expected_tokens -= self.estimate;
    }
}

/// The permit of a running call. Dropping it admits the next call and leaves the estimate charged,
/// because the cost of an aborted call is unknown.
struct CallPermit {
    limiter: RateLimiter,
    entered_at: Instant,
    estimate: u64,
    charged: u64,
}

impl CallPermit {
    fn record_success(self, usage: &TokenUsage) {
        self.limiter.lock_state().record_success(self.entered_at, self.charged, usage.total());
    }

    /// Closes the limiter if the provider asks for it. `answered` is true if any part of a reply
    /// arrived.
    fn record_failure(self, error: &ModelError, answered: bool) {
        let mut state = self.limiter.lock_state();
        if !answered {
            state.refund(self.charged);
        }
        if error.kind == ModelErrorKind::RateLimited || error.retry_after.is_some() {
            state.close(
                &self.limiter.0.options,
                self.entered_at,
                error.retry_after,
                Instant::now(),
            );
            self.limiter.0.share_needed.notify_one();
        }
    }
}

impl Drop for CallPermit {
    fn drop(&mut self) {
        let mut state = self.limiter.lock_state();
        state.running -= 1;
        state.expected_tokens -= self.estimate;
        drop(state);
        self.limiter.0.changed.notify_one();
    }
}

/// A model whose calls wait for a rate limiter.
#[derive(Clone, Debug)]
pub struct RateLimitedModel {
    inner: Arc<dyn Model>,
    limiter: RateLimiter,
}

impl RateLimitedModel {
    pub fn wrap(inner: Arc<dyn Model>, limiter: RateLimiter) -> Self {
        Self { inner, limiter }
    }
}

impl Model for RateLimitedModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let limiter = self.limiter.clone();
        let estimate = estimate_tokens(&request, limiter.0.options.expected_output);
        let acquire = Box::pin(async move { limiter.acquire(estimate).await });
        let call = RateLimitedCall::Queued { inner: self.inner.clone(), request, acquire };
        Box::pin(stream::unfold(call, |mut call| async move {
            let item = call.next().await?;
            Some((item, call))
        }))
    }
}

/// The wait for a permit. It keeps its place in the queue while `Queued` parts are reported.
type AcquireFuture = Pin<Box<dyn Future<Output = CallPermit> + Send>>;

enum RateLimitedCall {
    Queued { inner: Arc<dyn Model>, request: Arc<ModelRequest>, acquire: AcquireFuture },
    Running { permit: CallPermit, parts: PartStream, answered: bool },
    Finished,
}

impl RateLimitedCall {
    async fn next(&mut self) -> Option<Result<ReplyPart, ModelError>> {
        if let Self::Queued { inner, request, acquire } = self {
            let Ok(permit) = timeout(QUEUED_PART_INTERVAL, acquire.as_mut()).await else {
                return Some(Ok(ReplyPart::Queued));
            };
            let parts = inner.call(Arc::clone(request));
            *self = Self::Running { permit, parts, answered: false };
        }
        let Self::Running { parts, answered, .. } = self else { return None };
        let item = parts.next().await;
        let answered = std::mem::replace(answered, true);
        // The permit is released with the last part, not with the drop of the stream.
        if !matches!(item, Some(Ok(ReplyPart::Finished(_)) | Err(_)) | None) {
            return item;
        }
        if let Self::Running { permit, .. } = std::mem::replace(self, Self::Finished) {
            match &item {
                Some(Ok(ReplyPart::Finished(reply))) => permit.record_success(&reply.usage),
                Some(Err(error)) => permit.record_failure(error, answered),
                _ => drop(permit),
            }
        }
        item
    }
}

/// Estimates the tokens of a request: one token is about four bytes of text.
fn estimate_tokens(request: &ModelRequest, expected_output: u32) -> u64 {
    let tools: usize =
        request.tools.iter().map(|tool| tool.name.len() + tool.description.len() + 256).sum();
    let messages: usize = request.messages.iter().map(message_size).sum();
    let bytes = request.system.len() + tools + messages;
    bytes as u64 / 4 + u64::from(request.max_output.min(expected_output))
}

fn message_size(message: &ChatMessage) -> usize {
    match message {
        ChatMessage::User(user) => user.text.len(),
        ChatMessage::Results(results) => results.iter().map(|result| result.text.len()).sum(),
        ChatMessage::Assistant(message) => message.content.iter().map(content_size).sum(),
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

/// Returns the approximate length of the value's text without writing it.
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
mod share_tests;
#[cfg(test)]
mod tests;
