//! Runs a command.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use brigade_model::limits::Limits;
use brigade_model::outcome::{Failure as Ended, Outcome};
use brigade_model::sandbox::TerminalSize;
use brigade_model::work::EnvValue;
use brigade_server::requests::{self, AgentBudget, ExecCommandLine, StartReply};
use brigade_server::{DaemonConnection, TaskInfo, TaskTarget};

use crate::attach::{AttachResult, OutputDisplay, TaskAttachment};
use crate::byte_forward::{StdinReader, forward_bytes};
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::limit_args::LimitArgs;
use crate::output_printer::PrinterThread;
use crate::sandbox_args::{SandboxArgs, parse_amount};
use crate::{duration, render, workspace};

use super::run::parse_budget;

/// How long the output waits for a client that does not say anything.
const DEFAULT_LEASE: &str = "10s";

/// Variables of ours that the command sees as they are here, wherever the daemon was started.
const CALLER_VARIABLES: [&str; 6] = ["PATH", "LANG", "LANGUAGE", "TZ", "TMPDIR", "VIRTUAL_ENV"];

/// Run a command that outlives this terminal, and see it through
///
/// Its output appears here as it comes, and the exit code is its own. When this terminal goes away the
/// command goes on; `brigade logs` and `brigade wait` find it again. Ctrl-C asks it to stop, a second
/// one forces it, a third one leaves without waiting for its end.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExecArgs {
    /// What to call it: unique among what runs here
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// With the same key it is the same task: started once, however often it is asked for
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Print its address and return at once
    #[arg(long, short)]
    detach: bool,
    /// Stay no longer than this; then it goes on in the background and the exit code is 124
    #[arg(long, value_name = "TIME", value_parser = duration::parse_duration, conflicts_with = "detach")]
    timeout: Option<Duration>,
    /// End it as failed when it has run for this long
    #[arg(long, value_name = "TIME", value_parser = duration::parse_duration)]
    deadline: Option<Duration>,
    /// How long it may take to end when it is told to
    #[arg(long, value_name = "TIME", value_parser = duration::parse_duration)]
    grace: Option<Duration>,
    /// Let it read our input, byte by byte, or with --detach the lines that `brigade send` sends
    #[arg(long)]
    stdin: bool,
    /// Set a variable for it
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    env: Vec<(String, String)>,
    /// Set a variable to the value that another has where the daemon runs; it is stored nowhere
    #[arg(long, value_name = "NAME=VARIABLE", value_parser = parse_pair)]
    env_from: Vec<(String, String)>,
    /// Set a variable to what a file says when the command starts; it is stored nowhere
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_pair)]
    env_file: Vec<(String, String)>,
    /// Where to run it [default: here]
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<PathBuf>,
    /// The most to keep of each of its output streams, as 64K, 512M or 1G
    #[arg(long, value_name = "BYTES", value_parser = parse_amount)]
    output_cap: Option<u64>,
    /// Do not let it wait for a slow reader of its output here: what exceeds the cap meanwhile is dropped
    #[arg(long)]
    lossy: bool,
    /// How long it waits for a reader that has gone silent
    #[arg(long, value_name = "TIME", value_parser = duration::parse_duration, default_value = DEFAULT_LEASE, hide = true)]
    lease: Duration,
    /// Started from within a task: outlive it
    #[arg(long)]
    keep: bool,
    /// Give it a terminal, of our size or 80x24 or this one; what it reads is typed as --stdin has it
    #[arg(long, value_name = "SIZE", num_args = 0..=1, require_equals = true, value_parser = parse_terminal_size)]
    pty: Option<Option<TerminalSize>>,
    /// Let it and all below it start agents that use at most this together: dollars as $2.50, tokens as
    /// 500k, or both; a confined command starts none without it, and with --no-tcp none at all
    #[arg(long, value_name = "AMOUNT", value_parser = parse_agent_budget, conflicts_with = "no_tcp")]
    agent_budget: Option<AgentBudget>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    sandbox: SandboxArgs,
    /// A line for the shell instead of a program and its arguments
    #[arg(long, value_name = "TEXT", conflicts_with = "command")]
    shell: Option<String>,
    /// The program and its arguments, as they are
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
  brigade exec --timeout 30s -- make        then it goes on by itself
  brigade exec -d --name Server -- ./serve --port 8000
  brigade exec -d --shell 'make && make install'
  brigade exec --key nightly-2026-01-31 --deadline 2h -- ./nightly
  brigade exec --env-file TOKEN=/run/secrets/token -- ./deploy
  seq 3 | brigade exec --stdin -- wc -l
  brigade exec --confine --max-memory 2G --max-cpu 10m -- make test
  brigade exec --confine-read ~/.cargo --no-network -- cargo test --offline
  brigade exec -d --pty --name Shell -- bash -i";

