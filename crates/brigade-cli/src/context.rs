//! What every subcommand has: options, the daemon, the workspace.

use std::path::{Path, PathBuf};

use brigade_server::ask::Ask;
use brigade_server::client::Step;
use brigade_server::requests::{List, ListPages, Request};
use brigade_server::start::{STATE_VARIABLE, Starter, connect_running};
use brigade_server::wire::As;
use brigade_server::{Client, ClientError, Places, Target, TaskInfo};

use crate::commands::daemon::DETACHED;
use crate::config::Config;
use crate::exit::Failure;
use crate::{show, workspace};

/// The variable in which a command finds the address of its task.
const TASK_VARIABLE: &str = "BRIGADE_TASK";

/// How many daemons may go away before it is too much.
const TRIES: usize = 5;

const EVERYWHERE: &str = "Options of every subcommand";

/// Options of every subcommand.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Global {
    /// Where state is kept [env: BRIGADE_STATE] [default: the user's state directory]
    #[arg(long, global = true, value_name = "FOLDER", help_heading = EVERYWHERE)]
    state: Option<PathBuf>,
    /// Use this workspace instead of the one of this directory
    #[arg(long, short, global = true, value_name = "NAME", help_heading = EVERYWHERE)]
    workspace: Option<String>,
    /// Print JSON
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    json: bool,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) places: Places,
    pub(crate) config: Config,
    pub(crate) json: bool,
    workspace: Option<String>,
}

impl Context {
    pub(crate) fn new(global: Global) -> Result<Self, Failure> {
        let config = Config::load()?;
        let folder = match global.state.or_else(|| from_env(STATE_VARIABLE)) {
            Some(folder) if folder.is_absolute() => folder,
            Some(folder) => std::path::absolute(workspace::current_directory()?.join(folder))?,
            None => default_state()?,
        };
        let places = Places::new(folder);
        Ok(Self { places, config, json: global.json, workspace: global.workspace })
    }

    /// The same with another state folder.
    pub(crate) fn elsewhere(&self, places: Places) -> Self {
        Self { places, config: self.config.clone(), json: self.json, workspace: None }
    }

    /// The session that is meant when nobody says: within a task its own, else the directory's.
    pub(crate) fn session(&self) -> Result<String, Failure> {
        match self.named_session() {
            Some(session) => Ok(session),
            None => workspace::of_directory(&workspace::current_directory()?),
        }
    }

    /// The same for what runs in a directory, to which it belongs when the current one was removed.
    pub(crate) fn session_for(&self, directory: &Path) -> Result<String, Failure> {
        match self.named_session() {
            Some(session) => Ok(session),
            None if std::env::current_dir().is_err() => workspace::of_directory(directory),
            None => self.session(),
        }
    }

    fn named_session(&self) -> Option<String> {
        let own = || {
            let task = self.within()?;
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
        if default_state().is_ok_and(|folder| folder != self.places.folder()) {
            words.extend(["--state".to_owned(), self.places.folder().display().to_string()]);
        }
        if let Some(name) = &self.workspace {
            words.extend(["--workspace".to_owned(), name.clone()]);
        }
        words.push(subcommand.to_owned());
        words
    }

    pub(crate) fn target(&self, address: &str) -> Result<Target, Failure> {
        Ok(Target { session: self.session()?, task: address.to_owned() })
    }

    /// The daemon, started if there is none.
    pub(crate) async fn daemon(&self) -> Result<Client, Failure> {
        Ok(self.starter()?.connect(As::Operator).await?)
    }

    /// The daemon after the one that went away in the middle of something that lasts.
    pub(crate) async fn next_daemon(&self) -> Result<Client, Failure> {
        show::note("the daemon went away; looking for the next one");
        self.daemon().await
    }

    /// Asks the daemon, or the next one when it goes away and asking twice does no harm.
    pub(crate) async fn ask<A: Ask + Clone>(&self, question: A) -> Result<A::Done, Failure> {
        self.ask_over(&mut self.daemon().await?, question).await
    }

    /// The same over a connection, which is replaced by one to the next daemon if need be.
    pub(crate) async fn ask_over<A: Ask + Clone>(
        &self,
        client: &mut Client,
        question: A,
    ) -> Result<A::Done, Failure> {
        let repeatable = Into::<Request>::into(question.clone()).is_repeatable();
        for _ in 0..TRIES {
            match client.ask(question.clone()).await {
                Err(ClientError::Unheard) => {}
                Err(ClientError::Lost) if repeatable => {}
                answer => return Ok(answer?),
            }
            *client = self.daemon().await?;
        }
        Ok(client.ask(question).await?)
    }

    /// The tasks that a list names, however many they are.
    pub(crate) async fn list(&self, list: List) -> Result<Vec<TaskInfo>, Failure> {
        self.list_over(&mut self.daemon().await?, list).await
    }

    /// The same over a connection, which is replaced by one to the next daemon if need be.
    pub(crate) async fn list_over(
        &self,
        client: &mut Client,
        list: List,
    ) -> Result<Vec<TaskInfo>, Failure> {
        for _ in 0..TRIES {
            match list_pages(client, list.clone()).await {
                // What was told by the one that is gone is told again.
                Err(ClientError::Lost | ClientError::Unheard) => {}
                listed => return Ok(listed?),
            }
            *client = self.daemon().await?;
        }
        Ok(list_pages(client, list).await?)
    }

    /// The daemon that runs. One that binds its socket again is waited for.
    pub(crate) async fn running_daemon(&self) -> Result<Client, ClientError> {
        connect_running(&self.places, As::Operator).await
    }

    /// The address of the task that this program runs in, if it is one of this daemon's.
    fn within(&self) -> Option<String> {
        let state = from_env(STATE_VARIABLE)?;
        if state != self.places.folder() {
            return None;
        }
        std::env::var(TASK_VARIABLE).ok()
    }

    pub(crate) fn starter(&self) -> Result<Starter, Failure> {
        let mut args = vec!["--state".into(), self.places.folder().into()];
        args.extend(DETACHED.map(Into::into));
        // A task of whichever daemon: whatever is started below it ends with it.
        let may_start = std::env::var_os(TASK_VARIABLE).is_none();
        Ok(Starter { places: self.places.clone(), program: this_program()?, args, may_start })
    }
}

pub(crate) async fn list_pages(client: &Client, list: List) -> Result<Vec<TaskInfo>, ClientError> {
    let mut pages = client.stream(ListPages { list })?;
    let mut tasks = Vec::new();
    while let Step::Item(page) = pages.next().await? {
        tasks.extend(page);
    }
    Ok(tasks)
}

/// This program, also when its file was replaced by a newer one meanwhile.
pub(crate) fn this_program() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()?;
    let itself = PathBuf::from("/proc/self/exe");
    Ok(if !program.exists() && itself.exists() { itself } else { program })
}

fn from_env(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn default_state() -> Result<PathBuf, Failure> {
    let base = from_env("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let base = base.or_else(|| Some(from_env("HOME")?.join(".local/state")));
    base.map(|base| base.join("brigade")).ok_or_else(|| {
        Failure::usage("there is no home directory").hint("say where to keep state: --state FOLDER")
    })
}
