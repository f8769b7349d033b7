//! A runtime on the memory store, with a session.

use brigade::store::{MemoryOptions, MemoryStore};
use brigade::{
    JobContext, JobError, JobTask, Limits, NewTask, RecoveryPolicy, Runtime, RuntimeBuilder,
    Session,
};
use peers_harness::BoxError;

/// The name of a job that waits for a message.
pub(crate) const WAIT_JOB: &str = "wait";

/// Returns a builder whose store forgets what nobody reads any more.
pub(crate) fn memory_builder() -> RuntimeBuilder {
    let options = MemoryOptions {
        max_events: 10_000,
        max_finished_tasks: 1_000,
        max_processed_messages: 1_000,
    };
    Runtime::builder().store(MemoryStore::with_options(options))
}

/// Starts a runtime and opens a session without a limit on its inboxes.
pub(crate) async fn start_runtime() -> Result<(Runtime, Session), BoxError> {
    let builder = memory_builder();
    let recovery = RecoveryPolicy::resume_max_crashes(1);
    let runtime = builder.job_named(WAIT_JOB, recovery, wait_for_message).start().await?;
    let limits = Limits { inbox: Some(u32::MAX), ..Limits::default() };
    let session = runtime.session_with("peers", limits).await?;
    Ok((runtime, session))
}

async fn wait_for_message(ctx: JobContext, (): ()) -> Result<(), JobError> {
    Ok(ctx.receive().await.map(|_| ())?)
}

/// Returns a task that ends at once.
pub(crate) fn no_op_task() -> NewTask<JobTask<()>> {
    NewTask::closure("nothing", |_| async { Ok::<_, JobError>(()) })
}

/// Returns a task that runs until it is stopped.
pub(crate) fn running_task() -> NewTask<JobTask<()>> {
    NewTask::closure("running", |ctx: JobContext| async move {
        ctx.stop_token().cancelled().await;
        Ok::<_, JobError>(())
    })
}
