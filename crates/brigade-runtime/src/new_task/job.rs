//! Named jobs, closures and custom kinds of work.

use std::future::Future;

use brigade_model::json::Json;
use brigade_model::work::{CustomWork, KindPolicy, parse_custom_kind};
use serde::Serialize;

use super::{CustomTask, DraftWork, JobTask, NewTask};
use crate::jobs::{ClosureBody, JobContext, JobError};

impl NewTask<JobTask<Json>> {
    /// Creates a job by the name of its handler. [`Job::with`](crate::Job::with) does the same with
    /// checked types.
    pub fn job<A: Serialize>(handler: &str, args: A) -> Self {
        let handler = handler.into();
        Self::new(Json::of(&args).map(|args| DraftWork::Job { handler, args }))
    }
}

impl<R> NewTask<JobTask<R>> {
    pub(crate) fn typed_job<A: Serialize>(handler: &str, args: &A) -> Self {
        NewTask::job(handler, args).with_kind()
    }

    /// Creates a job from a closure. It ends with this process, with the failure `lost`.
    pub fn closure<F, Fut, E>(label: &str, body: F) -> Self
    where
        F: FnOnce(JobContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize,
        E: Into<JobError>,
    {
        Self::new(Ok(DraftWork::Closure { label: label.into(), body: ClosureBody::new(body) }))
    }
}

impl NewTask<CustomTask<Json>> {
    /// Creates work of a kind whose performer the program registered, with the policy of that
    /// registration.
    pub fn custom<P: Serialize>(kind: &str, payload: P) -> Self {
        Self::custom_work(kind, payload, None)
    }

    /// Creates work of a custom kind with a policy of its own. It can be spawned before a performer
    /// for its kind is registered, and then queues.
    pub fn custom_with<P: Serialize>(kind: &str, payload: P, policy: KindPolicy) -> Self {
        Self::custom_work(kind, payload, Some(policy))
    }

    fn custom_work<P: Serialize>(kind: &str, payload: P, policy: Option<KindPolicy>) -> Self {
        let work = parse_custom_kind(kind).and_then(|kind| {
            Ok(DraftWork::Custom(CustomWork { kind, payload: Json::of(&payload)?, policy }))
        });
        Self::new(work)
    }

    /// Declares the type of the result.
    #[must_use]
    pub fn returns<R>(self) -> NewTask<CustomTask<R>> {
        self.with_kind()
    }
}
