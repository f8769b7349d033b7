//! The agent programs of other vendors: backends for definitions with `runs`, and the state of each
//! program on this machine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_agent::Backend;
use brigade_agent::definition::Definition;
use brigade_external::a2a_backend::A2aBackend;
use brigade_external::acp::AcpAgent;
use brigade_external::agent_catalog::{AgentCatalog, AgentLookupError, CatalogEntry};
use brigade_external::external_agent::{ExternalAgent, ProgramProtocol};
use brigade_external::external_backend::ExternalBackend;
use brigade_external::login_marks::LoginState;
use brigade_model::refusal::Refusal;
use brigade_protocol::requests::{
    AgentProgramInfo, ListProgramsReply, ListProgramsRequest, ProgramFileInfo, ProgramLogin,
};
use brigade_runtime::agents::{BackendChoice, BackendSource};
use futures_util::future::join_all;

use program_version::{ProbeDirectory, ProgramFile, find_program, read_version};

mod program_version;

/// The name of the backend for remote agents.
const A2A_BACKEND: &str = "a2a";

/// The folder of adapter files in the user's configuration directory.
const ADAPTER_FOLDER: &str = "brigade/adapters";

/// The agent programs that definitions can name. Adapter files of the user are read at each use, and
/// none is ever read from a workspace.
#[derive(Clone, Debug)]
pub struct ExternalPrograms {
    user_folder: Option<PathBuf>,
    brigade_program: Option<PathBuf>,
}

impl ExternalPrograms {
    /// Takes the adapter files from the user's configuration directory.
    pub fn new(user_config: Option<&Path>) -> Self {
        let user_folder = user_config.map(|base| base.join(ADAPTER_FOLDER));
        Self { user_folder, brigade_program: None }
    }

    /// Offers Brigade's tools to all programs: the program at this path serves them with `mcp`.
    #[must_use]
    pub fn brigade_program(self, path: PathBuf) -> Self {
        Self { brigade_program: Some(path), ..self }
    }

    /// Returns the state of the requested programs on this machine. Runs each installed program for
    /// its version.
    pub async fn list(&self, request: &ListProgramsRequest) -> ListProgramsReply {
        let catalog = self.catalog();
        let directory = (!request.without_versions).then(ProbeDirectory::create);
        let directory = directory.and_then(Result::ok);
        let is_requested = |entry: &&CatalogEntry| {
            let names = &request.names;
            names.is_empty() || names.iter().any(|name| name == entry.agent.name())
        };
        let requested = catalog.entries().filter(is_requested);
        let probed = requested.map(|entry| describe_program(entry, directory.as_ref()));
        let programs = join_all(probed).await;
        let files = request.files.iter().map(|program| describe_file(program)).collect();
        let problems = catalog.faults().iter().map(ToString::to_string).collect();
        ListProgramsReply { programs, problems, files }
    }

    fn catalog(&self) -> AgentCatalog {
        AgentCatalog::load(self.user_folder.as_deref())
    }

    /// Returns the backend of a remote agent, if the choice is one.
    fn find_remote(&self, choice: BackendChoice<'_>) -> Result<Option<A2aBackend>, Refusal> {
        if choice.name != A2A_BACKEND {
            return Ok(None);
        }
        match choice.command {
            [url] => A2aBackend::new(url).map(Some),
            [url, token] => Ok(Some(A2aBackend::new(url)?.token_variable(token))),
            _ => Err(Refusal::invalid("an agent over A2A has a URL: `runs: { a2a: URL }`")),
        }
    }

    fn find_agent(&self, choice: BackendChoice<'_>) -> Result<Arc<dyn ExternalAgent>, Refusal> {
        if !choice.command.is_empty() {
            let agent = AcpAgent::from_command_line(choice.command);
            let agent = agent.map_err(|fault| Refusal::invalid(fault.to_string()))?;
            return Ok(Arc::new(agent));
        }
        let catalog = self.catalog();
        let found = catalog.find(choice.name);
        let found = found.map_err(|error| Refusal::unavailable(error.to_string()))?;
        Ok(found.agent.clone())
    }
}

impl BackendSource for ExternalPrograms {
    fn find(&self, choice: BackendChoice<'_>) -> Result<Arc<dyn Backend>, Refusal> {
        if let Some(remote) = self.find_remote(choice)? {
            return Ok(Arc::new(remote));
        }
        let backend = ExternalBackend::new(self.find_agent(choice)?);
        Ok(match &self.brigade_program {
            Some(path) => Arc::new(backend.brigade_program(path.clone())),
            None => Arc::new(backend),
        })
    }

