//! Looks for what is wrong.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use brigade_agent::mcp::{McpServers, Timeouts};
use brigade_process::doctor::{Finding, State, examine};
use brigade_process::orphans::MARK;
use brigade_server::daemon_lock::DaemonPhase;
use brigade_server::requests::{List, Sessions, Status};
use brigade_server::{Client, ClientError};
use brigade_sqlite::SqliteStore;
use brigade_store::Store;
use futures_util::future::join_all;
use rustix::fs::{Access, access, statvfs};

use crate::context::{Context, list_pages};
use crate::exit::{Exit, Failure};
use crate::show;
use crate::styled_line::StyledLine;

/// Check what Brigade depends on, and say what to do about what is wrong
///
/// Looks at the state folder and its permissions, the daemon, the store, the shim, the kernel, the
/// service manager, for processes that should not be there any more, and whether the configured MCP
/// servers can be reached, which those that are programs run for. Makes and changes nothing else, and
/// starts no daemon. The exit code is 120 when something is broken.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Doctor {}

const EXAMPLES: &str = "\
Examples:
  brigade doctor
  brigade doctor --json | jq '.[] | select(.state != \"fine\")'";

/// How long a server is waited for.
const SERVER_PATIENCE: Duration = Duration::from_secs(10);

const ELSEWHERE: &str = "name another with --state or BRIGADE_STATE";

impl Doctor {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        let mut findings = vec![folder(context)];
        if findings[0].state != State::Broken {
            let (daemon, client) = daemon(context).await;
            let out_of_reach = client.is_none() && daemon.state == State::Broken;
            findings.push(daemon);
            findings.push(if out_of_reach {
                finding("store", State::Fine, "not looked at: the daemon has it")
            } else {
                store(context, client.as_ref()).await
            });
            findings.extend(examine(context.places.folder()));
            findings.extend(left_over(client.as_ref()).await);
        }
        findings.extend(mcp_servers(context).await);
        let broken = findings.iter().any(|finding| finding.state == State::Broken);
        print(context, &findings)?;
        Ok(if broken { Exit::FAILED } else { Exit::SUCCEEDED })
    }
}

fn print(context: &Context, findings: &[Finding]) -> Result<(), Failure> {
    if context.json {
        let findings = findings.iter().map(|finding| {
            let state = word(finding.state);
            serde_json::json!({ "what": finding.what, "state": state, "text": finding.text })
        });
        return show::json(&findings.collect::<Vec<_>>());
    }
    for finding in findings {
        let style = match finding.state {
            State::Fine => show::style("succeeded"),
            State::Lacking => show::style("stopping"),
            State::Broken => show::style("failed"),
        };
        let (state, what) = (word(finding.state), finding.what);
        let line = StyledLine::new().painted(style, format!("{state:<7}"));
        show::line(line.text(format!("  {what:<15}  {}", finding.text)))?;
    }
    Ok(())
}

fn word(state: State) -> &'static str {
    match state {
        State::Fine => "fine",
        State::Lacking => "lacking",
        State::Broken => "broken",
    }
}

fn finding(what: &'static str, state: State, text: impl Into<String>) -> Finding {
    Finding { what, state, text: text.into() }
}

fn folder(context: &Context) -> Finding {
    let what = "state folder";
    let folder = context.places.folder();
    let shown = folder.display();
    let about = match fs::metadata(folder) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return folder_to_be(folder),
        Err(error) => {
            return finding(what, State::Broken, format!("{shown}: {error}; {ELSEWHERE}"));
        }
    };
    let owner = about.uid();
    if owner != rustix::process::getuid().as_raw() {
        let text = format!("{shown} belongs to another user ({owner}); {ELSEWHERE}");
        return finding(what, State::Broken, text);
    }
    if let Err(problem) = takes_files(folder) {
        return finding(what, State::Broken, format!("{shown} cannot be written to: {problem}"));
    }
    if about.mode() & 0o077 != 0 {
        let mode = about.mode() & 0o777;
        let advice = format!("others can look into {shown} (mode {mode:o}): chmod 700 {shown}");
        return finding(what, State::Lacking, advice);
    }
    finding(what, State::Fine, shown.to_string())
}

/// One that the first daemon will make, if it can.
fn folder_to_be(folder: &Path) -> Finding {
    let what = "state folder";
    let shown = folder.display();
    let above = folder.ancestors().skip(1).find(|above| above.exists());
    let above = above.unwrap_or(Path::new("/"));
    match takes_files(above) {
        Ok(()) => finding(what, State::Fine, format!("{shown}: the first daemon makes it")),
        Err(problem) => {
            let text = format!("{shown} cannot be made in {}: {problem}", above.display());
            finding(what, State::Broken, text)
        }
    }
}

