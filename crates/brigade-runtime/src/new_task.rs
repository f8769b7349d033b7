//! A task as requested by a caller, before it is checked.
//!
//! [`NewTask`] has a builder per kind of work: options that a kind does not have do not compile.
//! - `job`: named jobs, closures and custom kinds; `process`: OS processes; `agent`: agents;
//!   `execution`: the options that processes and agents share.

#[cfg(feature = "agents")]
mod agent;
#[cfg(feature = "processes")]
mod execution;
mod job;
#[cfg(feature = "processes")]
mod process;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "agents")]
use brigade_agent::permission::PermissionRules;
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::name::{IdempotencyKey, TaskName};
#[cfg(feature = "processes")]
use brigade_model::process_report::ProcessReport;
use brigade_model::refusal::Refusal;
#[cfg(feature = "processes")]
use brigade_model::sandbox::{ResourceLimits, SandboxRequest};
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::spec::{LocalAttachment, RequestedNotifier, TaskSpec};
use brigade_model::stall::StallPolicy;
#[cfg(feature = "agents")]
use brigade_model::work::AgentWork;
#[cfg(feature = "processes")]
use brigade_model::work::ProcessWork;
use brigade_model::work::{CustomWork, JobWork, KeptDeadline, Work};

#[cfg(feature = "agents")]
use crate::agents::SpawnGrant;
use crate::jobs::{ClosureBody, HandlerRegistry};
use crate::spawn_parent::SpawnParent;

#[cfg(feature = "processes")]
pub use execution::RunsProcesses;

/// The prefix of the keys under which a job finds its children again.
const CALL_KEY: &str = "call:";

/// A task to spawn, with the kind of its work. Mistakes in names and arguments are stored and
/// reported by the spawn.
///
/// ```
/// use brigade_runtime::NewTask;
/// use std::time::Duration;
///
/// let tests = NewTask::shell("cargo test")
///     .cwd("/home/me/soup")
///     .env("RUST_BACKTRACE", "1")
///     .name("Tests")
///     .deadline(Duration::from_secs(600));
/// ```
///
/// A job has no working directory:
///
/// ```compile_fail
/// use brigade_runtime::NewTask;
///
/// NewTask::job("bake", "bread").cwd("/home/me/soup");
/// ```
pub struct NewTask<K = AnyTask> {
    draft: TaskDraft,
    kind: PhantomData<fn() -> K>,
}

/// The kind of a [`NewTask`], which decides its options and the type of its result.
pub trait TaskType: sealed::SealedType {
    /// The result of a run that succeeded, as [`TaskHandle::result`](crate::TaskHandle::result)
    /// returns it.
    type Output;
}

/// A task of any kind, for lists of different ones. [`NewTask::erase`] makes it.
#[derive(Debug)]
pub struct AnyTask;

/// A job with a result of this type.
#[derive(Debug)]
pub struct JobTask<R>(PhantomData<fn() -> R>);

/// An OS process. Its result is its report.
#[cfg(feature = "processes")]
#[derive(Debug)]
pub struct ProcessTask;

/// An agent with a result of this type.
#[cfg(feature = "agents")]
#[derive(Debug)]
pub struct AgentTask<R>(PhantomData<fn() -> R>);

/// Work of a kind that the program registered, with a result of this type.
#[derive(Debug)]
pub struct CustomTask<R>(PhantomData<fn() -> R>);

mod sealed {
    pub trait SealedType {}

    impl SealedType for super::AnyTask {}
    impl<R> SealedType for super::JobTask<R> {}
    #[cfg(feature = "processes")]
    impl SealedType for super::ProcessTask {}
    #[cfg(feature = "agents")]
    impl<R> SealedType for super::AgentTask<R> {}
    impl<R> SealedType for super::CustomTask<R> {}
}

impl TaskType for AnyTask {
    type Output = Json;
}

impl<R> TaskType for JobTask<R> {
    type Output = R;
}

#[cfg(feature = "processes")]
impl TaskType for ProcessTask {
    type Output = ProcessReport;
}

#[cfg(feature = "processes")]
impl RunsProcesses for ProcessTask {}

#[cfg(feature = "agents")]
impl<R> TaskType for AgentTask<R> {
    type Output = R;
}

