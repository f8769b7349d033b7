//! `brigade agents`: lists agent definitions and agent programs.

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;

use brigade_agent::Locale;
use brigade_protocol::requests::{
    AgentInfo, AgentProgramInfo, ListAgentsRequest, ListProgramsReply, ListProgramsRequest,
    ProgramLogin,
};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TextTable};
use crate::workspace;

/// List agent definitions of this directory, and agent programs of this machine
///
/// Definitions are markdown files with front matter, in .brigade/agents of this directory and in
/// brigade/agents of the user's configuration directory. `brigade trust` manages trust in this
/// directory's definitions. Agent programs are agents of other vendors, such as Claude Code and
/// Codex: a definition names one in `runs`, and `brigade run --agent claude` needs no definition.
/// Brigade runs each installed program with --version. A login is seen by its credentials, without
/// a model call. brigade/adapters of the configuration directory has the adapters of further
/// programs.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AgentsArgs {
    /// Language of names and descriptions, such as de-AT [default: LANG]
    #[arg(long, value_name = "TAG", value_parser = Locale::from_str)]
    lang: Option<Locale>,
}

/// Returns the language of the user, from the usual variables in their usual order.
fn user_language() -> Option<Locale> {
    let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let value = ["LC_ALL", "LC_MESSAGES", "LANG"].iter().find_map(set)?;
    Locale::of_environment(&value)
}

const EXAMPLES: &str = "\
Examples:
  brigade agents
  brigade agents --lang de
  brigade run --agent claude 'Fix the failing test'
  brigade run --agent reviewer 'Review the last commit'";

impl AgentsArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let lang = self.lang.or_else(user_language).map(|locale| locale.to_string());
        let directory = workspace::current_directory()?;
        let cwd = directory.display().to_string();
        let known = context.call(ListAgentsRequest { cwd, lang }).await?;
        let programs = match context.call(ListProgramsRequest::default()).await {
            // A task sees definitions, and not the programs of the operator.
            Err(error) if error.is_forbidden() => ListProgramsReply::default(),
            listed => listed?,
        };
        if context.json {
            let problems: Vec<&String> = known.problems.iter().chain(&programs.problems).collect();
            render::print_json(&serde_json::json!({
                "agents": known.agents,
                "programs": programs.programs,
                "problems": problems,
            }))?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        print_definitions(known.agents, &directory)?;
        if !programs.programs.is_empty() {
            render::print_line("")?;
            print_programs(&programs.programs)?;
        }
        for note in render_unset_variables(&programs.programs) {
            render::print_note(&note);
        }
        for problem in known.problems.iter().chain(&programs.problems) {
            render::print_note(problem);
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

/// Prints the definitions, without those that exist only because a program does.
fn print_definitions(agents: Vec<AgentInfo>, directory: &Path) -> Result<(), CliError> {
    let columns = ["AGENT", "RUNS", "MODEL", "DESCRIPTION", "FILE"];
    let mut table = TextTable::new(&columns).never_truncate("AGENT");
    let is_program = |agent: &AgentInfo| agent.file.is_none() && agent.runs.is_some();
    for agent in agents.into_iter().filter(|agent| !is_program(agent)) {
        let runs = agent.runs.unwrap_or_else(|| "brigade".to_owned());
        let model = agent.model.unwrap_or_else(|| "-".to_owned());
        let file = match agent.file.as_deref().map(Path::new) {
            Some(file) => file.strip_prefix(directory).unwrap_or(file).display().to_string(),
            None => "built in".to_owned(),
        };
        let name = match agent.title {
            Some(title) => format!("{} ({title})", agent.name),
            None => agent.name,
        };
        let file = if agent.untrusted { format!("{file} (not trusted)") } else { file };
        let description = agent.description;
        table.add_row([name.into(), runs.into(), model.into(), description.into(), file.into()]);
    }
    table.print()
}

/// Renders a note for each variable with credentials that is set here, but not for the daemon. The
/// daemon starts the programs.
pub(super) fn render_unset_variables(programs: &[AgentProgramInfo]) -> Vec<String> {
    let mut names_of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for program in programs.iter().filter(|program| program.path.is_some()) {
        for variable in &program.unset_variables {
            names_of.entry(variable).or_default().push(&program.name);
        }
    }
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let set_here = names_of.into_iter().filter(|(variable, _)| is_set(variable));
    let render = |(variable, names): (&str, Vec<&str>)| {
        let names = names.join(", ");
        format!(
            "{variable} is set here, but not in the environment of the daemon, which runs {names}; \
             run `brigade daemon stop`, and the next daemon has it"
        )
    };
    set_here.map(render).collect()
}

fn print_programs(programs: &[AgentProgramInfo]) -> Result<(), CliError> {
    let columns = ["PROGRAM", "TITLE", "PROTOCOL", "INSTALLED", "LOGIN", "ADAPTER"];
    let mut table = TextTable::new(&columns).never_truncate("PROGRAM");
    for program in programs {
        let installed = match (&program.path, &program.version) {
            (None, _) => match &program.problem {
                Some(problem) => format!("no: {problem}"),
                None => "no".to_owned(),
            },
            (Some(path), None) => format!("{path}, version unknown"),
            (Some(path), Some(version)) => format!("{path}, {version}"),
        };
        let login = match (program.login, &program.login_hint) {
            (ProgramLogin::Found, _) => "yes".to_owned(),
            (ProgramLogin::NotFound, Some(hint)) if program.path.is_some() => {
                format!("not found: {hint}")
            }
            (ProgramLogin::NotFound, _) => "not found".to_owned(),
            (ProgramLogin::Unknown, _) => "unknown".to_owned(),
        };
        let file = program.file.clone().unwrap_or_else(|| "built in".to_owned());
        table.add_row([
            program.name.clone().into(),
            program.title.clone().into(),
            program.protocol.clone().into(),
            installed.into(),
            login.into(),
            file.into(),
        ]);
    }
    table.print()
}
