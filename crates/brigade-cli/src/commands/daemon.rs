//! The daemon by hand. It also starts by itself.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brigade_agent::tools::PrivateDirectory;
use brigade_process::ControlGroups;
use brigade_process::hardening::{hide_secrets, raise_file_limit};
use brigade_runtime::{ProcessOptions, Runtime};
use brigade_server::daemon::{Claimed, DaemonError};
use brigade_server::daemon_lock::DaemonPhase;
use brigade_server::requests::{Leave, Status};
use brigade_server::start::STATE_VARIABLE;
use brigade_server::{ClientError, DaemonOptions, TrustStore};
use brigade_sqlite::SqliteStore;
use brigade_store::StoreError;
use rustix::process::{Pid, setsid, test_kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::context::{Context, this_program};
use crate::exit::{Exit, Failure};
use crate::telemetry::Telemetry;
use crate::{models, show, span};

/// How a client starts one.
pub(crate) const DETACHED: [&str; 4] = ["daemon", "start", "--foreground", "--detached"];

/// How long a daemon may take to leave.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long the store may be somebody else's.
const STORE_PATIENCE: Duration = Duration::from_secs(5);

/// Start, stop or look at the daemon; any command starts it when it is needed
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Daemon {
    #[command(subcommand)]
    what: What,
}

const EXAMPLES: &str = "\
Examples:
  brigade daemon status
  brigade daemon stop                       the next daemon finds the commands
  brigade daemon start --foreground         for a service manager";

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Start it, unless it runs
    Start {
        /// Be the daemon
        #[arg(long)]
        foreground: bool,
        /// Belong to nobody's terminal
        #[arg(long, hide = true, requires = "foreground")]
        detached: bool,
    },
    /// Let it leave; commands go on without it
    Stop,
    /// Say how it is; exit code 127 when there is none
    Status,
}

/// Whether these arguments make a daemon that belongs to nobody, before they are looked at in full.
pub(crate) fn is_detached(arguments: impl Iterator<Item = OsString>) -> bool {
    let words: Vec<OsString> = arguments.collect();
    let last: Vec<&OsString> = words.iter().rev().take(4).rev().collect();
    last.iter().zip(DETACHED).all(|(word, expect)| *word == expect) && last.len() == DETACHED.len()
}

/// Prepares a process to be the daemon, before it starts threads: its keys are hidden from processes of
/// the same user, and it may have more connections than a program usually has files.
pub(crate) fn harden() -> std::io::Result<()> {
    hide_secrets()?;
    raise_file_limit()
}

impl Daemon {
    pub(crate) fn is_foreground(&self) -> bool {
        matches!(self.what, What::Start { foreground: true, .. })
    }

    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self.what {
            What::Start { foreground: false, .. } => {
                context.daemon().await?;
                status(context).await
            }
            What::Start { detached: true, .. } => {
                // Before anything else: from here on no terminal ends it.
                let _ = setsid();
                // Whoever started it reads the last line of the log.
                Ok(serve(context).await.unwrap_or_else(|failure| failure.report_in_a_line()))
            }
            What::Start { .. } => serve(context).await,
            What::Stop => stop(context).await,
            What::Status => status(context).await,
        }
    }
}

async fn status(context: &Context) -> Result<Exit, Failure> {
    let client = match context.running_daemon().await {
        Ok(client) => client,
        Err(ClientError::NoDaemon(_)) => return none_runs(context, Exit::NOT_FOUND),
        Err(ClientError::Unreachable { holder, .. })
            if holder.phase == Some(DaemonPhase::Leaving) =>
        {
            return none_runs(context, Exit::NOT_FOUND);
        }
        Err(error) => return Err(error.into()),
    };
    let status = client.ask(Status {}).await?;
    if context.json {
        show::json(&serde_json::json!({ "running": true, "status": status }))?;
    } else {
        show::line(format!(
            "running: version {}, protocol {}, pid {}, for {}\n\
             folder:  {}\n\
             has:     {}, {}, {}",
            status.version,
            status.protocol,
            status.pid,
            span::short(status.up_ms),
            status.folder,
            show::count(status.clients as u64, "client"),
            show::count(status.sessions as u64, "workspace"),
            show::count(status.living as u64, "living task")
        ))?;
    }
    Ok(Exit::SUCCEEDED)
}

async fn stop(context: &Context) -> Result<Exit, Failure> {
    let client = match context.running_daemon().await {
        Ok(client) => client,
        Err(ClientError::NoDaemon(_)) => return none_runs(context, Exit::SUCCEEDED),
        Err(ClientError::Unreachable { holder, .. })
            if holder.phase == Some(DaemonPhase::Leaving) =>
        {
            // Somebody else has told it. The folder is free when it is gone.
            if let Some(pid) = holder.pid {
                until_gone(pid).await?;
            }
            return none_runs(context, Exit::SUCCEEDED);
        }
        Err(error) => return Err(error.into()),
    };
    let pid = client.daemon_pid();
    match client.ask(Leave {}).await {
        Ok(()) | Err(ClientError::Lost | ClientError::Unheard) => {}
        Err(error) => return Err(error.into()),
    }
    until_gone(pid).await?;
    if context.json {
        show::json(&serde_json::json!({ "running": false, "stopped": pid }))?;
    } else {
        show::line(format!("stopped (pid {pid})"))?;
    }
    Ok(Exit::SUCCEEDED)
}

