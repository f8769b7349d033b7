//! `brigade exec`: runs a process.

use brigade_model::duration::parse_duration;
use brigade_model::work::{CommandLine, EnvValue, ProcessWork, ReadinessCheck, StdinSource};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::limits::Limits;
use brigade_model::outcome::{Failure, Outcome};
use brigade_model::sandbox::TerminalSize;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::requests::{self, AgentBudget, StartReply};
use brigade_protocol::{TaskInfo, TaskTarget};

use crate::attach::{AttachResult, OutputDisplay, TaskAttachment, listen_for_interrupts};
use crate::byte_forward::{StdinReader, forward_bytes};
use crate::configured_notifiers::to_requested_notifier;
use crate::context::{CliContext, call_over};
use crate::exit_code::{CliError, CliExitCode};
use crate::limit_args::LimitArgs;
use crate::output_printer::PrinterThread;
use crate::sandbox_args::{SandboxArgs, parse_amount};
use crate::{render, workspace};

use super::run::parse_budget;

/// The time that a process waits for a silent reader of its output.
const DEFAULT_LEASE: &str = "10s";

/// Variables of the caller that the process gets, wherever the daemon was started.
const CALLER_VARIABLES: [&str; 6] = ["PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV"];

/// Those of them that mean the same on another machine.
const LANGUAGE_VARIABLES: [&str; 3] = ["LANG", "LANGUAGE", "TZ"];

/// Run a command line as a task that outlives this terminal, and stay with it until it ends
///
/// Prints the output as it arrives and exits with the process's exit code. If this terminal closes,
/// the process keeps running; find it again with `brigade logs` and `brigade wait`. Ctrl-C asks it
/// to stop, a second one forces it, a third one detaches.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExecArgs {
    /// Name of the task, unique among running tasks of this workspace
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Idempotency key: the same key starts the task once
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print the address and return at once
    #[arg(long, short)]
    detach: bool,
    /// Wait at most this long; the task keeps running and the exit code is 124
    #[arg(long, value_name = "TIME", value_parser = parse_duration, conflicts_with = "detach")]
    timeout: Option<Duration>,
    /// End the task as failed after this long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    deadline: Option<Duration>,
    /// Grace period between SIGTERM and SIGKILL
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    grace: Option<Duration>,
    /// Count it as ready when a line of its output matches; wait with `brigade wait --ready`
    #[arg(long, value_name = "REGEX", group = "readiness")]
    ready: Option<String>,
    /// Count it as ready when it accepts connections on this port of the loopback address
    #[arg(long, value_name = "PORT", group = "readiness", value_parser = clap::value_parser!(u16).range(1..))]
    ready_port: Option<u16>,
    /// Count it as ready when this URL of the loopback address answers with 200 to 299
    #[arg(long, value_name = "URL", group = "readiness")]
    ready_http: Option<String>,
    /// Forward stdin byte by byte; with --detach, lines come from `brigade send`
    #[arg(long)]
    stdin: bool,
    /// Set an environment variable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    env: Vec<(String, String)>,
    /// Set NAME from VARIABLE in the daemon's environment; the value is never stored
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse_pair)]
    env_from: Vec<(String, String)>,
    /// Set NAME from a file when the process starts; the value is never stored
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_pair)]
    env_file: Vec<(String, String)>,
    /// Working directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Keep at most this many bytes of each output stream: 64K, 512M, 1G
    #[arg(long, value_name = "BYTES", value_parser = parse_amount)]
    output_cap: Option<u64>,
    /// Never wait for a slow reader of the output: drop what exceeds the cap
    #[arg(long)]
    lossy: bool,
    /// Time that the process waits for a silent reader
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = DEFAULT_LEASE, hide = true)]
    lease: Duration,
    /// Started within a task: outlive that task
    #[arg(long)]
    keep: bool,
    /// Run in a git worktree of its own, on a new branch from HEAD; removed if it holds no work
    #[arg(long)]
    worktree: bool,
    /// Call this notifier of the daemon's configuration for the task, else all of them
    #[arg(long, value_name = "NAME", num_args = 0..=1, require_equals = true)]
    notify: Option<Option<String>>,
    /// Run on a terminal of this size, else of ours, else 80x24; type into it with --stdin
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, value_parser = parse_terminal_size)]
    pty: Option<Option<TerminalSize>>,
    /// Let the process and its descendants start agents, up to this budget together: $2.50, 500k,
    /// or both; a sandboxed process starts none without it, and with --no-tcp none at all
    #[arg(long, value_name = "AMOUNT", value_parser = parse_agent_budget, conflicts_with = "no_tcp")]
    agent_budget: Option<AgentBudget>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
    /// Run this text with the shell
    #[arg(long, value_name = "TEXT", conflicts_with = "command")]
    shell: Option<String>,
    /// Program and arguments, passed unchanged
    #[arg(last = true, required_unless_present = "shell", value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn parse_agent_budget(text: &str) -> Result<AgentBudget, String> {
    let Limits { tokens, money, .. } = parse_budget(text)?;
    Ok(AgentBudget { tokens, money })
}

