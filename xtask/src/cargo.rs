//! Runs Cargo as a child process.

use std::path::PathBuf;
use std::process::Command;

use crate::tidy::workspace_root;

/// Returns Cargo's target directory.
pub(crate) fn target_dir() -> PathBuf {
    let default = || workspace_root().join("target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from)
}

/// Returns a command for the Cargo that runs this program, or else for the one on the search path.
pub(crate) fn cargo_command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs a Cargo command and fails if it does.
pub(crate) fn run_cargo(args: &[&str]) -> Result<(), String> {
    run_command(cargo_command().args(args))
        .map_err(|error| format!("cargo {}: {error}", args.join(" ")))
}

/// Runs a command and fails if it does.
pub(crate) fn run_command(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| error.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("failed with {status}")) }
}
