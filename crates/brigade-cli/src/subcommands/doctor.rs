//! Looks for what is wrong.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use brigade_mcp::client::{McpServers, McpTimeouts};
use brigade_process::doctor::{HealthFinding, HealthState, check_host};
use brigade_process::orphans::MARK;
use brigade_server::daemon_lock::DaemonPhase;
use brigade_server::requests::{ListSessionsRequest, ListTasksRequest, StatusRequest};
use brigade_server::{ClientError, DaemonConnection};
use brigade_sqlite::SqliteStore;
use brigade_store::Store;
use futures_util::future::join_all;
use rustix::fs::{Access, access, statvfs};

use crate::context::{CliContext, collect_task_pages};
use crate::exit_code::{CliError, CliExitCode};
use crate::render;
use crate::styled_line::StyledLine;

/// Check what Brigade depends on, and say what to do about what is wrong
///
/// Looks at the state folder and its permissions, the daemon, the store, the shim, the kernel, the
/// service manager, for processes that should not be there any more, and whether the configured MCP
/// servers can be reached, which those that are programs run for. Makes and changes nothing else, and
/// starts no daemon. The exit code is 120 when something is broken.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {}

const EXAMPLES: &str = "\
Examples:
  brigade doctor
  brigade doctor --json | jq '.[] | select(.state != \"fine\")'";

/// How long a server is waited for.
const SERVER_TIMEOUT: Duration = Duration::from_secs(10);

const OTHER_DIR_HINT: &str = "name another with --state or BRIGADE_STATE";

impl DoctorArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        let mut findings = vec![check_state_dir(context)];
        if findings[0].state != HealthState::Broken {
            let (daemon, client) = check_daemon(context).await;
            let out_of_reach = client.is_none() && daemon.state == HealthState::Broken;
            findings.push(daemon);
            findings.push(if out_of_reach {
                new_finding("store", HealthState::Healthy, "not looked at: the daemon has it")
            } else {
                check_store(context, client.as_ref()).await
            });
            findings.extend(check_host(context.state_dir.path()));
            findings.extend(check_leftover_processes(client.as_ref()).await);
        }
        findings.extend(check_mcp_servers(context).await);
        let broken = findings.iter().any(|finding| finding.state == HealthState::Broken);
        print(context, &findings)?;
        Ok(if broken { CliExitCode::FAILED } else { CliExitCode::SUCCEEDED })
    }
}

fn print(context: &CliContext, findings: &[HealthFinding]) -> Result<(), CliError> {
    if context.json {
        let findings = findings.iter().map(|finding| {
            let state = render_state(finding.state);
            serde_json::json!({ "what": finding.check, "state": state, "text": finding.text })
        });
        return render::print_json(&findings.collect::<Vec<_>>());
    }
    for finding in findings {
        let style = match finding.state {
            HealthState::Healthy => render::state_style("succeeded"),
            HealthState::Degraded => render::state_style("stopping"),
            HealthState::Broken => render::state_style("failed"),
        };
        let (state, what) = (render_state(finding.state), finding.check);
        let line = StyledLine::new().styled(style, format!("{state:<7}"));
        render::print_line(line.text(format!("  {what:<15}  {}", finding.text)))?;
    }
    Ok(())
}

fn render_state(state: HealthState) -> &'static str {
    match state {
        HealthState::Healthy => "fine",
        HealthState::Degraded => "lacking",
        HealthState::Broken => "broken",
    }
}

fn new_finding(what: &'static str, state: HealthState, text: impl Into<String>) -> HealthFinding {
    HealthFinding { check: what, state, text: text.into() }
}

