//! The stage `dist`: installs each package, and the crate of the command, into a clean directory and runs it.
//!
//! Each installed program has a private state directory and home. Its daemon is stopped, and a process
//! that is left behind is a failure. With `BRIGADE_DIST_BINARY`, an existing program is packaged.

mod claude_plugin;
mod crates;
mod debian;
mod image;
mod installed_program;
mod node;
mod python;

use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use installed_program::InstalledProgram;

use super::{DIGESTS, DistOptions, TARGET, files, write_packages};
use crate::cargo::target_dir;
use crate::test_run::TestRun;

/// The variable with the path of an existing program.
const BINARY_VARIABLE: &str = "BRIGADE_DIST_BINARY";

/// A function that installs the packages of one format and runs them.
type TestFormat = fn(&InstallTest) -> Result<(), String>;

/// The packages and the directories of one test.
struct InstallTest {
    packages: PathBuf,
    run: TestRun,
}

/// Installs and runs all packages.
pub(crate) fn run() -> Result<(), String> {
    let packages = absolute(files::work_dir("packages")?).map_err(|error| error.to_string())?;
    let options = DistOptions {
        out: Some(packages.clone()),
        binary: std::env::var_os(BINARY_VARIABLE).map(PathBuf::from),
        ..DistOptions::default()
    };
    write_packages(&options)?;
    check_digests(&packages)?;
    check_reproducible(&packages, &options)?;
    let tests: [(&str, TestFormat); 8] = [
        ("archive", test_archive),
        ("npm", node::test_packages),
        ("wheel", python::test_wheel),
        ("deb", debian::test_package),
        ("oci", image::test_image),
        ("sbom", python::validate_sbom),
        ("plugin", claude_plugin::test_plugin),
        ("crates", crates::test_crates),
    ];
    for (name, test) in tests {
        println!("install: {name}");
        let test_dirs = InstallTest { packages: packages.clone(), run: TestRun::begin()? };
        let passed = test(&test_dirs);
        // Processes of a failed test are reported too.
        match (passed, test_dirs.run.finish()) {
            (Err(failed), Err(strays)) => return Err(format!("{name}: {failed}; {strays}")),
            (passed, finished) => passed.and(finished).map_err(|e| format!("{name}: {e}"))?,
        }
    }
    Ok(())
}

impl InstallTest {
    /// Returns the package whose file name begins and ends so. Of several, returns the shortest name:
    /// the launcher and the program of npm begin in the same way.
    fn package(&self, prefix: &str, suffix: &str) -> Result<PathBuf, String> {
        let is_named = |path: &PathBuf| {
            let name = path.to_string_lossy();
            name.starts_with(prefix) && name.ends_with(suffix)
        };
        let found = files::list_files(&self.packages)?.into_iter().filter(is_named);
        let found = found.min_by_key(|path| path.as_os_str().len());
        let found = found.ok_or_else(|| format!("there is no package {prefix}*{suffix}"))?;
        Ok(self.packages.join(found))
    }

    /// Returns a directory of this test.
    fn dir(&self, name: &str) -> Result<PathBuf, String> {
        let dir = self.run.directory().join(name);
        std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(dir)
    }
}

/// Returns the directory of the tools that tests install once.
fn tools_dir() -> Result<PathBuf, String> {
    absolute(target_dir().join("dist-tools")).map_err(|error| error.to_string())
}

/// Checks the digests as the reader of a download page does.
fn check_digests(packages: &Path) -> Result<(), String> {
    let mut sums = Command::new("sha256sum");
    sums.args(["--check", "--strict", "--quiet", DIGESTS]).current_dir(packages);
    files::run_quiet(&mut sums).map(drop)
}

/// Checks that the same program gives the same packages.
fn check_reproducible(packages: &Path, options: &DistOptions) -> Result<(), String> {
    let again = absolute(files::work_dir("packages-again")?).map_err(|error| error.to_string())?;
    write_packages(&DistOptions { out: Some(again.clone()), ..options.clone() })?;
    let [first, second] = [packages, &again].map(|dir| files::read_text(&dir.join(DIGESTS)));
    if first? == second? {
        return Ok(());
    }
    Err("the same program was packaged twice, with different bytes".into())
}

fn test_archive(test: &InstallTest) -> Result<(), String> {
    let dir = test.dir("unpacked")?;
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--directory").arg(&dir).arg("--file");
    files::run_quiet(tar.arg(test.package("brigade-", &format!("{TARGET}.tar.gz"))?))?;
    let mut listed = std::fs::read_dir(&dir).map_err(|error| error.to_string())?;
    let root = listed.next().and_then(Result::ok).ok_or("the archive is empty")?.path();
    for name in [
        "LICENSE-MIT",
        "README.md",
        "completions/brigade.fish",
        "man/man1/brigade.1",
        "man/man1/brigade-exec.1",
        "systemd/brigade.service",
    ] {
        files::read(&root.join(name))?;
    }
    check_manual(&root.join("man/man1/brigade-exec.1"))?;
    InstalledProgram::new(test, &root.join("brigade"))?.check()
}

/// Checks a manual page, compressed or not, with the formatter, if there is one.
fn check_manual(page: &Path) -> Result<(), String> {
    if Command::new("groff").arg("--version").output().is_err() {
        println!("skipped: the form of manual pages (groff is not installed)");
        return Ok(());
    }
    let script = "gzip --decompress --force --stdout \"$1\" | groff -man -Tascii -ww -z";
    let mut groff = Command::new("sh");
    groff.args(["-c", script, "sh"]).arg(page);
    let output = groff.output().map_err(|error| format!("groff: {error}"))?;
    if output.status.success() && output.stderr.is_empty() {
        return Ok(());
    }
    Err(format!("{}: {}", page.display(), String::from_utf8_lossy(&output.stderr)))
}