impl ExecArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let request = self.to_request(context)?;
        let session = request.session.clone();
        // Before anything is started: without threads nothing could be read or shown.
        let printing = PrinterThread::start().map_err(thread_error)?;
        let input = match self.stdin && !self.detach {
            true => Some(StdinReader::start().map_err(thread_error)?),
            false => None,
        };
        let mut client = context.connect_daemon().await?;
        let mut started = context.call_over(&mut client, request).await?;
        started.forget_existed_without_key(self.key.as_deref());
        let address = started.task.address.clone();
        if self.detach {
            print_started(context, &started, &address)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let target = TaskTarget { session, task: address.clone() };
        let showing = if context.json { OutputDisplay::Hidden } else { OutputDisplay::From(0) };
        let mut attachment = TaskAttachment::new(context, target.clone(), showing, self.timeout)
            .map_err(|failure| failure.add_hint(render_still_running(&address)))?
            .with_printer(printing);
        if self.is_lossless(context) {
            attachment = attachment.with_lease(self.lease);
        }
        let attended = tokio::select! {
            attended = attachment.run(client.clone()) => attended.inspect_err(|_| {
                render::print_note(&render_still_running(&address));
            }),
            Err(failure) = forward_stdin(context, client, target, input) => Err(failure),
        };
        report_result(context, &started, attended?)
    }

    /// Whether its output is shown here and none of it may be dropped before.
    fn is_lossless(&self, context: &CliContext) -> bool {
        !self.lossy && !self.detach && !context.json
    }

    fn to_request(&self, context: &CliContext) -> Result<requests::ExecRequest, CliError> {
        let cwd = match &self.cwd {
            Some(folder) if folder.is_absolute() => std::path::absolute(folder)?,
            Some(folder) => std::path::absolute(workspace::current_directory()?.join(folder))?,
            None => workspace::current_directory()?,
        };
        let session = context.session_name_for(&cwd)?;
        let cwd =
            cwd.into_os_string().into_string().map_err(|cwd| not_utf8_error("directory", &cwd))?;
        let limits = self.limits.add_to(Limits::default());
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Ok(requests::ExecRequest {
            name: self.name.clone(),
            key: Some(self.key.clone().unwrap_or_else(brigade_runtime::new_key)),
            cwd: Some(cwd),
            env: self.environment(),
            reads_messages: self.stdin,
            deadline_ms: self.deadline.map(millis),
            grace_ms: self.grace.map(millis),
            output_cap: self.output_cap,
            keep: self.keep,
            terminal: self.pty.map(|size| size.or_else(render::terminal_size).unwrap_or_default()),
            resources: self.sandbox.to_resources(),
            sandbox: self.sandbox.to_sandbox_request()?,
            agent_budget: self.agent_budget,
            limits: Some(Box::new(limits)).filter(|limits| !limits.is_empty()),
            first_reader_timeout_ms: self.is_lossless(context).then(|| millis(self.lease)),
            ..requests::ExecRequest::new(session, self.command_line()?)
        })
    }

    fn command_line(&self) -> Result<ExecCommandLine, CliError> {
        if let Some(text) = &self.shell {
            return Ok(ExecCommandLine::Shell(text.clone()));
        }
        let words = self.command.iter().map(|word| {
            word.to_str().map(str::to_owned).ok_or_else(|| not_utf8_error("argument", word))
        });
        Ok(ExecCommandLine::Program(words.collect::<Result<_, _>>()?))
    }

    fn environment(&self) -> Vec<(String, EnvValue)> {
        let said = |pairs: &[(String, String)], value: fn(&str) -> EnvValue| {
            pairs.iter().map(|(name, text)| (name.clone(), value(text))).collect::<Vec<_>>()
        };
        let mut env = said(&caller_env(), |text| EnvValue::Text(text.into()));
        env.extend(said(&self.env, |text| EnvValue::Text(text.into())));
        env.extend(said(&self.env_from, |variable| EnvValue::FromEnv(variable.into())));
        env.extend(said(&self.env_file, |file| EnvValue::FromFile(file.into())));
        env
    }
}

