//! restate-server, with a service of its Node.js SDK.

use std::path::Path;
use std::process::{Command, ExitCode};

use peers_harness::{BoxError, Measured, ProcessTree, Work};
use peers_programs::installed::{
    NotInstalled, find_npm_program, find_program, npm_version, read_version,
};
use peers_programs::{Program, Server, WorkerScript, free_port, run_program};

/// The most items that surely end before the limit of a run.
const COUNT_MAX: usize = 2_000;

const SDK: &str = "@restatedev/restate-sdk";

fn main() -> ExitCode {
    run_program::<Restate>()
}

struct Restate;

impl Program for Restate {
    const NAME: &'static str = "restate";
    const WORKS: &'static [Work] = &[Work::Durable, Work::Steps];
    const OTHER_WORKS: &'static str = "measured with durable work only";

    fn version() -> Result<String, NotInstalled> {
        find_program("node")?;
        let sdk = npm_version(SDK)?;
        let mut server = Command::new(find_npm_program("restate-server")?);
        let version = read_version(server.arg("--version")).unwrap_or_else(|| "?".to_owned());
        Ok(format!("restate-server {version}, restate-sdk {sdk}"))
    }

    fn measure(
        work: Work,
        count: usize,
        dir: &Path,
        tree: &ProcessTree,
    ) -> Result<Measured, BoxError> {
        let ports = Ports { ingress: free_port()?, admin: free_port()?, service: free_port()? };
        let mut server = Server::start(&mut restate_server(dir, &ports)?, dir, "restate")?;
        server.wait_for_port(ports.admin)?;
        server.wait_for_port(ports.ingress)?;
        let count = count.min(COUNT_MAX);
        let mut node = Command::new("node");
        node.arg(WorkerScript::path("restate/worker.cjs"));
        node.env("INGRESS_PORT", ports.ingress.to_string());
        node.env("ADMIN_PORT", ports.admin.to_string());
        node.env("SERVICE_PORT", ports.service.to_string());
        let script = WorkerScript::start(&mut node, work, count, dir)?;
        Ok(script.measure(tree)?.with_count(count).into())
    }
}

struct Ports {
    ingress: u16,
    admin: u16,
    service: u16,
}

/// Returns a command of the server with its default settings, apart from its places.
fn restate_server(dir: &Path, ports: &Ports) -> Result<Command, BoxError> {
    let mut command = Command::new(find_npm_program("restate-server")?);
    command.arg("--no-logo").arg("--base-dir").arg(dir.join("restate-data"));
    command.args(["--node-name", "peers", "--listen-mode", "tcp", "--bind-ip", "127.0.0.1"]);
    command.args(["--bind-port", &free_port()?.to_string()]);
    command.env("RESTATE_INGRESS__BIND_PORT", ports.ingress.to_string());
    command.env("RESTATE_ADMIN__BIND_PORT", ports.admin.to_string());
    command.env("RESTATE_DISABLE_TELEMETRY", "true").env("DO_NOT_TRACK", "1");
    command.current_dir(dir);
    Ok(command)
}
