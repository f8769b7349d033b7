//! The input of all packages: the stripped program and the files that belong to it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::files;
use super::glibc::{self, GlibcVersion};
use crate::tidy::workspace_root;

/// The file names of completions, as the directories of the shells want them.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "brigade.bash"), ("zsh", "_brigade"), ("fish", "brigade.fish")];
/// Files of the project that each package contains.
pub(super) const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// A program and everything that packages contain beside it.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) version: String,
    /// The seconds since 1970 of the commit. All files in packages have this time.
    pub(super) date: u64,
    /// The oldest glibc with which the program starts.
    pub(super) glibc: GlibcVersion,
    pub(super) program: PathBuf,
    /// The manual pages, one for each subcommand.
    pub(super) manual: PathBuf,
    pub(super) completions: PathBuf,
}

impl Release {
    /// Strips a program and lets it write its manual pages and completions. With a promise, fails if the
    /// program needs a newer glibc.
    pub(super) fn prepare(binary: &Path, promised: Option<GlibcVersion>) -> Result<Self, String> {
        let dir = files::work_dir("release")?;
        let program = dir.join("brigade");
        let mut strip = Command::new("strip");
        strip.arg("--strip-all").arg("-o").arg(&program).arg(binary);
        files::run_quiet(&mut strip)?;
        let glibc = glibc::measure(&program)?;
        promised.map_or(Ok(()), |promised| glibc::check_promise(glibc, promised))?;
        let version = workspace_version()?;
        check_version(&program, &version)?;
        let manual = dir.join("man");
        files::run_quiet(Command::new(&program).args(["completions", "--man"]).arg(&manual))?;
        let completions = dir.join("completions");
        for (shell, name) in COMPLETIONS {
            let script = files::run_quiet(Command::new(&program).args(["completions", shell]))?;
            files::write(&completions.join(name), &script)?;
        }
        Ok(Self { version, date: commit_date()?, glibc, program, manual, completions })
    }

    /// Copies the licences of the project to a directory.
    pub(super) fn copy_licences(&self, to: &Path) -> Result<(), String> {
        for name in LICENCES {
            files::write(&to.join(name), &files::read(&workspace_root().join(name))?)?;
        }
        Ok(())
    }
}

/// Returns the version of the workspace.
fn workspace_version() -> Result<String, String> {
    let manifest: toml::Table = files::read_text(&workspace_root().join("Cargo.toml"))?
        .parse()
        .map_err(|error| format!("Cargo.toml: {error}"))?;
    let version = manifest["workspace"]["package"]["version"].as_str();
    version.map(str::to_owned).ok_or_else(|| "Cargo.toml: the workspace has no version".into())
}

fn check_version(program: &Path, version: &str) -> Result<(), String> {
    let output = files::run_quiet(Command::new(program).arg("--version"))?;
    let answer = String::from_utf8_lossy(&output);
    if answer.trim() == format!("brigade {version}") {
        return Ok(());
    }
    Err(format!("the program calls itself {:?}; this is version {version}", answer.trim()))
}

/// Returns the date of the packages: that of the commit, or `SOURCE_DATE_EPOCH`.
fn commit_date() -> Result<u64, String> {
    let set = std::env::var("SOURCE_DATE_EPOCH").ok();
    let text = set.map_or_else(read_commit_date, Ok)?;
    let date = text.trim().parse();
    date.map_err(|_| format!("{:?} is no date; set SOURCE_DATE_EPOCH to seconds", text.trim()))
}

fn read_commit_date() -> Result<String, String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(workspace_root()).args(["log", "-1", "--format=%ct"]);
    let output = files::run_quiet(&mut git)
        .map_err(|error| format!("{error}; set SOURCE_DATE_EPOCH outside of a checkout"))?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plugin_has_the_version_of_the_workspace() {
        let plugin = include_str!("../../../dist/claude-plugin/.claude-plugin/plugin.json");
        let plugin: serde_json::Value = serde_json::from_str(plugin).expect("JSON");
        assert_eq!(
            Ok(plugin["version"].as_str().unwrap_or_default().to_owned()),
            workspace_version()
        );
    }
}
