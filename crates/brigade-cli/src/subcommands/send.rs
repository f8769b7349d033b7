//! `brigade send`: sends messages to a task.

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::stdin_forward::StdinForwarder;

/// Send a message to a task; a process reads it as a line of stdin
///
/// An agent reads it at its next step. An ended agent starts its next run with it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SendArgs {
    /// Task to send to; a process must have been started with --stdin
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Message; - sends each line of stdin
    #[arg(value_name = "TEXT", required_unless_present = "close")]
    text: Option<String>,
    /// Close stdin after the message
    #[arg(long)]
    close: bool,
    /// Deliver at once: interrupt the current model call
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
        let forwarder = StdinForwarder::new(client, context.target(&self.address)?);
        let mut forwarder = forwarder.with_interrupt(self.interrupt);
        match self.text.as_deref() {
            Some("-") => forwarder.forward_stdin().await?,
            Some(text) => forwarder.send_text(text).await?,
            None => {}
        }
        if self.close {
            forwarder.close_input().await?;
        }
        if context.json {
            render::print_json(
                &serde_json::json!({ "messages": forwarder.into_message_numbers() }),
            )?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
