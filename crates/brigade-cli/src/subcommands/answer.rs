//! Answers a question, or says what came of a tool that the client runs.

use brigade_model::json::Json;
use brigade_server::requests;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Answer the question that a task waits with
///
/// `brigade ps` and `brigade show` say who asks what. An agent that waits for its client, which is to run a
/// tool of its own (`brigade run --client-tools`), is told in the same way what came of it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AnswerArgs {
    /// Who asks
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// What to say, or what the tool came to
    #[arg(value_name = "TEXT")]
    text: String,
    /// Which of its questions, when there are several
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
        let (answer, question) = (Json::of(&self.text)?, self.question);
        context.call(requests::AnswerRequest { target, answer, question }).await?;
        if context.json {
            render::print_json(&serde_json::json!({ "answered": self.address }))?;
        } else {
            render::print_line("answered")?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
