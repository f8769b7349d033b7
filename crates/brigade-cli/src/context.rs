//! The context of a subcommand: global options, configuration, and calls to the daemon.

use std::path::{Path, PathBuf};

use brigade_protocol::call::Call;
use brigade_protocol::daemon_client::{DaemonClient, ReconnectPolicy};
use brigade_protocol::daemon_connection::ReplyStreamPart;
use brigade_protocol::daemon_connector::DaemonConnector;
use brigade_protocol::daemon_launcher::{
    DaemonLauncher, ForeignStore, STATE_VARIABLE, StartPolicy, connect_running,
};
use brigade_protocol::frames::ClientRole;
use brigade_protocol::remote_daemon::RemoteDaemon;
use brigade_protocol::requests::{ListTaskPagesRequest, ListTasksRequest};
use brigade_protocol::{ClientError, DaemonConnection, StateDir, TaskInfo, TaskTarget};

use crate::config::UserConfig;
use crate::configured_server::{SERVER_VARIABLE, ServerSetting, ServerSources};
use crate::configured_store::StoreSetting;
use crate::exit_code::CliError;
use crate::store_binding::StoreBinding;
use crate::subcommands::daemon::DETACHED_ARGS;
use crate::{render, workspace};

/// The environment variable that holds the address of the enclosing task.
const TASK_VARIABLE: &str = "BRIGADE_TASK";

const GLOBAL_HEADING: &str = "Options of every subcommand";

/// Options of every subcommand.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GlobalArgs {
    /// State directory [env: BRIGADE_STATE] [default: the user's state directory]
    #[arg(long, global = true, value_name = "DIR", help_heading = GLOBAL_HEADING)]
    state: Option<PathBuf>,
    /// Server to use instead of this machine's daemon: https://HOST. Separate servers of one fleet
    /// with commas; `local` is this machine [env: BRIGADE_SERVER, and BRIGADE_TOKEN]
    #[arg(long, global = true, value_name = "URL", value_delimiter = ',', help_heading = GLOBAL_HEADING)]
    server: Vec<String>,
    /// Workspace to use instead of this directory's
    #[arg(long, short, global = true, value_name = "NAME", help_heading = GLOBAL_HEADING)]
    workspace: Option<String>,
    /// Print JSON
    #[arg(long, global = true, help_heading = GLOBAL_HEADING)]
    json: bool,
}

#[derive(Debug)]
pub(crate) struct CliContext {
    pub(crate) state_dir: StateDir,
    pub(crate) config: UserConfig,
    pub(crate) json: bool,
    /// The store, as the variable or the configuration names it.
    pub(crate) store: StoreSetting,
    workspace: Option<String>,
    /// The servers in place of the daemon of the state directory.
    server: Option<ChosenServer>,
}

/// The servers of this command line, and the connection to one of them.
#[derive(Debug)]
struct ChosenServer {
    setting: ServerSetting,
    remote: RemoteDaemon,
}

impl CliContext {
    pub(crate) fn new(global: GlobalArgs) -> Result<Self, CliError> {
        let config = UserConfig::load()?;
        let server_variable = text_variable(SERVER_VARIABLE);
        let server = ServerSetting::resolve(&ServerSources {
            flag: &global.server,
            has_state_flag: global.state.is_some(),
            variable: server_variable.as_deref(),
            has_local_daemon: path_variable(STATE_VARIABLE).is_some()
                || std::env::var_os(TASK_VARIABLE).is_some(),
            config: &config.server,
        })?;
        let server =
            server.map(|setting| ChosenServer { remote: setting.to_remote_daemon(), setting });
        let path = match global.state.or_else(|| path_variable(STATE_VARIABLE)) {
            Some(path) if path.is_absolute() => path,
            Some(path) => std::path::absolute(workspace::current_directory()?.join(path))?,
            // With a server nothing is read from a state directory, nor written.
            None if server.is_some() => default_state_dir().unwrap_or_default(),
            None => default_state_dir()?,
        };
        let state_dir = StateDir::new(path);
        let store = StoreSetting::resolve(&config);
        let GlobalArgs { workspace, json, .. } = global;
        Ok(Self { state_dir, config, json, store, workspace, server })
    }

    /// Returns the same context with another state directory and the store in it.
    pub(crate) fn with_state_dir(&self, state_dir: StateDir) -> Self {
        let config = self.config.clone();
        let store = StoreSetting::Sqlite;
        Self { state_dir, config, json: self.json, store, workspace: None, server: None }
    }

