//! A task as requested by a caller, before it is checked.

use std::fmt;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brigade_agent::AgentOverrides;
use brigade_agent::permission::PermissionRules;
use brigade_model::json::Json;
use brigade_model::limits::Limits;
use brigade_model::name::{IdempotencyKey, TaskName};
use brigade_model::refusal::Refusal;
use brigade_model::sandbox::{ResourceLimits, Sandbox, SandboxRequest, TerminalSize};
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::spec::{LocalAttachment, TaskSpec};
use brigade_model::stall::StallPolicy;
use brigade_model::work::{
    AgentWork, CommandLine, CustomWork, EnvValue, JobWork, KeptDeadline, KindPolicy, ProcessWork,
    StdinSource, Work, parse_custom_kind,
};
use serde::Serialize;

use crate::agents::{SpawnGrant, SpawnParent};
use crate::jobs::{ClosureBody, HandlerRegistry, JobContext, JobError};
use crate::sandbox;

/// The prefix of the keys under which a job finds its children again.
const CALL_KEY: &str = "call:";

/// A task to spawn. Mistakes in names and arguments are stored and reported by the spawn.
#[derive(Clone)]
pub struct NewTask {
    work: Result<RequestedWork, Refusal>,
    name: Option<Result<TaskName, Refusal>>,
    key: Option<Result<IdempotencyKey, Refusal>>,
    limits: Option<Limits>,
    keep: bool,
    kept_deadline: Option<KeptDeadline>,
    grace: Option<Duration>,
    sandbox_request: Option<SandboxRequest>,
    resources: ResourceLimits,
}

#[derive(Clone)]
enum RequestedWork {
    Job { handler: Arc<str>, args: Json },
    Closure { label: Arc<str>, body: ClosureBody },
    Process(ProcessWork),
    Agent(Box<AgentWork>, PermissionRules),
    Custom(CustomWork),
}

impl NewTask {
    /// Creates a job whose handler is registered under this name.
    pub fn job<A: Serialize>(handler: &str, args: A) -> Self {
        let handler = handler.into();
        Self::new(Json::of(&args).map(|args| RequestedWork::Job { handler, args }))
    }

