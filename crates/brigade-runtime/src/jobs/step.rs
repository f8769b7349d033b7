//! Steps of a job: code that runs once and whose result is recorded.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use brigade_model::call::{CallCompletion, ConditionRequest};
use brigade_model::command::{AttemptReport, CallRecord};
use brigade_model::entry_label::EntryLabel;
use brigade_model::ids::CallIndex;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::{JobCall, JobContext, unexpected_completion};
use super::job_error::JobError;
use super::retry_policy::RetryPolicy;

type BoxedStep<'a, T> = Pin<Box<dyn Future<Output = Result<T, JobError>> + Send + 'a>>;

/// A step of a job. [`JobContext::step`] makes it, and awaiting it runs it.
#[must_use = "a step runs when it is awaited"]
pub struct Step<'a, F, T> {
    draft: Option<StepDraft<F>>,
    // A function pointer, so that this type is a future whatever the type of the body is. The
    // compiler would have to prove that anew wherever a step is joined with other futures, and fails
    // for bodies that borrow.
    run: fn(StepDraft<F>) -> BoxedStep<'a, T>,
    running: Option<BoxedStep<'a, T>>,
}

/// A step that was begun.
#[doc(hidden)]
pub struct StepDraft<F> {
    context: JobContext,
    label: EntryLabel,
    call: Result<JobCall, Refusal>,
    body: F,
}

/// The body of a step: a function without arguments that returns a future of a result.
///
/// The bound is this trait, and not `FnOnce`, so that the compiler lets a closure be `FnMut` where
/// [`Step::retry`] needs that.
#[diagnostic::on_unimplemented(
    message = "the body of a step is a function without arguments that returns a future of a \
               `Result`, both sendable"
)]
pub trait StepBody<'a, T>: Sized {
    #[doc(hidden)]
    fn run(
        draft: StepDraft<Self>,
    ) -> Pin<Box<dyn Future<Output = Result<T, JobError>> + Send + 'a>>;
}

impl<'a, T, E, F, Fut> StepBody<'a, T> for F
where
    T: Serialize + DeserializeOwned + Send + 'a,
    E: Into<JobError> + Send + 'a,
    F: FnOnce() -> Fut + Send + 'a,
    Fut: Future<Output = Result<T, E>> + Send + 'a,
{
    fn run(draft: StepDraft<Self>) -> BoxedStep<'a, T> {
        Box::pin(run_once(draft))
    }
}

impl JobContext {
    /// Runs the body once and records its result, which is returned when the job is entered again.
    /// If the process dies before the record is stored, the body runs again.
    ///
    /// [`Step::retry`] repeats a body that fails.
    pub fn step<'a, T, F: StepBody<'a, T>>(&self, name: &str, body: F) -> Step<'a, F, T> {
        let label = EntryLabel::step(name);
        // The call is made here, not when the step is first polled.
        let call = self.begin(&label);
        let draft = StepDraft { context: self.clone(), label, call, body };
        Step { draft: Some(draft), run: F::run, running: None }
    }
}

impl<'a, F, T> Step<'a, F, T> {
    /// Repeats the body when it fails, with durable pauses in between. A fatal error
    /// ([`JobError::fatal`]) is not retried. The journal has one entry for each attempt that failed
    /// and one for the result, so attempts are counted across crashes.
    ///
    /// ```
    /// use brigade_runtime::{JobContext, JobError, RetryPolicy};
    /// use std::time::Duration;
    ///
    /// async fn order(ctx: JobContext, amount: u64) -> Result<String, JobError> {
    ///     let policy = RetryPolicy::exponential(Duration::from_secs(1)).max_attempts(8);
    ///     ctx.step("charge", || charge(amount)).retry(policy).await
    /// }
    /// # async fn charge(_: u64) -> Result<String, std::io::Error> { Ok(String::new()) }
    /// ```
    pub fn retry<E, Fut>(self, policy: RetryPolicy) -> RetriedStep<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        E: Into<JobError> + Send + 'a,
        F: FnMut() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
    {
        let draft = self.draft;
        RetriedStep(Box::pin(async move {
            match draft {
                Some(draft) => run_with_retries(draft, policy).await,
                None => Err(Refusal::internal("a step was polled before its retries").into()),
            }
        }))
    }
}

/// A step that is repeated when it fails. [`Step::retry`] makes it.
#[must_use = "a step runs when it is awaited"]
pub struct RetriedStep<'a, T>(BoxedStep<'a, T>);

impl<F, T> Future for Step<'_, F, T> {
    type Output = Result<T, JobError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(draft) = self.draft.take() {
            self.running = Some((self.run)(draft));
        }
        match &mut self.running {
            Some(running) => running.as_mut().poll(context),
            None => Poll::Ready(Err(Refusal::internal("a step has no body").into())),
        }
    }
}

// The body is never pinned: its future is in a box.
impl<F, T> Unpin for Step<'_, F, T> {}

