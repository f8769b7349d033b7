//! `brigade daemon`: starts, stops and inspects the daemon. Other subcommands start it when they
//! need it.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade_file_tools::PrivateDirectory;
use brigade_process::ControlGroups;
use brigade_process::hardening::{hide_secrets, raise_file_limit};
use brigade_process::process_identity::is_process_alive;
use brigade_protocol::daemon_launcher::{STATE_VARIABLE, STORE_VARIABLE, terminate_lock_holder};
use brigade_protocol::daemon_lock::DaemonPhase;
use brigade_protocol::remote_daemon::TOKEN_VARIABLE;
use brigade_protocol::requests::{ShutdownRequest, StatusRequest};
use brigade_protocol::{ClientError, DaemonConnection};
use brigade_runtime::{NodeOptions, ProcessOptions, Runtime, RuntimeBuilder};
use brigade_server::daemon::{DaemonError, StateDirLock};
use brigade_server::http::ListenOptions;
use brigade_server::{DaemonOptions, ShutdownHandle, TrustStore};
use brigade_sqlite::SqliteStore;
use brigade_store::{Retention, StoreError};
use rustix::process::setsid;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::UserConfig;
use crate::context::{CliContext, this_program};
use crate::exit_code::{CliError, CliExitCode};
use crate::store_binding::{self, OpenedDatabase};
use crate::telemetry::{DEFAULT_LOG_FILTER, TERMINAL_LOG_FILTER, Telemetry};
use crate::{configured_models, duration, render};

/// The arguments with which a client starts a daemon.
pub(crate) const DETACHED_ARGS: [&str; 4] = ["daemon", "start", "--foreground", "--detached"];

/// The time that a daemon has to shut down after its drain.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);
/// The time to wait for the store's lock.
const STORE_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Start, stop or inspect the daemon; other subcommands start it when they need it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DaemonArgs {
    #[command(subcommand)]
    action: DaemonSubcommand,
}

const EXAMPLES: &str = "\
Examples:
  brigade daemon status
  brigade daemon stop                       processes keep running
  brigade daemon start --foreground         for a service manager";

#[derive(Debug, clap::Subcommand)]
enum DaemonSubcommand {
    /// Start the daemon unless it runs
    Start {
        /// Run in the foreground
        #[arg(long)]
        foreground: bool,
        /// Start an OS session of its own
        #[arg(long, hide = true, requires = "foreground")]
        detached: bool,
    },
    /// Drain and shut down; processes keep running. Repeat it to end the drain
    Stop,
    /// Print the status; exit code 127 when no daemon runs
    Status,
}

/// Returns true if the arguments start a detached daemon. Works before they are parsed.
pub(crate) fn is_detached(arguments: impl Iterator<Item = OsString>) -> bool {
    let words: Vec<OsString> = arguments.collect();
    let last: Vec<&OsString> = words.iter().rev().take(4).rev().collect();
    last.iter().zip(DETACHED_ARGS).all(|(word, expect)| *word == expect)
        && last.len() == DETACHED_ARGS.len()
}

/// Prepares this process to be the daemon, before it starts threads. Hides its keys from other
/// processes of the user, and raises its limit of open files.
pub(crate) fn harden() -> std::io::Result<()> {
    hide_secrets()?;
    raise_file_limit()
}

impl DaemonArgs {
    pub(crate) fn is_foreground(&self) -> bool {
        matches!(self.action, DaemonSubcommand::Start { foreground: true, .. })
    }

    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        if let DaemonSubcommand::Start { .. } = self.action {
            context.require_local("daemon start")?;
        }
        match self.action {
            DaemonSubcommand::Start { foreground: false, .. } => {
                context.connect_daemon().await?;
                status(context).await
            }
            DaemonSubcommand::Start { detached: true, .. } => {
                // First of all: from here on no terminal ends it.
                let _ = setsid();
                // The client that started it reads the last line of the log.
                let ended = start_in_foreground(context).await;
                Ok(ended.unwrap_or_else(|error| error.report_on_one_line()))
            }
            DaemonSubcommand::Start { .. } => start_in_foreground(context).await,
            DaemonSubcommand::Stop => stop(context).await,
            DaemonSubcommand::Status => status(context).await,
        }
    }
}

