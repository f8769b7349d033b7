//! Runs the hook of the plugin for Claude Code, and validates the plugin with Claude Code where the stage
//! `clients` has installed it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::installed_program::InstalledProgram;
use super::{InstallTest, TARGET, files};
use crate::cargo::target_dir;
use crate::tidy::workspace_root;

const PLUGIN: &str = "dist/claude-plugin";
/// The program of Claude Code, in the directory of the stage `clients`.
const CLAUDE: &str = "clients/node_modules/@anthropic-ai/claude-code-linux-x64/claude";

pub(super) fn test_plugin(test: &InstallTest) -> Result<(), String> {
    let dir = test.dir("programs")?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--strip-components=1", "--directory"]).arg(&dir).arg("--file");
    files::run_quiet(tar.arg(test.package("brigade-", &format!("{TARGET}.tar.gz"))?))?;
    let program = InstalledProgram::new(test, &dir.join("brigade"))?;
    let tested = test_hook(&program, &dir);
    let stopped = files::run_quiet(program.command().args(["daemon", "stop"])).map(drop);
    tested.and(stopped)?;
    validate(test)
}

/// Checks that the hook prints the tasks that run, and otherwise nothing.
fn test_hook(program: &InstalledProgram, dir: &Path) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default();
    let with_program = format!("{}:{path}", dir.display());
    let run_hook = |path: &str| {
        let mut hook = Command::new("/bin/sh");
        hook.arg(workspace_root().join(PLUGIN).join("hooks/list-running.sh")).env_clear();
        let settings = program.command();
        hook.envs(settings.get_envs().filter_map(|(name, value)| Some((name, value?))));
        hook.env("PATH", path).env("CLAUDE_PROJECT_DIR", program.home());
        let output = files::run_quiet(&mut hook)?;
        Ok::<String, String>(String::from_utf8_lossy(&output).into_owned())
    };
    expect_silence("a hook without brigade", &run_hook("/nonexistent")?)?;
    expect_silence("a hook without tasks", &run_hook(&with_program)?)?;
    let start = ["exec", "--detach", "--name", "Long", "--", "sleep", "600"];
    files::run_quiet(program.command().args(start))?;
    let listed = run_hook(&with_program);
    files::run_quiet(program.command().args(["stop", "Long"]))?;
    let listed = listed?;
    if !listed.starts_with("1 Brigade tasks") || !listed.contains("sleep 600") {
        return Err(format!("a hook with a task printed {listed:?}"));
    }
    expect_silence("a hook after the end of the task", &run_hook(&with_program)?)
}

fn expect_silence(case: &str, printed: &str) -> Result<(), String> {
    if printed.is_empty() { Ok(()) } else { Err(format!("{case} printed {printed:?}")) }
}

fn validate(test: &InstallTest) -> Result<(), String> {
    let claude: PathBuf = target_dir().join(CLAUDE);
    if !claude.exists() {
        println!("skipped: `claude plugin validate` (run the stage `clients` first)");
        return Ok(());
    }
    for path in [workspace_root(), workspace_root().join(PLUGIN)] {
        let mut validate = Command::new(&claude);
        validate.args(["plugin", "validate", "--strict"]).arg(path);
        validate.env("CLAUDE_CONFIG_DIR", test.dir("claude")?);
        validate
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("DISABLE_AUTOUPDATER", "1");
        files::run_quiet(&mut validate)?;
    }
    Ok(())
}