#[cfg(feature = "agents")]
impl<R> RunsProcesses for AgentTask<R> {}

impl<R> TaskType for CustomTask<R> {
    type Output = R;
}

/// A task to spawn, of any kind.
#[derive(Clone)]
pub(crate) struct TaskDraft {
    work: Result<DraftWork, Refusal>,
    name: Option<Result<TaskName, Refusal>>,
    key: Option<Result<IdempotencyKey, Refusal>>,
    limits: Option<Limits>,
    keep: bool,
    kept_deadline: Option<KeptDeadline>,
    worktree: bool,
    notify: Option<RequestedNotifier>,
    grace: Option<Duration>,
    #[cfg(feature = "processes")]
    sandbox_request: Option<SandboxRequest>,
    #[cfg(feature = "processes")]
    resources: ResourceLimits,
    #[cfg(feature = "agents")]
    withholds_variables: bool,
}

#[derive(Clone)]
enum DraftWork {
    Job {
        handler: Arc<str>,
        args: Json,
    },
    Closure {
        label: Arc<str>,
        body: ClosureBody,
    },
    #[cfg(feature = "processes")]
    Process(ProcessWork),
    #[cfg(feature = "agents")]
    Agent(Box<AgentWork>, PermissionRules),
    Custom(CustomWork),
}

impl<K> NewTask<K> {
    fn new(work: Result<DraftWork, Refusal>) -> Self {
        let draft = TaskDraft {
            work,
            name: None,
            key: None,
            limits: None,
            keep: false,
            kept_deadline: None,
            worktree: false,
            notify: None,
            grace: None,
            #[cfg(feature = "processes")]
            sandbox_request: None,
            #[cfg(feature = "processes")]
            resources: ResourceLimits::default(),
            #[cfg(feature = "agents")]
            withholds_variables: false,
        };
        Self { draft, kind: PhantomData }
    }

    /// Forgets the kind, so that tasks of different kinds fit in one list. The result is JSON.
    #[must_use]
    pub fn erase(self) -> NewTask {
        self.with_kind()
    }

    fn with_kind<L>(self) -> NewTask<L> {
        NewTask { draft: self.draft, kind: PhantomData }
    }

    /// Sets a name, which is unique among its siblings that are alive.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.draft.name = Some(name.parse());
        self
    }

    /// Sets an idempotency key: spawning twice with the same key returns the same task.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.draft.key = Some(if key.starts_with(CALL_KEY) {
            Err(Refusal::invalid(format!("keys that begin with {CALL_KEY:?} are Brigade's own")))
        } else {
            key.parse()
        });
        self
    }

    /// Limits the task and its descendants.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.draft.limits = Some(limits);
        self
    }

    /// Requests notifications about the task from a configured notifier. A runtime without a daemon
    /// has none.
    #[must_use]
    pub fn notify(mut self, notifier: RequestedNotifier) -> Self {
        self.draft.notify = Some(notifier);
        self
    }

    /// Sets a deadline. A task that runs longer fails with a timeout.
    #[must_use]
    pub fn deadline(mut self, after: Duration) -> Self {
        self.draft.limits.get_or_insert_default().time = Some(after.into());
        self
    }

    /// Sets the reaction to a running task without activity. By default agents are nudged and later
    /// ended, and other kinds are not watched.
    #[must_use]
    pub fn stall(mut self, stall: StallPolicy) -> Self {
        self.draft.limits.get_or_insert_default().stall = Some(stall);
        self
    }

    /// Limits the rate at which the task and its descendants may spawn.
    #[must_use]
    pub fn spawn_rate(mut self, rate: SpawnRate) -> Self {
        self.draft.limits.get_or_insert_default().spawn_rate = Some(rate);
        self
    }

    /// Makes the task outlive its parent: it passes to the session instead of being stopped. Its
    /// subtree is still charged to the budgets of its former ancestors. Their limits continue to
    /// hold, except width and total.
    #[must_use]
    pub fn keep(mut self) -> Self {
        self.draft.keep = true;
        self
    }

    /// Sets whether the deadlines of its former ancestors still hold after it passed to the
    /// session. By default they do for every kind but processes.
    #[must_use]
    pub fn kept_deadline(mut self, deadline: KeptDeadline) -> Self {
        self.draft.kept_deadline = Some(deadline);
        self
    }

    /// Sets the grace period between a graceful and a forced stop.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.draft.grace = Some(grace);
        self
    }

    pub(crate) fn into_draft(self) -> TaskDraft {
        self.draft
    }

    /// Changes the work of a draft that is not refused yet.
    #[cfg(feature = "processes")]
    fn update(mut self, change: impl FnOnce(&mut DraftWork) -> Result<(), Refusal>) -> Self {
        let changed = self.draft.work.as_mut().map_or(Ok(()), change);
        if let Err(refusal) = changed {
            self.draft.work = Err(refusal);
        }
        self
    }
}