async fn until_gone(pid: u32) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while is_there(pid) {
        if Instant::now() > deadline {
            let problem = format!("the daemon (pid {pid}) was told to leave and is still there");
            return Err(Failure::broken(problem).hint("its log says what it does: daemon.log"));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

fn none_runs(context: &Context, exit: Exit) -> Result<Exit, Failure> {
    if context.json {
        show::json(&serde_json::json!({ "running": false }))?;
    } else {
        show::line("no daemon is running")?;
    }
    Ok(exit)
}

fn is_there(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let there = pid.is_some_and(|pid| test_kill_process(pid).is_ok());
    there && !is_zombie(pid)
}

/// One that has ended and waits for its parent to notice.
fn is_zombie(pid: Option<Pid>) -> bool {
    let Some(pid) = pid else { return false };
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    // The program's name is in parentheses and may contain anything.
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
}

async fn serve(context: &Context) -> Result<Exit, Failure> {
    name_the_folder(context)?;
    let telemetry = Telemetry::start(&context.config.telemetry)?;
    let places = &context.places;
    let claimed = Claimed::take(places)?;
    let store = open_store(&places.store()).await?;
    let idle = context.config.idle().map_err(Failure::usage)?;
    let options = DaemonOptions { places: places.clone(), idle };
    let trust = Arc::new(TrustStore::open(places)?);
    let agents = models::options(&context.config)?
        .definition_trust(trust.clone())
        .private_directories(private_directories(context));
    let processes = process_options(context);
    let builder = Runtime::builder().store(store).processes(processes).agents(agents);
    let daemon = brigade_server::Daemon::open(claimed, options, builder).await?;
    let daemon = daemon.with_counts(telemetry.counts()).with_trust(trust);
    tracing::info!(pid = std::process::id(), version = env!("CARGO_PKG_VERSION"), "serving");
    let told = leave_when_told(daemon.leaving())?;
    let left = tokio::select! {
        left = daemon.run() => left,
        () = telemetry.sum_up() => Ok(()),
    };
    told.abort();
    telemetry.finish().await;
    left?;
    tracing::info!("left");
    Ok(Exit::SUCCEEDED)
}

/// A daemon that leaves lets go of the folder, and a moment later of the store.
async fn open_store(path: &Path) -> Result<SqliteStore, Failure> {
    let deadline = Instant::now() + STORE_PATIENCE;
    loop {
        match SqliteStore::open(path, Default::default()) {
            Err(StoreError::Locked { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            opened => {
                return opened
                    .map_err(|error| Failure::broken(format!("{}: {error}", path.display())));
            }
        }
    }
}

/// Commands find the daemon by this variable, so that the daemon has to have it itself.
fn name_the_folder(context: &Context) -> Result<(), Failure> {
    let folder = context.places.folder().as_os_str();
    if std::env::var_os(STATE_VARIABLE).is_some_and(|named| named == folder) {
        return Ok(());
    }
    let mut again = std::process::Command::new(this_program()?);
    Err(again.args(std::env::args_os().skip(1)).env(STATE_VARIABLE, folder).exec().into())
}

/// Where no agent's file tools reach: the state with the operator key, and the configuration, which says
/// what agents may do.
fn private_directories(context: &Context) -> Vec<PrivateDirectory> {
    let config =
        Config::folder().map(|folder| PrivateDirectory::read_only(&folder.join("brigade")));
    [PrivateDirectory::hidden(context.places.folder())].into_iter().chain(config).collect()
}

fn process_options(context: &Context) -> ProcessOptions {
    let config = &context.config;
    let options = ProcessOptions::new(context.places.folder())
        .output_cap(config.output_cap)
        .pass_env(STATE_VARIABLE)
        // The daemon has no children but shims.
        .control_groups(ControlGroups::here())
        .inherit_orphans();
    let options = match &config.shell {
        Some(shell) => options.shell(shell),
        None => options,
    };
    let options = models::key_variables(config)
        .iter()
        .fold(options, |options, name| options.withhold_env(name));
    config.pass_env.iter().fold(options, |options, name| options.pass_env(name))
}

fn leave_when_told(leaving: CancellationToken) -> Result<tokio::task::JoinHandle<()>, Failure> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A terminal that goes away is no reason to leave.
    let mut hangup = signal(SignalKind::hangup())?;
    #[expect(clippy::disallowed_methods, reason = "ended by the caller when the daemon has left")]
    let told = tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => {}
            }
        }
        tracing::info!("told to leave by a signal");
        leaving.cancel();
    });
    Ok(told)
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Self {
        match error {
            DaemonError::Running { .. } => Self::new(Exit::TAKEN, error.to_string()),
            DaemonError::Refused(refusal) => refusal.into(),
            DaemonError::Folder { .. } => Self::broken(error.to_string()),
        }
    }
}
