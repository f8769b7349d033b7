//! When an agent is stopped although it would go on.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use brigade_llm::ToolResult;
use brigade_model::ids::Millis;
use brigade_model::outcome::Failure;
use serde::{Deserialize, Serialize};

use crate::calls::TurnCall;

/// Bounds on one run that only the loop can see. Tokens, money and time are the runtime's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
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
    pub beat: Millis,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_steps: 200,
            max_repeats: 5,
            max_errors: 20,
            max_repairs: 3,
            max_refusals: 10,
            beat: Millis(60_000),
        }
    }
}

impl Policy {
    /// What ends the run here, if anything does.
    pub(crate) fn ends(&self, tally: &Tally) -> Option<Failure> {
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
pub(crate) struct Tally {
    /// Model calls in this run.
    pub(crate) steps: u32,
    /// How often the last calls were made in a row, exactly as they are and with the same results.
    pub(crate) repeated: u32,
    last_turn: Option<u64>,
    /// Calls in a row that failed.
    pub(crate) errors: u32,
    pub(crate) last_error: Arc<str>,
    /// Notes in a row that sent the model back to its work.
    pub(crate) notes: u32,
    /// Endings in this run that plugins refused.
    pub(crate) refusals: u32,
    pub(crate) tokens: u64,
}

impl Tally {
    /// Who calls the same again and hears something else does not turn in a circle.
    pub(crate) fn count_turn(&mut self, calls: &[TurnCall], results: &[ToolResult]) {
        let mut hasher = DefaultHasher::new();
        for (call, result) in calls.iter().zip(results) {
            call.call.name.hash(&mut hasher);
            serde_json::to_string(&call.call.arguments).unwrap_or_default().hash(&mut hasher);
            result.text.hash(&mut hasher);
        }
        let digest = Some(hasher.finish());
        self.repeated = if digest == self.last_turn { self.repeated + 1 } else { 0 };
        self.last_turn = digest;
    }

    pub(crate) fn no_calls(&mut self) {
        self.repeated = 0;
        self.last_turn = None;
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