impl TaskDraft {
    #[cfg(feature = "agents")]
    pub(crate) fn is_agent(&self) -> bool {
        matches!(self.work, Ok(DraftWork::Agent(..)))
    }

    /// Returns the spec. `default_key` is for callers that are entered again and must find the
    /// tasks that they spawned.
    pub(crate) fn into_spec(
        self,
        handlers: &HandlerRegistry,
        default_key: Option<&str>,
        parent: SpawnParent<'_>,
    ) -> Result<TaskSpec, Refusal> {
        #[cfg(feature = "processes")]
        self.resources.check()?;
        #[cfg(not(feature = "processes"))]
        let _: SpawnParent<'_> = parent;
        let mut spec = match self.work? {
            DraftWork::Job { handler, args } => {
                let (handler, recovery) = handlers.find(&handler)?;
                TaskSpec::new(Work::Job(JobWork::Named { handler, args, recovery }))
            }
            DraftWork::Closure { label, body } => {
                let mut spec = TaskSpec::new(Work::Job(JobWork::Closure { label }));
                spec.attachment = Some(LocalAttachment(Arc::new(body)));
                spec
            }
            #[cfg(feature = "processes")]
            DraftWork::Process(work) => {
                let request = self.sandbox_request.as_ref();
                process::check_agent_budget(request, self.limits.as_ref())?;
                let work = process::sandbox_process(work, request, self.resources, parent)?;
                TaskSpec::new(Work::Process(work))
            }
            #[cfg(feature = "agents")]
            DraftWork::Agent(work, rules) => {
                let Some(agents) = &handlers.agents else {
                    return Err(Refusal::unavailable("this runtime has no agents"));
                };
                let limits = self.limits.unwrap_or_default();
                let grant = SpawnGrant {
                    rules,
                    limits: &limits,
                    sandbox_request: self.sandbox_request.as_ref(),
                    resources: self.resources,
                    withholds_variables: self.withholds_variables,
                };
                TaskSpec::new(Work::Agent(agents.resolve_agent(*work, grant, parent)?))
            }
            DraftWork::Custom(custom) => TaskSpec::new(Work::Custom(custom)),
        };
        spec.name = self.name.transpose()?;
        spec.key = match (self.key, default_key) {
            (Some(key), _) => Some(key?),
            (None, Some(key)) => Some(key.parse()?),
            (None, None) => None,
        };
        spec.limits = self.limits.filter(|limits| !limits.is_empty()).map(Box::new);
        spec.keep = self.keep;
        spec.kept_deadline = self.kept_deadline;
        spec.grace = self.grace.map(Into::into);
        spec.worktree = self.worktree;
        spec.notify = self.notify;
        #[cfg(feature = "processes")]
        execution::check_worktree(&spec, parent)?;
        Ok(spec)
    }
}

impl<K> Clone for NewTask<K> {
    fn clone(&self) -> Self {
        Self { draft: self.draft.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for NewTask<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("NewTask");
        match &self.draft.work {
            Ok(DraftWork::Job { handler, args }) => out.field("job", handler).field("args", args),
            Ok(DraftWork::Closure { label, .. }) => out.field("closure", label),
            #[cfg(feature = "processes")]
            Ok(DraftWork::Process(work)) => out.field("process", &work.command),
            #[cfg(feature = "agents")]
            Ok(DraftWork::Agent(work, _)) => out.field("agent", &work.definition),
            Ok(DraftWork::Custom(custom)) => out.field("custom", &custom.kind),
            Err(refusal) => out.field("refused", refusal),
        };
        out.field("name", &self.draft.name).field("key", &self.draft.key).finish_non_exhaustive()
    }
}
