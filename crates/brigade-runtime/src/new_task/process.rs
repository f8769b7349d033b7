//! Options of processes.

use std::time::Duration;

use brigade_model::limits::Limits;
use brigade_model::refusal::Refusal;
use brigade_model::sandbox::{ResourceLimits, Sandbox, SandboxRequest, TerminalSize};
use brigade_model::work::{CommandLine, EnvValue, ProcessWork, ReadinessCheck, StdinSource};

use super::{DraftWork, NewTask, ProcessTask};
use crate::processes::readiness::check_usable;
use crate::sandbox;
use crate::spawn_parent::SpawnParent;

impl NewTask<ProcessTask> {
    /// Creates a process from a shell command line.
    pub fn shell(command: &str) -> Self {
        Self::process(ProcessWork::new(CommandLine::Shell(command.into())))
    }

    /// Creates a process from a program and its arguments, without a shell.
    pub fn program<W: AsRef<str>>(words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().into()).collect();
        Self::process(ProcessWork::new(CommandLine::Program(words)))
    }

    /// Creates a process from its work. Its shell and sandbox are ignored: the runtime that starts
    /// the task chooses the shell, and [`NewTask::terminal`], [`NewTask::resources`] and
    /// [`NewTask::sandbox`] request a sandbox.
    pub fn process(work: ProcessWork) -> Self {
        Self::new(Ok(DraftWork::Process(ProcessWork { shell: None, sandbox: None, ..work })))
    }

    /// Sets an environment variable to a text or a reference.
    #[must_use]
    pub fn env(self, name: &str, value: impl Into<EnvValue>) -> Self {
        self.update_process(|work| {
            work.env.insert(name.into(), value.into());
            Ok(())
        })
    }

    /// Makes the process read the messages sent to it, one line each, until its input is closed.
    #[must_use]
    pub fn reads_messages(self) -> Self {
        self.update_process(|work| {
            work.stdin = StdinSource::Messages;
            Ok(())
        })
    }

    /// Sets the largest number of bytes stored of each output stream.
    #[must_use]
    pub fn output_cap(self, bytes: u64) -> Self {
        self.update_process(|work| {
            work.output_cap = Some(bytes);
            Ok(())
        })
    }

    /// Makes the output wait this long for a first reader that must not miss any of it. See
    /// [`Session::renew_lease`](crate::Session::renew_lease).
    #[must_use]
    pub fn first_reader_timeout(self, time: Duration) -> Self {
        self.update_process(|work| {
            work.first_reader_timeout = Some(time.into());
            Ok(())
        })
    }

    /// Sets the condition under which the process counts as ready, for
    /// [`TaskHandle::wait_ready`](crate::TaskHandle::wait_ready). Regular expressions support ASCII
    /// classes, and their size is limited. A port or URL belongs to the process: if it answers
    /// before the start, the task fails and nothing is started.
    #[must_use]
    pub fn ready(self, check: ReadinessCheck) -> Self {
        self.update_process(|work| {
            work.ready = Some(check);
            Ok(())
        })
    }

    /// Gives the process a terminal of this size instead of pipes. Its output is one stream, and
    /// messages to it are typed.
    #[must_use]
    pub fn terminal(self, size: TerminalSize) -> Self {
        self.update_process(|work| {
            work.sandbox.get_or_insert_default().terminal = Some(size);
            Ok(())
        })
    }

    fn update_process(self, change: impl FnOnce(&mut ProcessWork) -> Result<(), Refusal>) -> Self {
        self.update(|work| match work {
            DraftWork::Process(work) => change(work),
            _ => Ok(()),
        })
    }
}

/// Refuses to let a sandboxed process start agents without a budget.
pub(super) fn check_agent_budget(
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
pub(super) fn sandbox_process(
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
    work.ready.as_ref().map_or(Ok(()), check_usable)?;
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
