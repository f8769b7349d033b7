//! A server of others: the official Python package. The package must be installed, so these tests
//! run only on request.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use brigade_mcp::client::{McpServerConfig, ValueSource};
use brigade_runtime::NewTask;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{final_message, playing, spawn, start};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mcp_servers/server.py");

/// A cook who looks and acts while the server is killed, and then finds a new tool.
const STORY: &str = "agent Cook
turn
  call srv__look {\"what\": \"soup\"}
turn
  when looked at soup, start 2
  call srv__act {\"what\": \"salt\"}
turn
  when effect is unknown
  call srv__grow {}
turn
  repeat
  when cannot be reached
  say It takes its time.
  delay 500ms
  call srv__grow {}
turn
  when fresh
  say It is all there.
turn
  when grown
  say There may be more.
  call srv__grown {}
turn
  repeat
  when there is no tool
  say Not yet.
  delay 200ms
  call srv__grown {}
";

/// The directory through which a test and the server communicate.
struct ServerDir(TempDir);

impl ServerDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn log(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Kills the server during a call, which lasts until then.
    async fn kill_in(&self, call: &str) -> u32 {
        let line = format!("{call} begins");
        for _ in 0..6_000 {
            let log = self.log();
            if let Some(at) = log.iter().rposition(|logged| *logged == line) {
                let pid = log[..at].iter().rev().find_map(|line| line.strip_prefix("started "));
                let pid: i32 = pid.unwrap().parse().unwrap();
                std::fs::write(self.path().join("quick"), call).unwrap();
                kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
                return pid as u32;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("there is no {call}: {:?}", self.log());
    }

    fn count(&self, line: &str) -> usize {
        self.log().iter().filter(|logged| *logged == line).count()
    }
}

fn python() -> Option<PathBuf> {
    std::env::var_os("BRIGADE_MCP_PYTHON").map(PathBuf::from)
}

#[tokio::test]
#[ignore = "needs BRIGADE_MCP_PYTHON: a Python with the package mcp"]
async fn the_official_python_server_over_its_streams() {
    let Some(python) = python() else { return };
    let dir = ServerDir::new();
    let path = dir.path().to_str().unwrap();
    let server = McpServerConfig::stdio(python.to_str().unwrap(), [SERVER, path]);
    let options = playing(STORY).mcp_server("srv", server).unwrap();
    let (runtime, session) = start(options).await;
    let agent = spawn(&session, NewTask::agent("cook").name("Cook").mcp_server("srv")).await;
    dir.kill_in("look").await;
    dir.kill_in("act").await;
    assert_eq!(final_message(&session, &agent).await, "It is all there.");
    assert_eq!((dir.count("look begins"), dir.count("act begins")), (2, 1));
    assert!(dir.log().contains(&"protocol 2026-07-28".to_owned()), "{:?}", dir.log());
    runtime.shutdown().await.unwrap();
}

#[tokio::test]
#[ignore = "needs BRIGADE_MCP_PYTHON: a Python with the package mcp"]
async fn the_official_python_server_over_http() {
    let Some(python) = python() else { return };
    let dir = ServerDir::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let token = dir.path().join("token");
    std::fs::write(&token, "t0k3n-of-the-kitchen").unwrap();
    let serve = || Served::start(&python, dir.path(), port);
    let mut served = serve().await;
    let server = McpServerConfig::http(format!("http://127.0.0.1:{port}/mcp"));
    let server = server.bearer(ValueSource::file(&token));
    let options = playing(STORY).mcp_server("srv", server).unwrap();
    let (runtime, session) = start(options).await;
    let agent = spawn(&session, NewTask::agent("cook").name("Cook").mcp_server("srv")).await;
    for call in ["look", "act"] {
        dir.kill_in(call).await;
        drop(served);
        served = serve().await;
    }
    assert_eq!(final_message(&session, &agent).await, "It is all there.");
    assert_eq!((dir.count("look begins"), dir.count("act begins")), (2, 1));
    assert!(dir.log().contains(&"token Bearer t0k3n-of-the-kitchen".to_owned()));
    runtime.shutdown().await.unwrap();
    drop(served);
}

/// The server as a process of the test.
struct Served(Child);

impl Served {
    async fn start(python: &Path, dir: &Path, port: u16) -> Self {
        let mut command = Command::new(python);
        command.arg(SERVER).arg(dir).arg(port.to_string());
        let mut child = command.spawn().unwrap();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "it ended");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self(child)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
