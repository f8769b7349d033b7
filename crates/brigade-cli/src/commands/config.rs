//! Shows the configuration.

use crate::config::Config;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::show;

/// Print the configuration that holds, as it could stand in its file
///
/// A daemon that runs keeps what it was started with; `brigade daemon stop` lets the next command start
/// one with what holds now. Commands that run do not notice.
#[derive(Debug, clap::Args)]
#[command(name = "config", after_help = EXAMPLES)]
pub(crate) struct ShowConfig {}

const EXAMPLES: &str = "\
Examples:
  brigade config
  brigade config > ~/.config/brigade/config.toml    a file to begin with";

impl ShowConfig {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let path = Config::path();
        if context.json {
            show::json(&serde_json::json!({ "path": path, "config": context.config }))?;
            return Ok(Exit::SUCCEEDED);
        }
        let file = match path {
            Some(path) if path.exists() => format!("# {}", path.display()),
            Some(path) => format!("# {} (not there: these are the defaults)", path.display()),
            None => "# no home directory, no file: these are the defaults".to_owned(),
        };
        let text = context
            .config
            .written()
            .map_err(|error| Failure::broken(format!("the configuration: {error}")))?;
        show::line(format!("{file}\n{}", text.trim_end()))?;
        Ok(Exit::SUCCEEDED)
    }
}