    /// Creates a job from a closure. It ends with this process, with the failure `lost`.
    pub fn closure<F, Fut, R, E>(label: &str, body: F) -> Self
    where
        F: FnOnce(JobContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize,
        E: Into<JobError>,
    {
        Self::new(Ok(RequestedWork::Closure { label: label.into(), body: ClosureBody::new(body) }))
    }

    /// Creates a process from a shell command line.
    pub fn shell(command: &str) -> Self {
        let command = CommandLine::Shell(command.into());
        Self::new(Ok(RequestedWork::Process(ProcessWork::new(command))))
    }

    /// Creates a process from a program and its arguments, without a shell.
    pub fn program<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().into()).collect();
        Self::new(Ok(RequestedWork::Process(ProcessWork::new(CommandLine::Program(words)))))
    }

    /// Creates a process from its work. Its shell and sandbox are ignored: the runtime that starts
    /// the task chooses the shell, and [`NewTask::terminal`], [`NewTask::resources`] and
    /// [`NewTask::sandbox`] request a sandbox.
    pub fn process(work: ProcessWork) -> Self {
        Self::new(Ok(RequestedWork::Process(ProcessWork { shell: None, sandbox: None, ..work })))
    }

    /// Creates an agent with this task text.
    pub fn agent(task: &str) -> Self {
        Self::new(Ok(RequestedWork::Agent(Box::new(AgentWork::new(task)), PermissionRules::all())))
    }

    /// Sets the definition of an agent. Without one, the agent is a general one.
    #[must_use]
    pub fn definition(self, name: &str) -> Self {
        self.update_agent("a definition", |work| {
            work.definition = Some(name.into());
            Ok(())
        })
    }

    /// Sets the model of an agent, instead of the definition's.
    #[must_use]
    pub fn model(self, name: &str) -> Self {
        self.update_agent("a model", |work| {
            work.model = Some(name.into());
            Ok(())
        })
    }

    /// Sets overrides for this agent: model parameters, the backend, and tools that the client
    /// executes.
    #[must_use]
    pub fn overrides(self, overrides: &AgentOverrides) -> Self {
        self.update_agent("overrides", |work| {
            work.overrides = Some(Json::of(overrides)?);
            Ok(())
        })
    }

    /// Sets the settings that the definition of an agent asks for.
    #[must_use]
    pub fn config(self, config: impl Serialize) -> Self {
        self.update_agent("settings", |work| {
            work.config = Some(Json::of(&config)?);
            Ok(())
        })
    }

    /// Sets a JSON schema that the result of an agent must match.
    #[must_use]
    pub fn result_schema(self, schema: impl Serialize) -> Self {
        self.update_agent("a result schema", |work| {
            work.result_schema = Some(Json::of(&schema)?);
            Ok(())
        })
    }

    /// Adds an MCP server whose tools an agent gets beside those of its definition.
    #[must_use]
    pub fn mcp_server(self, name: &str) -> Self {
        self.update_agent("MCP servers", |work| {
            work.mcp_servers.push(name.into());
            Ok(())
        })
    }

    /// Restricts the permissions of an agent further.
    #[must_use]
    pub fn permissions(mut self, permissions: PermissionRules) -> Self {
        match &mut self.work {
            Ok(RequestedWork::Agent(_, rules)) => *rules = permissions,
            Ok(_) => self.work = Err(Refusal::invalid("only an agent has permissions")),
            Err(_) => {}
        }
        self
    }

    /// Lets an agent end while children of its are alive.
    #[must_use]
    pub fn ends_before_children(self) -> Self {
        self.update_agent("children that outlive it", |work| {
            work.may_end_before_children = true;
            Ok(())
        })
    }

    /// Declares that nobody approves calls of an agent or its descendants. Calls that need approval
    /// are denied, unless a stored grant allows them.
    #[must_use]
    pub fn unattended(self) -> Self {
        self.update_agent("an unattended mode", |work| {
            work.unattended = true;
            Ok(())
        })
    }

    fn update_agent(
        mut self,
        option: &str,
        change: impl FnOnce(&mut AgentWork) -> Result<(), Refusal>,
    ) -> Self {
        let changed = match &mut self.work {
            Ok(RequestedWork::Agent(work, _)) => change(work),
            Ok(_) => Err(Refusal::invalid(format!("only an agent has {option}"))),
            Err(_) => Ok(()),
        };
        if let Err(refusal) = changed {
            self.work = Err(refusal);
        }
        self
    }

    /// Creates work of a kind whose performer the program registered.
    pub fn custom<P: Serialize>(kind: &str, payload: P, policy: KindPolicy) -> Self {
        let work = parse_custom_kind(kind).and_then(|kind| {
            Ok(RequestedWork::Custom(CustomWork { kind, payload: Json::of(&payload)?, policy }))
        });
        Self::new(work)
    }

    fn new(work: Result<RequestedWork, Refusal>) -> Self {
        Self {
            work,
            name: None,
            key: None,
            limits: None,
            keep: false,
            kept_deadline: None,
            grace: None,
            sandbox_request: None,
            resources: ResourceLimits::default(),
        }
    }

    /// Sets the working directory of a process, or of the processes of an agent: an absolute path.
    #[must_use]
    pub fn cwd(self, cwd: impl AsRef<Path>) -> Self {
        let cwd = cwd.as_ref().to_str().map(Arc::from);
        if let Ok(RequestedWork::Agent(..)) = self.work {
            return self.update_agent("a working directory", |work| {
                work.cwd = Some(cwd.ok_or_else(|| Refusal::invalid("the directory is not UTF-8"))?);
                Ok(())
            });
        }
        self.update_process("a working directory", |work| {
            work.cwd = Some(cwd.ok_or_else(|| Refusal::invalid("the directory is not UTF-8"))?);
            Ok(())
        })
    }

    /// Sets an environment variable of a process to a text or a reference.
    #[must_use]
    pub fn env(self, name: &str, value: EnvValue) -> Self {
        self.update_process("an environment", |work| {
            work.env.insert(name.into(), value);
            Ok(())
        })
    }

    /// Makes a process read the messages sent to it, one line each, until its input is closed.
    #[must_use]
    pub fn reads_messages(self) -> Self {
        self.update_process("an input", |work| {
            work.stdin = StdinSource::Messages;
            Ok(())
        })
    }

    /// Sets the largest number of bytes stored of each output stream of a process.
    #[must_use]
    pub fn output_cap(self, bytes: u64) -> Self {
        self.update_process("an output", |work| {
            work.output_cap = Some(bytes);
            Ok(())
        })
    }

    /// Makes a process's output wait this long for a first reader that must not miss any of it. See
    /// [`Session::renew_lease`](crate::Session::renew_lease).
    #[must_use]
    pub fn first_reader_timeout(self, time: Duration) -> Self {
        self.update_process("an output", |work| {
            work.first_reader_timeout = Some(time.into());
            Ok(())
        })
    }

    /// Gives a process a terminal of this size instead of pipes. Its output is one stream, and
    /// messages to it are typed.
    #[must_use]
    pub fn terminal(self, size: TerminalSize) -> Self {
        self.update_process("a terminal", |work| {
            work.sandbox.get_or_insert_default().terminal = Some(size);
            Ok(())
        })
    }

    /// Limits the resources of each process, or of the processes of an agent and its descendants.
    #[must_use]
    pub fn resources(mut self, resources: ResourceLimits) -> Self {
        self.resources = resources;
        self
    }

    /// Runs a process, or the processes of an agent and its descendants, in a sandbox of the
    /// working directory and the listed paths. If the kernel cannot do that, the process fails
    /// without being executed.
    #[must_use]
    pub fn sandbox(mut self, request: SandboxRequest) -> Self {
        self.sandbox_request = Some(request);
        self
    }

    fn update_process(
        mut self,
        option: &str,
        change: impl FnOnce(&mut ProcessWork) -> Result<(), Refusal>,
    ) -> Self {
        let changed = match &mut self.work {
            Ok(RequestedWork::Process(work)) => change(work),
            Ok(_) => Err(Refusal::invalid(format!("only a process has {option}"))),
            Err(_) => Ok(()),
        };
        if let Err(refusal) = changed {
            self.work = Err(refusal);
        }
        self
    }

    /// Sets a name, which is unique among its siblings that are alive.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.parse());
        self
    }

    /// Sets an idempotency key: spawning twice with the same key returns the same task.
    #[must_use]
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(if key.starts_with(CALL_KEY) {
            Err(Refusal::invalid(format!("keys that begin with {CALL_KEY:?} are Brigade's own")))
        } else {
            key.parse()
        });
        self
    }

    /// Limits the task and its descendants.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Sets a deadline. A task that runs longer fails with a timeout.
    #[must_use]
    pub fn deadline(mut self, after: Duration) -> Self {
        self.limits.get_or_insert_default().time = Some(after.into());
        self
    }

    /// Sets the reaction to a running task without activity. By default agents are nudged and later
    /// ended, and other kinds are not watched.
    #[must_use]
    pub fn stall(mut self, stall: StallPolicy) -> Self {
        self.limits.get_or_insert_default().stall = Some(stall);
        self
    }

    /// Limits the rate at which the task and its descendants may spawn.
    #[must_use]
    pub fn spawn_rate(mut self, rate: SpawnRate) -> Self {
        self.limits.get_or_insert_default().spawn_rate = Some(rate);
        self
    }

    /// Makes the task outlive its parent: it passes to the session instead of being stopped. Its
    /// subtree is still charged to the budgets of its former ancestors. Their limits continue to
    /// hold, except width and total.
    #[must_use]
    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }

    /// Sets whether the deadlines of its former ancestors still hold after it passed to the
    /// session. By default they do for every kind but processes.
    #[must_use]
    pub fn kept_deadline(mut self, deadline: KeptDeadline) -> Self {
        self.kept_deadline = Some(deadline);
        self
    }

    /// Sets the grace period between a graceful and a forced stop.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    pub(crate) fn is_agent(&self) -> bool {
        matches!(self.work, Ok(RequestedWork::Agent(..)))
    }

    /// Returns the spec. `default_key` is for callers that are entered again and must find the
    /// tasks that they spawned.
    pub(crate) fn into_spec(
        self,
        handlers: &HandlerRegistry,
        default_key: Option<&str>,
        parent: SpawnParent<'_>,
    ) -> Result<TaskSpec, Refusal> {
        let request = self.sandbox_request;
        let resources = self.resources;
        resources.check()?;
        let mut spec = match self.work? {
            RequestedWork::Job { .. }
            | RequestedWork::Closure { .. }
            | RequestedWork::Custom(_)
                if request.is_some() || !resources.is_empty() =>
            {
                return Err(Refusal::invalid("only a process or an agent can have a sandbox"));
            }
            RequestedWork::Job { handler, args } => {
                let (handler, recovery) = handlers.find(&handler)?;
                TaskSpec::new(Work::Job(JobWork::Named { handler, args, recovery }))
            }
            RequestedWork::Closure { label, body } => {
                let mut spec = TaskSpec::new(Work::Job(JobWork::Closure { label }));
                spec.attachment = Some(LocalAttachment(Arc::new(body)));
                spec
            }
            RequestedWork::Process(work) => {
                check_agent_budget(request.as_ref(), self.limits.as_ref())?;
                let work = sandbox_process(work, request.as_ref(), resources, parent)?;
                TaskSpec::new(Work::Process(work))
            }
            RequestedWork::Agent(work, rules) => {
                let Some(agents) = &handlers.agents else {
                    return Err(Refusal::unavailable("this runtime has no agents"));
                };
                let limits = self.limits.unwrap_or_default();
                let grant = SpawnGrant {
                    rules,
                    limits: &limits,
                    sandbox_request: request.as_ref(),
                    resources,
                };
                TaskSpec::new(Work::Agent(agents.resolve_agent(*work, grant, parent)?))
            }
            RequestedWork::Custom(custom) => TaskSpec::new(Work::Custom(custom)),
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
        Ok(spec)
    }
}

