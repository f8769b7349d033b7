//! When an agent is stopped although it would go on.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use brigade_llm::ToolResult;
use brigade_model::ids::Millis;
use brigade_model::outcome::Failure;
use serde::{Deserialize, Serialize};

use crate::step_calls::StepCall;

/// Bounds on one run that only the loop can see. Tokens, money and time are the runtime's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StopPolicy {
    /// Model calls.
    pub max_steps: u32,
    /// The very same calls in a row.
    pub max_repeats: u32,
    /// Failed calls in a row.
    pub max_errors: u32,
    /// How often in a row the model is sent back to mend its result or finish its sentence.
    pub max_repairs: u32,
    /// How often in a run plugins may refuse its ending.
    pub max_refusals: u32,
    /// How often whoever looks is told that the agent is at it, while there is nothing else to tell.
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
    /// What ends the run here, if anything does.
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

/// What the stop policies look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTally {
    /// Model calls in this run.
    pub(crate) steps: u32,
    /// How often the last calls were made in a row, exactly as they are and with the same results.
    pub(crate) repeated: u32,
    last_calls: Option<u64>,
    /// Calls in a row that failed.
    pub(crate) errors: u32,
    pub(crate) last_error: Arc<str>,
    /// Notes in a row that sent the model back to its work.
    pub(crate) notes: u32,
    /// Endings in this run that plugins refused.
    pub(crate) refusals: u32,
    pub(crate) tokens: u64,
}

impl RunTally {
    /// Who calls the same again and hears something else does not turn in a circle.
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