/// Whether files can be made in a folder, as far as that can be told without making one.
fn takes_files(folder: &Path) -> Result<(), String> {
    if !folder.is_dir() {
        return Err(format!("it is no folder; {ELSEWHERE}"));
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

async fn daemon(context: &Context) -> (Finding, Option<Client>) {
    let what = "daemon";
    match context.running_daemon().await {
        Ok(client) => {
            let text = format!("version {}, pid {}", client.daemon_version(), client.daemon_pid());
            (finding(what, State::Fine, text), Some(client))
        }
        Err(ClientError::NoDaemon(_)) if context.places.socket().exists() => {
            let text =
                "not running; the socket of the last one is left, which the next one replaces";
            (finding(what, State::Fine, text), None)
        }
        Err(ClientError::NoDaemon(_)) => {
            (finding(what, State::Fine, "not running; it starts when it is needed"), None)
        }
        Err(ref error @ ClientError::Unreachable { holder, .. })
            if holder.phase == Some(DaemonPhase::Leaving) =>
        {
            (finding(what, State::Fine, error.to_string()), None)
        }
        Err(error) => (finding(what, State::Broken, error.to_string()), None),
    }
}

async fn store(context: &Context, client: Option<&Client>) -> Finding {
    let what = "store";
    let path = context.places.store();
    if let Some(client) = client {
        return match client.ask(Status {}).await {
            Ok(status) => {
                let workspaces = show::count(status.sessions as u64, "workspace");
                let text =
                    format!("{workspaces}, {}", show::count(status.living as u64, "living task"));
                finding(what, State::Fine, text)
            }
            Err(error) => finding(what, State::Broken, error.to_string()),
        };
    }
    if !path.exists() {
        return finding(what, State::Fine, "nothing is stored yet");
    }
    let looked = match SqliteStore::open_at_rest(&path) {
        Ok(store) => store.trees().await.map(|trees| trees.len()),
        Err(error) => Err(error),
    };
    match looked {
        Ok(trees) => finding(
            what,
            State::Fine,
            format!("{}: {}", path.display(), show::count(trees as u64, "workspace")),
        ),
        Err(error) => {
            let advice = "move it away to begin anew; it is not changed until then";
            finding(what, State::Broken, format!("{}: {error}; {advice}", path.display()))
        }
    }
}

/// Whether each configured server can be reached. Those that are programs run for as long as that takes.
async fn mcp_servers(context: &Context) -> Vec<Finding> {
    let what = "MCP server";
    let patient = context.config.mcp_servers.iter().map(|(name, server)| {
        let start = server.timeouts.start.min(SERVER_PATIENCE);
        (name.clone(), server.clone().timeouts(Timeouts { start, ..server.timeouts }))
    });
    let servers = match McpServers::new(patient) {
        Ok(servers) => servers,
        Err(error) => return vec![finding(what, State::Broken, error.to_string())],
    };
    let looks = servers.names().map(async |name| match servers.examine(name).await {
        Ok((tools, problems)) if problems.is_empty() => {
            let tools = show::count(tools.len() as u64, "tool");
            finding(what, State::Fine, format!("{name}: {tools}"))
        }
        Ok((tools, problems)) => {
            let tools = show::count(tools.len() as u64, "tool");
            let text = format!("{name}: {tools}; {}", problems.join("; "));
            finding(what, State::Lacking, text)
        }
        Err(problem) => {
            let text = format!("{name} cannot be reached: {problem}");
            finding(what, State::Lacking, text)
        }
    });
    let findings = join_all(looks).await;
    servers.close().await;
    findings
}

/// Processes that bear the mark of a task that has ended.
async fn left_over(client: Option<&Client>) -> Option<Finding> {
    let what = "processes";
    let Some(client) = client else {
        return Some(finding(what, State::Fine, "not looked at: the next daemon sees to them"));
    };
    let sessions = client.ask(Sessions { closed: true }).await.ok()?;
    let tasks = list_pages(client, List::default()).await.ok()?;
    let living: Vec<String> = tasks
        .iter()
        .filter(|task| task.living)
        .filter_map(|task| {
            let session = sessions.iter().find(|session| session.name == task.session)?;
            let number = task.address.rsplit(':').next()?;
            Some(format!("{}.{number}.", session.id))
        })
        .collect();
    let ours = |mark: &str| sessions.iter().any(|session| mark.starts_with(&session.id));
    let left: Vec<String> = marked()
        .into_iter()
        .filter(|(_, mark)| ours(mark))
        .filter(|(_, mark)| !living.iter().any(|task| mark.starts_with(task)))
        .map(|(pid, _)| pid.to_string())
        .collect();
    Some(if left.is_empty() {
        finding(what, State::Fine, "none is left of what has ended, of those that can be looked at")
    } else {
        let pids = left.join(" ");
        finding(what, State::Lacking, format!("left of tasks that have ended: kill {pids}"))
    })
}

/// Processes with a task's mark in their environment.
fn marked() -> Vec<(u32, String)> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| Some((pid, mark_of(pid)?))).collect()
}

fn mark_of(pid: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let variables = environment.split(|byte| *byte == 0);
    let mark = variables.filter_map(|variable| variable.strip_prefix(MARK.as_bytes()));
    let mark = mark.filter_map(|rest| rest.strip_prefix(b"=")).next()?;
    String::from_utf8(mark.to_vec()).ok()
}
