//! `brigade mcp`: serves the delegation tools to a coding agent.

use brigade_agent::permission::PermissionRule;
use brigade_mcp::server::{McpOptions, serve_stdio};

use super::exec::caller_env;
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::workspace;

/// Serve Brigade to a coding agent as an MCP server on stdio
///
/// Add it to your agent once, as the command `brigade mcp`. Tasks that the agent starts belong to
/// this directory's workspace. They outlive the conversation, and the next one finds them.
/// Sub-agents may delegate, wait, read and ask; they may run processes only where --allow permits
/// it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct McpArgs {
    /// Client name that owns results [default: the name that the agent sends]
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Also control tasks of other clients in this workspace
    #[arg(long)]
    shared: bool,
    /// Allow sub-agents a tool or some of its calls: run_process, 'run_process(cargo *)'
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    allow: Vec<PermissionRule>,
    /// Require approval for a tool or some of its calls: by the client, or with `brigade approve`
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
        options.env = caller_env(context);
        let connector = context.daemon_connector()?;
        // Within a task no daemon is started, and the task owns the new tasks.
        options.is_within_task = connector.is_within_task();
        let served = serve_stdio(connector, options).await;
        served.map_err(|error| CliError::internal(error.to_string()))?;
        Ok(CliExitCode::SUCCEEDED)
    }
}

fn parse_rule(text: &str) -> Result<PermissionRule, String> {
    text.parse().map_err(|error| format!("{error}"))
}
