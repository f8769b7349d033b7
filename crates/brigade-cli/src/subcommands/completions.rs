//! `brigade completions`: prints completions for a shell, or writes the manual pages.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::CommandFactory;

use crate::BrigadeArgs;
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};

/// Print completions for a shell, or write the manual pages
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    #[arg(required_unless_present = "man")]
    shell: Option<clap_complete::Shell>,
    /// Write a manual page for each subcommand to this directory
    #[arg(long, value_name = "DIR", conflicts_with = "shell")]
    man: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  brigade completions bash > ~/.local/share/bash-completion/completions/brigade
  brigade completions zsh > ~/.zfunc/_brigade
  brigade completions fish > ~/.config/fish/completions/brigade.fish
  brigade completions --man ~/.local/share/man/man1";

impl CompletionsArgs {
    pub(crate) async fn run(self, _: &CliContext) -> Result<CliExitCode, CliError> {
        if let Some(dir) = self.man {
            std::fs::create_dir_all(&dir)?;
            clap_mangen::generate_to(BrigadeArgs::command(), dir)?;
        }
        if let Some(shell) = self.shell {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut BrigadeArgs::command(), "brigade", &mut script);
            let mut out = io::stdout().lock();
            out.write_all(&script)?;
            out.flush()?;
        }
        Ok(CliExitCode::SUCCEEDED)
    }
}
