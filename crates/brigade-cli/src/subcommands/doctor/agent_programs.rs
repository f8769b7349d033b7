//! Checks the agent programs that definitions of this directory run.

use std::collections::BTreeMap;

use brigade_agent::definition::{Definition, DefinitionSet, LoadedDefinition};
use brigade_process::doctor::{HealthFinding, HealthState};
use brigade_protocol::requests::{
    AgentProgramInfo, ListProgramsReply, ListProgramsRequest, ProgramLogin,
};

use super::new_finding;
use crate::context::CliContext;
use crate::{configured_models, workspace};

const CHECK: &str = "agent program";

/// Checks the user's adapter files, and the programs that definitions of this directory name. The
/// daemon answers if one runs, since its environment decides.
pub(super) async fn check_agent_programs(context: &CliContext) -> Vec<HealthFinding> {
    let used = workspace::current_directory().map(|directory| {
        DefinitionSet::load(&configured_models::definition_dirs(Some(&directory))).by_name
    });
    let used: BTreeMap<String, LoadedDefinition> = used.unwrap_or_default();
    let files = used.values().filter_map(|found| find_command(&found.definition));
    let request =
        ListProgramsRequest { files: files.map(str::to_owned).collect(), ..Default::default() };
    let listed = match context.connect_running_daemon().await {
        Ok(client) => client.call(request.clone()).await.ok(),
        Err(_) => None,
    };
    let listed = match listed {
        Some(listed) => listed,
        None => configured_models::external_programs().list(&request).await,
    };
    let faults =
        listed.problems.iter().map(|fault| new_finding(CHECK, HealthState::Degraded, fault));
    let checked = used.iter().filter_map(|(name, found)| check_definition(name, found, &listed));
    faults.chain(checked).collect()
}

/// Checks the program of a definition, unless Brigade's own loop runs it.
fn check_definition(
    name: &str,
    found: &LoadedDefinition,
    listed: &ListProgramsReply,
) -> Option<HealthFinding> {
    let definition = &found.definition;
    let runs = definition.backend.as_deref()?;
    let degraded = |problem: String| {
        Some(new_finding(CHECK, HealthState::Degraded, format!("{name} {problem}")))
    };
    // The program of a command line is not among the known ones.
    if !definition.backend_command.is_empty() {
        let program = find_command(definition)?;
        let file = listed.files.iter().find(|file| file.program == program)?;
        return match (&file.path, &file.problem) {
            (Some(path), _) => {
                let text = format!("{name} runs {path} over ACP");
                Some(new_finding(CHECK, HealthState::Healthy, text))
            }
            (None, Some(problem)) => degraded(format!("runs {program}: {problem}")),
            (None, None) => {
                degraded(format!("runs {program}: {}", render_missing(program, program)))
            }
        };
    }
    let Some(program) = listed.programs.iter().find(|program| program.name == runs) else {
        return degraded(format!(
            "runs {runs}, which is no usable agent program: `brigade agents`"
        ));
    };
    match find_problem(program) {
        Some(problem) => degraded(format!("runs {runs}: {problem}")),
        None => {
            let version = program.version.as_deref().unwrap_or("version unknown");
            let text = format!("{name} runs {runs} ({version})");
            Some(new_finding(CHECK, HealthState::Healthy, text))
        }
    }
}

/// Returns the program of a definition that has a command line of its own.
fn find_command(definition: &Definition) -> Option<&str> {
    let is_program = definition.backend.as_deref() == Some("acp");
    definition.backend_command.first().filter(|_| is_program).map(String::as_str)
}

fn render_missing(title: &str, file: &str) -> String {
    match file.contains('/') {
        true => format!("{title} is not installed; there is no such file"),
        false => format!("{title} is not installed; there is no `{file}` in the search path"),
    }
}

fn find_problem(program: &AgentProgramInfo) -> Option<String> {
    let AgentProgramInfo { title, program: file, .. } = program;
    if program.path.is_none() {
        let problem = program.problem.clone();
        return Some(problem.unwrap_or_else(|| render_missing(title, file)));
    }
    match (program.login, &program.login_hint) {
        (ProgramLogin::NotFound, Some(hint)) => Some(format!("no login was found; {hint}")),
        (ProgramLogin::NotFound, None) => Some("no login was found".to_owned()),
        (ProgramLogin::Found | ProgramLogin::Unknown, _) => None,
    }
}
