//! The stage `web`: the dashboard in headless Chromium against a real server.
//!
//! Missing programs are installed: Chromium and Node.js from Debian, the packages of the tests from
//! the registry of npm. Screenshots stay in `web-shots` of the target directory.

use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use crate::cargo::{run_cargo, run_command, target_dir};
use crate::test_run::run_alone;
use crate::test_stages::{has_program, install};
use crate::tidy::workspace_root;

const TESTS_DIR: &str = "crates/brigade-server/web_tests";
/// The package that npm installs last.
const LAST_PACKAGE: &str = "node_modules/typescript/package.json";

/// Tests the dashboard in a browser.
pub(crate) fn run() -> Result<(), String> {
    let tests = workspace_root().join(TESTS_DIR);
    ensure_chromium()?;
    ensure_node()?;
    install_locked_packages(&tests)?;
    run_cargo(&["build", "--package", "brigade-cli", "--bin", "brigade"])?;
    let shots = absolute(target_dir().join("web-shots")).map_err(|error| error.to_string())?;
    let mut node = Command::new("node");
    node.arg("run.js").current_dir(tests);
    node.env("BRIGADE_BIN", built_program()?).env("BRIGADE_SHOTS", shots);
    run_alone(&mut node).map_err(|error| format!("tests of the dashboard failed: {error}"))
}

fn ensure_chromium() -> Result<(), String> {
    if has_program("chromium") || install(&["chromium"]) {
        return Ok(());
    }
    Err("chromium cannot be installed".into())
}

/// Installs Node.js and npm if they are missing.
pub(crate) fn ensure_node() -> Result<(), String> {
    let has_node = has_program("node") && has_program("npm");
    if !has_node && !install(&["nodejs", "npm"]) {
        return Err("nodejs and npm cannot be installed".into());
    }
    Ok(())
}

/// Installs the packages of a directory as its lock file names them.
pub(crate) fn install_locked_packages(dir: &Path) -> Result<(), String> {
    if dir.join(LAST_PACKAGE).exists() {
        return Ok(());
    }
    println!("missing: installing the packages of {} with npm", dir.display());
    let mut npm = Command::new("npm");
    npm.args(["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]);
    run_command(npm.current_dir(dir)).map_err(|error| format!("npm ci: {error}"))
}

/// Returns the absolute path of the program that Cargo has built.
pub(crate) fn built_program() -> Result<PathBuf, String> {
    let path = target_dir().join("debug/brigade");
    path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))
}
