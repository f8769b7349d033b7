//! Tries again what may fare better a little later.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::error::{ErrorKind, ModelError};
use crate::model::{Model, Part, PartStream, Request};

/// How often and how long a call is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOptions {
    /// Tries in all, the first included. 0 counts as 1.
    pub tries: u32,
    /// The pause before the second try. Each further pause is twice as long, and a random part of
    /// up to its whole length is added to each, so that callers that failed together part.
    pub first_pause: Duration,
    /// The pause grows no longer than this, the random part apart.
    pub longest_pause: Duration,
    /// The longest a provider may ask to be left alone; when it asks for more, the call fails at
    /// once, because whoever waits should know.
    pub patience: Duration,
    /// No try begins later than this after the first. One that runs is not cut off: a long reply
    /// is not a failure.
    pub total: Duration,
    /// Makes the random part repeatable.
    pub seed: Option<u64>,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            tries: 8,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(30),
            patience: Duration::from_secs(300),
            total: Duration::from_secs(900),
            seed: None,
        }
    }
}

impl RetryOptions {
    /// Tries are counted by the call, not by the pauses: what a provider asks for is one of them.
    fn pauses(&self) -> ExponentialBackoff {
        let pauses = ExponentialBuilder::new()
            .with_min_delay(self.first_pause)
            .with_max_delay(self.longest_pause)
            .with_factor(2.0)
            .without_max_times();
        match self.seed {
            Some(seed) => pauses.with_jitter_seed(seed).with_jitter().build(),
            None => pauses.with_jitter().build(),
        }
    }
}

/// A model whose passing errors are tried again.
#[derive(Clone, Debug)]
pub struct Retry {
    inner: Arc<dyn Model>,
    options: Arc<RetryOptions>,
}

impl Retry {
    pub fn over(inner: Arc<dyn Model>, options: RetryOptions) -> Self {
        Self { inner, options: Arc::new(options) }
    }
}

impl Model for Retry {
    fn call(&self, request: Arc<Request>) -> PartStream {
        let call = Call {
            model: self.clone(),
            request,
            pauses: self.options.pauses(),
            deadline: None,
            tried: 0,
            state: State::Pausing { until: None },
        };
        Box::pin(stream::unfold(call, |mut call| async move {
            let item = call.next().await?;
            Some((item, call))
        }))
    }
}

/// One call with all its tries.
struct Call {
    model: Retry,
    request: Arc<Request>,
    pauses: ExponentialBackoff,
    /// Known when the first try begins; none is so far away that it never comes.
    deadline: Option<Instant>,
    tried: u32,
    state: State,
}

enum State {
    /// Before a try.
    Pausing {
        until: Option<Instant>,
    },
    Trying {
        parts: PartStream,
        /// Whether somebody has seen a part of this try.
        seen: bool,
    },
    Over,
}

impl Call {
    async fn next(&mut self) -> Option<Result<Part, ModelError>> {
        loop {
            let (parts, seen) = match &mut self.state {
                State::Over => return None,
                State::Pausing { until } => {
                    if let Some(until) = *until {
                        tokio::time::sleep_until(until).await;
                    }
                    self.begin();
                    continue;
                }
                State::Trying { parts, seen } => (parts, seen),
            };
            let error = match parts.next().await {
                Some(Ok(part)) => {
                    *seen |= !matches!(part, Part::InLine);
                    if matches!(part, Part::Finished(_)) {
                        self.state = State::Over;
                    }
                    return Some(Ok(part));
                }
                Some(Err(error)) => error,
                None => ModelError::new(ErrorKind::Connection, "the reply was cut off"),
            };
            let seen = *seen;
            match self.pause_after(&error) {
                Some(until) => self.state = State::Pausing { until: Some(until) },
                None => {
                    self.state = State::Over;
                    return Some(Err(self.given_up(error)));
                }
            }
            if seen {
                return Some(Ok(Part::Restarted { because: error.message }));
            }
        }
    }

    fn begin(&mut self) {
        self.tried += 1;
        if self.tried == 1 {
            self.deadline = Instant::now().checked_add(self.model.options.total);
        }
        let parts = self.model.inner.call(Arc::clone(&self.request));
        self.state = State::Trying { parts, seen: false };
    }

    /// When the next try is due, if there is to be one.
    fn pause_after(&mut self, error: &ModelError) -> Option<Instant> {
        let options = &self.model.options;
        if !error.kind.is_passing() || self.tried >= options.tries {
            return None;
        }
        let asked = error.retry_after.unwrap_or_default();
        if asked > options.patience {
            return None;
        }
        let until = Instant::now().checked_add(asked.saturating_add(self.pauses.next()?))?;
        self.deadline.is_none_or(|deadline| until <= deadline).then_some(until)
    }

    fn given_up(&self, mut error: ModelError) -> ModelError {
        if let Some(asked) = error.retry_after.filter(|asked| *asked > self.model.options.patience)
        {
            let asked = humantime::format_duration(Duration::from_secs(asked.as_secs()));
            error.message.push_str(&format!("; the provider asks to be left alone for {asked}"));
        }
        if self.tried > 1 {
            error.message.push_str(&format!(" (tried {} times)", self.tried));
        }
        error
    }
}

#[cfg(test)]
mod tests;
