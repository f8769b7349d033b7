//! Where programs and packages are found: in `PATH`, or in a directory that a variable names.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with `node_modules`.
pub const NODE_VARIABLE: &str = "BRIGADE_PEERS_NODE";
/// A Python interpreter, such as that of a virtual environment.
pub const PYTHON_VARIABLE: &str = "BRIGADE_PEERS_PYTHON";

/// A program or package that the machine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotInstalled(String);

impl NotInstalled {
    fn new(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl fmt::Display for NotInstalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not installed: {}", self.0)
    }
}

impl std::error::Error for NotInstalled {}

/// Returns a program of `PATH`.
pub fn find_program(name: &str) -> Result<PathBuf, NotInstalled> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    found.ok_or_else(|| NotInstalled::new(name))
}

/// Returns a program of `PATH`, else that of a package of npm.
pub fn find_npm_program(name: &str) -> Result<PathBuf, NotInstalled> {
    find_program(name).or_else(|error| {
        let file = node_modules().map(|dir| dir.join(".bin").join(name));
        file.filter(|file| file.is_file()).ok_or(error)
    })
}

/// Returns the version of a package of npm.
pub fn npm_version(package: &str) -> Result<String, NotInstalled> {
    let missing = || NotInstalled::new(package);
    let manifest = node_modules().ok_or_else(missing)?.join(package).join("package.json");
    let text = fs::read_to_string(manifest).map_err(|_| missing())?;
    let manifest: serde_json::Value = serde_json::from_str(&text).map_err(|_| missing())?;
    manifest["version"].as_str().map(str::to_owned).ok_or_else(missing)
}

fn node_modules() -> Option<PathBuf> {
    std::env::var_os(NODE_VARIABLE).map(|dir| Path::new(&dir).join("node_modules"))
}

/// Returns the Python interpreter: that of the variable, else `python3`.
pub fn find_python() -> Result<PathBuf, NotInstalled> {
    match std::env::var_os(PYTHON_VARIABLE) {
        Some(python) => Ok(PathBuf::from(python)),
        None => find_program("python3"),
    }
}

/// Returns the version of a package of the Python interpreter.
pub fn python_version(package: &str) -> Result<String, NotInstalled> {
    let code = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))";
    let mut python = Command::new(find_python()?);
    python.args(["-c", code, package]);
    read_version(&mut python).ok_or_else(|| NotInstalled::new(package))
}

/// Returns the last word of the first line that a command prints, if the command succeeds.
pub fn read_version(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next()?.split_whitespace().last().map(str::to_owned)
}

/// Returns the directory with `initdb` and `postgres`: the newest of Debian's, else that of `PATH`.
pub fn find_postgres() -> Result<PathBuf, NotInstalled> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |dir: &PathBuf| dir.file_name()?.to_str()?.parse::<u32>().ok();
    let mut dirs: Vec<PathBuf> = versions.map(|entry| entry.path()).collect();
    dirs.sort_by_key(number);
    let bins = dirs.into_iter().rev().map(|dir| dir.join("bin"));
    if let Some(bin) = bins.into_iter().find(|bin| bin.join("initdb").is_file()) {
        return Ok(bin);
    }
    let initdb = find_program("initdb").map_err(|_| NotInstalled::new("PostgreSQL"))?;
    initdb.parent().map(Path::to_owned).ok_or_else(|| NotInstalled::new("PostgreSQL"))
}

/// Returns the version of PostgreSQL.
pub fn postgres_version() -> Result<String, NotInstalled> {
    let mut postgres = Command::new(find_postgres()?.join("postgres"));
    postgres.arg("--version");
    let output = postgres.output().map_err(|_| NotInstalled::new("PostgreSQL"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "postgres (PostgreSQL) 15.3 (Debian 15.3-1)"
    let version = text.split_whitespace().nth(2).map(str::to_owned);
    version.ok_or_else(|| NotInstalled::new("PostgreSQL"))
}
