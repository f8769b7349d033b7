//! The retries of a job as a whole.

use brigade_model::call::ConditionRequest;
use brigade_model::entry_label::EntryLabel;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;

use super::calls::{JOB_RETRY_INDEX, RunStart};
use super::context::{JobContext, completion_result};
use super::job_error::JobError;
use super::registry::JobFuture;
use super::retry_policy::RetryPolicy;
use crate::error::store_refusal;
use crate::performer::retry_while_unavailable;

impl JobContext {
    /// Runs a job until it succeeds, fails fatally or has used up its tries. During a pause the task
    /// is suspended, and its future is dropped. It is entered again from the top afterwards.
    pub(super) async fn run_with_retries(
        &self,
        policy: RetryPolicy,
        enter: impl Fn() -> Option<JobFuture>,
    ) -> Result<Json, JobError> {
        let calls = &self.inner.calls;
        if let Some(pause) = calls.job_pause() {
            completion_result(pause.await?)?;
            self.restart().await?;
        }
        loop {
            let job = enter().ok_or_else(|| Refusal::internal("the job is not registered"))?;
            let error = match job.await {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            let tries = calls.failed_tries() + 1;
            let pause = policy.pause_after(tries).filter(|_| !error.is_fatal());
            let Some(pause) = pause.filter(|_| !self.is_stopping()) else { return Err(error) };
            let retry = ConditionRequest::Retry {
                label: EntryLabel::JobRetry,
                attempt: tries,
                error: error.into_details(),
                pause: pause.into(),
            };
            completion_result(calls.park_call(JOB_RETRY_INDEX, retry).await?)?;
            // The task was not suspended, because the pause was over before.
            self.restart().await?;
        }
    }

    /// Loads the journal again, so that the job begins from the top.
    async fn restart(&self) -> Result<(), Refusal> {
        let task = self.inner.task;
        let _running = self.inner.calls.mark_running();
        let reporter = self.inner.reporter();
        let journal = retry_while_unavailable(&reporter, || async {
            let journal = self.inner.store.journal(task.session, task.no).await;
            journal.map_err(|error| store_refusal(&error))
        });
        let run = RunStart { run: self.inner.run, earlier_entries: self.inner.earlier_entries };
        self.inner.calls.restart(journal.await?, run);
        Ok(())
    }
}
