//! `brigade close`: closes a session.

use brigade_model::task_tree::SessionState;
use brigade_protocol::requests::{self, CloseSessionReply};

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Close a session and stop its tasks; the next task opens a new one
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CloseArgs {
    /// Workspace of the session [default: this directory's]
    #[arg(value_name = "WORKSPACE")]
    name: Option<String>,
    /// Reason, recorded in the events
    #[arg(long, short, value_name = "TEXT")]
    reason: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  brigade close
  brigade close /home/me/old-project --reason 'archived'";

impl CloseArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let session = match self.name {
            Some(name) => name,
            None => context.session_name()?,
        };
        let request =
            requests::CloseSessionRequest { session: session.clone(), reason: self.reason };
        let closed = context.call(request).await.map_err(|error| match error.is_not_found() {
            true => error.with_hint("`brigade sessions --all` lists the sessions"),
            false => error,
        })?;
        if context.json {
            let already = closed.state_before != SessionState::Open;
            let state = closed.state_after;
            let reply =
                serde_json::json!({ "closed": session, "state": state, "already": already });
            render::print_json(&reply)?;
        } else {
            render::print_line(render_reply(&render::render_one_line(&session), &closed))?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}

fn render_reply(session: &str, closed: &CloseSessionReply) -> String {
    match (&closed.state_before, &closed.state_after) {
        (SessionState::Closed, _) => format!("{session} was already closed"),
        (SessionState::Closing, _) => format!("{session} was already closing"),
        (SessionState::Open, SessionState::Closed) => format!("closed {session}"),
        (SessionState::Open, _) => format!("closing {session}: its tasks are being stopped"),
    }
}