    /// Returns the session that no argument names: the enclosing task's, else the directory's.
    pub(crate) fn session_name(&self) -> Result<String, CliError> {
        match self.explicit_session_name() {
            Some(session) => Ok(session),
            None => workspace::session_name_of(&workspace::current_directory()?),
        }
    }

    /// Returns the session of a task that runs in `directory`. The directory names it when the
    /// current one was removed.
    pub(crate) fn session_name_for(&self, directory: &Path) -> Result<String, CliError> {
        match self.explicit_session_name() {
            Some(session) => Ok(session),
            None if std::env::current_dir().is_err() => workspace::session_name_of(directory),
            None => self.session_name(),
        }
    }

    /// Returns the session that `--workspace` or the enclosing task names.
    pub(crate) fn explicit_session_name(&self) -> Option<String> {
        let own = || {
            let task = self.enclosing_task()?;
            task.rsplit_once('/').map(|(session, _)| session.to_owned())
        };
        self.workspace.clone().or_else(own)
    }

    /// Returns the command line that runs a subcommand from elsewhere. It names this program by its
    /// path, since `brigade` may not be in the `PATH`.
    pub(crate) fn command_line(&self, subcommand: &str) -> Vec<String> {
        let program = std::env::current_exe().ok();
        let program = program.and_then(|path| path.to_str().map(str::to_owned));
        let mut words = vec![program.unwrap_or_else(|| "brigade".to_owned())];
        if let Some(server) = &self.server {
            words.extend(["--server".to_owned(), server.setting.shown_urls()]);
        } else if default_state_dir().is_ok_and(|path| path != self.state_dir.path()) {
            words.extend(["--state".to_owned(), self.state_dir.path().display().to_string()]);
        }
        if let Some(name) = &self.workspace {
            words.extend(["--workspace".to_owned(), name.clone()]);
        }
        words.push(subcommand.to_owned());
        words
    }

    pub(crate) fn target(&self, address: &str) -> Result<TaskTarget, CliError> {
        Ok(TaskTarget { session: self.session_name()?, task: address.to_owned() })
    }

    /// Refuses a subcommand that works on this machine while a server is chosen.
    pub(crate) fn require_local(&self, subcommand: &str) -> Result<(), CliError> {
        let Some(server) = &self.server else { return Ok(()) };
        let urls = server.setting.shown_urls();
        let text =
            format!("`brigade {subcommand}` works on this machine, and the server is {urls}");
        Err(CliError::usage(text).with_hint("run it on that machine, or pass `--server local`"))
    }

    /// Returns the chosen servers.
    pub(crate) fn server(&self) -> Option<&ServerSetting> {
        self.server.as_ref().map(|server| &server.setting)
    }

    /// Returns the URL of the server that was connected last.
    pub(crate) fn server_name(&self) -> Option<String> {
        self.server.as_ref().map(|server| server.remote.server_name().to_owned())
    }

    /// Returns the way to the daemon.
    pub(crate) fn daemon_connector(&self) -> Result<DaemonConnector, CliError> {
        match &self.server {
            Some(server) => Ok(server.remote.clone().into()),
            None => Ok(self.daemon_launcher()?.into()),
        }
    }

    /// Connects to the daemon. Starts it if none runs.
    pub(crate) async fn connect_daemon(&self) -> Result<DaemonClient, CliError> {
        let client = DaemonClient::new(self.daemon_connector()?, ClientRole::Operator.into());
        client.connect().await?;
        Ok(client)
    }

    /// Calls the daemon. A lost call is repeated with the next daemon if that is safe.
    pub(crate) async fn call<A: Call + Clone>(&self, request: A) -> Result<A::Reply, CliError> {
        call_over(&self.connect_daemon().await?, request).await
    }

    /// Lists tasks, page by page.
    pub(crate) async fn list_tasks(
        &self,
        list: ListTasksRequest,
    ) -> Result<Vec<TaskInfo>, CliError> {
        list_tasks_over(&self.connect_daemon().await?, list).await
    }

    /// Connects to a running daemon. Waits for one that binds its socket again.
    pub(crate) async fn connect_running_daemon(&self) -> Result<DaemonConnection, ClientError> {
        match &self.server {
            Some(server) => server.remote.connect(ClientRole::Operator).await,
            None => connect_running(&self.state_dir, ClientRole::Operator).await,
        }
    }

