//! The MCP bridge without the command line: `mcp_bridge STATE_FOLDER SESSION [CLIENT]` serves on standard
//! input and output, and starts itself as the daemon (`mcp_bridge STATE_FOLDER --daemon`) when there is none.
//! Agents play the script in the file `script` beside the state folder, if there is one.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brigade_llm::{Script, ScriptedModel};
use brigade_mcp::server::{McpOptions, serve_stdio};
use brigade_protocol::StateDir;
use brigade_protocol::daemon_connector::DaemonConnector;
use brigade_protocol::daemon_launcher::{DaemonLauncher, STATE_DIR_TAKEN_EXIT, StartPolicy};
use brigade_runtime::agents::{ModelProviders, OneModel};
use brigade_runtime::{AgentOptions, ProcessOptions, Runtime};
use brigade_server::daemon::{Daemon, DaemonError, DaemonOptions, StateDirLock};
use brigade_sqlite::SqliteStore;

const DAEMON: &str = "--daemon";
const IDLE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    brigade_process::companion::run_shim_if_requested();
    let mut args = std::env::args_os().skip(1);
    let (Some(folder), Some(what)) = (args.next(), args.next()) else {
        return Err("usage: mcp_bridge STATE_FOLDER SESSION".into());
    };
    let places = StateDir::new(std::path::absolute(PathBuf::from(folder))?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if what == DAEMON {
        // Clients end their servers with the whole process group; the daemon is nobody's.
        let _ = rustix::process::setsid();
        if let Err(error) = runtime.block_on(be_the_daemon(places)) {
            eprintln!("{error}");
            let taken = matches!(error.downcast_ref(), Some(DaemonError::AlreadyRunning { .. }));
            std::process::exit(if taken { STATE_DIR_TAKEN_EXIT.into() } else { 1 });
        }
        return Ok(());
    }
    let session = what.into_string().map_err(|_| "the session is not UTF-8")?;
    let args = vec![places.path().into(), DAEMON.into()];
    let starter = DaemonLauncher {
        state_dir: places,
        program: std::env::current_exe()?,
        args,
        start_policy: StartPolicy::Start,
        notice: |line| eprintln!("{line}"),
    };
    let mut options = McpOptions::new(session, std::env::current_dir()?);
    options.client_name = std::env::args().nth(3);
    runtime.block_on(serve_stdio(DaemonConnector::from(starter), options))?;
    // A read of standard input may be blocked for good.
    runtime.shutdown_background();
    Ok(())
}

async fn be_the_daemon(places: StateDir) -> Result<(), Box<dyn Error>> {
    let claimed = StateDirLock::acquire(&places)?;
    let store = SqliteStore::open(places.store_path())?;
    let processes = ProcessOptions::new(places.path().join("processes"));
    let script = places.path().with_file_name("script");
    let agents = match script.exists() {
        true => {
            let model = Arc::new(ScriptedModel::new(Script::load(&script)?));
            AgentOptions::new(OneModel(model)).model("scripted")
        }
        false => AgentOptions::new(ModelProviders::new()),
    };
    let builder = Runtime::builder().store(store).processes(processes).agents(agents);
    let options = DaemonOptions { idle_timeout: Some(IDLE), ..DaemonOptions::new(places) };
    Daemon::open(claimed, options, builder).await?.run().await?;
    Ok(())
}
