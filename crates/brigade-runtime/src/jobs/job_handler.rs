//! The functions that can be registered for a job.

use std::future::Future;

use super::context::JobContext;
use super::job_error::JobError;

/// The handler of a job: an async function of the job's context and its arguments.
///
/// Each function and closure of this form implements it.
///
/// ```
/// use brigade_runtime::{JobContext, JobError, JobHandler};
///
/// async fn bake(ctx: JobContext, loaves: u32) -> Result<String, JobError> {
///     ctx.progress("the oven is hot").await?;
///     Ok(format!("{loaves} loaves"))
/// }
///
/// fn check(handler: impl JobHandler<u32, String>) {
///     drop(handler);
/// }
///
/// check(bake);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of a job with arguments `{A}` and result `{R}`",
    label = "expected an async function of `JobContext` and `{A}` that returns `Result<{R}, _>`",
    note = "its future must be `Send`, and its error must convert into `JobError`"
)]
pub trait JobHandler<A, R>:
    Fn(JobContext, A) -> <Self as JobHandler<A, R>>::Future + Send + Sync + 'static
{
    type Future: Future<Output = Result<R, <Self as JobHandler<A, R>>::Error>> + Send + 'static;
    type Error: Into<JobError>;
}

impl<A, R, F, Fut, E> JobHandler<A, R> for F
where
    F: Fn(JobContext, A) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    E: Into<JobError>,
{
    type Future = Fut;
    type Error = E;
}
