//! Brigade as tools for a coding agent.

use brigade_agent::permission::PermissionRule;
use brigade_model::work::EnvValue;
use brigade_server::mcp::{McpOptions, serve_stdio};

use super::exec::caller_env;
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::workspace;

/// Give a coding agent durable background work: an MCP server on stdin and stdout
///
/// Add it to your agent once, as the command `brigade mcp`. What the agent starts belongs to this
/// directory's workspace: it outlives the conversation, and the next one finds it. Its sub-agents may
/// delegate, wait, read and ask; commands they may run only where --allow says so.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct McpArgs {
    /// As whom results are taken [default: what the agent calls itself]
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Steer what other clients and you have started in this workspace, not only see and await it
    #[arg(long)]
    shared: bool,
    /// Let sub-agents use a tool, as run_process, or some calls of one, as 'run_process(cargo *)'
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    allow: Vec<PermissionRule>,
    /// Ask before they use a tool or make some calls of one: the client asks you, or `brigade approve`
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    ask: Vec<PermissionRule>,
}

const EXAMPLES: &str = "\
Examples:
  claude mcp add brigade -- brigade mcp
  codex mcp add brigade -- brigade mcp
  gemini mcp add brigade brigade mcp
  claude mcp add brigade -- brigade mcp --allow 'run_process(cargo *)'";

impl McpArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let mut options = McpOptions::new(context.session_name()?, workspace::current_directory()?);
        options.client_name = self.client;
        options.shared = self.shared || context.config.is_shared(&options.session);
        options.allow = self.allow;
        options.ask = self.ask;
        options.wait_command = context.command_line("wait");
        let text = |(name, value): (String, String)| (name, EnvValue::Text(value.into()));
        options.env = caller_env().into_iter().map(text).collect();
        let starter = context.daemon_launcher()?;
        // Within a task no daemon is started, and the task owns what is started here.
        options.is_within_task = !starter.may_start;
        let served = serve_stdio(starter, options).await;
        served.map_err(|error| CliError::internal(error.to_string()))?;
        Ok(CliExitCode::SUCCEEDED)
    }
}

fn parse_rule(text: &str) -> Result<PermissionRule, String> {
    text.parse().map_err(|error| format!("{error}"))
}
