//! `brigade config`: prints the configuration.

use crate::config::UserConfig;
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::render;

/// Print the effective configuration
///
/// A running daemon keeps the configuration of its start. Run `brigade daemon stop`, and the next
/// daemon reads the current one; processes keep running.
#[derive(Debug, clap::Args)]
#[command(name = "config", after_help = EXAMPLES)]
pub(crate) struct ConfigArgs {}

const EXAMPLES: &str = "\
Examples:
  brigade config
  brigade config > ~/.config/brigade/config.toml    write a first file";

impl ConfigArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let path = UserConfig::path();
        if context.json {
            render::print_json(&serde_json::json!({ "path": path, "config": context.config }))?;
            return Ok(CliExitCode::SUCCEEDED);
        }
        let file = match path {
            Some(path) if path.exists() => format!("# {}", path.display()),
            Some(path) => format!("# {} (missing: these are the defaults)", path.display()),
            None => "# no home directory, no file: these are the defaults".to_owned(),
        };
        let text = context
            .config
            .to_toml()
            .map_err(|error| CliError::internal(format!("the configuration: {error}")))?;
        render::print_line(format!("{file}\n{}", text.trim_end()))?;
        Ok(CliExitCode::SUCCEEDED)
    }
}