const EXAMPLES: &str = "\
Examples:
  brigade exec -- cargo test
  brigade exec --timeout 30s -- make        then it keeps running
  brigade exec -d --name Server -- ./serve --port 8000
  brigade exec -d --shell 'make && make install'
  brigade exec -d --name Server --ready-port 8000 -- ./serve
  brigade exec --key nightly-2026-01-31 --deadline 2h -- ./nightly
  brigade exec --env-file TOKEN=/run/secrets/token -- ./deploy
  seq 3 | brigade exec --stdin -- wc -l
  brigade exec --sandbox --max-memory 2G --max-cpu 10m -- make test
  brigade exec --sandbox-read ~/.cargo --no-network -- cargo test --offline
  brigade exec -d --pty --name Shell -- bash -i";

impl ExecArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let request = self.to_request(context)?;
        let session = request.session.clone();
        // The thread starts before the task: without it nothing could be read.
        let input = match self.stdin && !self.detach {
            true => Some(StdinReader::start().map_err(thread_error)?),
            false => None,
        };
        let client = context.connect_daemon().await?;
        let interrupts = listen_for_interrupts()?;
        let mut started = call_over(&client, request).await?;
        started.forget_existed_without_key(self.key.as_deref());
        let address = started.task.address.clone();
        if self.detach {
            print_started(context, &started, &address)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let target = TaskTarget { session, task: address.clone() };
        let display = if context.json { OutputDisplay::Hidden } else { OutputDisplay::From(0) };
        let mut attachment = TaskAttachment::new(target.clone(), display, self.timeout, interrupts)
            .with_printer(PrinterThread::new());
        if self.is_lossless(context) {
            attachment = attachment.with_lease(self.lease);
        }
        let result = tokio::select! {
            attached = attachment.run(client.clone()) => attached.inspect_err(|_| {
                render::print_note(&render_still_running(&address));
            }),
            Err(error) = forward_stdin(client, target, input) => Err(error),
        };
        report_result(context, &started, result?)
    }

    /// Returns true if the output is printed here and none of it may be lost.
    fn is_lossless(&self, context: &CliContext) -> bool {
        !self.lossy && !self.detach && !context.json
    }

    fn to_request(&self, context: &CliContext) -> Result<requests::ExecRequest, CliError> {
        let cwd = match &self.cwd {
            Some(path) if path.is_absolute() => std::path::absolute(path)?,
            Some(path) => std::path::absolute(workspace::current_directory()?.join(path))?,
            None => workspace::current_directory()?,
        };
        let session = context.session_name_for(&cwd)?;
        let cwd =
            cwd.into_os_string().into_string().map_err(|cwd| not_utf8_error("directory", &cwd))?;
        let limits = self.limits.add_to(Limits::default());
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let stdin = if self.stdin { StdinSource::Messages } else { StdinSource::Null };
        let process = ProcessWork {
            cwd: Some(cwd.into()),
            env: self.environment(context),
            stdin,
            output_cap: self.output_cap,
            ready: self.readiness_check()?,
            first_reader_timeout: self.is_lossless(context).then(|| self.lease.into()),
            ..ProcessWork::new(self.command_line()?)
        };
        Ok(requests::ExecRequest {
            name: self.name.clone(),
            key: Some(self.key.clone().unwrap_or_else(brigade_runtime::new_key)),
            deadline_ms: self.deadline.map(millis),
            grace_ms: self.grace.map(millis),
            keep: self.keep,
            worktree: self.worktree,
            notify: to_requested_notifier(self.notify.as_ref()),
            terminal: self.pty.map(|size| size.or_else(render::terminal_size).unwrap_or_default()),
            resources: self.sandbox.to_resources(),
            sandbox: self.sandbox.to_sandbox_request()?,
            agent_budget: self.agent_budget,
            limits: Some(Box::new(limits)).filter(|limits| !limits.is_empty()),
            ..requests::ExecRequest::new(session, process)
        })
    }

    fn readiness_check(&self) -> Result<Option<ReadinessCheck>, CliError> {
        let (output, port, http) =
            (self.ready.as_deref(), self.ready_port, self.ready_http.as_deref());
        if output.is_none() && port.is_none() && http.is_none() {
            return Ok(None);
        }
        Ok(Some(ReadinessCheck::from_fields(output, port, http)?))
    }

    fn command_line(&self) -> Result<CommandLine, CliError> {
        if let Some(text) = &self.shell {
            return Ok(CommandLine::Shell(text.as_str().into()));
        }
        let words = self.command.iter().map(|word| {
            word.to_str().map(Arc::from).ok_or_else(|| not_utf8_error("argument", word))
        });
        Ok(CommandLine::Program(words.collect::<Result<_, _>>()?))
    }

    fn environment(&self, context: &CliContext) -> BTreeMap<Arc<str>, EnvValue> {
        let entries = |pairs: &[(String, String)], value: fn(&str) -> EnvValue| {
            pairs.iter().map(|(name, text)| (name.as_str().into(), value(text))).collect::<Vec<_>>()
        };
        let mut env = caller_env(context);
        env.extend(entries(&self.env, |text| EnvValue::Text(text.into())));
        env.extend(entries(&self.env_from, |variable| EnvValue::FromEnv(variable.into())));
        env.extend(entries(&self.env_file, |file| EnvValue::FromFile(file.into())));
        env
    }
}

