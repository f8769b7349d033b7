//! Installs the Debian package into a root directory of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::installed_program::InstalledProgram;
use super::{InstallTest, check_manual, files};

/// Files that the package installs beside the program.
const INSTALLED: [&str; 6] = [
    "usr/lib/systemd/user/brigade.service",
    "usr/share/bash-completion/completions/brigade",
    "usr/share/doc/brigade/copyright",
    "usr/share/fish/vendor_completions.d/brigade.fish",
    "usr/share/man/man1/brigade.1.gz",
    "usr/share/zsh/vendor-completions/_brigade",
];

pub(super) fn test_package(test: &InstallTest) -> Result<(), String> {
    let package = test.package("brigade_", ".deb")?;
    let root = test.dir("root")?;
    let database = root.join("var/lib/dpkg");
    for dir in ["info", "updates"] {
        let dir = database.join(dir);
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    files::write(&database.join("status"), b"")?;
    // The root has no libc6: `check_dependency` checks the dependency.
    let mut install = dpkg(&root);
    install.args(["--force-depends", "--force-not-root", "--install"]).arg(&package);
    files::run_quiet(&mut install)?;
    for file in INSTALLED {
        files::read(&root.join(file))?;
    }
    check_manual(&root.join("usr/share/man/man1/brigade-exec.1.gz"))?;
    check_dependency(&package)?;
    InstalledProgram::new(test, &root.join("usr/bin/brigade"))?.check()?;
    let changed = files::run_quiet(dpkg(&root).args(["--verify", "brigade"]))?;
    if !changed.is_empty() {
        return Err(format!("dpkg --verify: {}", String::from_utf8_lossy(&changed)));
    }
    files::run_quiet(dpkg(&root).args(["--force-not-root", "--purge", "brigade"]))?;
    let is_ours = |path: &&std::path::PathBuf| path.starts_with("usr");
    match files::list_files(&root)?.iter().find(is_ours) {
        Some(left) => Err(format!("dpkg --purge left {}", left.display())),
        None => Ok(()),
    }
}

fn dpkg(root: &Path) -> Command {
    let mut dpkg = Command::new("dpkg");
    dpkg.env("LC_ALL", "C").arg("--root").arg(root).arg("--log=/dev/null");
    dpkg
}

/// Checks that the installed libc6 of this machine satisfies the dependency, as far as it is known.
fn check_dependency(package: &Path) -> Result<(), String> {
    let mut field = Command::new("dpkg-deb");
    let output = files::run_quiet(field.arg("--field").arg(package).arg("Depends"))?;
    let text = String::from_utf8_lossy(&output);
    let version = text.trim().strip_prefix("libc6 (>= ").and_then(|rest| rest.strip_suffix(')'));
    let version = version.ok_or_else(|| format!("the package depends on {text:?}"))?;
    let mut query = Command::new("dpkg-query");
    let installed = files::run_quiet(query.args(["--show", "--showformat=${Version}", "libc6"]))?;
    let installed = String::from_utf8_lossy(&installed);
    let mut compare = Command::new("dpkg");
    compare.args(["--compare-versions", &installed, "ge", version]);
    files::run_quiet(&mut compare).map(drop)
}
