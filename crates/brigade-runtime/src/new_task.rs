//! What a caller asks for, before it is checked.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::name::{Key, Name};
use brigade_model::refusal::Refusal;
use brigade_model::spec::{Attachment, Spec};
use brigade_model::work::{Conduct, CustomWork, JobWork, Work, custom_kind};
use serde::Serialize;

use crate::jobs::{ClosureBody, Handlers, JobContext, JobError};

/// How the keys begin under which a job finds its children again.
const CALL_KEY: &str = "call:";

/// A task to be. Mistakes in names and arguments are kept and told when it is spawned.
#[derive(Clone)]
pub struct NewTask {
    work: Result<Asked, Refusal>,
    name: Option<Result<Name, Refusal>>,
    key: Option<Result<Key, Refusal>>,
    limits: Option<Limits>,
    keep: bool,
    grace: Option<Duration>,
}

#[derive(Clone)]
enum Asked {
    Job { handler: Arc<str>, args: Json },
    Closure { label: Arc<str>, body: ClosureBody },
    Custom(CustomWork),
}

impl NewTask {
    /// A job whose handler is registered under this name.
    pub fn job<A: Serialize>(handler: &str, args: A) -> Self {
        let handler = handler.into();
        Self::new(Json::of(&args).map(|args| Asked::Job { handler, args }))
    }

    /// A closure: it ends with this process, and says so as `lost`.
    pub fn closure<F, Fut, R, E>(label: &str, body: F) -> Self
    where
        F: FnOnce(JobContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize,
        E: Into<JobError>,
    {
        Self::new(Ok(Asked::Closure { label: label.into(), body: ClosureBody::new(body) }))
    }

    /// Work of a kind whose performer the program registered.
    pub fn custom<P: Serialize>(kind: &str, payload: P, conduct: Conduct) -> Self {
        let work = custom_kind(kind).and_then(|kind| {
            Ok(Asked::Custom(CustomWork { kind, payload: Json::of(&payload)?, conduct }))
        });
        Self::new(work)
    }

    fn new(work: Result<Asked, Refusal>) -> Self {
        Self { work, name: None, key: None, limits: None, keep: false, grace: None }
    }

    /// What people call it. Unique among its living siblings.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.parse());
        self
    }

    /// Spawning twice with the same key gives the same task.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(if key.starts_with(CALL_KEY) {
            Err(Refusal::invalid(format!("keys that begin with {CALL_KEY:?} are Brigade's own")))
        } else {
            key.parse()
        });
        self
    }

    /// Bounds on it and all that it spawns.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// It passes to the session when its parent ends, instead of being stopped.
    #[must_use]
    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }

    /// How long a stop stays kind before it becomes firm.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// `default_key` is for callers that are entered again and must find what they spawned.
    pub(crate) fn into_spec(
        self,
        handlers: &Handlers,
        default_key: Option<&str>,
    ) -> Result<Spec, Refusal> {
        let mut spec = match self.work? {
            Asked::Job { handler, args } => {
                let (handler, recovery) = handlers.find(&handler)?;
                Spec::new(Work::Job(JobWork::Named { handler, args, recovery }))
            }
            Asked::Closure { label, body } => {
                let mut spec = Spec::new(Work::Job(JobWork::Closure { label }));
                spec.attachment = Some(Attachment(Arc::new(body)));
                spec
            }
            Asked::Custom(custom) => Spec::new(Work::Custom(custom)),
        };
        spec.name = self.name.transpose()?;
        spec.key = match (self.key, default_key) {
            (Some(key), _) => Some(key?),
            (None, Some(key)) => Some(key.parse()?),
            (None, None) => None,
        };
        spec.limits = self.limits.filter(|limits| !limits.is_empty()).map(Box::new);
        spec.keep = self.keep;
        spec.grace = self.grace.map(Into::into);
        Ok(spec)
    }
}

impl fmt::Debug for NewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("NewTask");
        match &self.work {
            Ok(Asked::Job { handler, args }) => out.field("job", handler).field("args", args),
            Ok(Asked::Closure { label, .. }) => out.field("closure", label),
            Ok(Asked::Custom(custom)) => out.field("custom", &custom.kind),
            Err(refusal) => out.field("refused", refusal),
        };
        out.field("name", &self.name).field("key", &self.key).finish_non_exhaustive()
    }
}
