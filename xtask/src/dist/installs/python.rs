//! Installs the wheel with pip and with uv, and validates the list of crates with a Python package.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::installed_program::InstalledProgram;
use super::{InstallTest, files, tools_dir};
use crate::interop::install_venv;

/// Another installer, and the checker of platform tags.
const UV: &str = "uv==0.13.8";
const AUDITWHEEL: &str = "auditwheel==6.8.2";
const CYCLONEDX: &str = "cyclonedx-python-lib[json-validation]==11.12.0";
const VALIDATE: &str = "\
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(str(error) if error else 0)
";

pub(super) fn test_wheel(test: &InstallTest) -> Result<(), String> {
    let wheel = test.package("brigade_run-", ".whl")?;
    let venv = test.dir("venv")?;
    files::run_quiet(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"]);
    files::run_quiet(pip.arg(&wheel))?;
    for name in ["brigade", "brigade-run"] {
        InstalledProgram::new(test, &venv.join("bin").join(name))?.check()?;
    }
    check_uninstall(&venv)?;
    test_uvx(test, &wheel)?;
    check_tag(&wheel)
}

/// Checks that the record names all files: pip removes what it names.
fn check_uninstall(venv: &Path) -> Result<(), String> {
    let mut pip = Command::new(venv.join("bin/python"));
    pip.args(["-m", "pip", "uninstall", "--quiet", "--yes", "brigade-run"]);
    files::run_quiet(&mut pip)?;
    let is_ours = |path: &PathBuf| path.to_string_lossy().contains("brigade");
    match files::list_files(venv)?.into_iter().find(is_ours) {
        Some(left) => Err(format!("pip uninstall left {}", left.display())),
        None => Ok(()),
    }
}

fn test_uvx(test: &InstallTest, wheel: &Path) -> Result<(), String> {
    let Some(python) = install_venv(&tools_dir()?.join("uv"), "uv", &[&[UV]]) else {
        println!("skipped: uvx ({UV} cannot be installed)");
        return Ok(());
    };
    let words: [OsString; 7] = [
        python.with_file_name("uvx").into(),
        "--offline".into(),
        "--no-config".into(),
        "--quiet".into(),
        "--from".into(),
        wheel.into(),
        "brigade-run".into(),
    ];
    InstalledProgram::of_line(test, words)?.check()
}

/// Checks the tag with the tool that other projects use.
fn check_tag(wheel: &Path) -> Result<(), String> {
    let venv = tools_dir()?.join("auditwheel");
    let Some(python) = install_venv(&venv, "auditwheel", &[&[AUDITWHEEL]]) else {
        println!("skipped: a second opinion on the tag ({AUDITWHEEL} cannot be installed)");
        return Ok(());
    };
    let mut show = Command::new(python);
    let output = files::run_quiet(show.args(["-m", "auditwheel", "show"]).arg(wheel))?;
    let opinion = String::from_utf8_lossy(&output);
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    // The first tag of the opinion is the oldest that the program fits.
    match (first_minor(&opinion, "\"manylinux_2_"), first_minor(&name, "manylinux_2_")) {
        (Some(fits), Some(says)) if fits <= says => Ok(()),
        _ => Err(format!("auditwheel finds another tag than {name}: {opinion}")),
    }
}

/// Returns the minor version of glibc in the first tag of a text that begins so.
fn first_minor(text: &str, tag: &str) -> Option<u32> {
    let (_, rest) = text.split_once(tag)?;
    rest.split('_').next()?.parse().ok()
}

/// Validates the list of crates against the schema of its format.
pub(super) fn validate_sbom(test: &InstallTest) -> Result<(), String> {
    let venv = tools_dir()?.join("cyclonedx");
    let Some(python) = install_venv(&venv, "jsonschema", &[&[CYCLONEDX]]) else {
        println!("skipped: the schema of the list of crates ({CYCLONEDX} cannot be installed)");
        return Ok(());
    };
    let mut validate = Command::new(python);
    validate.args(["-c", VALIDATE]).arg(test.package("brigade-", ".cdx.json")?);
    files::run_quiet(&mut validate).map(drop)
}
