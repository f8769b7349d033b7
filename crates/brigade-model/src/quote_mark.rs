//! The quote mark, by which an agent recognizes text that the runtime quotes to it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A word that only an agent and its runtime know. It encloses all text that is quoted to the
/// agent, so that quoted text cannot forge its own end. It is random, and arrives with the request
/// that spawns the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct QuoteMark(u64);

impl QuoteMark {
    /// Creates a mark from an unguessable number.
    pub const fn new(random: u64) -> Self {
        Self(random)
    }
}

impl fmt::Display for QuoteMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mark-{:016x}", self.0)
    }
}
