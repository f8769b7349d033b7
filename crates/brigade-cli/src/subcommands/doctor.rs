//! `brigade doctor`: checks the installation.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use brigade_mcp::client::{McpServers, McpTimeouts};
use brigade_process::doctor::{HealthFinding, HealthState, check_host};
use brigade_process::orphans::MARK;
use brigade_process::process_identity::{ProcessEnvironment, list_pids};
use brigade_protocol::daemon_lock::DaemonPhase;
use brigade_protocol::requests::{ListSessionsRequest, ListTasksRequest, StatusRequest};
use brigade_protocol::{ClientError, DaemonConnection};
use brigade_sqlite::SqliteStore;
use brigade_store::Store;
use futures_util::future::join_all;
use rustix::fs::{Access, access, statvfs};

use crate::configured_store::StoreSetting;
use crate::context::{CliContext, collect_task_pages};
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::styled_line::StyledLine;

mod agent_programs;
mod database;
mod notifiers;
mod server;

/// Check the installation and suggest fixes
///
/// Checks the state directory and its permissions, the daemon, the store and its database, the shim,
/// the kernel, the service manager, leftover processes, whether the configured MCP servers can be reached, the
/// notifiers with what they have not delivered, and the agent programs that definitions of this directory run. Starts MCP servers that are programs and
/// asks agent programs for their version, changes nothing, and starts no daemon. The exit code is
/// 120 if a check fails. With --server it checks only the connection to each server.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {}

const EXAMPLES: &str = "\
Examples:
  brigade doctor
  brigade doctor --json | jq '.[] | select(.state != \"healthy\")'";

/// The time to reach an MCP server.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);

const OTHER_DIR_HINT: &str = "use another one with --state or BRIGADE_STATE";

impl DoctorArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let findings = match context.server() {
            Some(servers) => server::check_servers(servers).await,
            None => check_machine(context).await,
        };
        let broken = findings.iter().any(|finding| finding.state == HealthState::Broken);
        print(context, &findings)?;
        Ok(if broken { CliExitCode::FAILED } else { CliExitCode::SUCCEEDED })
    }
}

/// Checks this machine, and the daemon of the state directory.
async fn check_machine(context: &CliContext) -> Vec<HealthFinding> {
    let mut findings = vec![check_state_dir(context)];
    if findings[0].state != HealthState::Broken {
        let (daemon, client) = check_daemon(context).await;
        let is_unreachable = client.is_none() && daemon.state == HealthState::Broken;
        findings.push(daemon);
        if context.store == StoreSetting::Sqlite {
            findings.push(if is_unreachable {
                let text = "not checked: the daemon has it open";
                new_finding("store", HealthState::Healthy, text)
            } else {
                check_store(context, client.as_ref()).await
            });
        }
        findings.extend(check_host(context.state_dir.path()));
        findings.extend(check_leftover_processes(client.as_ref()).await);
        findings.extend(notifiers::check_notifiers(context, client.as_ref()).await);
    }
    findings.extend(database::check_database(&context.store).await);
    findings.extend(check_mcp_servers(context).await);
    findings.extend(agent_programs::check_agent_programs(context).await);
    findings
}

fn print(context: &CliContext, findings: &[HealthFinding]) -> Result<(), CliError> {
    if context.json {
        let findings = findings.iter().map(|finding| {
            let state = render_state(finding.state);
            serde_json::json!({ "check": finding.check, "state": state, "text": finding.text })
        });
        return render::print_json(&findings.collect::<Vec<_>>());
    }
    for finding in findings {
        let style = match finding.state {
            HealthState::Healthy => render::state_style("succeeded"),
            HealthState::Degraded => render::state_style("stopping"),
            HealthState::Broken => render::state_style("failed"),
        };
        let state = render_state(finding.state);
        let check = finding.check;
        let line = StyledLine::new().styled(style, format!("{state:<8}"));
        render::print_line(line.text(format!("  {check:<15}  {}", finding.text)))?;
    }
    Ok(())
}

fn render_state(state: HealthState) -> &'static str {
    match state {
        HealthState::Healthy => "healthy",
        HealthState::Degraded => "degraded",
        HealthState::Broken => "broken",
    }
}

fn new_finding(check: &'static str, state: HealthState, text: impl Into<String>) -> HealthFinding {
    HealthFinding { check, state, text: text.into() }
}

