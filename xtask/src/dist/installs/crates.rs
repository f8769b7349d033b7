//! Installs the command from a directory of `.crate` files, as `cargo install` does after a publication.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::installed_program::InstalledProgram;
use super::{InstallTest, files, tools_dir};
use crate::cargo::{cargo_command, run_command};

/// The crate with the command.
const CLI: &str = "brigade-cli-";

pub(super) fn test_crates(test: &InstallTest) -> Result<(), String> {
    let sources = unpack_crates(&test.dir("crates")?)?;
    let cli = sources.iter().find(|path| has_prefix(path, CLI)).ok_or("there is no brigade-cli")?;
    let root = test.dir("cargo-root")?;
    let mut install = cargo_command();
    // The debug profile compiles faster. The target directory stays for the next run.
    install.args(["install", "--debug", "--root"]).arg(&root).arg("--path").arg(cli);
    install.arg("--target-dir").arg(tools_dir()?.join("cargo-install"));
    for source in &sources {
        install.arg("--config").arg(patch_of(source)?);
    }
    // Outside of the checkout, whose workspace and configuration do not apply to users.
    run_command(install.current_dir(&root))?;
    InstalledProgram::new(test, &root.join("bin/brigade"))?.check()
}

/// Makes the packages of all crates and unpacks them. Returns their directories.
fn unpack_crates(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let packed = files::work_dir("crates")?;
    let mut package = cargo_command();
    package.args(["package", "--quiet", "--workspace", "--no-verify", "--allow-dirty"]);
    run_command(package.arg("--target-dir").arg(&packed))?;
    let packed = packed.join("package");
    // Cargo has copies of them in a directory.
    let is_crate = |path: &PathBuf| {
        path.components().count() == 1 && path.extension().is_some_and(|end| end == "crate")
    };
    let mut sources = Vec::new();
    for file in files::list_files(&packed)?.into_iter().filter(is_crate) {
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--directory").arg(dir).arg("--file").arg(packed.join(&file));
        files::run_quiet(&mut tar)?;
        sources.push(dir.join(file.with_extension("").file_name().unwrap_or_default()));
    }
    Ok(sources)
}

fn has_prefix(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
}

/// Returns the setting that takes a crate from its directory in place of the registry.
fn patch_of(source: &Path) -> Result<String, String> {
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let (name, _) = name.rsplit_once('-').ok_or_else(|| format!("{name} has no version"))?;
    Ok(format!("patch.crates-io.{name}.path={:?}", source.display().to_string()))
}
