//! The error of a task that has no result of the expected type.

use std::sync::Arc;

use brigade_model::json::Json;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::refusal::Refusal;

/// The reason for which a task returned no result of the expected type.
///
/// ```
/// use brigade_model::outcome::Failure;
/// use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let runtime = Runtime::builder().start().await?;
/// # let session = runtime.session("kitchen").await?;
/// let burnt =
///     NewTask::closure("toast", |_: JobContext| async { Err::<(), _>(JobError::new("burnt")) });
/// let error = session.spawn(burnt).await?.result().await.unwrap_err();
/// assert!(matches!(error.failure(), Some(Failure::Error(_))));
/// assert_eq!(error.to_string(), "job:1 failed (error: burnt)");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The run failed or was cancelled.
    #[error("{address} {outcome}")]
    Ended { address: String, outcome: Arc<Outcome> },
    /// The run succeeded with a result of another type.
    #[error("the result of {address} is of another type: {problem}")]
    OtherType { address: String, result: Json, problem: String },
    /// The time passed. The task continues in the background.
    #[error("{address} has not ended in time; it continues in the background")]
    TimedOut { address: String },
    /// The task was not started, because another one failed or the time passed.
    #[error("the task was not started")]
    NotStarted,
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl TaskError {
    /// Returns the outcome of a run that failed or was cancelled.
    pub fn outcome(&self) -> Option<&Outcome> {
        match self {
            Self::Ended { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    /// Returns the failure of a run that failed.
    pub fn failure(&self) -> Option<&Failure> {
        match self.outcome()? {
            Outcome::Failed(failed) => Some(&failed.failure),
            Outcome::Succeeded { .. } | Outcome::Cancelled(_) => None,
        }
    }

    /// Returns true if the run was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.outcome(), Some(Outcome::Cancelled(_)))
    }
}
