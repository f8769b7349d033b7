//! The mark by which an agent knows what the runtime quotes to it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A word that only an agent and its runtime know. It stands at the beginning and the end of everything
/// that is quoted to the agent, so that no quoted text can pretend to be at its end. It is random, and
/// arrives with the request that spawns the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuoteMark(u64);

impl QuoteMark {
    /// From a number that nobody can guess.
    pub const fn new(random: u64) -> Self {
        Self(random)
    }
}

impl fmt::Display for QuoteMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mark-{:016x}", self.0)
    }
}