async fn status(context: &CliContext) -> Result<CliExitCode, CliError> {
    let client = match context.connect_running_daemon().await {
        Ok(client) => client,
        Err(ClientError::NoDaemon(_)) => return report_no_daemon(context, CliExitCode::NOT_FOUND),
        Err(ClientError::Unreachable { holder, .. })
            if holder.phase == Some(DaemonPhase::ShuttingDown) =>
        {
            return report_no_daemon(context, CliExitCode::NOT_FOUND);
        }
        Err(error) => return Err(error.into()),
    };
    let status = client.call(StatusRequest {}).await?;
    if context.json {
        render::print_json(&serde_json::json!({ "running": true, "status": status }))?;
    } else {
        render::print_line(format!(
            "running: version {}, protocol {}, pid {}, for {}\n\
             state:   {}\n\
             counts:  {}, {}, {}",
            status.version,
            status.protocol,
            status.pid,
            duration::render_duration(status.uptime_ms),
            status.state_dir,
            render::render_count(status.clients as u64, "client"),
            render::render_count(status.sessions as u64, "workspace"),
            render::render_count(status.alive_tasks as u64, "alive task")
        ))?;
    }
    Ok(CliExitCode::SUCCEEDED)
}

async fn stop(context: &CliContext) -> Result<CliExitCode, CliError> {
    let pid = match context.connect_running_daemon().await {
        Ok(client) if context.server().is_some() => return stop_remote(context, &client).await,
        Ok(client) => request_shutdown(&client).await?,
        Err(error @ ClientError::VersionMismatch { .. }) => {
            terminate_lock_holder(&context.state_dir).ok_or(error)?
        }
        Err(ClientError::NoDaemon(_)) => return report_no_daemon(context, CliExitCode::SUCCEEDED),
        Err(ClientError::Unreachable { holder, .. })
            if holder.phase == Some(DaemonPhase::ShuttingDown) =>
        {
            // Another client has stopped it. The state directory is free after its exit.
            if let Some(pid) = holder.pid {
                wait_until_ended(pid, SHUTDOWN_TIMEOUT).await?;
            }
            return report_no_daemon(context, CliExitCode::SUCCEEDED);
        }
        Err(error) => return Err(error.into()),
    };
    let drain = context.config.drain_timeout().map_err(CliError::usage)?.unwrap_or_default();
    wait_until_ended(pid, drain + SHUTDOWN_TIMEOUT).await?;
    if context.json {
        render::print_json(&serde_json::json!({ "running": false, "stopped": pid }))?;
    } else {
        render::print_line(format!("stopped (pid {pid})"))?;
    }
    Ok(CliExitCode::SUCCEEDED)
}

/// Stops the daemon of a server. It closes the connection after its drain.
async fn stop_remote(
    context: &CliContext,
    client: &DaemonConnection,
) -> Result<CliExitCode, CliError> {
    let pid = request_shutdown(client).await?;
    client.wait_closed().await;
    if context.json {
        render::print_json(&serde_json::json!({ "running": false, "stopped": pid }))?;
    } else {
        render::print_line(format!("stopped (pid {pid} of the server)"))?;
    }
    Ok(CliExitCode::SUCCEEDED)
}

/// Shuts down a daemon without a drain: its successor performs its tasks.
pub(super) async fn hand_over(client: &DaemonConnection) -> Result<(), CliError> {
    let pid = request_shutdown(client).await?;
    // The second request ends the drain.
    let _ = request_shutdown(client).await;
    wait_until_ended(pid, SHUTDOWN_TIMEOUT).await
}

async fn request_shutdown(client: &DaemonConnection) -> Result<u32, CliError> {
    match client.call(ShutdownRequest {}).await {
        Ok(()) | Err(ClientError::Lost | ClientError::NotReceived) => Ok(client.daemon_pid()),
        Err(error) => Err(error.into()),
    }
}

