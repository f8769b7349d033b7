//! Lists agent definitions.

use std::path::Path;
use std::str::FromStr;

use brigade_agent::Locale;
use brigade_server::requests;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TextTable};
use crate::workspace;

/// List the agents that can be run here
///
/// Definitions are markdown files with front matter in .brigade/agents of this directory and in
/// brigade/agents of the user's configuration directory. `brigade trust` says which of this directory's
/// are trusted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AgentsArgs {
    /// The language of names and descriptions, such as de-AT, where definitions have them; else LANG's
    #[arg(long, value_name = "TAG", value_parser = Locale::from_str)]
    lang: Option<Locale>,
}

/// The language of whoever looks, in the order in which programs look for it.
fn user_language() -> Option<Locale> {
    let set = |name: &&str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let value = ["LC_ALL", "LC_MESSAGES", "LANG"].iter().find_map(set)?;
    Locale::of_environment(&value)
}

const EXAMPLES: &str = "\
Examples:
  brigade agents
  brigade agents --lang de
  brigade run --agent reviewer 'Review the last commit'";

impl AgentsArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let lang = self.lang.or_else(user_language).map(|locale| locale.to_string());
        let here = workspace::current_directory()?;
        let cwd = here.display().to_string();
        let known = context.call(requests::ListAgentsRequest { cwd, lang }).await?;
        if context.json {
            render::print_json(&known)?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let mut table =
            TextTable::new(&["AGENT", "MODEL", "DESCRIPTION", "FILE"]).never_truncate("AGENT");
        for agent in known.agents {
            let model = agent.model.unwrap_or_else(|| "-".to_owned());
            let file = match agent.file.as_deref().map(Path::new) {
                Some(file) => file.strip_prefix(&here).unwrap_or(file).display().to_string(),
                None => "built in".to_owned(),
            };
            let name = match agent.title {
                Some(title) => format!("{} ({title})", agent.name),
                None => agent.name,
            };
            let file = if agent.untrusted { format!("{file} (not trusted)") } else { file };
            table.add_row([name.into(), model.into(), agent.description.into(), file.into()]);
        }
        table.print()?;
        for problem in &known.problems {
            render::print_note(problem);
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