fn check_state_dir(context: &CliContext) -> HealthFinding {
    let check = "state directory";
    let path = context.state_dir.path();
    let shown = path.display();
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return check_missing_state_dir(path);
        }
        Err(error) => {
            return new_finding(
                check,
                HealthState::Broken,
                format!("{shown}: {error}; {OTHER_DIR_HINT}"),
            );
        }
    };
    let owner = metadata.uid();
    if owner != rustix::process::getuid().as_raw() {
        let text = format!("{shown} belongs to another user ({owner}); {OTHER_DIR_HINT}");
        return new_finding(check, HealthState::Broken, text);
    }
    if let Err(problem) = check_writable(path) {
        return new_finding(
            check,
            HealthState::Broken,
            format!("{shown} cannot be written to: {problem}"),
        );
    }
    if metadata.mode() & 0o077 != 0 {
        let mode = metadata.mode() & 0o777;
        let text = format!("other users can read {shown} (mode {mode:o}): chmod 700 {shown}");
        return new_finding(check, HealthState::Degraded, text);
    }
    new_finding(check, HealthState::Healthy, shown.to_string())
}

/// Checks that the first daemon can create the state directory.
fn check_missing_state_dir(path: &Path) -> HealthFinding {
    let check = "state directory";
    let shown = path.display();
    let parent = path.ancestors().skip(1).find(|ancestor| ancestor.exists());
    let parent = parent.unwrap_or(Path::new("/"));
    match check_writable(parent) {
        Ok(()) => new_finding(
            check,
            HealthState::Healthy,
            format!("{shown}: the first daemon creates it"),
        ),
        Err(problem) => {
            let text = format!("{shown} cannot be created in {}: {problem}", parent.display());
            new_finding(check, HealthState::Broken, text)
        }
    }
}

/// Checks that files can be created in a directory, without creating one.
fn check_writable(path: &Path) -> Result<(), String> {
    if !path.is_dir() {
        return Err(format!("it is not a directory; {OTHER_DIR_HINT}"));
    }
    if let Err(error) = access(path, Access::WRITE_OK | Access::EXEC_OK) {
        return Err(format!("{}; fix its permissions", io::Error::from(error)));
    }
    let space = statvfs(path).map_err(|error| io::Error::from(error).to_string())?;
    if space.f_bavail == 0 {
        return Err("its disk is full; free some space".to_owned());
    }
    // Some file systems do not count inodes and report none in total.
    if space.f_favail == 0 && space.f_files > 0 {
        return Err("its disk has no free inodes; remove some files".to_owned());
    }
    Ok(())
}

async fn check_daemon(context: &CliContext) -> (HealthFinding, Option<DaemonConnection>) {
    let check = "daemon";
    match context.connect_running_daemon().await {
        Ok(client) => {
            let text = format!("version {}, pid {}", client.daemon_version(), client.daemon_pid());
            (new_finding(check, HealthState::Healthy, text), Some(client))
        }
        Err(ClientError::NoDaemon(_)) if let Some(store) = context.foreign_store() => {
            let text =
                format!("not running, and it does not start by itself; run `{}`", store.command);
            (new_finding(check, HealthState::Degraded, text), None)
        }
        Err(ClientError::NoDaemon(_)) if context.state_dir.socket_path().exists() => {
            let text = "not running; the next daemon replaces the socket of the last one";
            (new_finding(check, HealthState::Healthy, text), None)
        }
        Err(ClientError::NoDaemon(_)) => (
            new_finding(check, HealthState::Healthy, "not running; it starts when it is needed"),
            None,
        ),
        Err(ref error @ ClientError::Unreachable { holder, .. })
            if holder.phase == Some(DaemonPhase::ShuttingDown) =>
        {
            (new_finding(check, HealthState::Healthy, error.to_string()), None)
        }
        Err(error) => (new_finding(check, HealthState::Broken, error.to_string()), None),
    }
}