    /// Returns the address of the enclosing task, if it is a task of this daemon.
    fn enclosing_task(&self) -> Option<String> {
        let state = path_variable(STATE_VARIABLE).filter(|_| self.server.is_none())?;
        if state != self.state_dir.path() {
            return None;
        }
        std::env::var(TASK_VARIABLE).ok()
    }

    pub(crate) fn daemon_launcher(&self) -> Result<DaemonLauncher, CliError> {
        let mut args = vec!["--state".into(), self.state_dir.path().into()];
        args.extend(DETACHED_ARGS.map(Into::into));
        Ok(DaemonLauncher {
            state_dir: self.state_dir.clone(),
            program: this_program()?,
            args,
            start_policy: self.start_policy(),
            notice: render::print_note,
        })
    }

    fn start_policy(&self) -> StartPolicy {
        if std::env::var_os(TASK_VARIABLE).is_some() {
            // Within a task of any daemon: a daemon started here would end with that task.
            return StartPolicy::WithinTask;
        }
        match self.foreign_store() {
            Some(store) => StartPolicy::Never(store),
            None => StartPolicy::Start,
        }
    }

    /// Returns the store of this state directory's daemon, if it is not the file in the directory.
    pub(crate) fn foreign_store(&self) -> Option<ForeignStore> {
        let mut command = "brigade serve".to_owned();
        if default_state_dir().is_ok_and(|path| path != self.state_dir.path()) {
            command.push_str(&format!(" --state {}", self.state_dir.path().display()));
        }
        if let Some(name) = self.store.shown_database() {
            return Some(ForeignStore { name, command });
        }
        let name = StoreBinding::read(&self.state_dir).ok()??.url;
        command.push_str(&format!(" --store {name}"));
        Some(ForeignStore { name, command })
    }
}

/// Calls the daemon of a client. A lost call is repeated with the next daemon if that is safe.
pub(crate) async fn call_over<A: Call + Clone>(
    client: &DaemonClient,
    request: A,
) -> Result<A::Reply, CliError> {
    Ok(client.send_request(ReconnectPolicy::INTERACTIVE, request).await?)
}

/// Lists tasks, page by page. The next daemon sends all pages again.
pub(crate) async fn list_tasks_over(
    client: &DaemonClient,
    list: ListTasksRequest,
) -> Result<Vec<TaskInfo>, CliError> {
    let policy = ReconnectPolicy::INTERACTIVE;
    let collect = async |connection| collect_task_pages(&connection, list.clone()).await;
    Ok(client.repeat(policy, ClientError::is_lost_daemon, collect).await?)
}

/// Runs an operation that lasts as long as a task. The next daemon continues it.
pub(crate) async fn follow_over<T>(
    client: &DaemonClient,
    operation: impl AsyncFnMut(DaemonConnection) -> Result<T, CliError>,
) -> Result<T, CliError> {
    client.repeat(ReconnectPolicy::UNBOUNDED, CliError::is_lost_daemon, operation).await
}

/// Prints a note if the error is the loss of a daemon.
pub(crate) fn note_lost_daemon(error: &CliError) {
    if error.is_lost_daemon() {
        render::print_note("lost the daemon; connecting to the next one");
    }
}

pub(crate) async fn collect_task_pages(
    client: &DaemonConnection,
    list: ListTasksRequest,
) -> Result<Vec<TaskInfo>, ClientError> {
    let mut pages = client.call_streaming(ListTaskPagesRequest { list })?;
    let mut tasks = Vec::new();
    while let ReplyStreamPart::Item(page) = pages.next_part().await? {
        tasks.extend(page);
    }
    Ok(tasks)
}

/// Returns the path of this program, even if a newer file has replaced it.
pub(crate) fn this_program() -> Result<PathBuf, CliError> {
    let program = std::env::current_exe()?;
    let itself = PathBuf::from("/proc/self/exe");
    Ok(if !program.exists() && itself.exists() { itself } else { program })
}

fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn text_variable(name: &str) -> Option<String> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
    // A text that is not UTF-8 is no URL either, and is refused as one.
    Some(value.to_string_lossy().into_owned())
}

fn default_state_dir() -> Result<PathBuf, CliError> {
    let base = path_variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let base = base.or_else(|| Some(path_variable("HOME")?.join(".local/state")));
    base.map(|base| base.join("brigade")).ok_or_else(|| {
        CliError::usage("no home directory is set")
            .with_hint("set the state directory: --state DIR")
    })
}
