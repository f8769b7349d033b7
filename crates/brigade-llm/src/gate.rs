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

use crate::conversation::{Arguments, Content, Message};
use crate::error::{ErrorKind, ModelError};
use crate::model::{Model, Part, PartStream, Request, TokenUsage};

use flow::{Admission, Flow};

mod flow;

/// How often a call that waits says so: who waits for its turn is not to be taken for dead.
const BETWEEN_SIGNS: Duration = Duration::from_secs(30);

/// What a provider is asked at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateOptions {
    /// Calls that run at once. 0 counts as 1.
    pub running: usize,
    /// Tokens of requests and replies together.
    pub tokens_per_minute: Option<u64>,
    /// How many tokens of a reply are counted on entry, when it may have more: hardly one is as
    /// long as it may be, and what it was is known at its end.
    pub output_guess: u32,
    /// How long the gate stays closed when the provider does not say. Doubles with each closing
    /// that no success came between.
    pub first_pause: Duration,
    /// The gate closes for no longer than this, whatever the provider says.
    pub longest_pause: Duration,
    /// While it opens gradually, one more call enters after so long, even if none has ended.
    pub step: Duration,
}

impl Default for GateOptions {
    fn default() -> Self {
        Self {
            running: 16,
            tokens_per_minute: None,
            output_guess: 4096,
            first_pause: Duration::from_secs(2),
            longest_pause: Duration::from_secs(300),
            step: Duration::from_secs(2),
        }
    }
}

/// The gate. Clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: GateOptions,
    flow: Mutex<Flow>,
    /// Held by the call that is first in line. Fair, and a call that is dropped leaves the line.
    first_in_line: tokio::sync::Mutex<()>,
    /// Tells the first in line that a call has ended.
    changed: Notify,
}

/// How things are at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateStanding {
    pub running: usize,
    pub waiting: usize,
    /// For how long it is still closed.
    pub closed_for: Option<Duration>,
}

impl Gate {
    pub fn new(options: GateOptions) -> Self {
        let flow = Flow::new(&options, Instant::now());
        Self(Arc::new(Shared {
            options,
            flow: Mutex::new(flow),
            first_in_line: tokio::sync::Mutex::new(()),
            changed: Notify::new(),
        }))
    }

    pub fn standing(&self) -> GateStanding {
        let flow = self.flow();
        let now = Instant::now();
        GateStanding {
            running: flow.running,
            waiting: flow.waiting,
            closed_for: flow.closed_until.and_then(|until| until.checked_duration_since(now)),
        }
    }

    /// Comes back when the call may be made. Dropping the future leaves the line.
    async fn enter(&self, estimate: u64) -> Entered {
        let waiting = Waiting::at(self);
        let turn = self.0.first_in_line.lock().await;
        loop {
            let admission = self.flow().admit(&self.0.options, estimate, Instant::now());
            match admission {
                Admission::Enter { entered_at, charged } => {
                    drop(turn);
                    drop(waiting);
                    return Entered { gate: self.clone(), entered_at, charged };
                }
                Admission::At(time) => {
                    let _ = tokio::time::timeout_at(time, self.0.changed.notified()).await;
                }
                Admission::WhenOneEnds => self.0.changed.notified().await,
            }
        }
    }

    /// What a panic elsewhere left behind is still a count of calls, so it is used.
    fn flow(&self) -> MutexGuard<'_, Flow> {
        self.0.flow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a call among those that wait, for as long as it does.
struct Waiting<'a>(&'a Gate);

impl<'a> Waiting<'a> {
    fn at(gate: &'a Gate) -> Self {
        gate.flow().waiting += 1;
        Self(gate)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.flow().waiting -= 1;
    }
}

/// A call that is inside. Dropping it lets the next one in, and keeps the estimate as what it used:
/// what a call that was cut off has cost is not known.
struct Entered {
    gate: Gate,
    entered_at: Instant,
    charged: u64,
}

impl Entered {
    fn succeeded(self, usage: &TokenUsage) {
        self.gate.flow().succeeded(self.entered_at, self.charged, usage.total());
    }

