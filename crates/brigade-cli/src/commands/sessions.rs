//! Lists sessions.

use brigade_server::requests;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show::{self, Table};

/// List the workspaces in which something was started
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Sessions {
    /// Closed ones too
    #[arg(long, short)]
    all: bool,
}

const EXAMPLES: &str = "\
Examples:
  brigade sessions
  brigade sessions --all --json";

impl Sessions {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let asked = requests::Sessions { closed: self.all };
        let sessions = context.ask(asked).await?;
        if context.json {
            show::json(&sessions)?;
            return Ok(Exit::SUCCEEDED);
        }
        let mut table = Table::new(&["STATE", "LIVING", "AGE", "WORKSPACE"]);
        for session in sessions {
            table.row([
                session.state.into(),
                session.living.to_string().into(),
                show::age(session.opened).into(),
                session.name.into(),
            ]);
        }
        table.print()?;
        Ok(Exit::SUCCEEDED)
    }
}
