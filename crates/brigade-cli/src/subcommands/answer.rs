//! `brigade answer`: answers a question, or returns the result of a client tool.

use brigade_model::json::Json;
use brigade_protocol::requests;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Answer a task's question, or return the result of a client tool
///
/// `brigade ps` and `brigade show` print open questions. An agent that called a client tool
/// (`brigade run --client-tools`) waits for its result in the same way.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AnswerArgs {
    /// Task that waits
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Answer, or result of the client tool
    #[arg(value_name = "TEXT")]
    text: String,
    /// Number of the question, if there are several
    #[arg(long, value_name = "NUMBER")]
    question: Option<u32>,
}

const EXAMPLES: &str = "\
Examples:
  brigade answer agent:1 'Yes, the second one'
  brigade answer agent:1 'opened; the cursor is on line 12'";

impl AnswerArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let target = context.target(&self.address)?;
        let answer = Json::of(&self.text)?;
        let question = self.question;
        context.call(requests::AnswerRequest { target, answer, question }).await?;
        if context.json {
            render::print_json(&serde_json::json!({ "answered": self.address }))?;
        } else {
            render::print_line("answered")?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
