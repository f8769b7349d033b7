//! Closes a session.

use brigade_server::requests;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show;

/// Close a workspace: stop all that runs in it; the next command opens a new one
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Close {
    /// Which one [default: this directory's]
    #[arg(value_name = "WORKSPACE")]
    name: Option<String>,
    /// Why, for whoever looks later
    #[arg(long, short, value_name = "TEXT")]
    reason: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  brigade close
  brigade close /home/me/old-project --reason 'it is over'";

impl Close {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let session = match self.name {
            Some(name) => name,
            None => context.session()?,
        };
        let asked = requests::Close { session: session.clone(), reason: self.reason };
        context.ask(asked).await?;
        if context.json {
            show::json(&serde_json::json!({ "closed": session }))?;
        } else {
            show::line(&format!("closed {}", show::one_line(&session)))?;
        }
        Ok(Exit::SUCCEEDED)
    }
}
