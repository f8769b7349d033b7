//! Answers a question.

use brigade_model::json::Json;
use brigade_server::requests;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show;

/// Answer the question that a task waits with
///
/// `brigade ps` and `brigade show` say who asks what.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Answer {
    /// Who asks
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// What to say
    #[arg(value_name = "TEXT")]
    text: String,
    /// Which of its questions, when there are several
    #[arg(long, value_name = "NUMBER")]
    question: Option<u32>,
}

const EXAMPLES: &str = "\
Examples:
  brigade answer agent:1 'Yes, the second one'";

impl Answer {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let target = context.target(&self.address)?;
        let (answer, question) = (Json::of(&self.text)?, self.question);
        context.ask(requests::Answer { target, answer, question }).await?;
        if context.json {
            show::json(&serde_json::json!({ "answered": self.address }))?;
        } else {
            show::line("answered")?;
        }
        Ok(Exit::SUCCEEDED)
    }
}