/// Refuses to let a sandboxed process start agents without a budget.
fn check_agent_budget(
    request: Option<&SandboxRequest>,
    limits: Option<&Limits>,
) -> Result<(), Refusal> {
    let has_budget = limits.is_some_and(|it| it.tokens.is_some() || it.money.is_some());
    match request.is_some_and(|request| request.agents) && !has_budget {
        true => Err(Refusal::invalid(
            "a sandboxed process may start agents only with a budget of tokens or money",
        )),
        false => Ok(()),
    }
}

/// Returns a process with its own sandbox and the one it inherits from its spawner.
fn sandbox_process(
    mut work: ProcessWork,
    request: Option<&SandboxRequest>,
    resources: ResourceLimits,
    parent: SpawnParent<'_>,
) -> Result<ProcessWork, Refusal> {
    let layer =
        request.map(|request| sandbox::canonicalize(request, work.cwd.as_deref())).transpose()?;
    let terminal = work.sandbox.as_ref().and_then(|sandbox| sandbox.terminal);
    let own = Sandbox { terminal, resources, layers: layer.into_iter().collect() };
    let own = match parent.inherited_sandbox() {
        Some(outer) => {
            check_env_references(&work, outer)?;
            own.nested_in(outer)
        }
        None => own,
    };
    work.sandbox = (!own.is_empty()).then(|| Box::new(own));
    Ok(work)
}