    fn check_ready(&self, choice: BackendChoice<'_>) -> Result<(), Refusal> {
        if self.find_remote(choice)?.is_some() {
            return Ok(());
        }
        let agent = self.find_agent(choice)?;
        let program = agent.program();
        match find_program(program) {
            ProgramFile::Executable(_) => Ok(()),
            ProgramFile::NotExecutable(path) => Err(Refusal::invalid(format!(
                "{} cannot be started: {}",
                agent.title(),
                render_not_executable(&path)
            ))),
            ProgramFile::Missing => Err(Refusal::invalid(format!(
                "{} is not installed: the daemon finds no program `{program}`; install it, and \
                 restart the daemon if its PATH has changed",
                agent.title()
            ))),
        }
    }

    fn definitions(&self) -> Vec<Definition> {
        let catalog = self.catalog();
        let definitions = catalog.entries().map(|entry| {
            let name = entry.agent.name();
            let description = format!("{}, run as a program of its own.", entry.agent.title());
            Definition::new(name).description(description).backend(name)
        });
        definitions.filter(|definition| definition.check().is_ok()).collect()
    }

    fn definition_problem(&self, name: &str) -> Option<String> {
        match self.catalog().find(name) {
            Err(AgentLookupError::Faulty(fault)) => Some(fault.to_string()),
            Ok(_) | Err(AgentLookupError::Unknown { .. }) => None,
        }
    }
}

/// Looks for a program, without starting it.
/// Returns the file that is executed for a program: in the search path of this process, or by its
/// absolute path.
pub fn find_executable(program: &str) -> Option<PathBuf> {
    match find_program(program) {
        ProgramFile::Executable(path) => Some(path),
        ProgramFile::NotExecutable(_) | ProgramFile::Missing => None,
    }
}

fn describe_file(program: &str) -> ProgramFileInfo {
    let (path, problem) = match find_program(program) {
        ProgramFile::Executable(path) => (Some(path.display().to_string()), None),
        ProgramFile::NotExecutable(path) => (None, Some(render_not_executable(&path))),
        ProgramFile::Missing => (None, None),
    };
    ProgramFileInfo { program: program.to_owned(), path, problem }
}

fn render_not_executable(path: &Path) -> String {
    format!("{} is not executable; chmod +x makes it so", path.display())
}

async fn describe_program(
    entry: &CatalogEntry,
    directory: Option<&ProbeDirectory>,
) -> AgentProgramInfo {
    let agent = &entry.agent;
    let ProgramFileInfo { path, problem, .. } = describe_file(agent.program());
    let version = match (&path, directory) {
        (Some(path), Some(directory)) => read_version(Path::new(path), directory).await,
        _ => Ok(None),
    };
    let (path, version, problem) = match version {
        Ok(version) => (path, version, problem),
        Err(problem) => (None, None, Some(problem)),
    };
    let variable = |name: &str| std::env::var(name).ok();
    let is_unset = |name: &&String| variable(name).is_none_or(|value| value.is_empty());
    let variables = agent.login().map(|marks| marks.variables.as_slice()).unwrap_or_default();
    let unset_variables: Vec<String> = variables.iter().filter(is_unset).cloned().collect();
    // A program prefers the variable, or needs no file with it.
    let needs_file = unset_variables.len() == variables.len();
    let files = agent.login().filter(|_| needs_file).map(|marks| marks.find_files(&variable));
    let login_files = files.unwrap_or_default();
    let login = agent.login().map_or(LoginState::Unknown, |marks| marks.find_login(&variable));
    AgentProgramInfo {
        name: agent.name().to_owned(),
        title: agent.title().to_owned(),
        protocol: match agent.protocol() {
            ProgramProtocol::Adapter => "adapter".to_owned(),
            ProgramProtocol::Acp => "acp".to_owned(),
        },
        program: agent.program().to_owned(),
        path,
        problem,
        version,
        login: match login {
            LoginState::Found => ProgramLogin::Found,
            LoginState::NotFound => ProgramLogin::NotFound,
            LoginState::Unknown => ProgramLogin::Unknown,
        },
        login_hint: agent.login().and_then(|marks| marks.hint.clone()),
        login_files: login_files.iter().map(|file| file.display().to_string()).collect(),
        unset_variables,
        file: entry.file.as_ref().map(|file| file.display().to_string()),
    }
}
