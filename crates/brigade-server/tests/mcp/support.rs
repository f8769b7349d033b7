//! A state folder with a daemon that starts when it is needed, and clients of bridges to it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use brigade_server::StateDir;
use brigade_server::daemon_launcher::DaemonLauncher;
use brigade_server::mcp::{McpOptions, serve};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, DetailedTask,
    Implementation, ProgressNotificationParam, TaskStatusNotificationParams,
};
use rmcp::service::{NotificationContext, RoleClient, RunningService};
use rmcp::{ClientHandler, ServiceExt};
use serde_json::Value;

use crate::halves;

pub(crate) const SESSION: &str = "kitchen";
const PATIENCE: Duration = Duration::from_secs(20);

/// The example that is bridge and daemon, built once.
pub(crate) fn program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--package", "brigade-server", "--example", "mcp_bridge"]);
        assert!(cargo.status().unwrap().success());
        let here = std::env::current_exe().unwrap();
        here.ancestors().nth(2).unwrap().join("examples/mcp_bridge")
    };
    BUILT.get_or_init(build).clone()
}

pub(crate) struct Kitchen {
    folder: tempfile::TempDir,
}

impl Kitchen {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// One whose agents play this script.
    pub(crate) fn playing(script: &str) -> Self {
        let kitchen = Self::new();
        std::fs::write(kitchen.path().join("script"), script).unwrap();
        kitchen
    }

    /// Where commands run.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub(crate) fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// A client with a bridge of its own in this process.
    pub(crate) async fn client(&self, name: &str) -> Client {
        self.client_with(name, ClientCapabilities::default()).await
    }

    pub(crate) async fn client_with(&self, name: &str, capabilities: ClientCapabilities) -> Client {
        let options = McpOptions::new(SESSION, self.path());
        self.client_of(options, ClientConfig::new(capabilities, Implementation::new(name, "1")))
            .await
    }

    /// A client that may steer what others have started.
    pub(crate) async fn client_sharing(&self, name: &str) -> Client {
        let options = McpOptions { shared: true, ..McpOptions::new(SESSION, self.path()) };
        let config = ClientConfig::new(Default::default(), Implementation::new(name, "1"));
        self.client_of(options, config).await
    }

    /// A client whose sub-agents may do this beside the usual.
    pub(crate) async fn client_allowing(&self, name: &str, rule: &str) -> Client {
        let mut options = McpOptions::new(SESSION, self.path());
        options.allow.push(rule.parse().unwrap());
        let config = ClientConfig::new(Default::default(), Implementation::new(name, "1"));
        self.client_of(options, config).await
    }

    /// A client whose user is asked about this, and not through the client.
    pub(crate) async fn client_asking(&self, name: &str, rule: &str) -> Client {
        let mut options = McpOptions::new(SESSION, self.path());
        options.ask.push(rule.parse().unwrap());
        let config = ClientConfig::new(Default::default(), Implementation::new(name, "1"));
        self.client_of(options, config).await
    }

    /// A client whose user can be asked, and is asked about this.
    pub(crate) async fn client_asked_about(&self, name: &str, rule: &str) -> Client {
        let mut options = McpOptions::new(SESSION, self.path());
        options.ask.push(rule.parse().unwrap());
        let capabilities =
            ClientCapabilities::builder().enable_tasks().enable_elicitation().build();
        let config = ClientConfig::new(capabilities, Implementation::new(name, "1"));
        self.client_of(options, config).await
    }

    async fn client_of(&self, options: McpOptions, config: ClientConfig) -> Client {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let starter = DaemonLauncher {
            state_dir: StateDir::new(self.state()),
            program: program(),
            args: vec![self.state().into(), "--daemon".into()],
            may_start: true,
            notice: |line| eprintln!("{line}"),
        };
        let (input, output) = tokio::io::split(theirs);
        #[expect(clippy::disallowed_methods, reason = "it ends with the client's end of the pipe")]
        tokio::spawn(serve(starter, options, input, output));
        let heard = Heard::default();
        let listener = Listener { config, heard: heard.clone() };
        Client { service: listener.serve(ours).await.unwrap(), heard }
    }

    /// A bridge as a process of its own.
    pub(crate) fn bridge(&self) -> Child {
        let mut command = Command::new(program());
        command.arg(self.state()).args([SESSION, "raw"]).current_dir(self.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        command.spawn().unwrap()
    }

    pub(crate) fn daemon_pid(&self) -> Option<u32> {
        let lock = std::fs::read_to_string(self.state().join("daemon.lock")).ok()?;
        lock.lines().next()?.parse().ok()
    }

    /// With no word of farewell.
    pub(crate) fn kill_daemon(&self) {
        if let Some(pid) = self.daemon_pid() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }

    pub(crate) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < PATIENCE, "{what} did not happen");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Kitchen {
    fn drop(&mut self) {
        self.kill_daemon();
    }
}

#[derive(Clone, Default)]
pub(crate) struct Heard {
    pub(crate) progress: Arc<Mutex<Vec<ProgressNotificationParam>>>,
    pub(crate) tasks: Arc<Mutex<Vec<DetailedTask>>>,
}

pub(crate) struct Listener {
    config: ClientConfig,
    heard: Heard,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        self.config.clone()
    }

    async fn on_progress(
        &self,
        said: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.heard.progress.lock().unwrap().push(said);
    }

    async fn on_task_status(
        &self,
        said: TaskStatusNotificationParams,
        _: NotificationContext<RoleClient>,
    ) {
        self.heard.tasks.lock().unwrap().push(said.task);
    }
}

pub(crate) struct Client {
    pub(crate) service: RunningService<RoleClient, Listener>,
    pub(crate) heard: Heard,
}

/// What a tool said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) structured: Value,
    pub(crate) is_error: bool,
}

impl Said {
    pub(crate) fn of(result: &CallToolResult) -> Self {
        let text = result.content.iter().filter_map(|block| block.as_text());
        Self {
            text: text.map(|text| text.text.clone()).collect(),
            structured: result.structured_content.clone().unwrap_or_default(),
            is_error: result.is_error == Some(true),
        }
    }

    #[track_caller]
    pub(crate) fn has(&self, part: &str) -> &Self {
        assert!(self.text.contains(part), "no {part:?} in: {}", self.text);
        self
    }

    /// That it is a refusal of this kind.
    #[track_caller]
    pub(crate) fn refused(&self, kind: &str) -> &Self {
        assert!(self.is_error, "{}", self.text);
        assert_eq!(self.structured["error"]["kind"], kind, "{}", self.text);
        self
    }

    /// The lines of output in the structured half, as they were written.
    pub(crate) fn output(&self) -> String {
        let lines = self.structured["output"].as_array().unwrap().iter();
        lines.map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn address(&self) -> String {
        self.structured["address"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn asked(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

impl Client {
    pub(crate) async fn call(&self, tool: &'static str, arguments: Value) -> Said {
        let said = Said::of(&self.service.call_tool(asked(tool, arguments)).await.unwrap());
        halves::check(&said);
        said
    }

    /// Asks until this is in the answer.
    pub(crate) async fn until(&self, tool: &'static str, arguments: Value, part: &str) -> Said {
        let began = Instant::now();
        loop {
            let said = self.call(tool, arguments.clone()).await;
            if said.text.contains(part) {
                return said;
            }
            assert!(began.elapsed() < PATIENCE, "no {part:?} in: {}", said.text);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
