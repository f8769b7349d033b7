//! `brigade sessions`: lists sessions.

use brigade_protocol::requests;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TextTable};

/// List sessions
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SessionsArgs {
    /// Include closed sessions
    #[arg(long, short)]
    all: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade sessions
  brigade sessions --all --json";

impl SessionsArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let request = requests::ListSessionsRequest { include_closed: self.all };
        let sessions = context.call(request).await?;
        if context.json {
            render::print_json(&sessions)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let mut table = TextTable::new(&["STATE", "TASKS", "AGE", "WORKSPACE"]);
        for session in sessions {
            table.add_row([
                session.state.into(),
                session.alive_tasks.to_string().into(),
                render::render_age(session.opened_at).into(),
                session.name.into(),
            ]);
        }
        table.print()?;
        Ok(CliExitCode::SUCCEEDED)
    }
}