async fn wait_until_ended(pid: u32, timeout: Duration) -> Result<(), CliError> {
    let deadline = Instant::now() + timeout;
    while is_process_alive(pid) {
        if Instant::now() > deadline {
            let problem = format!("the daemon (pid {pid}) did not shut down");
            return Err(CliError::internal(problem)
                .with_hint("read its log: daemon.log in the state directory"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn report_no_daemon(context: &CliContext, exit: CliExitCode) -> Result<CliExitCode, CliError> {
    if context.json {
        render::print_json(&serde_json::json!({ "running": false }))?;
    } else {
        render::print_line("no daemon is running")?;
    }
    Ok(exit)
}

async fn start_in_foreground(context: &CliContext) -> Result<CliExitCode, CliError> {
    reexec_with_state_variable(context)?;
    let database = open_database(context).await?;
    let node = context.config.node.options().map_err(CliError::usage)?;
    run_daemon(context, database.map(|database| (database, node)), None).await
}

/// Opens the database of the configured store, unless the store is the file in the state directory.
/// Refuses one to which the state directory does not belong.
pub(super) async fn open_database(
    context: &CliContext,
) -> Result<Option<OpenedDatabase>, CliError> {
    let Some(options) = context.store.read_options().map_err(CliError::usage)? else {
        return Ok(None);
    };
    let database = OpenedDatabase::open(&options).await?;
    database.check_state_dir(&context.state_dir).await?;
    Ok(Some(database))
}

/// Runs the daemon in the foreground. With an address it serves HTTP, and never shuts down by
/// itself. Nor does a daemon on a database, since no client starts it again.
pub(super) async fn run_daemon(
    context: &CliContext,
    database: Option<(OpenedDatabase, NodeOptions)>,
    listen: Option<ListenOptions>,
) -> Result<CliExitCode, CliError> {
    let is_server = listen.is_some();
    let telemetry = Telemetry::start(&context.config.telemetry, log_filter(is_server))?;
    let state_dir = &context.state_dir;
    let lock = StateDirLock::acquire(state_dir)?;
    let is_on_database = database.is_some();
    let builder = match database {
        Some((database, node)) => {
            let store = database.bind(state_dir).await?;
            let builder = Runtime::builder().shared_store(store).node(node);
            context.config.node.loops.into_iter().fold(builder, RuntimeBuilder::loops)
        }
        None => {
            store_binding::check_unbound(state_dir)?;
            Runtime::builder().store(open_store(&state_dir.store_path()).await?)
        }
    };
    let idle_timeout = context.config.idle_timeout().map_err(CliError::usage)?;
    let options = DaemonOptions {
        state_dir: state_dir.clone(),
        idle_timeout: idle_timeout.filter(|_| !is_server && !is_on_database),
        drain_timeout: context.config.drain_timeout().map_err(CliError::usage)?,
        listen,
    };
    let trust = Arc::new(TrustStore::open(state_dir)?);
    let programs = configured_models::external_programs().brigade_program(this_program()?);
    let programs = Arc::new(programs);
    let agents = configured_models::agent_options(&context.config)?
        .definition_trust(trust.clone())
        .backend_source(programs.clone())
        .private_directories(private_directories(context));
    let processes = process_options(context);
    let builder = builder.processes(processes).agents(agents);
    let builder = apply_config(&context.config, builder)?;
    let daemon = brigade_server::Daemon::open(lock, options, builder).await?;
    let daemon = daemon.with_metrics(telemetry.metrics_renderer()).with_trust_store(trust);
    let notifiers = context.config.notify.notifiers().map_err(CliError::usage)?;
    let daemon = daemon.with_external_programs(programs).with_notifiers(notifiers);
    tracing::info!(pid = std::process::id(), version = env!("CARGO_PKG_VERSION"), "serving");
    // A caller that has read the addresses may send a signal at once.
    let signal_task = shut_down_on_signal(daemon.shutdown_handle())?;
    if is_server {
        super::serve::print_listeners(context, &daemon.listeners().await)?;
    }
    let result = tokio::select! {
        ended = daemon.run() => ended,
        () = telemetry.run_upkeep() => Ok(()),
    };
    signal_task.abort();
    telemetry.flush().await;
    result?;
    tracing::info!("shut down");
    Ok(CliExitCode::SUCCEEDED)
}

/// Returns the log filter without `BRIGADE_LOG`. A person at the terminal of a server reads its
/// addresses, and only problems beside them.
fn log_filter(is_server: bool) -> &'static str {
    match is_server && std::io::stderr().is_terminal() {
        true => TERMINAL_LOG_FILTER,
        false => DEFAULT_LOG_FILTER,
    }
}

/// Opens the store. A daemon that shuts down unlocks it a moment after the state directory.
async fn open_store(path: &Path) -> Result<SqliteStore, CliError> {
    let deadline = Instant::now() + STORE_LOCK_TIMEOUT;
    loop {
        match SqliteStore::open(path) {
            Err(StoreError::Locked { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(StoreError::Older { .. }) => return Err(older_state_dir(path)),
            opened => {
                return opened
                    .map_err(|error| CliError::internal(format!("{}: {error}", path.display())));
            }
        }
    }
}

/// Explains a state directory of an earlier version. Nothing in it has been changed.
fn older_state_dir(store: &Path) -> CliError {
    let state_dir = store.parent().unwrap_or(store).display();
    CliError::internal(format!(
        "the state directory {state_dir} was written by an earlier version and cannot be read; nothing in \
         it was changed. Move it away (`mv {state_dir} {state_dir}.old`) or name another with --state"
    ))
}

/// Executes this program again with the state variable in its environment, from which processes get
/// it.
pub(super) fn reexec_with_state_variable(context: &CliContext) -> Result<(), CliError> {
    let path = context.state_dir.path().as_os_str();
    if std::env::var_os(STATE_VARIABLE).is_some_and(|named| named == path) {
        return Ok(());
    }
    let mut again = std::process::Command::new(this_program()?);
    Err(again.args(std::env::args_os().skip(1)).env(STATE_VARIABLE, path).exec().into())
}

/// Executes this program again with the store in its environment instead of its arguments. Returns
/// only if that fails.
pub(super) fn reexec_with_store(context: &CliContext, store: &str) -> CliError {
    let mut again = match this_program() {
        Ok(program) => std::process::Command::new(program),
        Err(error) => return error,
    };
    again.args(without_option(std::env::args_os().skip(1), "--store"));
    again.env(STATE_VARIABLE, context.state_dir.path()).env(STORE_VARIABLE, store).exec().into()
}

/// Removes an option and its value from arguments.
fn without_option(arguments: impl Iterator<Item = OsString>, option: &str) -> Vec<OsString> {
    let joined = format!("{option}=");
    let mut kept = Vec::new();
    let mut is_value = false;
    for word in arguments {
        let is_joined = word.as_encoded_bytes().starts_with(joined.as_bytes());
        match is_value {
            true => is_value = false,
            false if word == option => is_value = true,
            false if is_joined => {}
            false => kept.push(word),
        }
    }
    kept
}

/// Returns the directories that file tools of agents must not reach. They hold the operator key and
/// the permissions of agents.
fn private_directories(context: &CliContext) -> Vec<PrivateDirectory> {
    let config =
        UserConfig::config_dir().map(|dir| PrivateDirectory::read_only(&dir.join("brigade")));
    // Agents with a worktree work there; their files are not Brigade's.
    let state_dir = context.state_dir.path();
    let state = PrivateDirectory::hidden(state_dir).except(&state_dir.join("worktrees"));
    [state].into_iter().chain(config).collect()
}

fn process_options(context: &CliContext) -> ProcessOptions {
    let config = &context.config;
    let options = ProcessOptions::new(context.state_dir.path())
        .output_cap(config.output_cap)
        .pass_env(STATE_VARIABLE)
        // All children of the daemon are shims.
        .control_groups(ControlGroups::detect())
        .inherit_orphans();
    let options = match &config.shell {
        Some(shell) => options.shell(shell),
        None => options,
    };
    // The first may contain a password.
    let options = options.withhold_env(STORE_VARIABLE).withhold_env(TOKEN_VARIABLE);
    let options = configured_models::key_variables(config)
        .iter()
        .fold(options, |options, name| options.withhold_env(name));
    config.pass_env.iter().fold(options, |options, name| options.pass_env(name))
}

/// Applies the settings of the whole runtime.
fn apply_config(config: &UserConfig, builder: RuntimeBuilder) -> Result<RuntimeBuilder, CliError> {
    let builder = match config.max_running {
        Some(max) => builder.max_running(max.get()),
        None => builder,
    };
    Ok(match config.retention_age().map_err(CliError::usage)? {
        Some(age) => builder.retention(Retention { ended: age.into(), events: age.into() }),
        None => builder,
    })
}

/// Shuts down on the first signal, and ends the drain on the second.
fn shut_down_on_signal(shutdown: ShutdownHandle) -> Result<tokio::task::JoinHandle<()>, CliError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A closed terminal does not end the daemon.
    let mut hangup = signal(SignalKind::hangup())?;
    #[expect(clippy::disallowed_methods, reason = "aborted by the caller after the shutdown")]
    let task = tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => continue,
            }
            tracing::info!("shutting down on a signal");
            shutdown.request_shutdown();
        }
    });
    Ok(task)
}

impl From<DaemonError> for CliError {
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::AlreadyRunning { .. } => {
                Self::new(CliExitCode::STATE_DIR_TAKEN, error.to_string())
            }
            DaemonError::Refused(refusal) => refusal.into(),
            DaemonError::StateDir { .. } => Self::internal(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_removed_with_its_value() {
        let kept = |line: &str| {
            let words = without_option(line.split(' ').map(OsString::from), "--store");
            words.join(std::ffi::OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(kept("serve --store a --listen b"), "serve --listen b");
        assert_eq!(kept("serve --store=a --listen b"), "serve --listen b");
        assert_eq!(kept("--json serve --store --store"), "--json serve");
        assert_eq!(kept("serve --stored a --listen --store"), "serve --stored a --listen");
    }
}
