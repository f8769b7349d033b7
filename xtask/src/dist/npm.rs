//! The packages of npm: a launcher, and the program for one platform.
//!
//! npm installs an optional dependency only where its `os`, `cpu` and `libc` fit. No script runs at
//! installation.

use std::path::Path;

use serde_json::{Value, json};

use super::files;
use super::release::Release;
use crate::tidy::workspace_root;

/// The files of the launcher, in the repository.
const SOURCES: &str = "dist/npm";
const LAUNCHER: &str = "launch.js";
/// The package with the program. The launcher looks for it by platform.
const PLATFORM_PACKAGE: &str = "@brigade-run/linux-x64";
/// The older versions of Node.js lack parts of the language that the launcher uses.
const NODE_MIN: &str = ">=18";

/// Writes `brigade-run-VERSION.tgz` and `brigade-run-linux-x64-VERSION.tgz`, named as `npm pack` does.
pub(super) fn write(release: &Release, out: &Path) -> Result<Vec<String>, String> {
    let sources = workspace_root().join(SOURCES);
    let launcher = files::work_dir("npm")?;
    let package = launcher.join("package");
    write_manifest(&package, &launcher_manifest(&release.version))?;
    files::write_program(&package.join(LAUNCHER), &files::read(&sources.join(LAUNCHER))?)?;
    files::write(&package.join("README.md"), &files::read(&sources.join("README.md"))?)?;
    release.copy_licences(&package)?;

    let platform = files::work_dir("npm-linux-x64")?;
    let package = platform.join("package");
    write_manifest(&package, &platform_manifest(release))?;
    files::write_program(&package.join("bin/brigade"), &files::read(&release.program)?)?;
    let readme = format!("# {PLATFORM_PACKAGE}\n\nThe program of the package `brigade-run`.\n");
    files::write(&package.join("README.md"), readme.as_bytes())?;
    release.copy_licences(&package)?;

    let names = [
        format!("brigade-run-{}.tgz", release.version),
        format!("brigade-run-linux-x64-{}.tgz", release.version),
    ];
    for (dir, name) in [launcher, platform].iter().zip(&names) {
        files::write_tar_gz(dir, &["package"], release.date, &out.join(name))?;
    }
    Ok(names.into())
}

fn write_manifest(package: &Path, manifest: &Value) -> Result<(), String> {
    files::write(&package.join("package.json"), format!("{manifest:#}\n").as_bytes())
}

fn launcher_manifest(version: &str) -> Value {
    json!({
        "name": "brigade-run",
        "version": version,
        "description": "Background tasks for coding agents, programs and people, which survive kill -9",
        "license": "MIT OR Apache-2.0",
        "keywords": ["agents", "background", "jobs", "processes", "mcp"],
        "bin": { "brigade": LAUNCHER, "brigade-run": LAUNCHER },
        "files": [LAUNCHER],
        "engines": { "node": NODE_MIN },
        "optionalDependencies": { PLATFORM_PACKAGE: version },
    })
}

fn platform_manifest(release: &Release) -> Value {
    json!({
        "name": PLATFORM_PACKAGE,
        "version": release.version,
        "description": format!("Brigade for Linux on x86-64 with glibc {} or newer", release.glibc),
        "license": "MIT OR Apache-2.0",
        "files": ["bin"],
        "os": ["linux"],
        "cpu": ["x64"],
        "libc": ["glibc"],
        // Yarn keeps other packages in archives, from which no program can be executed.
        "preferUnplugged": true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_requires_the_program_of_its_own_version() {
        let manifest = launcher_manifest("1.2.3");
        assert_eq!(manifest["optionalDependencies"][PLATFORM_PACKAGE], "1.2.3");
        assert!(manifest.get("scripts").is_none(), "nothing runs at installation");
        let launcher = include_str!("../../../dist/npm/launch.js");
        assert!(launcher.contains(PLATFORM_PACKAGE), "the launcher finds the package");
    }
}
