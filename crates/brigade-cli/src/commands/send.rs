//! Sends to a task.

use brigade_model::json::Json;
use brigade_server::requests;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show;

/// Send a message to a task; to a command it is a line of its input
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Send {
    /// The task; a command must have been started with --stdin
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// The message; - sends every line of our input
    #[arg(value_name = "TEXT", required_unless_present = "close")]
    text: Option<String>,
    /// Nothing follows: the command reads the end of its input
    #[arg(long)]
    close: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade exec -d --stdin --name Calculator -- bc
  brigade send Calculator '6 * 7'
  printf '1+1\\n2+2\\n' | brigade send Calculator - --close";

impl Send {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let client = context.daemon().await?;
        let target = context.target(&self.address)?;
        let mut sent = Vec::new();
        let send = async |message: Option<Json>, last: bool| {
            client.ask(requests::Send { target: target.clone(), message, last }).await
        };
        match self.text.as_deref() {
            Some("-") => {
                let mut lines = BufReader::new(tokio::io::stdin()).lines();
                while let Some(line) = lines.next_line().await? {
                    sent.extend(send(Some(Json::of(&line)?), false).await?);
                }
            }
            Some(text) => sent.extend(send(Some(Json::of(text)?), false).await?),
            None => {}
        }
        if self.close {
            sent.extend(send(None, true).await?);
        }
        if context.json {
            show::json(&serde_json::json!({ "messages": sent }))?;
        }
        Ok(Exit::SUCCEEDED)
    }
}
