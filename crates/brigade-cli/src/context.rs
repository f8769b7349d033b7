//! What every subcommand has: options, the daemon, the workspace.

use std::path::{Path, PathBuf};

use brigade_server::call::Call;
use brigade_server::daemon_connection::ReplyStreamPart;
use brigade_server::daemon_launcher::{DaemonLauncher, STATE_VARIABLE, connect_running};
use brigade_server::frames::ClientRole;
use brigade_server::requests::{AnyRequest, ListTaskPagesRequest, ListTasksRequest};
use brigade_server::{ClientError, DaemonConnection, StateDir, TaskInfo, TaskTarget};

use crate::config::UserConfig;
use crate::exit_code::CliError;
use crate::subcommands::daemon::DETACHED_ARGS;
use crate::{render, workspace};

/// The variable in which a command finds the address of its task.
const TASK_VARIABLE: &str = "BRIGADE_TASK";

/// How many daemons may go away before it is too much.
const RECONNECTS_MAX: usize = 5;

const GLOBAL_HEADING: &str = "Options of every subcommand";

/// Options of every subcommand.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct GlobalArgs {
    /// Where state is kept [env: BRIGADE_STATE] [default: the user's state directory]
    #[arg(long, global = true, value_name = "FOLDER", help_heading = GLOBAL_HEADING)]
    state: Option<PathBuf>,
    /// Use this workspace instead of the one of this directory
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
    workspace: Option<String>,
}

impl CliContext {
    pub(crate) fn new(global: GlobalArgs) -> Result<Self, CliError> {
        let config = UserConfig::load()?;
        let folder = match global.state.or_else(|| path_variable(STATE_VARIABLE)) {
            Some(folder) if folder.is_absolute() => folder,
            Some(folder) => std::path::absolute(workspace::current_directory()?.join(folder))?,
            None => default_state_dir()?,
        };
        let places = StateDir::new(folder);
        Ok(Self { state_dir: places, config, json: global.json, workspace: global.workspace })
    }

    /// The same with another state folder.
    pub(crate) fn with_state_dir(&self, places: StateDir) -> Self {
        Self { state_dir: places, config: self.config.clone(), json: self.json, workspace: None }
    }

    /// The session that is meant when nobody says: within a task its own, else the directory's.
    pub(crate) fn session_name(&self) -> Result<String, CliError> {
        match self.explicit_session_name() {
            Some(session) => Ok(session),
            None => workspace::session_name_of(&workspace::current_directory()?),
        }
    }

    /// The same for what runs in a directory, to which it belongs when the current one was removed.
    pub(crate) fn session_name_for(&self, directory: &Path) -> Result<String, CliError> {
        match self.explicit_session_name() {
            Some(session) => Ok(session),
            None if std::env::current_dir().is_err() => workspace::session_name_of(directory),
            None => self.session_name(),
        }
    }

    fn explicit_session_name(&self) -> Option<String> {
        let own = || {
            let task = self.enclosing_task()?;
            task.rsplit_once('/').map(|(session, _)| session.to_owned())
        };
        self.workspace.clone().or_else(own)
    }

    /// The words that a shell needs to ask for the same from elsewhere, where `brigade` may not be among
    /// the programs that it finds.
    pub(crate) fn command_line(&self, subcommand: &str) -> Vec<String> {
        let program = std::env::current_exe().ok();
        let program = program.and_then(|path| path.to_str().map(str::to_owned));
        let mut words = vec![program.unwrap_or_else(|| "brigade".to_owned())];
        if default_state_dir().is_ok_and(|folder| folder != self.state_dir.path()) {
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

    /// The daemon, started if there is none.
    pub(crate) async fn connect_daemon(&self) -> Result<DaemonConnection, CliError> {
        Ok(self.daemon_launcher()?.connect(ClientRole::Operator).await?)
    }

    /// The daemon after the one that went away in the middle of something that lasts.
    pub(crate) async fn connect_next_daemon(&self) -> Result<DaemonConnection, CliError> {
        render::print_note("the daemon went away; looking for the next one");
        self.connect_daemon().await
    }

    /// Asks the daemon, or the next one when it goes away and asking twice does no harm.
    pub(crate) async fn call<A: Call + Clone>(&self, question: A) -> Result<A::Reply, CliError> {
        self.call_over(&mut self.connect_daemon().await?, question).await
    }

    /// The same over a connection, which is replaced by one to the next daemon if need be.
    pub(crate) async fn call_over<A: Call + Clone>(
        &self,
        client: &mut DaemonConnection,
        question: A,
    ) -> Result<A::Reply, CliError> {
        let repeatable = Into::<AnyRequest>::into(question.clone()).is_repeatable();
        for _ in 0..RECONNECTS_MAX {
            match client.call(question.clone()).await {
                Err(ClientError::NotReceived) => {}
                Err(ClientError::Lost) if repeatable => {}
                answer => return Ok(answer?),
            }
            *client = self.connect_daemon().await?;
        }
        Ok(client.call(question).await?)
    }

    /// The tasks that a list names, however many they are.
    pub(crate) async fn list_tasks(
        &self,
        list: ListTasksRequest,
    ) -> Result<Vec<TaskInfo>, CliError> {
        self.list_tasks_over(&mut self.connect_daemon().await?, list).await
    }

    /// The same over a connection, which is replaced by one to the next daemon if need be.
    pub(crate) async fn list_tasks_over(
        &self,
        client: &mut DaemonConnection,
        list: ListTasksRequest,
    ) -> Result<Vec<TaskInfo>, CliError> {
        for _ in 0..RECONNECTS_MAX {
            match collect_task_pages(client, list.clone()).await {
                // What was told by the one that is gone is told again.
                Err(ClientError::Lost | ClientError::NotReceived) => {}
                listed => return Ok(listed?),
            }
            *client = self.connect_daemon().await?;
        }
        Ok(collect_task_pages(client, list).await?)
    }

    /// The daemon that runs. One that binds its socket again is waited for.
    pub(crate) async fn connect_running_daemon(&self) -> Result<DaemonConnection, ClientError> {
        connect_running(&self.state_dir, ClientRole::Operator).await
    }

    /// The address of the task that this program runs in, if it is one of this daemon's.
    fn enclosing_task(&self) -> Option<String> {
        let state = path_variable(STATE_VARIABLE)?;
        if state != self.state_dir.path() {
            return None;
        }
        std::env::var(TASK_VARIABLE).ok()
    }

    pub(crate) fn daemon_launcher(&self) -> Result<DaemonLauncher, CliError> {
        let mut args = vec!["--state".into(), self.state_dir.path().into()];
        args.extend(DETACHED_ARGS.map(Into::into));
        // A task of whichever daemon: whatever is started below it ends with it.
        let may_start = std::env::var_os(TASK_VARIABLE).is_none();
        Ok(DaemonLauncher {
            state_dir: self.state_dir.clone(),
            program: this_program()?,
            args,
            may_start,
            notice: render::print_note,
        })
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

/// This program, also when its file was replaced by a newer one meanwhile.
pub(crate) fn this_program() -> Result<PathBuf, CliError> {
    let program = std::env::current_exe()?;
    let itself = PathBuf::from("/proc/self/exe");
    Ok(if !program.exists() && itself.exists() { itself } else { program })
}

fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn default_state_dir() -> Result<PathBuf, CliError> {
    let base = path_variable("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let base = base.or_else(|| Some(path_variable("HOME")?.join(".local/state")));
    base.map(|base| base.join("brigade")).ok_or_else(|| {
        CliError::usage("there is no home directory")
            .with_hint("say where to keep state: --state FOLDER")
    })
}
