//! Closes a session.

use brigade_model::tree::SessionState;
use brigade_server::requests::{self, Closed};

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
        let closed = context.ask(asked).await.map_err(|failure| match failure.is_not_found() {
            true => failure.hint("`brigade sessions --all` lists the workspaces"),
            false => failure,
        })?;
        if context.json {
            let already = closed.before != SessionState::Open;
            let state = closed.after;
            let said = serde_json::json!({ "closed": session, "state": state, "already": already });
            show::json(&said)?;
        } else {
            show::line(described(&show::one_line(&session), &closed))?;
        }
        Ok(Exit::SUCCEEDED)
    }
}

fn described(session: &str, closed: &Closed) -> String {
    match (&closed.before, &closed.after) {
        (SessionState::Closed, _) => format!("{session} was already closed"),
        (SessionState::Closing, _) => format!("{session} was already closing"),
        (SessionState::Open, SessionState::Closed) => format!("closed {session}"),
        (SessionState::Open, _) => format!("closing {session}: what runs in it is being stopped"),
    }
}