/// Returns the variables of this process that the new one gets. Paths of this machine mean nothing
/// on a server.
pub(super) fn caller_env(context: &CliContext) -> BTreeMap<Arc<str>, EnvValue> {
    let variables: &[&str] = match context.server() {
        Some(_) => &LANGUAGE_VARIABLES,
        None => &CALLER_VARIABLES,
    };
    let inherited = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let value = value.into_string().ok()?;
        let listed = variables.contains(&name.as_str()) || name.starts_with("LC_");
        listed.then_some((name.into(), EnvValue::Text(value.into())))
    });
    inherited.collect()
}

fn parse_terminal_size(text: &str) -> Result<TerminalSize, String> {
    text.parse().map_err(|refusal: brigade_model::refusal::Refusal| refusal.message)
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

fn not_utf8_error(kind: &str, word: &std::ffi::OsStr) -> CliError {
    CliError::usage(format!("the {kind} {:?} is not UTF-8", word))
        .with_hint("command lines are stored as text; put the bytes into a file or a script")
}

pub(super) fn print_started(
    context: &CliContext,
    started: &StartReply,
    address: &str,
) -> Result<(), CliError> {
    if context.json {
        return render::print_json(started);
    }
    render::print_line(address)?;
    if started.existed {
        render::print_note(&format!("{address} was there already, under the same key"));
    }
    Ok(())
}

/// Prints the outcome that the output does not show, and returns the exit code.
fn report_result(
    context: &CliContext,
    started: &StartReply,
    result: AttachResult,
) -> Result<CliExitCode, CliError> {
    let address = &started.task.address;
    let (exit, note) = match result {
        AttachResult::Ended(task) => {
            let exit = CliExitCode::for_task(&task);
            if context.json {
                render::print_json(&StartReply { task: *task, existed: started.existed })?;
            } else {
                print_outcome_note(&task);
            }
            return Ok(exit);
        }
        AttachResult::EndedWithGaps(task, bytes) => {
            print_outcome_note(&task);
            let state = &task.state;
            (
                CliExitCode::INTERNAL,
                format!("{address} {state}, but {bytes} bytes of its output are missing"),
            )
        }
        AttachResult::StillRunning => (CliExitCode::TIMED_OUT, render_still_running(address)),
        AttachResult::Detached => (
            CliExitCode::INTERRUPTED,
            format!("{address} was asked to stop; `brigade show {address}` prints its outcome"),
        ),
    };
    if context.json {
        render::print_json(started)?;
    }
    render::print_note(&note);
    Ok(exit)
}

pub(super) fn render_still_running(address: &str) -> String {
    format!("{address} keeps running in the background; `brigade wait {address}` waits for it")
}

/// Prints an outcome that the exit code alone does not show.
fn print_outcome_note(task: &TaskInfo) {
    let is_plain_exit = match &task.outcome {
        Some(Outcome::Succeeded { .. }) | None => true,
        Some(Outcome::Failed(failed)) => matches!(failed.failure, Failure::ExitCode(_)),
        Some(Outcome::Cancelled(_)) => false,
    };
    if !is_plain_exit {
        let detail = task.detail.as_deref().unwrap_or(&task.state);
        render::print_note(&format!("{} {detail}", task.address));
    }
}

/// Forwards stdin to the process. Returns only after an error.
async fn forward_stdin(
    client: DaemonClient,
    target: TaskTarget,
    input: Option<StdinReader>,
) -> Result<(), CliError> {
    let address = target.task.clone();
    let Some(input) = input else { return std::future::pending().await };
    match forward_bytes(client, target, input).await {
        // The process has ended, or reads no more.
        Err(error) if error.is_task_ended() => std::future::pending().await,
        Err(error) => Err(error.add_hint(format!(
            "{address} got the input before it and keeps running: `brigade wait {address}` waits for it, \
             `brigade stop {address}` stops it"
        ))),
        Ok(()) => std::future::pending().await,
    }
}

fn thread_error(error: std::io::Error) -> CliError {
    CliError::internal(format!("no thread can be started: {error}"))
        .with_hint("nothing was started; `ulimit -u` prints your limit of processes and threads")
}
