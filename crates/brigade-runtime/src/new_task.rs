//! What a caller asks for, before it is checked.

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

/// How the keys begin under which a job finds its children again.
const CALL_KEY: &str = "call:";

/// A task to be. Mistakes in names and arguments are kept and told when it is spawned.
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
    /// A job whose handler is registered under this name.
    pub fn job<A: Serialize>(handler: &str, args: A) -> Self {
        let handler = handler.into();
        Self::new(Json::of(&args).map(|args| RequestedWork::Job { handler, args }))
    }

    /// A closure: it ends with this process, and says so as `lost`.
    pub fn closure<F, Fut, R, E>(label: &str, body: F) -> Self
    where
        F: FnOnce(JobContext) -> Fut + Send + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize,
        E: Into<JobError>,
    {
        Self::new(Ok(RequestedWork::Closure { label: label.into(), body: ClosureBody::new(body) }))
    }

    /// A command, read by the shell.
    pub fn shell(command: &str) -> Self {
        let command = CommandLine::Shell(command.into());
        Self::new(Ok(RequestedWork::Process(ProcessWork::new(command))))
    }

    /// A program and its arguments, with no shell in between.
    pub fn program<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().into()).collect();
        Self::new(Ok(RequestedWork::Process(ProcessWork::new(CommandLine::Program(words)))))
    }

    /// An agent that is to do this.
    pub fn agent(task: &str) -> Self {
        Self::new(Ok(RequestedWork::Agent(Box::new(AgentWork::new(task)), PermissionRules::all())))
    }

    /// Which definition an agent is made from. Without one, a general one.
    #[must_use]
    pub fn definition(self, name: &str) -> Self {
        self.update_agent("a definition", |work| {
            work.definition = Some(name.into());
            Ok(())
        })
    }

    /// The model of an agent, instead of its definition's.
    #[must_use]
    pub fn model(self, name: &str) -> Self {
        self.update_agent("a model", |work| {
            work.model = Some(name.into());
            Ok(())
        })
    }

    /// What is different for this agent: parameters of its model, what carries it out, tools that the
    /// client runs.
    #[must_use]
    pub fn overrides(self, overrides: &AgentOverrides) -> Self {
        self.update_agent("overrides", |work| {
            work.overrides = Some(Json::of(overrides)?);
            Ok(())
        })
    }

    /// Settings that the definition of an agent asks for.
    #[must_use]
    pub fn config(self, config: impl Serialize) -> Self {
        self.update_agent("settings", |work| {
            work.config = Some(Json::of(&config)?);
            Ok(())
        })
    }

    /// A JSON schema that the result of an agent must fit.
    #[must_use]
    pub fn result_schema(self, schema: impl Serialize) -> Self {
        self.update_agent("a result schema", |work| {
            work.result_schema = Some(Json::of(&schema)?);
            Ok(())
        })
    }

    /// A server whose tools an agent has beside those of its definition.
    #[must_use]
    pub fn mcp_server(self, name: &str) -> Self {
        self.update_agent("MCP servers", |work| {
            work.mcp_servers.push(name.into());
            Ok(())
        })
    }

    /// What an agent may do at the most, beside what it may anyway.
    #[must_use]
    pub fn permissions(mut self, permissions: PermissionRules) -> Self {
        match &mut self.work {
            Ok(RequestedWork::Agent(_, rules)) => *rules = permissions,
            Ok(_) => self.work = Err(Refusal::invalid("only an agent has permissions")),
            Err(_) => {}
        }
        self
    }

    /// An agent may end although children of its live.
    #[must_use]
    pub fn ends_before_children(self) -> Self {
        self.update_agent("children that it leaves", |work| {
            work.may_end_before_children = true;
            Ok(())
        })
    }

    /// Nobody is there to approve what an agent, or one below it, is to be asked about: that is
    /// denied, unless it was allowed for good before.
    #[must_use]
    pub fn unattended(self) -> Self {
        self.update_agent("somebody who attends it", |work| {
            work.unattended = true;
            Ok(())
        })
    }

    fn update_agent(
        mut self,
        what: &str,
        change: impl FnOnce(&mut AgentWork) -> Result<(), Refusal>,
    ) -> Self {
        let changed = match &mut self.work {
            Ok(RequestedWork::Agent(work, _)) => change(work),
            Ok(_) => Err(Refusal::invalid(format!("only an agent has {what}"))),
            Err(_) => Ok(()),
        };
        if let Err(refusal) = changed {
            self.work = Err(refusal);
        }
        self
    }

    /// Work of a kind whose performer the program registered.
    pub fn custom<P: Serialize>(kind: &str, payload: P, conduct: KindPolicy) -> Self {
        let work = parse_custom_kind(kind).and_then(|kind| {
            Ok(RequestedWork::Custom(CustomWork {
                kind,
                payload: Json::of(&payload)?,
                policy: conduct,
            }))
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

    /// Where a command runs, or the commands of an agent: an absolute path.
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

    /// Gives a command a variable, or a reference to where its value is to be had.
    #[must_use]
    pub fn env(self, name: &str, value: EnvValue) -> Self {
        self.update_process("an environment", |work| {
            work.env.push((name.into(), value));
            Ok(())
        })
    }

    /// A command reads the messages that are sent to it, a line each, until its input is closed.
    #[must_use]
    pub fn reads_messages(self) -> Self {
        self.update_process("an input", |work| {
            work.stdin = StdinSource::Messages;
            Ok(())
        })
    }

    /// The most that is kept of each output stream of a command, in bytes.
    #[must_use]
    pub fn output_cap(self, bytes: u64) -> Self {
        self.update_process("an output", |work| {
            work.output_cap = Some(bytes);
            Ok(())
        })
    }

    /// The output of a command waits so long for a first reader who must not miss any of it, see
    /// [`Session::renew_lease`](crate::Session::renew_lease).
    #[must_use]
    pub fn first_reader_timeout(self, time: Duration) -> Self {
        self.update_process("an output", |work| {
            work.first_reader_timeout = Some(time.into());
            Ok(())
        })
    }

    /// A command gets a terminal of this size instead of pipes. Its output is one stream, and messages
    /// to it are typed.
    #[must_use]
    pub fn terminal(self, size: TerminalSize) -> Self {
        self.update_process("a terminal", |work| {
            work.sandbox.get_or_insert_default().terminal = Some(size);
            Ok(())
        })
    }

    /// What each process of a command may use, or of the commands of an agent and of all below it.
    #[must_use]
    pub fn resources(mut self, resources: ResourceLimits) -> Self {
        self.resources = resources;
        self
    }

    /// Confines a command, or the commands of an agent and of all below it, to the working directory
    /// and what is listed. Where the kernel cannot do that, the command fails and nothing is run.
    #[must_use]
    pub fn sandbox(mut self, confine: SandboxRequest) -> Self {
        self.sandbox_request = Some(confine);
        self
    }

    fn update_process(
        mut self,
        what: &str,
        change: impl FnOnce(&mut ProcessWork) -> Result<(), Refusal>,
    ) -> Self {
        let changed = match &mut self.work {
            Ok(RequestedWork::Process(work)) => change(work),
            Ok(_) => Err(Refusal::invalid(format!("only a command has {what}"))),
            Err(_) => Ok(()),
        };
        if let Err(refusal) = changed {
            self.work = Err(refusal);
        }
        self
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

    /// It ends as failed (timeout) when it has run for so long.
    #[must_use]
    pub fn deadline(mut self, after: Duration) -> Self {
        self.limits.get_or_insert_default().time = Some(after.into());
        self
    }

    /// What is done when it runs and nothing happens. Without a word agents are nudged after a while and
    /// then ended, and nothing else is watched.
    #[must_use]
    pub fn stall(mut self, stall: StallPolicy) -> Self {
        self.limits.get_or_insert_default().stall = Some(stall);
        self
    }

    /// How fast it and all below it may spawn.
    #[must_use]
    pub fn spawn_rate(mut self, rate: SpawnRate) -> Self {
        self.limits.get_or_insert_default().spawn_rate = Some(rate);
        self
    }

    /// It passes to the session when its parent ends, instead of being stopped. What it and all below it
    /// use is still charged to the budgets above it, and their limits hold on, but for width and total.
    #[must_use]
    pub fn keep(mut self) -> Self {
        self.keep = true;
        self
    }

    /// Whether the deadlines above it hold on after it has passed to the session. Without a word they do
    /// for everything but processes.
    #[must_use]
    pub fn kept_deadline(mut self, deadline: KeptDeadline) -> Self {
        self.kept_deadline = Some(deadline);
        self
    }

    /// How long a stop stays kind before it becomes firm.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    pub(crate) fn is_agent(&self) -> bool {
        matches!(self.work, Ok(RequestedWork::Agent(..)))
    }

    /// `default_key` is for callers that are entered again and must find what they spawned.
    pub(crate) fn into_spec(
        self,
        handlers: &HandlerRegistry,
        default_key: Option<&str>,
        parent: SpawnParent<'_>,
    ) -> Result<TaskSpec, Refusal> {
        let (confine, resources) = (self.sandbox_request, self.resources);
        resources.check()?;
        let mut spec = match self.work? {
            RequestedWork::Job { .. }
            | RequestedWork::Closure { .. }
            | RequestedWork::Custom(_)
                if confine.is_some() || !resources.is_empty() =>
            {
                return Err(Refusal::invalid("only a command or an agent can be confined"));
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
                check_agent_budget(confine.as_ref(), self.limits.as_ref())?;
                let work = sandbox_process(work, confine.as_ref(), resources, parent)?;
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
                    sandbox_request: confine.as_ref(),
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

/// Refuses to let a confined command start agents without a bound on what they cost.
fn check_agent_budget(
    confine: Option<&SandboxRequest>,
    limits: Option<&Limits>,
) -> Result<(), Refusal> {
    let has_budget = limits.is_some_and(|it| it.tokens.is_some() || it.money.is_some());
    match confine.is_some_and(|confine| confine.agents) && !has_budget {
        true => Err(Refusal::invalid(
            "a confined command may start agents only with a budget of tokens or money",
        )),
        false => Ok(()),
    }
}

/// A command with what it is kept to, and what whoever starts it is kept to.
fn sandbox_process(
    mut work: ProcessWork,
    confine: Option<&SandboxRequest>,
    resources: ResourceLimits,
    parent: SpawnParent<'_>,
) -> Result<ProcessWork, Refusal> {
    let settled =
        confine.map(|asked| sandbox::canonicalize(asked, work.cwd.as_deref())).transpose()?;
    let terminal = work.sandbox.as_ref().and_then(|enclosure| enclosure.terminal);
    let own = Sandbox { terminal, resources, layers: settled.into_iter().collect() };
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

/// The runtime reads what a variable refers to, and it is not confined: whoever is could have any file
/// and any variable read to it.
fn check_env_references(work: &ProcessWork, outer: &Sandbox) -> Result<(), Refusal> {
    let refers = |value: &EnvValue| !matches!(value, EnvValue::Text(_));
    match work.env.iter().find(|(_, value)| refers(value)) {
        Some((name, _)) if !outer.layers.is_empty() => Err(Refusal::forbidden(format!(
            "{name} refers to a variable or file of the runtime, which whoever is confined cannot pass \
             on; give its value"
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
            Ok(RequestedWork::Process(work)) => out.field("command", &work.command),
            Ok(RequestedWork::Agent(work, _)) => out.field("agent", &work.definition),
            Ok(RequestedWork::Custom(custom)) => out.field("custom", &custom.kind),
            Err(refusal) => out.field("refused", refusal),
        };
        out.field("name", &self.name).field("key", &self.key).finish_non_exhaustive()
    }
}
