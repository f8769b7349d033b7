//! `brigade serve`: the daemon in the foreground, with HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;

use brigade_agent::definition::DefinitionSet;
use brigade_protocol::ClientError;
use brigade_protocol::requests::{HttpListenerInfo, HttpStatusReply, HttpStatusRequest};
use brigade_server::http::{A2aOptions, BasePath, ListenOptions, TlsFiles};

use super::daemon::{
    hand_over, open_database, reexec_with_state_variable, reexec_with_store, run_daemon,
};
use crate::configured_store::StoreSetting;
use crate::context::CliContext;
use crate::exit_code::{CliError, CliExitCode};
use crate::{configured_models, render, workspace};

/// Serve the HTTP API, MCP and the dashboard, in the foreground
///
/// Every caller needs a token, also on this machine: `brigade token add`. The daemon that runs hands
/// over, and its processes keep running. The next daemon listens on the same address. With a store
/// on PostgreSQL, the state directory holds everything else: socket, keys, output of processes.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Address and port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7777",
        value_parser = parse_listen_address)]
    listen: SocketAddr,
    /// Certificate chain as a PEM file, for an address that other machines reach
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of the certificate as a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// A proxy in front of this server has the TLS connection
    #[arg(long, requires = "host")]
    behind_proxy: bool,
    /// Path at which the proxy serves this server, such as /brigade
    #[arg(long, value_name = "PATH", requires = "behind_proxy")]
    base_path: Option<BasePath>,
    /// Name under which clients reach this server, beside localhost and addresses
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
    /// Store: `sqlite`, or postgres://USER@HOST/DATABASE [env: BRIGADE_STORE] [default: `store` in
    /// the configuration, else sqlite]. Put a password into the variable or the configuration: other
    /// users can read a command line
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Name of this node among those that share the store [default: `node.name` in the configuration, else
    /// the name of the machine with a part of the id of the state directory]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Label of this node, which sessions can require
    #[arg(long, value_name = "LABEL")]
    label: Vec<String>,
    /// Definitions to publish as agents for programs that speak A2A, as found in this directory
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    a2a: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  brigade serve
  brigade serve --listen 127.0.0.1:8080
  brigade serve --listen 0.0.0.0:443 --host brigade.example \\
      --tls-cert chain.pem --tls-key key.pem
  brigade serve --behind-proxy --host brigade.example
  brigade serve --behind-proxy --host example.com --base-path /brigade
  brigade serve --a2a reviewer,planner
  brigade serve --store postgres://ada@db.example/kitchen";

impl ServeArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        context.require_local("serve")?;
        if let Some(store) = &self.store {
            // The command line of the next process image does not show the store.
            StoreSetting::parse(store)
                .check()
                .map_err(|e| CliError::usage(format!("--store: {e}")))?;
            return Err(reexec_with_store(context, store));
        }
        reexec_with_state_variable(context)?;
        let node = context.config.node.with_args(self.node.clone(), self.label.clone());
        let node = node.options().map_err(CliError::usage)?;
        let options = self.options()?;
        if let Some(A2aOptions { agents, directory }) = &options.a2a {
            let folders = configured_models::definition_dirs(Some(directory));
            for warning in render_worktree_warnings(agents, &DefinitionSet::load(&folders)) {
                render::print_note(&warning);
            }
        }
        // A store that cannot be used costs no running daemon.
        let store = open_database(context).await?;
        replace_daemon(context).await?;
        run_daemon(context, store.map(|store| (store, node)), Some(options)).await
    }

    fn options(self) -> Result<ListenOptions, CliError> {
        let absolute = |path: PathBuf| std::path::absolute(path).map_err(CliError::from);
        let tls = match (self.tls_cert, self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(TlsFiles { certificate: absolute(certificate)?, key: absolute(key)? })
            }
            _ => None,
        };
        let mut options = ListenOptions::serve(self.listen);
        options.tls = tls;
        options.behind_proxy = self.behind_proxy;
        options.base_path = self.base_path.unwrap_or_default();
        options.hosts = self.host;
        if !self.a2a.is_empty() {
            let directory = workspace::current_directory()?;
            options.a2a = Some(A2aOptions { agents: self.a2a, directory });
        }
        Ok(options)
    }
}

/// Renders a warning for each published definition whose agents work in a worktree. Only the operator
/// starts such agents.
fn render_worktree_warnings(agents: &[String], definitions: &DefinitionSet) -> Vec<String> {
    let has_worktree = |name: &&String| {
        let found = definitions.find(name);
        found.is_ok_and(|found| found.definition.worktree)
    };
    let render = |name: &String| {
        format!(
            "{name} has `worktree: true`, and only the operator starts agents with a worktree: its \
             messages over A2A will be rejected; publish a definition without it"
        )
    };
    agents.iter().filter(has_worktree).map(render).collect()
}

fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port: u16 = text.parse().unwrap_or(7777);
        format!("give ADDRESS:PORT, such as 127.0.0.1:{port}")
    })
}

/// Asks the daemon that runs to hand over. Another `brigade serve` does not.
async fn replace_daemon(context: &CliContext) -> Result<(), CliError> {
    let client = match context.connect_running_daemon().await {
        Ok(client) => client,
        Err(ClientError::NoDaemon(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let status = match client.call(HttpStatusRequest {}).await {
        Ok(status) => status,
        // An older daemon does not know the request, and serves no HTTP.
        Err(ClientError::Refused(_)) => HttpStatusReply::default(),
        Err(error) => return Err(error.into()),
    };
    if status.is_server {
        let urls: Vec<&str> = status.listeners.iter().map(|one| one.url.as_str()).collect();
        let urls = urls.join(", ");
        let pid = client.daemon_pid();
        let text = format!("another `brigade serve` (pid {pid}) has this state: {urls}");
        return Err(CliError::new(CliExitCode::STATE_DIR_TAKEN, text));
    }
    hand_over(&client).await
}

/// Prints the addresses, and the commands that connect coding agents.
pub(super) fn print_listeners(
    context: &CliContext,
    listeners: &[HttpListenerInfo],
) -> Result<(), CliError> {
    let serving = listeners.iter().find(|listener| !listener.is_for_dashboard);
    let public_url = serving.and_then(|listener| listener.public_url.as_ref());
    if context.json {
        let urls: Vec<&str> = listeners.iter().map(|listener| listener.url.as_str()).collect();
        let mut printed = serde_json::json!({ "urls": urls });
        if let Some(url) = public_url {
            printed["public_url"] = url.as_str().into();
        }
        if let Some(serving) = serving.filter(|listener| !listener.agents.is_empty()) {
            printed["a2a_agents"] = serving.agents.clone().into();
        }
        return render::print_json(&printed);
    }
    for listener in listeners {
        render::print_line(render_listener(listener))?;
    }
    let Some(url) = public_url.or(serving.map(|listener| &listener.url)) else { return Ok(()) };
    let agents = match serving.map(|listener| listener.agents.as_slice()) {
        Some([]) | None => String::new(),
        Some(agents) => render_agents(agents, url),
    };
    render::print_line(format!(
        "\ndashboard:    brigade dashboard\n{agents}\
         \nRun these in a project's directory. Their tokens act in the session of that directory.\n\
         Claude Code:  claude mcp add --transport http brigade {url}/mcp \\\n\
         \x20               --header \"Authorization: Bearer $(brigade token add --client claude)\"\n\
         Codex:        export BRIGADE_TOKEN=\"$(brigade token add --client codex)\"\n\
         \x20             codex mcp add brigade --url {url}/mcp --bearer-token-env-var BRIGADE_TOKEN"
    ))
}

/// Renders the published agents with their URLs, and the command that creates a token for them.
fn render_agents(agents: &[String], url: &str) -> String {
    let urls: Vec<String> = agents.iter().map(|agent| format!("{url}/a2a/{agent}")).collect();
    format!(
        "A2A agents:   {}\n\
         \x20             token: brigade token add --client NAME\n",
        urls.join("\n              ")
    )
}

fn render_listener(listener: &HttpListenerInfo) -> String {
    let HttpListenerInfo { url, public_url, is_for_dashboard, .. } = listener;
    match public_url {
        _ if *is_for_dashboard => {
            format!("listening on {url}, the stored address of `brigade dashboard`")
        }
        Some(public_url) if public_url != url => format!("listening on {url} as {public_url}"),
        _ => format!("listening on {url}"),
    }
}

#[cfg(test)]
mod tests {
    use brigade_agent::definition::Definition;

    use super::*;

    #[test]
    fn a_published_definition_with_a_worktree_is_named() {
        let mut definitions = DefinitionSet::default();
        for (name, worktree) in [("fixer", true), ("reviewer", false), ("other", true)] {
            let definition = Definition::new(name).description("x").prompt("x");
            definitions.add(Definition { worktree, ..definition }).expect("a definition");
        }
        let published = ["fixer", "reviewer", "unknown"].map(str::to_owned);
        let warnings = render_worktree_warnings(&published, &definitions);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let expect = "fixer has `worktree: true`, and only the operator starts agents";
        assert!(warnings[0].starts_with(expect), "{warnings:?}");
    }
}
