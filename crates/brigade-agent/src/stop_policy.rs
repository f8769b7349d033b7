//! The stop policy: limits of one run that only the loop can enforce.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use brigade_llm::ToolResult;
use brigade_model::ids::Millis;
use brigade_model::outcome::Failure;
use serde::{Deserialize, Serialize};

use crate::step_calls::StepCall;

/// The limits of one run. The runtime enforces limits on tokens, money and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopPolicy {
    /// The most model calls.
    pub max_steps: u32,
    /// The most consecutive repetitions of the same calls with the same results.
    pub max_repeats: u32,
    /// The most consecutive failed calls.
    pub max_errors: u32,
    /// The most consecutive notes that ask the model to repair or complete its result.
    pub max_repairs: u32,
    /// The most refusals of plugins to end the run.
    pub max_refusals: u32,
    /// The interval of progress reports while nothing else is reported.
    pub progress_interval: Millis,
}

impl Default for StopPolicy {
    fn default() -> Self {
        Self {
            max_steps: 200,
            max_repeats: 5,
            max_errors: 20,
            max_repairs: 3,
            max_refusals: 10,
            progress_interval: Millis(60_000),
        }
    }
}

impl StopPolicy {
    /// Returns the failure that ends the run, if a limit is reached.
    pub(crate) fn check_limits(&self, tally: &RunTally) -> Option<Failure> {
        if tally.repeated >= self.max_repeats {
            Some(Failure::Loop { times: tally.repeated + 1 })
        } else if tally.errors >= self.max_errors {
            Some(Failure::Errors { count: tally.errors, last: tally.last_error.clone() })
        } else if tally.steps >= self.max_steps {
            Some(Failure::MaxSteps { steps: tally.steps })
        } else {
            None
        }
    }
}

/// The counts that [`StopPolicy`] limits.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTally {
    /// The number of model calls in this run.
    pub(crate) steps: u32,
    /// The number of consecutive repetitions of the last calls, with the same arguments and results.
    pub(crate) repeated: u32,
    last_calls: Option<u64>,
    /// The number of consecutive failed calls.
    pub(crate) errors: u32,
    pub(crate) last_error: Arc<str>,
    /// The number of consecutive notes that asked the model to continue.
    pub(crate) notes: u32,
    /// The number of refusals of plugins to end this run.
    pub(crate) refusals: u32,
    pub(crate) tokens: u64,
}

impl RunTally {
    /// Counts repetitions of the calls of a step. The same calls with other results are no repetition.
    pub(crate) fn count_calls(&mut self, calls: &[StepCall], results: &[ToolResult]) {
        let mut hasher = DefaultHasher::new();
        for (call, result) in calls.iter().zip(results) {
            call.call.name.hash(&mut hasher);
            serde_json::to_string(&call.call.arguments).unwrap_or_default().hash(&mut hasher);
            result.text.hash(&mut hasher);
        }
        let digest = Some(hasher.finish());
        self.repeated = if digest == self.last_calls { self.repeated + 1 } else { 0 };
        self.last_calls = digest;
    }

    pub(crate) fn reset_repeats(&mut self) {
        self.repeated = 0;
        self.last_calls = None;
    }

    pub(crate) fn count_result(&mut self, result: &ToolResult) {
        if result.failed {
            self.errors += 1;
            self.last_error = result.text.clone();
        } else {
            self.errors = 0;
        }
    }
}