pub(super) fn caller_env() -> Vec<(String, String)> {
    let ours = std::env::vars_os().filter_map(|(name, value)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        let listed = CALLER_VARIABLES.contains(&name.as_str()) || name.starts_with("LC_");
        listed.then_some((name, value))
    });
    let mut ours: Vec<(String, String)> = ours.collect();
    // The same surroundings are the same request, in whatever order they come.
    ours.sort();
    ours
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

fn not_utf8_error(what: &str, word: &std::ffi::OsStr) -> CliError {
    CliError::usage(format!("the {what} {:?} is not UTF-8", word))
        .with_hint("commands are stored as text; put the bytes into a file or a script")
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

/// Says how it came out where the output has not, and how we end.
fn report_result(
    context: &CliContext,
    started: &StartReply,
    attended: AttachResult,
) -> Result<CliExitCode, CliError> {
    let address = &started.task.address;
    let (exit, note) = match attended {
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
            format!("{address} was told to end; `brigade show {address}` says how"),
        ),
    };
    if context.json {
        render::print_json(started)?;
    }
    render::print_note(&note);
    Ok(exit)
}

pub(super) fn render_still_running(address: &str) -> String {
    format!("{address} goes on in the background; `brigade wait {address}` waits for it")
}

/// What an exit code alone does not say.
fn print_outcome_note(task: &TaskInfo) {
    let plain = match &task.outcome {
        Some(Outcome::Succeeded { .. }) | None => true,
        Some(Outcome::Failed(failed)) => matches!(failed.failure, Ended::ExitCode(_)),
        Some(Outcome::Cancelled(_)) => false,
    };
    if !plain {
        let detail = task.detail.as_deref().unwrap_or(&task.state);
        render::print_note(&format!("{} {detail}", task.address));
    }
}

/// Our input becomes its input. Never returns unless something is wrong.
async fn forward_stdin(
    context: &CliContext,
    client: DaemonConnection,
    target: TaskTarget,
    input: Option<StdinReader>,
) -> Result<(), CliError> {
    let address = target.task.clone();
    let Some(input) = input else { return std::future::pending().await };
    match forward_bytes(context, client, target, input).await {
        // It has ended, or needs no more.
        Err(failure) if failure.is_task_ended() => std::future::pending().await,
        Err(failure) => Err(failure.add_hint(format!(
            "{address} got what came before it; it goes on: `brigade wait {address}` waits for it, \
             `brigade stop {address}` ends it"
        ))),
        Ok(()) => std::future::pending().await,
    }
}

fn thread_error(error: std::io::Error) -> CliError {
    CliError::internal(format!("no thread can be started: {error}")).with_hint(
        "nothing was started; `ulimit -u` says how many processes and threads you may have",
    )
}
