//! Lists agent definitions.

use std::path::Path;

use brigade_server::requests;

use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show::{self, Table};

/// List the agents that can be run here
///
/// Definitions are markdown files with front matter in .brigade/agents of this directory, then in
/// brigade/agents of the user's configuration directory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Agents {}

const EXAMPLES: &str = "\
Examples:
  brigade agents
  brigade run --agent reviewer 'Review the last commit'";

impl Agents {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let here = std::env::current_dir()?;
        let cwd = here.display().to_string();
        let known = context.ask(requests::Agents { cwd }).await?;
        if context.json {
            show::json(&known)?;
            return Ok(Exit::SUCCEEDED);
        }
        let mut table = Table::new(&["AGENT", "MODEL", "DESCRIPTION", "FILE"]).whole("AGENT");
        for agent in known.agents {
            let model = agent.model.unwrap_or_else(|| "-".to_owned());
            let file = match agent.file.as_deref().map(Path::new) {
                Some(file) => file.strip_prefix(&here).unwrap_or(file).display().to_string(),
                None => "built in".to_owned(),
            };
            table.row([agent.name.into(), model.into(), agent.description.into(), file.into()]);
        }
        table.print()?;
        for problem in &known.problems {
            show::note(problem);
        }
        Ok(Exit::SUCCEEDED)
    }
}
