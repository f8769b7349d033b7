//! When an agent is stopped although it would go on.

use brigade_model::outcome::Failure;
use serde::{Deserialize, Serialize};

use crate::transcript::Tally;

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
}

impl Default for Policy {
    fn default() -> Self {
        Self { max_steps: 200, max_repeats: 5, max_errors: 20, max_repairs: 3, max_refusals: 10 }
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
