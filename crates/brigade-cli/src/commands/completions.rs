//! Writes shell completions.

use std::io::{self, Write};

use clap::CommandFactory;

use crate::Brigade;
use crate::context::Context;
use crate::exit::{Exit, Failure};

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Completions {
    shell: clap_complete::Shell,
}

const EXAMPLES: &str = "\
Examples:
  brigade completions bash > ~/.local/share/bash-completion/completions/brigade
  brigade completions zsh > ~/.zfunc/_brigade
  brigade completions fish > ~/.config/fish/completions/brigade.fish";

impl Completions {
    pub(crate) async fn run(self, _: &Context) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Brigade::command(), "brigade", &mut script);
        let mut out = io::stdout().lock();
        out.write_all(&script)?;
        out.flush()?;
        Ok(Exit::SUCCEEDED)
    }
}
