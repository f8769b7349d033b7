//! The stage `web`: the dashboard in a browser, against the real server.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::{run_cargo, run_command};
use crate::test_run::run_alone;
use crate::test_stages::install;
use crate::tidy::workspace_root;

/// Browsers under the names of Debian and of others.
const BROWSERS: [&str; 3] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/// Runs the tests of the page. Installs Node and Chromium if they are missing.
pub(crate) fn run() -> Result<(), String> {
    ensure_node()?;
    let browser = ensure_browser()?;
    run_cargo(&["build", "--package", "brigade-cli"])?;
    let tests = workspace_root().join("crates/brigade-server/web_tests");
    run_command(
        Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"])
            .current_dir(&tests),
    )
    .map_err(|error| format!("npm ci: {error}"))?;
    let mut npm = Command::new("npm");
    npm.args(["test", "--silent"]).current_dir(&tests);
    npm.env("BRIGADE_BIN", built_program()).env("BRIGADE_CHROMIUM", browser);
    run_alone(&mut npm).map_err(|error| format!("npm test: {error}"))
}

fn built_program() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| workspace_root().join("target"));
    target.join("debug/brigade")
}

fn ensure_node() -> Result<(), String> {
    let runs = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if runs("node") && runs("npm") || install(&["nodejs", "npm"]) {
        return Ok(());
    }
    Err("the dashboard's tests need node and npm".into())
}

fn ensure_browser() -> Result<&'static str, String> {
    let find = || BROWSERS.into_iter().find(|path| Path::new(path).exists());
    if let Some(browser) = find() {
        return Ok(browser);
    }
    install(&["chromium"]);
    find().ok_or_else(|| "the dashboard's tests need Chromium".to_owned())
}
