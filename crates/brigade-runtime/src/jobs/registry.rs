//! Job handlers and their results.

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use brigade_model::spec::LocalAttachment;
use brigade_model::work::RecoveryPolicy;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::JobContext;
use super::job_error::JobError;
use super::job_handler::JobHandler;
use super::retry_policy::RetryPolicy;
#[cfg(feature = "agents")]
use crate::agents::AgentServices;

pub(crate) type JobFuture = Pin<Box<dyn Future<Output = Result<Json, JobError>> + Send>>;
type EnterJob = dyn Fn(JobContext, &Json) -> JobFuture + Send + Sync;

/// The work that a program can start by name: its job handlers, and agents.
#[derive(Default)]
pub(crate) struct HandlerRegistry {
    by_name: HashMap<Arc<str>, RegisteredJob>,
    #[cfg(feature = "agents")]
    pub(crate) agents: Option<Arc<AgentServices>>,
}

/// The rules of a registered job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobRules {
    pub(crate) recovery: RecoveryPolicy,
    pub(crate) retry: Option<RetryPolicy>,
}

struct RegisteredJob {
    rules: JobRules,
    handler: Box<EnterJob>,
}

impl HandlerRegistry {
    /// Creates a registry without job handlers.
    #[cfg(feature = "agents")]
    pub(crate) fn agents_only(agents: Arc<AgentServices>) -> Self {
        Self { by_name: HashMap::new(), agents: Some(agents) }
    }

    pub(crate) fn register<A, R>(
        &mut self,
        name: &str,
        rules: JobRules,
        handler: impl JobHandler<A, R>,
    ) where
        A: DeserializeOwned + Send + 'static,
        R: Serialize,
    {
        let handler = Arc::new(handler);
        let enter = move |context: JobContext, args: &Json| {
            let handler = handler.clone();
            let args = args.clone();
            box_job_future(async move {
                let args: A =
                    args.decode().map_err(|refusal| JobError::from(refusal).into_fatal())?;
                handler(context, args).await.map_err(Into::into)
            })
        };
        self.by_name.insert(name.into(), RegisteredJob { rules, handler: Box::new(enter) });
    }

    /// Returns the handler's name, shared by all its tasks, and its recovery policy.
    pub(crate) fn find(&self, name: &str) -> Result<(Arc<str>, RecoveryPolicy), Refusal> {
        let found = self.by_name.get_key_value(name);
        found.map(|(name, job)| (name.clone(), job.rules.recovery)).ok_or_else(|| {
            let mut known: Vec<&str> = self.by_name.keys().map(|name| &**name).collect();
            known.sort_unstable();
            Refusal::not_found(format!(
                "no job is registered as {name:?}; registered are: {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            ))
        })
    }

    /// Enters the handler of this name, if there is one.
    pub(crate) fn enter(&self, name: &str, context: JobContext, args: &Json) -> Option<JobFuture> {
        let job = self.by_name.get(name)?;
        let Some(policy) = job.rules.retry else { return Some((job.handler)(context, args)) };
        let handlers = context.inner.handlers.clone();
        let name: Arc<str> = name.into();
        let args = args.clone();
        Some(Box::pin(async move {
            let enter = || {
                let job = handlers.by_name.get(&name)?;
                Some((job.handler)(context.clone(), &args))
            };
            context.run_with_retries(policy, enter).await
        }))
    }
}

/// Boxes a job's future. The handler's own code runs inside it, so that its panics are caught too.
fn box_job_future<Fut, R, E>(future: Fut) -> JobFuture
where
    Fut: Future<Output = Result<R, E>> + Send + 'static,
    R: Serialize,
    E: Into<JobError>,
{
    Box::pin(async move {
        let result = future.await.map_err(Into::into)?;
        Ok(Json::of(&result)?)
    })
}

impl fmt::Debug for HandlerRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.by_name.keys()).finish()
    }
}

/// A closure on its way to its only start.
#[derive(Clone)]
pub(crate) struct ClosureBody(Arc<Mutex<Option<ClosureHandler>>>);

type ClosureHandler = Box<dyn FnOnce(JobContext) -> JobFuture + Send>;

impl ClosureBody {
    pub(crate) fn new<F, Fut, R, E>(body: F) -> Self
    where
        F: FnOnce(JobContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize,
        E: Into<JobError>,
    {
        let enter: ClosureHandler =
            Box::new(move |context| box_job_future(async move { body(context).await }));
        Self(Arc::new(Mutex::new(Some(enter))))
    }

    /// Drops the closure in an attachment, if it holds one.
    pub(crate) fn drop_attachment(held: &LocalAttachment) {
        if let Some(body) = held.0.downcast_ref::<Self>() {
            drop(body.take());
        }
    }

    pub(crate) fn take(&self) -> Option<ClosureHandler> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
