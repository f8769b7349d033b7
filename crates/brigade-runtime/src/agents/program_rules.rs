//! Checks of the tasks that the program of an agent starts, by the rules of the agent.

use brigade_agent::permission::{PermissionSubject, PermissionVerdict};
use brigade_model::refusal::Refusal;
use brigade_model::spec::TaskSpec;
use brigade_model::work::{CommandLine, ProcessWork, Work};

use super::blueprint::Blueprint;
use super::delegation::run_process::shell_quote;
use super::resolve::GENERAL_DEFINITION;
use super::services::AgentServices;

impl AgentServices {
    /// Checks a task that the program of an agent starts by the rules of the agent.
    pub(crate) fn check_program_spawn(
        &self,
        agent: &Blueprint,
        spec: &TaskSpec,
    ) -> Result<(), Refusal> {
        let (tool, text) = match &spec.work {
            Work::Process(work) => ("run_process", process_subject(work, agent)),
            Work::Agent(work) => {
                let name = work.definition.as_deref().unwrap_or(GENERAL_DEFINITION);
                ("spawn_agent", name.to_owned())
            }
            _ => return Ok(()),
        };
        let is_shell = tool == "run_process";
        let subject = PermissionSubject { tool, text: Some(&text), is_shell };
        let asks = || self.backend(agent.backend()).is_ok_and(|backend| backend.asks_permission());
        let mut verdicts = vec![agent.permissions.check(&subject)];
        if spec.keep {
            verdicts.push(agent.permissions.check_keep(tool, agent.unattended && !is_shell));
        }
        for verdict in verdicts {
            match verdict {
                PermissionVerdict::Allowed => {}
                PermissionVerdict::Refused(refused) => {
                    return Err(Refusal::forbidden(refused.to_string()));
                }
                // Nobody can be asked in an unattended run, and a program need not ask about all.
                PermissionVerdict::Ask { .. } if asks() && !agent.unattended => {}
                PermissionVerdict::Ask { rule, by } => {
                    return Err(Refusal::forbidden(format!(
                        "{subject} needs an approval: {by} asks about `{rule}`, and nobody can be asked"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// Returns the command line of a process with what changes its meaning, as rules see it.
fn process_subject(work: &ProcessWork, agent: &Blueprint) -> String {
    let command = match &work.command {
        CommandLine::Shell(text) => text.to_string(),
        CommandLine::Program(words) => {
            let words: Vec<String> = words.iter().map(|word| shell_quote(word)).collect();
            words.join(" ")
        }
    };
    let elsewhere = work.cwd.as_deref().filter(|cwd| agent.directory.as_deref() != Some(cwd));
    let elsewhere = elsewhere.map(|cwd| format!("PWD={} ", shell_quote(cwd)));
    let variables = work.env.keys().map(|name| format!("{}=.. ", shell_quote(name)));
    elsewhere.into_iter().chain(variables).chain([command]).collect()
}