async fn check_store(context: &CliContext, client: Option<&DaemonConnection>) -> HealthFinding {
    let check = "store";
    let path = context.state_dir.store_path();
    if client.is_none()
        && let Some(store) = context.foreign_store()
    {
        let text = format!("{}: not checked, since its URL is not configured", store.name);
        return new_finding(check, HealthState::Degraded, text);
    }
    if let Some(client) = client {
        return match client.call(StatusRequest {}).await {
            Ok(status) => {
                let workspaces = render::render_count(status.sessions as u64, "workspace");
                let text = format!(
                    "{workspaces}, {}",
                    render::render_count(status.alive_tasks as u64, "alive task")
                );
                new_finding(check, HealthState::Healthy, text)
            }
            Err(error) => new_finding(check, HealthState::Broken, error.to_string()),
        };
    }
    if !path.exists() {
        return new_finding(check, HealthState::Healthy, "nothing is stored yet");
    }
    let sessions = match SqliteStore::open_immutable(&path) {
        Ok(store) => store.sessions().await.map(|sessions| sessions.len()),
        Err(error) => Err(error),
    };
    match sessions {
        Ok(count) => new_finding(
            check,
            HealthState::Healthy,
            format!("{}: {}", path.display(), render::render_count(count as u64, "workspace")),
        ),
        Err(error) => {
            let advice = "move it away to start with a new store; Brigade does not change it";
            new_finding(
                check,
                HealthState::Broken,
                format!("{}: {error}; {advice}", path.display()),
            )
        }
    }
}

/// Checks that each configured server can be reached. Programs among them run during the check.
async fn check_mcp_servers(context: &CliContext) -> Vec<HealthFinding> {
    let check = "MCP server";
    let configured = context.config.mcp_servers.iter().map(|(name, server)| {
        let start = server.timeouts.start.min(SERVER_TIMEOUT);
        (name.clone(), server.clone().timeouts(McpTimeouts { start, ..server.timeouts }))
    });
    let servers = match McpServers::new(configured) {
        Ok(servers) => servers,
        Err(error) => return vec![new_finding(check, HealthState::Broken, error.to_string())],
    };
    let checks = servers.names().map(async |name| match servers.list_tools(name).await {
        Ok((tools, problems)) if problems.is_empty() => {
            let tools = render::render_count(tools.len() as u64, "tool");
            new_finding(check, HealthState::Healthy, format!("{name}: {tools}"))
        }
        Ok((tools, problems)) => {
            let tools = render::render_count(tools.len() as u64, "tool");
            let text = format!("{name}: {tools}; {}", problems.join("; "));
            new_finding(check, HealthState::Degraded, text)
        }
        Err(problem) => {
            let text = format!("{name} cannot be reached: {problem}");
            new_finding(check, HealthState::Degraded, text)
        }
    });
    let findings = join_all(checks).await;
    servers.close().await;
    findings
}

/// Checks for processes with the mark of an ended task.
async fn check_leftover_processes(client: Option<&DaemonConnection>) -> Option<HealthFinding> {
    let check = "processes";
    let Some(client) = client else {
        return Some(new_finding(
            check,
            HealthState::Healthy,
            "not checked: the next daemon ends leftover processes",
        ));
    };
    let sessions = client.call(ListSessionsRequest { include_closed: true }).await.ok()?;
    let tasks = collect_task_pages(client, ListTasksRequest::default()).await.ok()?;
    let alive_marks: Vec<String> = tasks
        .iter()
        .filter(|task| task.alive)
        .filter_map(|task| {
            let session = sessions.iter().find(|session| session.name == task.session)?;
            let number = task.address.rsplit(':').next()?;
            Some(format!("{}.{number}.", session.id))
        })
        .collect();
    let is_ours = |mark: &str| sessions.iter().any(|session| mark.starts_with(&session.id));
    let leftover: Vec<String> = list_marked_processes()
        .into_iter()
        .filter(|process| is_ours(&process.mark))
        .filter(|process| !alive_marks.iter().any(|task| process.mark.starts_with(task)))
        .map(|process| process.pid.to_string())
        .collect();
    Some(if leftover.is_empty() {
        new_finding(
            check,
            HealthState::Healthy,
            "no leftover processes of ended tasks among those that can be read",
        )
    } else {
        let pids = leftover.join(" ");
        new_finding(
            check,
            HealthState::Degraded,
            format!("leftover processes of ended tasks: kill {pids}"),
        )
    })
}

/// A process with a task's mark in its environment.
struct MarkedProcess {
    pid: u32,
    mark: String,
}

/// Lists the processes with a task's mark.
fn list_marked_processes() -> Vec<MarkedProcess> {
    list_pids().filter_map(|pid| Some(MarkedProcess { pid, mark: read_mark(pid)? })).collect()
}

fn read_mark(pid: u32) -> Option<String> {
    let environment = ProcessEnvironment::read(pid).ok()?;
    String::from_utf8(environment.value(MARK)?.to_vec()).ok()
}
