//! Repeats calls after transient errors.

use brigade_model::duration::format_duration;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::error::{ModelError, ModelErrorKind};
use crate::model::{Model, ModelRequest, PartStream, ReplyPart};

/// Limits on the number and duration of tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    /// The total number of tries, the first included. 0 counts as 1.
    pub tries: u32,
    /// The pause before the second try. Each further pause is twice as long. Jitter of up to the
    /// whole pause is added, so that callers that failed together do not retry together.
    pub min_pause: Duration,
    /// The longest pause, without jitter.
    pub max_pause: Duration,
    /// The longest `retry_after` of a provider that is honoured. If it asks for more, the call
    /// fails at once, so that the caller learns of it.
    pub max_retry_after: Duration,
    /// No try starts later than this after the first. A running try is not aborted: a long reply is
    /// not a failure.
    pub total_timeout: Duration,
    /// A seed that makes the jitter repeatable.
    pub seed: Option<u64>,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            tries: 8,
            min_pause: Duration::from_millis(500),
            max_pause: Duration::from_secs(30),
            max_retry_after: Duration::from_secs(300),
            total_timeout: Duration::from_secs(900),
            seed: None,
        }
    }
}

impl RetryOptions {
    /// Returns pauses without a limit on their number: the call counts its tries.
    fn backoff(&self) -> ExponentialBackoff {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(self.min_pause)
            .with_max_delay(self.max_pause)
            .with_factor(2.0)
            .without_max_times();
        match self.seed {
            Some(seed) => pauses.with_jitter_seed(seed).with_jitter().build(),
            None => pauses.with_jitter().build(),
        }
    }
}

/// A model that retries calls after transient errors.
#[derive(Clone, Debug)]
pub struct RetryModel {
    inner: Arc<dyn Model>,
    options: Arc<RetryOptions>,
}

impl RetryModel {
    pub fn wrap(inner: Arc<dyn Model>, options: RetryOptions) -> Self {
        Self { inner, options: Arc::new(options) }
    }
}

impl Model for RetryModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let call = RetriedCall {
            model: self.clone(),
            request,
            backoff: self.options.backoff(),
            deadline: None,
            tries: 0,
            state: RetryState::Pausing { until: None },
        };
        Box::pin(stream::unfold(call, |mut call| async move {
            let item = call.next().await?;
            Some((item, call))
        }))
    }
}

/// One call with all its tries.
struct RetriedCall {
    model: RetryModel,
    request: Arc<ModelRequest>,
    backoff: ExponentialBackoff,
    /// The deadline, set when the first try starts. `None` if the time is too far away to
    /// represent.
    deadline: Option<Instant>,
    tries: u32,
    state: RetryState,
}

enum RetryState {
    Pausing {
        until: Option<Instant>,
    },
    Trying {
        parts: PartStream,
        /// True once a part of this try was passed on.
        seen: bool,
    },
    Finished,
}

impl RetriedCall {
    async fn next(&mut self) -> Option<Result<ReplyPart, ModelError>> {
        loop {
            let (parts, seen) = match &mut self.state {
                RetryState::Finished => return None,
                RetryState::Pausing { until } => {
                    if let Some(until) = *until {
                        tokio::time::sleep_until(until).await;
                    }
                    self.start_try();
                    continue;
                }
                RetryState::Trying { parts, seen } => (parts, seen),
            };
            let error = match parts.next().await {
                Some(Ok(part)) => {
                    *seen |= !matches!(part, ReplyPart::Queued);
                    if matches!(part, ReplyPart::Finished(_)) {
                        self.state = RetryState::Finished;
                    }
                    return Some(Ok(part));
                }
                Some(Err(error)) => error,
                None => ModelError::new(ModelErrorKind::Connection, "the reply was cut off"),
            };
            let seen = *seen;
            match self.next_try_at(&error) {
                Some(until) => self.state = RetryState::Pausing { until: Some(until) },
                None => {
                    self.state = RetryState::Finished;
                    return Some(Err(self.final_error(error)));
                }
            }
            if seen {
                return Some(Ok(ReplyPart::Restarted { reason: error.message }));
            }
        }
    }

    fn start_try(&mut self) {
        self.tries += 1;
        if self.tries == 1 {
            self.deadline = Instant::now().checked_add(self.model.options.total_timeout);
        }
        let parts = self.model.inner.call(Arc::clone(&self.request));
        self.state = RetryState::Trying { parts, seen: false };
    }

    /// Returns the time of the next try, or `None` if the call has failed.
    fn next_try_at(&mut self, error: &ModelError) -> Option<Instant> {
        let options = &self.model.options;
        if !error.kind.is_transient() || self.tries >= options.tries {
            return None;
        }
        let requested = error.retry_after.unwrap_or_default();
        if requested > options.max_retry_after {
            return None;
        }
        let until = Instant::now().checked_add(requested.saturating_add(self.backoff.next()?))?;
        self.deadline.is_none_or(|deadline| until <= deadline).then_some(until)
    }

    fn final_error(&self, mut error: ModelError) -> ModelError {
        if let Some(requested) =
            error.retry_after.filter(|requested| *requested > self.model.options.max_retry_after)
        {
            let requested = format_duration(Duration::from_secs(requested.as_secs()));
            error.message.push_str(&format!("; the provider asks callers to wait for {requested}"));
        }
        if self.tries > 1 {
            error.message.push_str(&format!(" (tried {} times)", self.tries));
        }
        error
    }
}

#[cfg(test)]
mod tests;