fn check_state_dir(context: &CliContext) -> HealthFinding {
    let what = "state folder";
    let folder = context.state_dir.path();
    let shown = folder.display();
    let about = match fs::metadata(folder) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return check_missing_state_dir(folder);
        }
        Err(error) => {
            return new_finding(
                what,
                HealthState::Broken,
                format!("{shown}: {error}; {OTHER_DIR_HINT}"),
            );
        }
    };
    let owner = about.uid();
    if owner != rustix::process::getuid().as_raw() {
        let text = format!("{shown} belongs to another user ({owner}); {OTHER_DIR_HINT}");
        return new_finding(what, HealthState::Broken, text);
    }
    if let Err(problem) = check_writable(folder) {
        return new_finding(
            what,
            HealthState::Broken,
            format!("{shown} cannot be written to: {problem}"),
        );
    }
    if about.mode() & 0o077 != 0 {
        let mode = about.mode() & 0o777;
        let advice = format!("others can look into {shown} (mode {mode:o}): chmod 700 {shown}");
        return new_finding(what, HealthState::Degraded, advice);
    }
    new_finding(what, HealthState::Healthy, shown.to_string())
}

/// One that the first daemon will make, if it can.
fn check_missing_state_dir(folder: &Path) -> HealthFinding {
    let what = "state folder";
    let shown = folder.display();
    let above = folder.ancestors().skip(1).find(|above| above.exists());
    let above = above.unwrap_or(Path::new("/"));
    match check_writable(above) {
        Ok(()) => {
            new_finding(what, HealthState::Healthy, format!("{shown}: the first daemon makes it"))
        }
        Err(problem) => {
            let text = format!("{shown} cannot be made in {}: {problem}", above.display());
            new_finding(what, HealthState::Broken, text)
        }
    }
}

/// Whether files can be made in a folder, as far as that can be told without making one.
fn check_writable(folder: &Path) -> Result<(), String> {
    if !folder.is_dir() {
        return Err(format!("it is no folder; {OTHER_DIR_HINT}"));
    }
    if let Err(error) = access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        return Err(format!("{}; mend its permissions", io::Error::from(error)));
    }
    let room = statvfs(folder).map_err(|error| io::Error::from(error).to_string())?;
    if room.f_bavail == 0 {
        return Err("there is no room left on its disk; make some".to_owned());
    }
    // Some file systems do not count them, and have none in all.
    if room.f_favail == 0 && room.f_files > 0 {
        return Err("its disk has as many files as it can have; remove some".to_owned());
    }
    Ok(())
}

async fn check_daemon(context: &CliContext) -> (HealthFinding, Option<DaemonConnection>) {
    let what = "daemon";
    match context.connect_running_daemon().await {
        Ok(client) => {
            let text = format!("version {}, pid {}", client.daemon_version(), client.daemon_pid());
            (new_finding(what, HealthState::Healthy, text), Some(client))
        }
        Err(ClientError::NoDaemon(_)) if context.state_dir.socket_path().exists() => {
            let text =
                "not running; the socket of the last one is left, which the next one replaces";
            (new_finding(what, HealthState::Healthy, text), None)
        }
        Err(ClientError::NoDaemon(_)) => (
            new_finding(what, HealthState::Healthy, "not running; it starts when it is needed"),
            None,
        ),
        Err(ref error @ ClientError::Unreachable { holder, .. })
            if holder.phase == Some(DaemonPhase::ShuttingDown) =>
        {
            (new_finding(what, HealthState::Healthy, error.to_string()), None)
        }
        Err(error) => (new_finding(what, HealthState::Broken, error.to_string()), None),
    }
}

async fn check_store(context: &CliContext, client: Option<&DaemonConnection>) -> HealthFinding {
    let what = "store";
    let path = context.state_dir.store_path();
    if let Some(client) = client {
        return match client.call(StatusRequest {}).await {
            Ok(status) => {
                let workspaces = render::render_count(status.sessions as u64, "workspace");
                let text = format!(
                    "{workspaces}, {}",
                    render::render_count(status.alive_tasks as u64, "living task")
                );
                new_finding(what, HealthState::Healthy, text)
            }
            Err(error) => new_finding(what, HealthState::Broken, error.to_string()),
        };
    }
    if !path.exists() {
        return new_finding(what, HealthState::Healthy, "nothing is stored yet");
    }
    let looked = match SqliteStore::open_immutable(&path) {
        Ok(store) => store.sessions().await.map(|trees| trees.len()),
        Err(error) => Err(error),
    };
    match looked {
        Ok(trees) => new_finding(
            what,
            HealthState::Healthy,
            format!("{}: {}", path.display(), render::render_count(trees as u64, "workspace")),
        ),
        Err(error) => {
            let advice = "move it away to begin anew; it is not changed until then";
            new_finding(what, HealthState::Broken, format!("{}: {error}; {advice}", path.display()))
        }
    }
}