/// Refuses references in the environment of a process that a sandboxed caller starts. The runtime,
/// which has no sandbox, would read any file and any variable for it.
fn check_env_references(work: &ProcessWork, outer: &Sandbox) -> Result<(), Refusal> {
    let refers = |value: &EnvValue| !matches!(value, EnvValue::Text(_));
    match work.env.iter().find(|(_, value)| refers(value)) {
        Some((name, _)) if !outer.layers.is_empty() => Err(Refusal::forbidden(format!(
            "{name} refers to a variable or file of the runtime, which a sandboxed caller cannot \
             pass on; give its value"
        ))),
        _ => Ok(()),
    }
}

impl fmt::Debug for NewTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("NewTask");
        match &self.work {
            Ok(RequestedWork::Job { handler, args }) => {
                out.field("job", handler).field("args", args)
            }
            Ok(RequestedWork::Closure { label, .. }) => out.field("closure", label),
            Ok(RequestedWork::Process(work)) => out.field("process", &work.command),
            Ok(RequestedWork::Agent(work, _)) => out.field("agent", &work.definition),
            Ok(RequestedWork::Custom(custom)) => out.field("custom", &custom.kind),
            Err(refusal) => out.field("refused", refusal),
        };
        out.field("name", &self.name).field("key", &self.key).finish_non_exhaustive()
    }
}
