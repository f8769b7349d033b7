//! `brigade completions`: prints completions for a shell.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::BrigadeArgs;
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    shell: clap_complete::Shell,
}

const EXAMPLES: &str = "\
Examples:
  brigade completions bash > ~/.local/share/bash-completion/completions/brigade
  brigade completions zsh > ~/.zfunc/_brigade
  brigade completions fish > ~/.config/fish/completions/brigade.fish";

impl CompletionsArgs {
    pub(crate) async fn run(self, _: &CliContext) -> Result<CliExitCode, CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut BrigadeArgs::command(), "brigade", &mut script);
        let mut out = io::stdout().lock();
        out.write_all(&script)?;
        out.flush()?;
        Ok(CliExitCode::SUCCEEDED)
    }
}