impl<T> Future for RetriedStep<'_, T> {
    type Output = Result<T, JobError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<F> fmt::Debug for StepDraft<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepDraft").field("label", &self.label).finish_non_exhaustive()
    }
}

impl<F, T> fmt::Debug for Step<'_, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.draft.as_ref().map(|draft| &draft.label);
        f.debug_struct("Step").field("label", &label).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for RetriedStep<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetriedStep").finish_non_exhaustive()
    }
}

async fn run_once<T, E, F, Fut>(draft: StepDraft<F>) -> Result<T, JobError>
where
    T: Serialize + DeserializeOwned,
    E: Into<JobError>,
    F: FnOnce() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let StepDraft { context, label, call, body } = draft;
    let index = match call? {
        JobCall::Known(completion) => {
            let index = completion.index();
            match read_entry(&*completion.await?)? {
                StepEntry::Result(result) => return result,
                // The step was retried before, and is not any more.
                StepEntry::Failed { .. } => index,
            }
        }
        JobCall::New(index) => index,
    };
    let completion = context.attempt_step(body).await;
    let completion = completion.unwrap_or_else(|error| CallCompletion::Error(error.into_details()));
    context.record_step(index, label, completion).await
}

async fn run_with_retries<T, E, F, Fut>(
    draft: StepDraft<F>,
    policy: RetryPolicy,
) -> Result<T, JobError>
where
    T: Serialize + DeserializeOwned,
    E: Into<JobError>,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let StepDraft { context, label, call, mut body } = draft;
    policy.check()?;
    let mut failed_attempts = 0;
    let index = match call? {
        JobCall::Known(completion) => {
            let index = completion.index();
            match read_entry(&*completion.await?)? {
                StepEntry::Result(result) => return result,
                StepEntry::Failed { attempts } => failed_attempts = attempts,
            }
            index
        }
        JobCall::New(index) => index,
    };
    loop {
        let error = match context.attempt_step(&mut body).await {
            Ok(completion) => return context.record_step(index, label, completion).await,
            Err(error) => error.into_details(),
        };
        failed_attempts += 1;
        let pause = policy.pause_after(failed_attempts).filter(|_| !error.fatal);
        let Some(pause) = pause else {
            return context.record_step(index, label, CallCompletion::Error(error)).await;
        };
        let retry = ConditionRequest::Retry {
            label: label.clone(),
            attempt: failed_attempts,
            error,
            pause: pause.into(),
        };
        match read_entry::<T>(&*context.inner.calls.park_call(index, retry).await?)? {
            StepEntry::Result(result) => return result,
            StepEntry::Failed { attempts } => failed_attempts = attempts,
        }
    }
}

/// The last entry of a step in the journal.
enum StepEntry<T> {
    Result(Result<T, JobError>),
    /// So many attempts failed, and the pause after the last is over.
    Failed {
        attempts: u32,
    },
}

fn read_entry<T: DeserializeOwned>(completion: &CallCompletion) -> Result<StepEntry<T>, JobError> {
    Ok(match completion {
        CallCompletion::Value(value) => StepEntry::Result(Ok(value.decode()?)),
        CallCompletion::Error(error) => {
            StepEntry::Result(Err(JobError::from_details(error.clone())))
        }
        CallCompletion::Retried { attempt, .. } => StepEntry::Failed { attempts: *attempt },
        CallCompletion::Refused(refusal) => return Err(refusal.clone().into()),
        other => return Err(unexpected_completion("step", other).into()),
    })
}

impl JobContext {
    /// Runs the body of a step, after everything recorded has been replayed.
    async fn attempt_step<T, E, Fut>(
        &self,
        body: impl FnOnce() -> Fut,
    ) -> Result<CallCompletion, JobError>
    where
        T: Serialize,
        E: Into<JobError>,
        Fut: Future<Output = Result<T, E>>,
    {
        poll_fn(|context| self.inner.calls.poll_replayed(context)).await;
        if self.inner.lease.as_ref().is_some_and(|lease| lease.check().is_err()) {
            // The next owner of the session runs the step. This job is halted.
            std::future::pending::<()>().await;
        }
        let _running = self.inner.calls.mark_running();
        let value = body().await.map_err(Into::into)?;
        Ok(CallCompletion::Value(Json::of(&value)?))
    }

    async fn record_step<T: DeserializeOwned>(
        &self,
        index: CallIndex,
        label: EntryLabel,
        completion: CallCompletion,
    ) -> Result<T, JobError> {
        let _running = self.inner.calls.mark_running();
        self.inner.calls.register_call(index);
        let record = CallRecord::new(index, label, Arc::new(completion));
        self.report(AttemptReport::Record(record)).await?;
        match read_entry(&*self.inner.calls.completion(index).await?)? {
            StepEntry::Result(result) => result,
            StepEntry::Failed { .. } => {
                Err(Refusal::internal("a recorded step has no result").into())
            }
        }
    }
}
