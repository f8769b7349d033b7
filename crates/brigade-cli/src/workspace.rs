//! The session of a directory.

use std::io;
use std::path::{Path, PathBuf};

use brigade_protocol::workspace;

use crate::exit_code::CliError;

/// Returns the current directory, which may have been removed.
pub(crate) fn current_directory() -> Result<PathBuf, CliError> {
    std::env::current_dir().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CliError::usage("the current directory was removed").with_hint(
            "change to another one, or name one: `exec --cwd /PATH`, and --workspace NAME",
        ),
        _ => CliError::usage(format!("the current directory: {error}")),
    })
}

/// Returns the name of the session of a directory.
pub(crate) fn session_name_of(directory: &Path) -> Result<String, CliError> {
    workspace::session_name_of(directory).map_err(|refusal| {
        CliError::usage(refusal.message).with_hint("or name a workspace: --workspace NAME")
    })
}
