//! Sends to a task.

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::stdin_forward::StdinForwarder;

/// Send a message to a task; to a command it is a line of its input
///
/// An agent hears it at its next step; one that has ended goes on with it, in the same conversation.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SendArgs {
    /// The task; a command must have been started with --stdin
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// The message; - sends every line of our input
    #[arg(value_name = "TEXT", required_unless_present = "close")]
    text: Option<String>,
    /// Nothing follows: the command reads the end of its input
    #[arg(long)]
    close: bool,
    /// An agent is to hear it at once: what its model is saying is broken off
    #[arg(long, conflicts_with = "close", requires = "text")]
    interrupt: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade exec -d --stdin --name Calculator -- bc
  brigade send Calculator '6 * 7'
  printf '1+1\\n2+2\\n' | brigade send Calculator - --close
  brigade send agent:3 'And the same in French'
  brigade send --interrupt agent:3 'Stop reading, write it down'";

impl SendArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let client = context.connect_daemon().await?;
        let feed = StdinForwarder::new(context, client, context.target(&self.address)?);
        let mut feed = feed.with_interrupt(self.interrupt);
        match self.text.as_deref() {
            Some("-") => feed.forward_stdin().await?,
            Some(text) => feed.send_text(text).await?,
            None => {}
        }
        if self.close {
            feed.close_input().await?;
        }
        if context.json {
            render::print_json(&serde_json::json!({ "messages": feed.into_message_numbers() }))?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
