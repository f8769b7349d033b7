//! `brigade agents`: lists agent definitions.

use std::path::Path;
use std::str::FromStr;

use brigade_agent::Locale;
use brigade_protocol::requests;

use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render::{self, TextTable};
use crate::workspace;

/// List agent definitions of this directory
///
/// Definitions are markdown files with front matter, in .brigade/agents of this directory and in
/// brigade/agents of the user's configuration directory. `brigade trust` manages trust in this
/// directory's definitions.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AgentsArgs {
    /// Language of names and descriptions, such as de-AT [default: LANG]
    #[arg(long, value_name = "TAG", value_parser = Locale::from_str)]
    lang: Option<Locale>,
}

/// Returns the language of the user, from the usual variables in their usual order.
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
        let directory = workspace::current_directory()?;
        let cwd = directory.display().to_string();
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
                Some(file) => file.strip_prefix(&directory).unwrap_or(file).display().to_string(),
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