    /// `answered` says whether any part of a reply came.
    fn failed(self, error: &ModelError, answered: bool) {
        let mut flow = self.gate.flow();
        if !answered {
            flow.give_back(self.charged);
        }
        if error.kind == ErrorKind::RateLimited || error.retry_after.is_some() {
            flow.close(&self.gate.0.options, self.entered_at, error.retry_after, Instant::now());
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.gate.flow().running -= 1;
        self.gate.0.changed.notify_one();
    }
}

/// A model whose calls pass a gate.
#[derive(Clone, Debug)]
pub struct Gated {
    inner: Arc<dyn Model>,
    gate: Gate,
}

impl Gated {
    pub fn over(inner: Arc<dyn Model>, gate: Gate) -> Self {
        Self { inner, gate }
    }
}

impl Model for Gated {
    fn call(&self, request: Arc<Request>) -> PartStream {
        let (gate, guess) = (self.gate.clone(), self.gate.0.options.output_guess);
        let estimate = estimate(&request, guess);
        let entering = Box::pin(async move { gate.enter(estimate).await });
        let call = Call::Outside { inner: self.inner.clone(), request, entering };
        Box::pin(stream::unfold(call, |mut call| async move {
            let item = call.next().await?;
            Some((item, call))
        }))
    }
}

/// Its place in line is kept while others are told of it.
type Entering = Pin<Box<dyn Future<Output = Entered> + Send>>;

enum Call {
    Outside { inner: Arc<dyn Model>, request: Arc<Request>, entering: Entering },
    Inside { entered: Entered, parts: PartStream, answered: bool },
    Over,
}

impl Call {
    async fn next(&mut self) -> Option<Result<Part, ModelError>> {
        if let Self::Outside { inner, request, entering } = self {
            let Ok(entered) = timeout(BETWEEN_SIGNS, entering.as_mut()).await else {
                return Some(Ok(Part::InLine));
            };
            let parts = inner.call(Arc::clone(request));
            *self = Self::Inside { entered, parts, answered: false };
        }
        let Self::Inside { parts, answered, .. } = self else { return None };
        let item = parts.next().await;
        let answered = std::mem::replace(answered, true);
        // The place is given up with the last part, not when somebody gets round to dropping the
        // stream.
        if !matches!(item, Some(Ok(Part::Finished(_)) | Err(_)) | None) {
            return item;
        }
        if let Self::Inside { entered, .. } = std::mem::replace(self, Self::Over) {
            match &item {
                Some(Ok(Part::Finished(reply))) => entered.succeeded(&reply.usage),
                Some(Err(error)) => entered.failed(error, answered),
                _ => drop(entered),
            }
        }
        item
    }
}

/// A token is about four bytes of text.
fn estimate(request: &Request, output_guess: u32) -> u64 {
    let tools: usize =
        request.tools.iter().map(|tool| tool.name.len() + tool.description.len() + 256).sum();
    let messages: usize = request.messages.iter().map(size).sum();
    let bytes = request.system.len() + tools + messages;
    bytes as u64 / 4 + u64::from(request.max_output.min(output_guess))
}

fn size(message: &Message) -> usize {
    match message {
        Message::User(user) => user.text.len(),
        Message::Results(results) => results.iter().map(|result| result.text.len()).sum(),
        Message::Assistant(said) => said.content.iter().map(size_of_content).sum(),
    }
}

fn size_of_content(content: &Content) -> usize {
    match content {
        Content::Text(text) => text.len(),
        Content::Reasoning(reasoning) => reasoning.text.len(),
        Content::Call(call) => match &call.arguments {
            Arguments::Json(value) => call.name.len() + size_of_json(value),
            Arguments::Malformed { problem } => call.name.len() + problem.len(),
        },
    }
}

/// About as long as it would be written, without writing it.
fn size_of_json(value: &serde_json::Value) -> usize {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => 2 + items.iter().map(size_of_json).sum::<usize>(),
        Value::Object(fields) => {
            2 + fields.iter().map(|(key, value)| key.len() + 4 + size_of_json(value)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests;
