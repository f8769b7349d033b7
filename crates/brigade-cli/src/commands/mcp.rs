//! Brigade as tools for a coding agent.

use brigade_model::work::EnvValue;
use brigade_server::mcp::{McpOptions, serve_stdio};

use super::exec::callers;
use crate::context::Context;
use crate::exit::{Exit, Failure};

/// Give a coding agent durable background work: an MCP server on stdin and stdout
///
/// Add it to your agent once, as the command `brigade mcp`. What the agent starts belongs to this
/// directory's workspace: it outlives the conversation, and the next one finds it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Mcp {
    /// As whom results are taken [default: what the agent calls itself]
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  claude mcp add brigade -- brigade mcp
  codex mcp add brigade -- brigade mcp
  gemini mcp add brigade brigade mcp";

impl Mcp {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let mut options = McpOptions::new(context.session()?, std::env::current_dir()?);
        options.client = self.client;
        options.wake = context.command_line("wait");
        let text = |(name, value): (String, String)| (name, EnvValue::Text(value.into()));
        options.env = callers().into_iter().map(text).collect();
        let served = serve_stdio(context.starter()?, options).await;
        served.map_err(|error| Failure::broken(error.to_string()))?;
        Ok(Exit::SUCCEEDED)
    }
}