/// Whether each configured server can be reached. Those that are programs run for as long as that takes.
async fn check_mcp_servers(context: &CliContext) -> Vec<HealthFinding> {
    let what = "MCP server";
    let patient = context.config.mcp_servers.iter().map(|(name, server)| {
        let start = server.timeouts.start.min(SERVER_TIMEOUT);
        (name.clone(), server.clone().timeouts(McpTimeouts { start, ..server.timeouts }))
    });
    let servers = match McpServers::new(patient) {
        Ok(servers) => servers,
        Err(error) => return vec![new_finding(what, HealthState::Broken, error.to_string())],
    };
    let looks = servers.names().map(async |name| match servers.list_tools(name).await {
        Ok((tools, problems)) if problems.is_empty() => {
            let tools = render::render_count(tools.len() as u64, "tool");
            new_finding(what, HealthState::Healthy, format!("{name}: {tools}"))
        }
        Ok((tools, problems)) => {
            let tools = render::render_count(tools.len() as u64, "tool");
            let text = format!("{name}: {tools}; {}", problems.join("; "));
            new_finding(what, HealthState::Degraded, text)
        }
        Err(problem) => {
            let text = format!("{name} cannot be reached: {problem}");
            new_finding(what, HealthState::Degraded, text)
        }
    });
    let findings = join_all(looks).await;
    servers.close().await;
    findings
}

/// Processes that bear the mark of a task that has ended.
async fn check_leftover_processes(client: Option<&DaemonConnection>) -> Option<HealthFinding> {
    let what = "processes";
    let Some(client) = client else {
        return Some(new_finding(
            what,
            HealthState::Healthy,
            "not looked at: the next daemon sees to them",
        ));
    };
    let sessions = client.call(ListSessionsRequest { include_closed: true }).await.ok()?;
    let tasks = collect_task_pages(client, ListTasksRequest::default()).await.ok()?;
    let living: Vec<String> = tasks
        .iter()
        .filter(|task| task.alive)
        .filter_map(|task| {
            let session = sessions.iter().find(|session| session.name == task.session)?;
            let number = task.address.rsplit(':').next()?;
            Some(format!("{}.{number}.", session.id))
        })
        .collect();
    let ours = |mark: &str| sessions.iter().any(|session| mark.starts_with(&session.id));
    let left: Vec<String> = list_marked_processes()
        .into_iter()
        .filter(|(_, mark)| ours(mark))
        .filter(|(_, mark)| !living.iter().any(|task| mark.starts_with(task)))
        .map(|(pid, _)| pid.to_string())
        .collect();
    Some(if left.is_empty() {
        new_finding(
            what,
            HealthState::Healthy,
            "none is left of what has ended, of those that can be looked at",
        )
    } else {
        let pids = left.join(" ");
        new_finding(
            what,
            HealthState::Degraded,
            format!("left of tasks that have ended: kill {pids}"),
        )
    })
}

/// Processes with a task's mark in their environment.
fn list_marked_processes() -> Vec<(u32, String)> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| Some((pid, read_mark(pid)?))).collect()
}

fn read_mark(pid: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let variables = environment.split(|byte| *byte == 0);
    let mark = variables.filter_map(|variable| variable.strip_prefix(MARK.as_bytes()));
    let mark = mark.filter_map(|rest| rest.strip_prefix(b"=")).next()?;
    String::from_utf8(mark.to_vec()).ok()
}
