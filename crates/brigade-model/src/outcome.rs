//! The outcome of a run.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error_details::ErrorDetails;
use crate::ids::Millis;
use crate::json::{Json, present};
use crate::limits::LimitKind;

/// The outcome of a run. Each run has exactly one.
///
/// ```
/// use brigade_model::json::Json;
/// use brigade_model::outcome::{Failure, Outcome};
///
/// let soup = Outcome::Succeeded { result: Json::of("soup")? };
/// assert!(soup.is_success());
/// let burnt = Outcome::failed(Failure::ExitCode(2));
/// assert_eq!(burnt.to_string(), "failed (exit code 2)");
/// # Ok::<(), brigade_model::refusal::Refusal>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Succeeded { result: Json },
    Failed(FailedOutcome),
    Cancelled(CancelledOutcome),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedOutcome {
    pub failure: Failure,
    /// The partial result, if any.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub partial: Option<Json>,
    #[serde(default)]
    pub confirmation: EndConfirmation,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelledOutcome {
    pub order: Arc<StopOrder>,
    /// The report of the work after the stop was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<LateResult>,
    /// The partial result at the stop.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub partial: Option<Json>,
    pub confirmation: EndConfirmation,
}

/// The evidence that nothing of a stopped run survives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndConfirmation {
    /// The performer confirmed the end, or there was no performer.
    #[default]
    Confirmed,
    /// The performer did not confirm within the bound. It holds its slot until it does.
    Unconfirmed,
    /// These survivors could not be ended.
    Survivors(Vec<Arc<str>>),
}

/// The report of a run after its stop was requested.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LateResult {
    Result(Json),
    Failure(Failure),
}

/// The initiator of a stop, with its reason and grace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrder {
    pub by: StopInitiator,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// Overrides each task's own grace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Millis>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopInitiator {
    Operator,
    Client,
    Owner,
    /// The task itself.
    Itself,
    /// Its parent ended before it.
    ParentEnded,
    /// The session was closed.
    SessionClosed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Failure {
    /// The work returned an error.
    Error(Box<ErrorDetails>),
    Panic(Arc<str>),
    Timeout {
        after: Millis,
    },
    /// Nothing happened for so long, and nudges did not help.
    Stalled {
        quiet: Millis,
    },
    Budget {
        limit: LimitKind,
    },
    MaxSteps {
        steps: u32,
    },
    /// It repeated the same calls too many times.
    Loop {
        times: u32,
    },
    /// So many of its calls failed in a row.
    Errors {
        count: u32,
        last: Arc<str>,
    },
    ExitCode(i32),
    Signal(i32),
    CrashLoop {
        crashes: u16,
    },
    Lost {
        by: Arc<str>,
        evidence: Arc<str>,
    },
}

impl Outcome {
    pub fn failed(failure: Failure) -> Self {
        Self::Failed(FailedOutcome {
            failure,
            partial: None,
            confirmation: EndConfirmation::Confirmed,
        })
    }

    pub fn cancelled(order: Arc<StopOrder>) -> Self {
        Self::Cancelled(CancelledOutcome {
            order,
            late: None,
            partial: None,
            confirmation: EndConfirmation::Confirmed,
        })
    }

    pub fn is_success(&self) -> bool {
        matches!(self, Self::Succeeded { .. })
    }

    /// Returns the size of the run's result or partial result in bytes.
    pub(crate) fn result_bytes(&self) -> usize {
        let result = match self {
            Self::Succeeded { result } => Some(result),
            Self::Failed(failed) => failed.partial.as_ref(),
            Self::Cancelled(cancelled) => match &cancelled.late {
                Some(LateResult::Result(result)) => Some(result),
                Some(LateResult::Failure(_)) | None => cancelled.partial.as_ref(),
            },
        };
        result.map_or(0, |result| result.as_str().len())
    }

    /// Returns one word for lists.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Succeeded { .. } => "succeeded",
            Self::Failed(_) => "failed",
            Self::Cancelled(_) => "cancelled",
        }
    }
}

impl Failure {
    /// Creates a failure from a message, or from an error with details.
    pub fn error(error: impl Into<ErrorDetails>) -> Self {
        Self::Error(Box::new(error.into()))
    }

    /// Returns the error of work that returned one.
    pub fn error_details(&self) -> Option<&ErrorDetails> {
        match self {
            Self::Error(error) => Some(error),
            _ => None,
        }
    }

    /// Returns the kind of failure in one word, without details.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Error(_) => "error",
            Self::Panic(_) => "panic",
            Self::Timeout { .. } => "timeout",
            Self::Stalled { .. } => "stalled",
            Self::Budget { .. } => "budget",
            Self::MaxSteps { .. } => "max_steps",
            Self::Loop { .. } => "loop",
            Self::Errors { .. } => "errors",
            Self::ExitCode(_) => "exit_code",
            Self::Signal(_) => "signal",
            Self::CrashLoop { .. } => "crash_loop",
            Self::Lost { .. } => "lost",
        }
    }
}

impl From<ErrorDetails> for Failure {
    fn from(error: ErrorDetails) -> Self {
        Self::error(error)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded { .. } => f.write_str("succeeded"),
            Self::Failed(failed) => write!(f, "failed ({}){}", failed.failure, failed.confirmation),
            Self::Cancelled(cancelled) => write!(f, "cancelled{}", cancelled.confirmation),
        }
    }
}

impl fmt::Display for EndConfirmation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Confirmed => Ok(()),
            Self::Unconfirmed => f.write_str(" (unconfirmed)"),
            Self::Survivors(names) => write!(f, " (survivors: {})", names.join(", ")),
        }
    }
}

/// The signal of the kernel to a process that used up its processor time, and to no other.
const SIGXCPU: i32 = 24;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(error) => write!(f, "error: {error}"),
            Self::Panic(message) => write!(f, "panic: {message}"),
            Self::Timeout { after } => write!(f, "timeout after {} ms", after.0),
            Self::Stalled { quiet } => {
                write!(f, "stalled: nothing happened for {}", crate::stall::render_duration(*quiet))
            }
            Self::Budget { limit } => write!(f, "budget: {limit}"),
            Self::MaxSteps { steps } => write!(f, "max steps: {steps}"),
            Self::Loop { times } => write!(f, "loop: the same calls {times} times in a row"),
            Self::Errors { count, last } => {
                write!(f, "{count} failed calls in a row, the last: {last}")
            }
            Self::ExitCode(code) => write!(f, "exit code {code}"),
            Self::Signal(SIGXCPU) => write!(f, "signal {SIGXCPU}: its processor time is used up"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::CrashLoop { crashes } => write!(f, "crash loop: {crashes} without progress"),
            Self::Lost { by, evidence } => write!(f, "lost, says {by}: {evidence}"),
        }
    }
}

/// Returns the message of a panic that was caught.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_has_the_message_of_its_payload() {
        assert_eq!(panic_message(&"fire"), "fire");
        assert_eq!(panic_message(&"smoke".to_owned()), "smoke");
        assert_eq!(panic_message(&7), "no message");
    }
}
