//! A job by name, with the types of its arguments and its result.

use std::fmt;
use std::marker::PhantomData;

use brigade_model::work::RecoveryPolicy;
use serde::Serialize;

use super::registry::JobRules;
use super::retry_policy::RetryPolicy;
use crate::new_task::{JobTask, NewTask};

/// The name of a job with the types of its arguments and its result. The compiler checks both where
/// the job is registered and where it is spawned.
///
/// ```
/// use brigade_runtime::{Job, JobContext, JobError, Runtime};
///
/// const BAKE: Job<u32, String> = Job::new("bake");
///
/// async fn bake(_ctx: JobContext, loaves: u32) -> Result<String, JobError> {
///     Ok(format!("{loaves} loaves"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().job(BAKE, bake).start().await?;
/// let session = runtime.session("demo").await?;
/// let task = session.spawn(BAKE.with(12)).await?;
/// assert_eq!(task.result().await?, "12 loaves");
/// # Ok(())
/// # }
/// ```
pub struct Job<A, R> {
    name: &'static str,
    rules: JobRules,
    types: PhantomData<fn(A) -> R>,
}

impl<A, R> Job<A, R> {
    /// Names a job. After a crash of the runtime it is resumed, at most three times without
    /// progress.
    pub const fn new(name: &'static str) -> Self {
        let rules = JobRules { recovery: RecoveryPolicy::DEFAULT_RESUME, retry: None };
        Self { name, rules, types: PhantomData }
    }

    /// Sets the rule for a run that a crash of the runtime interrupted.
    #[must_use]
    pub const fn recovery(self, recovery: RecoveryPolicy) -> Self {
        let rules = JobRules { recovery, retry: self.rules.retry };
        Self { rules, ..self }
    }

    /// Runs the job again when it returns an error that is not fatal, with durable pauses in
    /// between. Recorded calls keep their results, except the failures right before the error, so
    /// nothing that succeeded is done twice.
    #[must_use]
    pub const fn retry(self, policy: RetryPolicy) -> Self {
        let rules = JobRules { recovery: self.rules.recovery, retry: Some(policy) };
        Self { rules, ..self }
    }

    /// Returns the name under which the job is registered and stored.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) const fn rules(&self) -> JobRules {
        self.rules
    }
}

impl<A: Serialize, R> Job<A, R> {
    /// Creates a task of this job with these arguments.
    #[must_use]
    pub fn with(&self, args: A) -> NewTask<JobTask<R>> {
        NewTask::typed_job(self.name, &args)
    }
}

impl<A, R> Clone for Job<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for Job<A, R> {}

impl<A, R> fmt::Debug for Job<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Job").field(&self.name).finish()
    }
}
