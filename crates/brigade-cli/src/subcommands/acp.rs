//! `brigade acp`: serves an agent to an editor.

use brigade_acp::{AcpOptions, serve_stdio};
use brigade_agent::permission::{PermissionRule, PermissionRules};
use brigade_file_tools::WRITING_TOOLS;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::frames::ClientRole;
use brigade_protocol::requests::RunRequest;

use super::run::parse_rule;
use crate::configured_models;
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};

/// The tool that runs processes.
const RUN_PROCESS: &str = "run_process";

/// Serve an agent to an editor over the Agent Client Protocol on stdio
///
/// Add it to your editor once, as the command `brigade acp`. Each session of the editor is one
/// agent, which may delegate. Its sub-tasks are shown as tool calls and as a plan. It may read
/// files; to write files and to run processes, it asks in the editor. The agent outlives the
/// editor: if the editor ends, the agent keeps running, and the next editor loads its session.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AcpArgs {
    /// Agent definition to use; `brigade agents` lists them
    #[arg(long, short, value_name = "NAME")]
    agent: Option<String>,
    /// Model as provider/model, instead of the definition's or the configured one
    #[arg(long, short, value_name = "MODEL")]
    model: Option<String>,
    /// Allow a tool or some of its calls without approval: edit_file, 'run_process(cargo *)'. Other
    /// calls of a tool that is named here are denied
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    allow: Vec<PermissionRule>,
    /// Require approval in the editor for a tool or some of its calls
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    ask: Vec<PermissionRule>,
    /// Deny a tool or some of its calls, whatever else allows it
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    deny: Vec<PermissionRule>,
}

const EXAMPLES: &str = "\
Examples:
  brigade acp
  brigade acp --agent reviewer --model anthropic/claude-sonnet-4-5
  brigade acp --allow edit_file --allow 'run_process(cargo *)'

Settings of Zed:
  \"agent_servers\": { \"Brigade\": { \"command\": \"brigade\", \"args\": [\"acp\"] } }";

impl AcpArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let model = self.model.as_deref().map(configured_models::absolute_model).transpose()?;
        let options = AcpOptions {
            workspace: context.explicit_session_name(),
            permissions: self.permissions()?,
            agent: self.agent,
            model,
        };
        let client = DaemonClient::new(context.daemon_connector()?, ClientRole::Operator.into());
        let served = serve_stdio(client, options).await;
        served.map_err(|error| CliError::internal(error.to_string()))?;
        Ok(CliExitCode::SUCCEEDED)
    }

    /// Builds the permission rules: the default tools, those of `--allow`, and the tools that write
    /// files or run processes. The latter need approval, unless `--allow` names them.
    fn permissions(&self) -> Result<PermissionRules, CliError> {
        let is_named = |tool: &str| self.allow.iter().any(|rule| rule.tool() == tool);
        let mut asked = Vec::new();
        for tool in WRITING_TOOLS.into_iter().chain([RUN_PROCESS]) {
            if !is_named(tool) {
                asked.push(parse_rule(tool).map_err(CliError::usage)?);
            }
        }
        let more = self.allow.iter().chain(&asked).cloned();
        let defaults = RunRequest::default_permissions(more);
        let ask = asked.iter().chain(&self.ask).cloned().collect();
        Ok(PermissionRules { ask, deny: self.deny.clone(), ..defaults })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_that_change_something_need_approval_unless_they_are_allowed() {
        let rule = |text: &str| parse_rule(text).expect("a rule");
        let args = AcpArgs {
            agent: None,
            model: None,
            allow: vec![rule("run_process(cargo *)")],
            ask: vec![rule("read_file(secret/**)")],
            deny: vec![rule("spawn_agent")],
        };
        let rules = args.permissions().expect("rules");
        let text = |rules: &[PermissionRule]| {
            rules.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(text(&rules.ask), "write_file edit_file read_file(secret/**)");
        assert_eq!(text(&rules.deny), "spawn_agent");
        let allowed = text(&rules.allow.expect("a list"));
        assert!(allowed.contains("run_process(cargo *)"), "{allowed}");
        assert!(!allowed.contains("run_process "), "{allowed}");
    }
}
