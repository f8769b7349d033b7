//! `brigade send`: sends messages to a task.

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::stdin_forward::{MessageOptions, StdinForwarder};

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
    /// Idempotency key: the same message with the same key is accepted once
    #[arg(long, value_name = "KEY", conflicts_with = "close", requires = "text")]
    key: Option<String>,
    /// Name of the message, by which a job can wait for it
    #[arg(long, value_name = "NAME", requires = "text")]
    name: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  brigade exec -d --stdin --name Calculator -- bc
  brigade send Calculator '6 * 7'
  printf '1+1\\n2+2\\n' | brigade send Calculator - --close
  brigade send agent:3 'And the same in French'
  brigade send --interrupt agent:3 'Stop reading, write it down'
  brigade send --key order-17 --name approval job:5 yes     repeat it safely";

impl SendArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        if self.key.is_some() && self.text.as_deref() == Some("-") {
            let problem = "a key stands for one message, and - sends one for each line of stdin";
            return Err(CliError::usage(problem));
        }
        let client = context.connect_daemon().await?;
        let Self { interrupt, name, key, .. } = self;
        let options = MessageOptions { interrupt, name, key };
        let forwarder = StdinForwarder::new(client, context.target(&self.address)?);
        let mut forwarder = forwarder.with_options(options);
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
