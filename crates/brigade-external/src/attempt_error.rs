//! The reason why an attempt of a backend ends early.

use brigade_agent::{AgentExit, PartialResult};
use brigade_model::outcome::Failure;
use brigade_model::refusal::Refusal;

#[derive(Debug)]
pub(crate) enum AttemptError {
    Failed(Failure),
    Refused(Refusal),
}

impl AttemptError {
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(Failure::error(text.into()))
    }

    /// Returns the exit of the attempt. A failure has the partial result.
    pub(crate) fn into_exit(self, partial: &PartialResult) -> AgentExit {
        match self {
            Self::Refused(refusal) => AgentExit::Refused(refusal),
            Self::Failed(failure) => AgentExit::Failed { failure, partial: partial.take() },
        }
    }
}

impl From<Refusal> for AttemptError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
