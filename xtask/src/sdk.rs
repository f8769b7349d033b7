//! The stage `sdk`: the Python and TypeScript clients of `clients/` against a real server.
//!
//! Missing programs are installed: Node.js from Debian, packages from the registries of Python and
//! npm. If a registry is unreachable, the tests of that client are skipped, and a line says so.

use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use crate::cargo::{run_cargo, run_command, target_dir};
use crate::interop::install_venv;
use crate::test_run::run_alone;
use crate::tidy::workspace_root;
use crate::web::{built_program, ensure_node, install_locked_packages};

const PYTHON_PACKAGES: &[&str] =
    &["httpx==0.28.1", "mypy==2.4.1", "pytest==9.2.0", "flit_core==4.2.0"];
/// The package that pip installs last.
const LAST_MODULE: &str = "flit_core";

/// Tests both clients.
pub(crate) fn run() -> Result<(), String> {
    let clients = workspace_root().join("clients");
    ensure_node()?;
    let mut generate = Command::new("node");
    generate.arg(clients.join("generate.js")).arg("--check");
    run_command(&mut generate).map_err(|error| format!("generated sources: {error}"))?;
    run_cargo(&["build", "--package", "brigade-cli", "--bin", "brigade"])?;
    let program = built_program()?;
    test_python(&clients.join("python"), &program)?;
    test_typescript(&clients.join("typescript"), &program)
}

fn test_python(dir: &Path, program: &Path) -> Result<(), String> {
    let installed = target_dir().join("sdk/python");
    let Some(python) = install_venv(&installed, LAST_MODULE, &[PYTHON_PACKAGES]) else {
        println!("skipped: the Python client (its packages cannot be installed)");
        return Ok(());
    };
    let python = absolute(python).map_err(|error| error.to_string())?;
    let mut check = python_command(&python, dir);
    check.args(["-m", "mypy", "--cache-dir"]).arg(target_of(&installed, "mypy")?);
    run_command(check.args(["src", "tests"])).map_err(|error| format!("types: {error}"))?;
    let mut tests = python_command(&python, dir);
    tests.args(["-m", "pytest", "--quiet", "-p", "no:cacheprovider"]).env("BRIGADE_BIN", program);
    run_alone(&mut tests).map_err(|error| format!("tests of the Python client failed: {error}"))
}

/// Returns a call of Python with the sources of the client, which leaves no files beside them.
fn python_command(python: &Path, dir: &Path) -> Command {
    let mut command = Command::new(python);
    command.current_dir(dir).env("PYTHONPATH", dir.join("src")).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

fn target_of(installed: &Path, name: &str) -> Result<PathBuf, String> {
    absolute(installed.with_file_name(name)).map_err(|error| error.to_string())
}

fn test_typescript(dir: &Path, program: &Path) -> Result<(), String> {
    if let Err(error) = install_locked_packages(dir) {
        println!("skipped: the TypeScript client ({error})");
        return Ok(());
    }
    let mut tests = Command::new("npm");
    tests.args(["test", "--silent"]).current_dir(dir).env("BRIGADE_BIN", program);
    run_alone(&mut tests).map_err(|error| format!("tests of the TypeScript client failed: {error}"))
}
